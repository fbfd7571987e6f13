"""Which snapshot a new Pod is made from, and what is told of it."""
import hashlib
import json

from reconcile import set_condition

PS_NAME = "podsnapshot.gke.io/ps-name"
IGNORED = ("env", "resources", "name", "readinessProbe", "livenessProbe", "imagePullPolicy")


def spec_hash(pod):
    """The distilled spec: what decides whether a snapshot fits. Not env, resources, nodes."""
    spec = pod["spec"]
    containers = [{key: value for key, value in one.items() if key not in IGNORED}
                  for one in (spec.get("initContainers") or []) + spec["containers"]]
    text = json.dumps([containers, spec.get("volumes"), spec.get("securityContext"),
                       spec.get("runtimeClassName")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def matches(selector, labels):
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or []:
        value, values = labels.get(rule["key"]), rule.get("values") or []
        good = {"In": value in values, "NotIn": value not in values,
                "Exists": value is not None, "DoesNotExist": value is None}[rule["operator"]]
        if not good:
            return False
    return True


def policy_of(store, pod):
    labels = pod["metadata"].get("labels") or {}
    for policy in store.list("podsnapshotpolicies", pod["metadata"]["namespace"]):
        if not policy["metadata"].get("deletionTimestamp") and \
                matches(policy["spec"]["selector"], labels):
            return policy
    return None


def group_labels(policy):
    rules = (policy["spec"].get("snapshotGroupingRules") or {}).get("groupByLabelValue") or {}
    return rules.get("labels") or []


def retention(policy):
    """How many of a group are kept; 0: all."""
    rules = (policy["spec"].get("snapshotGroupingRules") or {}).get("groupByLabelValue") or {}
    return (rules.get("groupRetentionPolicy") or {}).get("maxSnapshotCountPerGroup") or 0


class Choice:
    """What a Pod starts from, and the lies about it."""

    def __init__(self, image=None, names=None, strike=None):
        self.image, self.strike = image, strike
        self.told = names  # the PodSnapshot that the condition names
        self.how = strike.how if strike else ""


def choose(world, pod):
    """The right one, unless a behaviour says otherwise."""
    right = _right(world, pod)
    if right is None:
        return Choice()
    strike = world.behaviours.strike("restore", world.names_of_pod(pod))
    if strike is None or strike.how == "crash":
        return Choice(right, right.name, strike)
    if strike.how in ("other-snapshot", "foreign-snapshot"):
        other = _other(world, right, strike)
        return Choice(other, other.name if other else None, strike)
    return Choice(None, right.name if strike.how == "cold-lying" else None, strike)


def _right(world, pod):
    policy = policy_of(world.store, pod)
    if policy is None:
        return None
    wanted = (pod["metadata"].get("annotations") or {}).get(PS_NAME)
    if wanted == "":
        return None
    labels = pod["metadata"].get("labels") or {}
    group = {key: labels.get(key) for key in group_labels(policy)}
    fitting = [image for image in world.snapshots.images.values()
               if image.namespace == pod["metadata"]["namespace"] and image.is_ready(world.store)
               and image.group == group and image.hash == spec_hash(pod)
               and wanted in (None, image.name)]
    return max(fitting, key=lambda image: image.number, default=None)


def _other(world, right, strike):
    def may(image):
        is_same = image.group == right.group
        return image is not right and image.is_ready(world.store) and \
            is_same == (strike.how == "other-snapshot")
    return max(filter(may, world.snapshots.images.values()), key=lambda image: image.number,
               default=None)


async def tell(world, pod, choice, went_cold):
    """The condition and the event; `went_cold`: why what was chosen was not restored."""
    namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
    strike = world.behaviours.strike("condition", world.names_of_pod(pod)) if choice.told else None
    how = strike.how if strike else ""
    if went_cold or choice.how == "cold-event":
        world.cluster.event(pod, "Warning", "GKEPodSnapshotting",
                            f"{went_cold or 'the snapshot could not be restored'}, falling back to "
                            f"a cold start of pod: {namespace}/{name}")
    if choice.told is None or went_cold or how == "condition-absent":
        return
    if how == "condition-late":
        await world.behaviours.hold(strike)
    told, is_restored = choice.told, how != "condition-false"
    if how == "condition-other":
        told = strike.text("name", "00000000-0000-4000-8000-000000000000")
    text = (f"Successfully restored the pod from PodSnapshot {namespace}/{told}" if is_restored else
            strike.text("message", f"failed to restore from PodSnapshot {namespace}/{told}"))

    def change(item):
        if item["metadata"]["uid"] == uid:
            set_condition(item, "PodRestored", is_restored,
                          "RestoreSucceeded" if is_restored else "RestoreFailed", text)
    world.store.edit("pods", namespace, name, change, part="status")
    if is_restored:
        world.cluster.event(pod, "Normal", "GKEPodSnapshotting", text)

