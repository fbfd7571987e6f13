"""The objects of the cluster, with all that an API server does to them at a write.

Synchronous, in one thread: each call is atomic. What it returns is shared and must not be changed.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import datetime
import json
import secrets
import uuid
from collections.abc import Callable

import errors
import selecting as select
from history import Change, History
from kinds import Kind
from schema import Schemas

SERVER_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp",
                 "deletionGracePeriodSeconds")
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
POD_GRACE = 30


def now(after: float = 0) -> str:
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=after)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    def __init__(self, kinds: dict[str, Kind]):
        self.kinds = kinds
        self.schemas = Schemas(kinds)
        self.version = 1000
        self.objects: dict[str, dict[str, dict[str, dict]]] = {
            plural: collections.defaultdict(dict) for plural in kinds}
        self.histories = {plural: History() for plural in kinds}
        self.by_owner: dict[str, set[tuple[str, str, str]]] = collections.defaultdict(set)
        self.uids: dict[str, tuple[str, str, str]] = {}
        self.callbacks: dict[str, list[Callable]] = collections.defaultdict(list)
        self.pending: collections.deque[tuple[str, Change]] = collections.deque()
        # The collector's: (resource, change) in the order of the writes.
        self.subscribe_all: list[Callable[[str, Change], None]] = []

    # ---- reading ----

    @staticmethod
    def copy(object: dict) -> dict:
        return json.loads(json.dumps(object))

    def get(self, resource: str, namespace: str | None, name: str) -> dict | None:
        space = namespace or "" if self.kinds[resource].namespaced else ""
        return self.objects[resource].get(space, {}).get(name)

    def need(self, resource: str, namespace: str | None, name: str) -> dict:
        found = self.get(resource, namespace, name)
        if found is None:
            raise errors.not_found(self.kinds[resource], name)
        return found

    def list(self, resource: str, namespace: str | None = None,
             selector: str | dict[str, str] = "") -> list[dict]:
        match = select.labels(selector)
        spaces = self.objects[resource]
        found = []
        for space in sorted(spaces) if namespace is None else [namespace]:
            found += [object for _, object in sorted(spaces.get(space, {}).items())]
        return found if match is select.everything else [one for one in found if match(one)]

    def owned(self, uid: str) -> list[tuple[str, dict]]:
        found = []
        for resource, namespace, name in sorted(self.by_owner.get(uid, ())):
            object = self.get(resource, namespace, name)
            if object is not None:
                found.append((resource, object))
        return found

    def subscribe(self, resource: str, callback: Callable[[str, dict, dict | None], None]):
        self.callbacks[resource].append(callback)
        return lambda: self.callbacks[resource].remove(callback)

    # ---- writing ----

    def create(self, resource: str, object: dict, strict: str = "Ignore", dry: bool = False,
               warnings: list[str] | None = None) -> dict:
        kind = self.kinds[resource]
        made = self.copy(object)
        metadata = made.setdefault("metadata", {})
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
            self.check_namespace(kind, metadata)
        else:
            metadata.pop("namespace", None)
        settle_name(kind, metadata)
        for field in (*SERVER_FIELDS, "resourceVersion", "managedFields", "selfLink"):
            metadata.pop(field, None)
        if kind.has_status and kind.custom:
            made.pop("status", None)
        note(warnings, self.schemas.settle(kind, made, strict))
        set_core_defaults(resource, made)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now())
        if kind.custom or resource in ("deployments", "daemonsets", "pods"):
            metadata["generation"] = 1
        self.schemas.check(kind, made)
        if self.get(resource, metadata.get("namespace"), metadata["name"]) is not None:
            raise errors.already_exists(kind, metadata["name"])
        if dry:
            return made
        return self.put(resource, made, None)

    def check_namespace(self, kind: Kind, metadata: dict) -> None:
        space = self.get("namespaces", "", metadata["namespace"])
        if space is None:
            raise errors.not_found(self.kinds["namespaces"], metadata["namespace"])
        if space["metadata"].get("deletionTimestamp"):
            raise errors.forbidden(kind, metadata.get("name", ""),
                                   "unable to create new content in namespace "
                                   f"{metadata['namespace']} because it is being terminated")

    def update(self, resource: str, object: dict, part: str = "", strict: str = "Ignore",
               dry: bool = False, warnings: list[str] | None = None) -> dict:
        kind = self.kinds[resource]
        wanted = self.copy(object)
        given = wanted.setdefault("metadata", {})
        before = self.need(resource, given.get("namespace"), given.get("name", ""))
        metadata = before["metadata"]
        if given.get("resourceVersion") not in (None, "", metadata["resourceVersion"]):
            raise errors.changed(kind, metadata["name"])
        if given.get("uid") not in (None, "", metadata["uid"]):
            raise errors.precondition(kind, metadata["name"], "UID", given["uid"],
                                      metadata["uid"])
        after = self.merge_parts(kind, before, wanted, part)
        note(warnings, self.schemas.settle(kind, after, strict))
        set_core_defaults(resource, after)
        if changes_spec(before, after) and "generation" in metadata:
            after["metadata"]["generation"] = metadata["generation"] + 1
        self.schemas.check(kind, after, before)
        check_fixed(kind, before, after)
        if after == before or dry:
            return after if dry else before
        if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers") \
                and after["metadata"].get("deletionGracePeriodSeconds", 0) == 0:
            return self.drop(resource, after)
        return self.put(resource, after, before)

    def merge_parts(self, kind: Kind, before: dict, wanted: dict, part: str) -> dict:
        """Status and the rest are written apart, where a kind has a status."""
        wanted["apiVersion"], wanted["kind"] = kind.api_version, kind.kind
        if part == "status":
            after = {**self.copy(before), "status": wanted.get("status")}
            if after["status"] is None:
                del after["status"]
            for name in ("labels", "annotations"):
                if name in wanted["metadata"] and not kind.custom:
                    after["metadata"][name] = wanted["metadata"][name]
            return after
        if kind.has_status:
            wanted.pop("status", None)
            if "status" in before:
                wanted["status"] = before["status"]
        kept = before["metadata"]
        for name in ("name", "namespace", "resourceVersion", *SERVER_FIELDS):
            wanted["metadata"].pop(name, None)
            if name in kept:
                wanted["metadata"][name] = kept[name]
        wanted["metadata"].pop("managedFields", None)
        return wanted

    def edit(self, resource: str, namespace: str | None, name: str,
             change: Callable[[dict], object], part: str = "") -> dict | None:
        found = self.get(resource, namespace, name)
        if found is None:
            return None
        wanted = self.copy(found)
        change(wanted)
        return found if wanted == found else self.update(resource, wanted, part)

    def delete(self, resource: str, namespace: str | None, name: str, uid: str | None = None,
               version: str | None = None, propagation: str | None = None,
               grace: int | None = None, dry: bool = False) -> tuple[dict, bool]:
        """The object as it was last, and whether it is gone already."""
        kind = self.kinds[resource]
        before = self.need(resource, namespace, name)
        metadata = before["metadata"]
        if uid and uid != metadata["uid"]:
            raise errors.precondition(kind, name, "UID", uid, metadata["uid"])
        if version and version != metadata["resourceVersion"]:
            raise errors.precondition(kind, name, "ResourceVersion", version,
                                      metadata["resourceVersion"])
        if dry:
            return before, True
        after = self.copy(before)
        finalizers = list(metadata.get("finalizers") or [])
        extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation or "")
        if extra and extra not in finalizers:
            finalizers.append(extra)
        if resource == "namespaces" and "kubernetes" not in finalizers and \
                not metadata.get("deletionTimestamp"):
            finalizers.append("kubernetes")
        seconds = self.grace_of(resource, before, grace)
        if not finalizers and seconds == 0:
            return self.drop(resource, after), True
        mark = after["metadata"]
        if finalizers:
            mark["finalizers"] = finalizers
        already = mark.get("deletionTimestamp")
        if not already or seconds < mark.get("deletionGracePeriodSeconds", 0):
            mark["deletionTimestamp"] = now(seconds)
            mark["deletionGracePeriodSeconds"] = seconds
            if "generation" in mark and not already:
                mark["generation"] += 1
        if resource == "namespaces":
            after["status"] = {"phase": "Terminating"}
        return (before if after == before else self.put(resource, after, before)), False

    @staticmethod
    def grace_of(resource: str, object: dict, grace: int | None) -> int:
        spec = object.get("spec") or {}
        if resource != "pods" or not spec.get("nodeName"):
            return 0
        if (object.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        return spec.get("terminationGracePeriodSeconds", POD_GRACE) if grace is None else grace

    def remove(self, resource: str, namespace: str | None, name: str) -> None:
        """At once, past finalizers and grace."""
        found = self.get(resource, namespace, name)
        if found is not None:
            self.drop(resource, self.copy(found))

    # ---- under the writes ----

    def put(self, resource: str, object: dict, before: dict | None) -> dict:
        self.version += 1
        metadata = object["metadata"]
        metadata["resourceVersion"] = str(self.version)
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        self.objects[resource][key[1]][key[2]] = object
        self.uids[metadata["uid"]] = key
        self.index_owners(key, before, object)
        self.tell(resource, Change(self.version, "MODIFIED" if before else "ADDED", object, before))
        return object

    def drop(self, resource: str, object: dict) -> dict:
        metadata = object["metadata"]
        key = (resource, metadata.get("namespace", ""), metadata["name"])
        before = self.objects[resource][key[1]].pop(key[2])
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.uids.pop(metadata["uid"], None)
        self.index_owners(key, before, None)
        self.tell(resource, Change(self.version, "DELETED", object, before))
        return object

    def index_owners(self, key: tuple[str, str, str], before: dict | None,
                     after: dict | None) -> None:
        for object, add in ((before, False), (after, True)):
            for owner in (object or {}).get("metadata", {}).get("ownerReferences") or []:
                keys = self.by_owner[owner["uid"]]
                (keys.add if add else keys.discard)(key)
                if not keys:
                    del self.by_owner[owner["uid"]]

    def tell(self, resource: str, change: Change) -> None:
        self.histories[resource].add(change)
        if not self.pending:
            asyncio.get_running_loop().call_soon(self.tell_pending)
        self.pending.append((resource, change))

    def tell_pending(self) -> None:
        """Later than the write, so that a controller never sees the middle of another's work."""
        pending, self.pending = self.pending, collections.deque()
        for resource, change in pending:
            for collector in self.subscribe_all:
                collector(resource, change)
            for callback in list(self.callbacks[resource]):
                callback(change.event, change.object, change.before)


