"""What all controllers share: a queue of names, conditions, hashes, owners."""
import asyncio
import datetime
import os
import traceback

from errors import ApiError

SYSTEM = "agents.x-k8s.io/"
NAME_HASH = SYSTEM + "sandbox-name-hash"
POOL_LABEL = SYSTEM + "warm-pool-sandbox"
TEMPLATE_REF = SYSTEM + "sandbox-template-ref-hash"
TEMPLATE_HASH = SYSTEM + "sandbox-template-hash"
POD_NAME = SYSTEM + "pod-name"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_until(time):
    """Of an RFC 3339 time; negative once it has passed."""
    moment = datetime.datetime.fromisoformat(time.replace("Z", "+00:00"))
    return (moment - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def name_hash(text):
    """FNV-1a, 32 bits."""
    value = 0x811c9dc5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xffffffff
    return f"{value:08x}"


def condition_of(item, kind):
    for condition in (item.get("status") or {}).get("conditions") or []:
        if condition["type"] == kind:
            return condition
    return None


def is_true(item, kind):
    condition = condition_of(item, kind)
    return condition is not None and condition["status"] == "True"


def set_condition(item, kind, status, reason, message="", generation=None):
    """Of a copy. The time moves with the status only."""
    conditions = item.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": kind, "status": {True: "True", False: "False"}.get(status, status),
              "reason": reason, "message": message, "lastTransitionTime": now()}
    if generation is not None:
        wanted["observedGeneration"] = generation
    for number, present in enumerate(conditions):
        if present["type"] == kind:
            if present["status"] == wanted["status"]:
                wanted["lastTransitionTime"] = present.get("lastTransitionTime",
                                                           wanted["lastTransitionTime"])
            conditions[number] = wanted
            return
    conditions.append(wanted)


def drop_condition(item, kind):
    status = item.setdefault("status", {})
    status["conditions"] = [one for one in status.get("conditions") or [] if one["type"] != kind]


def owner_of(item, kind=None):
    """The controlling owner's reference."""
    for owner in item["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and (kind is None or owner["kind"] == kind):
            return owner
    return None


def reference_to(item):
    return {"apiVersion": item["apiVersion"], "kind": item["kind"],
            "name": item["metadata"]["name"], "uid": item["metadata"]["uid"],
            "controller": True, "blockOwnerDeletion": True}


def key_of(item):
    return item["metadata"]["namespace"], item["metadata"]["name"]


class Queue:
    """Calls `work(namespace, name)` for each name that was added, once for many additions."""

    def __init__(self, cluster, work, delay=0):
        self.cluster, self.work, self.delay = cluster, work, delay
        self.waiting, self.timers, self.is_set, self.errors = {}, {}, False, 0

    def add(self, namespace, name):
        self.waiting[namespace, name] = True
        if not self.is_set:
            self.is_set = True
            asyncio.get_running_loop().call_later(self.delay, self._run)

    def later(self, seconds, namespace, name):
        """At the latest then; an earlier moment that is set already stays."""
        loop = asyncio.get_running_loop()
        key, moment = (namespace, name), loop.time() + max(0, seconds)
        timer = self.timers.get(key)
        if timer is not None and timer.when() <= moment:
            return
        if timer is not None:
            timer.cancel()

        def due():
            self.timers.pop(key, None)
            self.add(namespace, name)
        self.timers[key] = loop.call_at(moment, due)

    def _run(self):
        self.is_set = False
        waiting, self.waiting = self.waiting, {}
        for namespace, name in waiting:
            try:
                self.work(namespace, name)
            except ApiError as error:
                if error.code != 409:
                    self._complain()
                self.later(0.01 if error.code == 409 else 0.2, namespace, name)
            except Exception:  # pylint: disable=broad-except
                self._complain()

    def _complain(self):
        self.errors += 1
        complain(self.cluster)


def complain(cluster):
    """A mistake of the double itself: told in the state and in a file."""
    if not os.path.isdir(cluster.directory):
        return  # whoever took the folder away wants an end of all this
    with open(f"{cluster.directory}/controller-errors", "a", encoding="utf-8") as file:
        file.write(traceback.format_exc() + "\n")
