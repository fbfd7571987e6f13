"""What a client does with a workspace, in plain requests."""

import itertools

from conftest import CLAIMS, CORE, SANDBOXES, SNAPSHOTS, claim, path_of

NUMBERS = itertools.count(1)


def condition(item, kind):
    """(status, reason), or (None, None)."""
    for one in (item.get("status") or {}).get("conditions") or []:
        if one["type"] == kind:
            return one["status"], one["reason"]
    return None, None


def message(item, kind):
    return next(one["message"] for one in item["status"]["conditions"] if one["type"] == kind)


class Workspace:
    """A claim and all that is below it."""

    def __init__(self, double, name=None, pool="standard", is_ready=True, **spec):
        self.double, self.name = double, name or f"w-{next(NUMBERS)}"
        self.made = double.make("sandboxclaims", self.name, CLAIMS, **claim(pool, **spec))
        self.triggers = itertools.count(1)
        if is_ready:
            self.await_ready()

    # ---- looking ----

    def claim(self):
        return self.double.get(path_of("sandboxclaims", CLAIMS, self.name)).json

    def sandbox_name(self):
        return self.claim()["status"]["sandbox"]["name"]

    def sandbox(self):
        return self.double.get(path_of("sandboxes", SANDBOXES, self.sandbox_name())).json

    def pod_path(self):
        return path_of("pods", CORE, self.sandbox_name())

    def pod(self):
        """None where there is none."""
        answer = self.double.get(self.pod_path())
        return answer.json if answer.code == 200 else None

    def snapshot(self, name):
        answer = self.double.get(path_of("podsnapshots", SNAPSHOTS, name))
        return answer.json if answer.code == 200 else None

    def snapshots(self):
        return self.double.get(path_of("podsnapshots", SNAPSHOTS)).json["items"]

    def trigger(self, name):
        return self.double.get(path_of("podsnapshotmanualtriggers", SNAPSHOTS, name)).json

    def events(self, reason="GKEPodSnapshotting"):
        answer = self.double.get(path_of("events"),
                                 fieldSelector=f"involvedObject.name={self.sandbox_name()}").json
        return [one["message"] for one in answer["items"] if one["reason"] == reason]

    # ---- waiting ----

    def until(self, question, what="it"):
        return self.double.await_true(question, f"{self.name}: {what}")

    def await_ready(self):
        self.until(lambda: condition(self.claim(), "Ready")[0] == "True", "the claim is ready")
        return self.await_running()

    def is_running(self):
        sandbox = self.sandbox()
        ready = next((one for one in sandbox.get("status", {}).get("conditions", [])
                      if one["type"] == "Ready"), None)
        return ready is not None and ready["status"] == "True" and \
            ready["observedGeneration"] == sandbox["metadata"]["generation"]

    def await_running(self):
        self.until(self.is_running, "the Sandbox is ready")
        return self.pod()

    # ---- doing ----

    def mode(self, mode):
        answer = self.double.patch(path_of("sandboxes", SANDBOXES, self.sandbox_name()),
                                   {"spec": {"operatingMode": mode}})
        assert answer.code == 200, answer.body
        return answer.json

    def make_trigger(self):
        name = f"{self.name}-{next(self.triggers)}"
        self.double.make("podsnapshotmanualtriggers", name, SNAPSHOTS,
                         spec={"targetPod": self.sandbox_name()})
        return name

    def await_triggered(self, name):
        """The condition, and the PodSnapshot's name."""
        trigger = self.until(lambda: condition(self.trigger(name), "Triggered")[0] and
                             self.trigger(name), "the trigger is served")
        return condition(trigger, "Triggered"), \
            trigger["status"].get("snapshotCreated", {}).get("name")

    def take(self):
        """A snapshot that is ready: its name."""
        told, name = self.await_triggered(self.make_trigger())
        assert told == ("True", "Complete")
        self.until(lambda: condition(self.snapshot(name), "Ready")[0] == "True", "it is ready")
        return name

    def suspend(self):
        self.mode("Suspended")
        self.until(lambda: condition(self.sandbox(), "Suspended")[0] == "True", "it is suspended")

    def resume(self):
        self.mode("Running")
        return self.await_running()

    def pin(self, name):
        """On the claim, and waits until the Sandbox has it. None: no pin."""
        wanted = {"annotations": {"podsnapshot.gke.io/ps-name": name}}
        answer = self.double.patch(path_of("sandboxclaims", CLAIMS, self.name),
                                   {"spec": {"additionalPodMetadata": wanted}})
        assert answer.code == 200, answer.body

        def has_it():
            metadata = self.sandbox()["spec"]["podTemplate"]["metadata"]
            return (metadata.get("annotations") or {}).get("podsnapshot.gke.io/ps-name") == name
        self.until(has_it, "the pin is on the Sandbox")

    def behave(self, how, **more):
        return self.double.tell(do="behave", object=self.name, how=how, **more)

    def remove(self):
        answer = self.double.ask("DELETE", path_of("sandboxclaims", CLAIMS, self.name))
        assert answer.code == 200, answer.body


def restored(pod):
    """What the Pod says of its restore: (status, the whole text), or None."""
    for one in pod["status"]["conditions"]:
        if one["type"] == "PodRestored":
            return one["status"], one["message"]
    return None


def uid(item):
    return item["metadata"]["uid"]
