"""Pod snapshots: from a trigger to a PodSnapshot that is ready, kept, pruned and deleted."""
import asyncio
import os
import shutil
import uuid

import bodies
import restores
from errors import ApiError
from reconcile import is_true, key_of, now, set_condition

FINALIZER = "podsnapshot.gke.io/podsnapshot-finalizer"
PREFIX = "podsnapshot.gke.io/"
TRIGGERED_BY = "gke-pod-snapshot-triggered-by"
UPLOAD_SECONDS = 0.02
UNAVAILABLE = "the storage backend may not be available"


class Image:
    """The stored side of a PodSnapshot."""

    def __init__(self, number, directory, pod, group):
        self.number, self.name = number, str(uuid.uuid4())
        self.namespace, self.group = pod["metadata"]["namespace"], group
        self.hash, self.pod_uid = restores.spec_hash(pod), pod["metadata"]["uid"]
        self.directory = os.path.join(directory, self.name)
        self.names = []  # that a test may know it by, while its Pod is gone
        self.body = None  # of Pods that run as processes: the processes themselves
        os.makedirs(self.directory)

    def is_ready(self, store):
        found = store.get("podsnapshots", self.namespace, self.name)
        return found is not None and not found["metadata"].get("deletionTimestamp") and \
            is_true(found, "Ready")