def note(warnings: list[str] | None, unknown: list[str]) -> None:
    if warnings is not None:
        warnings += [f'unknown field "{name}"' for name in unknown]


def settle_name(kind: Kind, metadata: dict) -> None:
    if metadata.get("name"):
        return
    if not metadata.get("generateName"):
        raise errors.invalid(kind, "", [("metadata.name", "FieldValueRequired",
                                         "Required value: name or generateName is required")])
    ending = "".join(secrets.choice(LETTERS) for _ in range(5))
    metadata["name"] = metadata["generateName"][:58] + ending


def changes_spec(before: dict, after: dict) -> bool:
    def rest(object: dict) -> dict:
        return {name: value for name, value in object.items()
                if name not in ("metadata", "status")}
    return rest(before) != rest(after)


def check_fixed(kind: Kind, before: dict, after: dict) -> None:
    """What stays as it was made."""
    if before.get("immutable") and kind.plural in ("configmaps", "secrets"):
        for part in ("data", "binaryData", "immutable"):
            if before.get(part) != after.get(part):
                raise errors.invalid(kind, before["metadata"]["name"], [
                    (part, "FieldValueForbidden",
                     "Forbidden: field is immutable when `immutable` is set")])
    if kind.plural == "pods":
        old, new = before.get("spec") or {}, after.get("spec") or {}
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name) and name not in (
                    "nodeName", "tolerations", "activeDeadlineSeconds", "schedulingGates",
                    "terminationGracePeriodSeconds"):
                raise errors.invalid(kind, before["metadata"]["name"], [
                    ("spec", "FieldValueForbidden",
                     "Forbidden: pod updates may not change fields other than "
                     "`spec.containers[*].image`,`spec.initContainers[*].image`,"
                     "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
                     "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 "
                     "if it was previously negative)")])


def set_core_defaults(resource: str, object: dict) -> None:
    if resource == "pods":
        spec = object.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", POD_GRACE)
        spec.setdefault("serviceAccountName", "default")
        object.setdefault("status", {}).setdefault("phase", "Pending")
    elif resource == "secrets":
        import_strings(object)
        object.setdefault("type", "Opaque")
    elif resource == "namespaces":
        object.setdefault("status", {"phase": "Active"})
        labels = object["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = object["metadata"]["name"]


def import_strings(secret: dict) -> None:
    """stringData is for writing only."""
    for name, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[name] = base64.b64encode(str(value).encode()).decode()
