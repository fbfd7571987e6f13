"""Sandboxes: one Pod each, that comes and goes with operatingMode."""
import json

from reconcile import (NAME_HASH, POD_NAME, SYSTEM, TEMPLATE_REF, Queue, condition_of,
                       drop_condition, is_true, key_of, name_hash, owner_of, reference_to,
                       seconds_until, set_condition)

# What a client sees for a moment after its PATCH is the old status, as everywhere.
DELAY = 0.005


def pod_name(sandbox):
    metadata = sandbox["metadata"]
    return (metadata.get("annotations") or {}).get(POD_NAME) or metadata["name"]


def propagated(values):
    """Labels or annotations that reach the Pod: those of the system do not."""
    return {key: value for key, value in (values or {}).items()
            if not key.startswith(SYSTEM) or key == TEMPLATE_REF}


class Sandboxes:
    def __init__(self, world):
        self.world, self.store = world, world.store
        self.queue = Queue(world.cluster, self.reconcile, DELAY)
        self.late = {}  # uid: held until told
        self.stale = set()  # uids whose Suspended stays as it was
        self.store.subscribe("sandboxes", self._on_sandbox)
        self.store.subscribe("pods", self._on_pod)

    def _on_sandbox(self, event, sandbox, before):
        uid = sandbox["metadata"]["uid"]
        if event == "DELETED":
            self.stale.discard(uid)
            return
        mode = sandbox["spec"].get("operatingMode", "Running")
        if before is not None and mode != before["spec"].get("operatingMode", "Running"):
            self.world.begin("resume" if mode == "Running" else "suspend", uid)
            self._strike(sandbox, mode)
        self.queue.add(*key_of(sandbox))

    def _strike(self, sandbox, mode):
        uid = sandbox["metadata"]["uid"]
        strike = self.world.behaviours.strike("sandbox", self.world.names_of_sandbox(sandbox))
        if strike is None:
            return
        if strike.how == "stale-suspended":
            if mode == "Running":
                self.stale.add(uid)
        elif uid not in self.late:
            self.late[uid] = strike
            self.world.start(self._go_on_when_told(uid, *key_of(sandbox)))

    async def _go_on_when_told(self, uid, namespace, name):
        await self.world.behaviours.hold(self.late[uid])
        del self.late[uid]
        self.queue.add(namespace, name)

    def _on_pod(self, _, pod, before):
        for item in (pod, before):
            owner = item and owner_of(item, "Sandbox")
            if owner:
                self.queue.add(item["metadata"]["namespace"], owner["name"])

    # ---- one pass ----

    def reconcile(self, namespace, name):
        sandbox = self.store.get("sandboxes", namespace, name)
        if sandbox is None or sandbox["metadata"].get("deletionTimestamp") or \
                sandbox["metadata"]["uid"] in self.late:
            return
        if self._expire(sandbox):
            return
        pod = self.store.get("pods", namespace, pod_name(sandbox))
        is_ours = pod is not None and \
            (owner_of(pod) or {}).get("uid") == sandbox["metadata"]["uid"]
        if sandbox["spec"].get("operatingMode", "Running") == "Suspended":
            self._suspend(sandbox, pod, is_ours)
        else:
            self._run(sandbox, pod, is_ours)

    def _run(self, sandbox, pod, is_ours):
        error = None
        if pod is None:
            pod, is_ours = self.store.create("pods", self._pod(sandbox)), True
            sandbox = self._note_pod(sandbox)
        elif not is_ours:
            error = f'pod "{pod["metadata"]["name"]}" is not controlled by this sandbox'
        elif not pod["metadata"].get("deletionTimestamp"):
            pod = self._carry_metadata(sandbox, pod)
        before = is_true(sandbox, "Ready")
        after = self._tell(sandbox, pod, error)
        if after is not None and is_true(after, "Ready") and not before:
            self.world.own_time("resume", after["metadata"]["uid"])

    def _suspend(self, sandbox, pod, is_ours):
        namespace, name = key_of(sandbox)
        if is_ours and not pod["metadata"].get("deletionTimestamp"):
            self.store.delete("pods", namespace, pod["metadata"]["name"])
            pod = self.store.get("pods", namespace, pod["metadata"]["name"])
        if pod is None and POD_NAME in (sandbox["metadata"].get("annotations") or {}):
            sandbox = self.store.edit("sandboxes", namespace, name,
                                      lambda item: item["metadata"]["annotations"].pop(POD_NAME))
        before = is_true(sandbox, "Suspended")
        after = self._tell(sandbox, pod, None, is_foreign=pod is not None and not is_ours)
        if after is not None and is_true(after, "Suspended") and not before:
            self.world.own_time("suspend", after["metadata"]["uid"])

    # ---- the Pod ----

    def _pod(self, sandbox):
        template = json.loads(json.dumps(sandbox["spec"]["podTemplate"]))
        metadata = template.get("metadata") or {}
        labels = propagated(metadata.get("labels"))
        labels[NAME_HASH] = name_hash(sandbox["metadata"]["name"])
        return {"metadata": {"name": pod_name(sandbox),
                             "namespace": sandbox["metadata"]["namespace"],
                             "labels": labels,
                             "annotations": propagated(metadata.get("annotations")),
                             "ownerReferences": [reference_to(sandbox)]},
                "spec": template["spec"]}

    def _note_pod(self, sandbox):
        def change(item):
            item["metadata"].setdefault("annotations", {})[POD_NAME] = pod_name(sandbox)
        return self.store.edit("sandboxes", *key_of(sandbox), change)

    def _carry_metadata(self, sandbox, pod):
        """The template's labels and annotations, as they are now, onto the Pod that is there."""
        metadata = sandbox["spec"]["podTemplate"].get("metadata") or {}
        track = SYSTEM + "propagated-"

        def change(item):
            annotations = item["metadata"].setdefault("annotations", {})
            for part in ("labels", "annotations"):
                wanted = propagated(metadata.get(part))
                values = item["metadata"].setdefault(part, {})
                for key in (annotations.get(track + part) or "").split(","):
                    if key and key not in wanted:
                        values.pop(key, None)
                values.update(wanted)
                if wanted:
                    annotations[track + part] = ",".join(sorted(wanted))
                else:
                    annotations.pop(track + part, None)
        return self.store.edit("pods", *key_of(pod), change)

    # ---- what is told ----

    def _tell(self, sandbox, pod, error, is_foreign=False):
        generation = sandbox["metadata"].get("generation", 1)
        is_suspended = sandbox["spec"].get("operatingMode", "Running") == "Suspended"

        def change(item):
            status = item.setdefault("status", {})
            status["selector"] = f"{NAME_HASH}={name_hash(item['metadata']['name'])}"
            status.pop("podIPs", None)
            status.pop("nodeName", None)
            if pod is not None and not is_suspended:
                if (pod.get("status") or {}).get("podIP"):
                    status["podIPs"] = [pod["status"]["podIP"]]
                if pod["spec"].get("nodeName"):
                    status["nodeName"] = pod["spec"]["nodeName"]
            told = [self._ready(pod, is_suspended, error)]
            if not (item["metadata"]["uid"] in self.stale and not is_suspended):
                told.append(self._suspended(pod, is_suspended, is_foreign))
            for kind, value, reason, message in told:
                set_condition(item, kind, value, reason, message, generation)
            self._tell_rest(item, pod, generation)
        return self.store.edit("sandboxes", *key_of(sandbox), change, part="status")

    @staticmethod
    def _ready(pod, is_suspended, error):
        if error:
            return "Ready", False, "ReconcilerError", "Error seen: " + error
        if is_suspended:
            return "Ready", False, "SandboxSuspended", (
                "Sandbox is suspending" if pod is not None else "Sandbox is suspended")
        if pod is None:
            return "Ready", False, "DependenciesNotReady", "Pod does not exist"
        status = pod.get("status") or {}
        phase = status.get("phase", "Pending")
        if phase == "Succeeded":
            return "Ready", False, "PodSucceeded", "Pod completed successfully"
        if phase == "Failed":
            return "Ready", False, "PodFailed", "Pod failed"
        if phase != "Running":
            return "Ready", False, "DependenciesNotReady", f"Pod exists with phase: {phase}"
        if not is_true(pod, "Ready"):
            return "Ready", False, "DependenciesNotReady", "Pod is Running but not Ready"
        if not status.get("podIP"):
            return "Ready", False, "DependenciesNotReady", "Pod is Ready but has no podIPs yet"
        return "Ready", True, "DependenciesReady", "Pod is Ready"

    @staticmethod
    def _suspended(pod, is_suspended, is_foreign):
        if not is_suspended:
            return "Suspended", False, "NotSuspended", "Sandbox is not suspended"
        if is_foreign:
            return "Suspended", False, "PodNotOwned", \
                f'Refused to delete pod "{pod["metadata"]["name"]}"'
        if pod is not None:
            return "Suspended", False, "PodTerminating", "Pod is terminating. Sandbox is suspending"
        return "Suspended", True, "PodTerminated", "Pod has been terminated. Sandbox is suspended"

    @staticmethod
    def _tell_rest(item, pod, generation):
        """Finished and PodScheduled, which are not always there."""
        phase = ((pod or {}).get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            set_condition(item, "Finished", True, "Pod" + phase,
                          "Pod completed successfully" if phase == "Succeeded" else "Pod failed",
                          generation)
        else:
            drop_condition(item, "Finished")
        scheduled = pod and condition_of(pod, "PodScheduled")
        if pod is None:
            drop_condition(item, "PodScheduled")
        elif scheduled:
            set_condition(item, "PodScheduled", scheduled["status"],
                          scheduled.get("reason") or "PodScheduled", scheduled.get("message") or "",
                          generation)
        else:
            set_condition(item, "PodScheduled", "Unknown", "PodSchedulingUnknown", "", generation)

    def _expire(self, sandbox):
        """True: it is over. The condition comes first, the Pod goes in the next pass."""
        namespace, name = key_of(sandbox)
        if not sandbox["spec"].get("shutdownTime"):
            return False
        left = seconds_until(sandbox["spec"]["shutdownTime"])
        if left > 0:
            self.queue.later(left, namespace, name)
            return False
        generation = sandbox["metadata"].get("generation", 1)
        if (condition_of(sandbox, "Ready") or {}).get("reason") != "SandboxExpired":
            self.store.edit("sandboxes", namespace, name, lambda item: set_condition(
                item, "Ready", False, "SandboxExpired", "Sandbox has expired", generation),
                part="status")
            return True
        pod = self.store.get("pods", namespace, pod_name(sandbox))
        if pod is not None:
            if not pod["metadata"].get("deletionTimestamp"):
                self.store.delete("pods", namespace, pod["metadata"]["name"])
            return True
        if sandbox["spec"].get("shutdownPolicy", "Retain") == "Delete":
            self.store.delete("sandboxes", namespace, name)
            return True

        def clear(item):
            item["status"] = {"conditions": [one for one in item["status"]["conditions"]
                                             if one["type"] in ("Ready", "Finished")]}
        self.store.edit("sandboxes", namespace, name, clear, part="status")
        return True