class Snapshots:
    def __init__(self, world):
        self.world, self.store = world, world.store
        self.images, self.number = {}, 0
        self.removing = set()
        self.directory = os.path.join(world.cluster.directory, "bucket")
        os.makedirs(self.directory, exist_ok=True)
        self.store.subscribe("podsnapshotmanualtriggers", self._on_trigger)
        self.store.subscribe("podsnapshots", self._on_snapshot)
        for resource in ("podsnapshotpolicies", "podsnapshotstorageconfigs"):
            self.store.subscribe(resource, self._on_setting(resource))

    def _on_setting(self, resource):
        def tell(event, item, _):
            if event != "ADDED":
                return
            metadata = item["metadata"]
            generation = metadata.get("generation", 1)
            self.store.edit(resource, metadata.get("namespace"), metadata["name"],
                            lambda copy: set_condition(copy, "Ready", True, "Ready", "",
                                                       generation), part="status")
        return tell

    def _on_trigger(self, event, trigger, _):
        if event == "ADDED":
            self.world.begin("snapshot", trigger["metadata"]["uid"])
            self.world.start(self.serve(trigger))

    def _on_snapshot(self, event, snapshot, _):
        namespace, name = key_of(snapshot)
        if event == "DELETED":
            self.world.start(self._forget(name))
        elif snapshot["metadata"].get("deletionTimestamp") and name not in self.removing:
            self.removing.add(name)
            self.world.start(self._remove(namespace, name))

    def names(self, image):
        return [image.name, *image.names]

    # ---- taking one ----

    async def serve(self, trigger):
        namespace, name = key_of(trigger)
        target = trigger["spec"]["targetPod"]
        names = [name, *self.world.names_of(namespace, target)]
        strike = self.world.behaviours.strike("trigger", names)
        if strike and strike.how in ("trigger-never", "trigger-late"):
            await self.world.behaviours.hold(strike)
        pod = self.store.get("pods", namespace, target)
        policy = pod and restores.policy_of(self.store, pod)
        refused = self._why_not(pod, policy, target)
        if strike and strike.how == "storage-unavailable":
            refused = UNAVAILABLE
        if refused:
            self._tell_trigger(trigger, False, "Failed", refused)
            return
        self.store.edit("podsnapshotmanualtriggers", namespace, name, lambda item: item["metadata"]
                        .setdefault("labels", {}).update({PREFIX + "targetNode":
                                                          pod["spec"]["nodeName"]}))
        image = self._make(trigger, pod, policy)
        image.names = names
        failed = strike.text("message", "context deadline exceeded") \
            if strike and strike.how == "trigger-failed" else None
        if failed is None:
            try:
                await self.world.pods.of(pod).body.checkpoint(image)
            except (bodies.StartFailed, OSError) as error:
                failed = "runsc error: " + str(error)
        if failed is not None:
            self._tell(image, "Checkpoint", False, "Failed", failed)
            self._tell(image, "Ready", False, "Failed", failed)
            reason = strike.text("reason", "Failed") if strike else "Failed"
            self._tell_trigger(trigger, False, reason, failed, image)
            return
        self._tell(image, "Checkpoint", True, "Succeeded", "")
        self._tell_trigger(trigger, True, "Complete", "checkpoint completed successfully", image)
        self.world.cluster.event(pod, "Normal", "GKEPodSnapshotting", "Successfully checkpointed "
                                 f"the pod to PodSnapshot {namespace}/{image.name}")
        if policy["spec"]["triggerConfig"].get("postCheckpoint") == "stop":
            self.world.pods.of(pod).over("Succeeded", "", "")
        await self._upload(image, trigger, self.names(image))

    def _why_not(self, pod, policy, target):
        worker = pod and self.world.pods.of(pod)
        if pod is None:
            return f'pods "{target}" not found'
        if (pod.get("status") or {}).get("phase") != "Running" or not worker or not worker.body or \
                pod["metadata"].get("deletionTimestamp"):
            return f'pod "{target}" is not running'
        if policy is None:
            return f'no PodSnapshotPolicy matches pod "{target}"'
        storage = policy["spec"]["storageConfigName"]
        if self.store.get("podsnapshotstorageconfigs", None, storage) is None:
            return f'PodSnapshotStorageConfig "{storage}" not found'
        return None if worker.has_agent else UNAVAILABLE

    def _make(self, trigger, pod, policy):
        labels = pod["metadata"].get("labels") or {}
        group = {key: labels.get(key) for key in restores.group_labels(policy)}
        self.number += 1
        image = Image(self.number, self.directory, pod, group)
        self._prune(image, policy)
        self.images[image.name] = image
        self.store.create("podsnapshots", {
            "metadata": {
                "name": image.name, "namespace": image.namespace, "finalizers": [FINALIZER],
                "labels": {**{key: value for key, value in group.items() if value is not None},
                           TRIGGERED_BY: trigger["metadata"]["name"]},
                "annotations": {PREFIX + "origin-pod": pod["metadata"]["name"],
                                PREFIX + "origin-node": pod["spec"]["nodeName"]}},
            "spec": {"policyName": policy["metadata"]["name"]}})
        for kind in ("Checkpoint", "StorageReplicated", "Ready"):
            self._tell(image, kind, False, "AwaitingCheckpoint", "")
        return image

    def _prune(self, image, policy):
        """The oldest of the group go, at the attempt already and not only once it has succeeded."""
        limit = restores.retention(policy)
        if not limit:
            return
        group = sorted((one for one in self.images.values() if one.namespace == image.namespace and
                        one.group == image.group and one.name not in self.removing),
                       key=lambda one: one.number)
        for old in group[:max(0, len(group) + 1 - limit)]:
            try:
                self.store.delete("podsnapshots", old.namespace, old.name)
            except ApiError:
                pass  # somebody was quicker

    async def _upload(self, image, trigger, names):
        self._tell(image, "StorageReplicated", False, "InProgress", "")
        strike = self.world.behaviours.strike("upload", names)
        if strike and strike.how != "snapshot-failed":
            await self.world.behaviours.hold(strike)
        await asyncio.sleep(UPLOAD_SECONDS)
        failed = strike.text("message", UNAVAILABLE) if strike and strike.how == "snapshot-failed" \
            else None
        worker = self.world.pods.workers.get(image.pod_uid)
        if worker is None or worker.deleting.is_set():
            failed = "the pod was deleted before its snapshot was stored"
        if failed is not None:
            self._tell(image, "StorageReplicated", False, "Failed", failed)
            self._tell(image, "Ready", False, "Failed", failed)
            return
        storage = self.store.get("podsnapshotstorageconfigs", None, self._policy(image)["spec"]
                                 ["storageConfigName"]) if self._policy(image) else None
        gcs = ((storage or {}).get("spec") or {}).get("snapshotStorageConfig", {}).get("gcs", {})
        path = "/".join(["gs:/", gcs.get("bucket", "bucket"), *filter(None, [gcs.get("path")]),
                         image.namespace, image.name])
        self._tell(image, "StorageReplicated", True, "Succeeded", "", path)
        self._tell(image, "Ready", True, "AllSnapshotsAvailable", "")
        self.world.own_time("snapshot", trigger["metadata"]["uid"])

    def _policy(self, image):
        found = self.store.get("podsnapshots", image.namespace, image.name)
        return found and self.store.get("podsnapshotpolicies", image.namespace,
                                        found["spec"]["policyName"])

    # ---- what is told ----

    def _tell(self, image, kind, status, reason, message, path=None):
        def change(item):
            if item["metadata"].get("deletionTimestamp") and reason != "Deleting":
                return
            generation = item["metadata"].get("generation", 1)
            set_condition(item, kind, status, reason, message, generation)
            item["status"]["observedGeneration"] = generation
            if path:
                item["status"]["storageStatus"] = {"gcs": {"observedGCSPath": path}}
        self.store.edit("podsnapshots", image.namespace, image.name, change, part="status")

    def _tell_trigger(self, trigger, is_done, reason, message, image=None):
        def change(item):
            set_condition(item, "Triggered", is_done, reason, message)
            item["status"]["observedGeneration"] = item["metadata"].get("generation", 1)
            if is_done and image is not None:
                item["status"]["snapshotCreated"] = {"name": image.name}
        self.store.edit("podsnapshotmanualtriggers", *key_of(trigger), change, part="status")

    def lose(self, image):
        """What is stored is not there any more."""
        self._tell(image, "Ready", False, "Failed", "the stored objects are missing")

    # ---- restoring and removing ----

    async def bring_back(self, image, pod):
        """A body with its memory; None where its processes have gone on since."""
        self.store.edit("podsnapshots", image.namespace, image.name,
                        lambda item: item.setdefault("status", {}).update(lastAccessTime=now()),
                        part="status")
        if not self.world.runner.body.can_freeze:
            body = self.world.runner.make(pod)
            try:
                await body.restore(image)
            except (bodies.StartFailed, OSError):
                body.remove()
                raise
            return body
        body = image.body
        if body is not None and body.holder is not None and body.holder.deleting.is_set():
            await body.holder.finished.wait()
        if image.body is None or body.holder is not None or body.ended.done():
            return None
        await body.continue_as(pod)
        return body

    async def _remove(self, namespace, name):
        image, strike = self.images.get(name), None
        if image is not None:
            self._tell(image, "Ready", False, "Deleting", "")
            strike = self.world.behaviours.strike("remove", self.names(image))
        if strike is not None:
            await self.world.behaviours.hold(strike)
        await self._forget(name)

        def release(item):
            left = item["metadata"].get("finalizers") or []
            item["metadata"]["finalizers"] = [one for one in left if one != FINALIZER]
        self.store.edit("podsnapshots", namespace, name, release)
        self.removing.discard(name)

    async def _forget(self, name):
        image = self.images.pop(name, None)
        if image is None:
            return
        body, image.body = image.body, None
        if body is not None and body.holder is None and \
                not any(other.body is body for other in self.images.values()):
            await body.stop()
            body.remove()
        shutil.rmtree(image.directory, ignore_errors=True)
