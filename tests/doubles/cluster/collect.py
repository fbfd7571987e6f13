"""The garbage collector: dependents of what is gone, foreground deletion, ends of namespaces."""

from __future__ import annotations

from errors import ApiError
from history import Change


class Collector:
    def __init__(self, store):
        self.store = store
        store.subscribe_all.append(self.see)

    def see(self, resource: str, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.event == "DELETED":
            self.owner_gone(metadata["uid"])
            for owner in metadata.get("ownerReferences") or []:
                self.look_at_owner(owner["uid"])
            if metadata.get("namespace"):
                self.look_at_namespace(metadata["namespace"])
            return
        if metadata.get("ownerReferences"):
            self.drop_if_orphaned(resource, metadata["namespace"] if "namespace" in metadata else "",
                                  metadata["name"])
        if metadata.get("deletionTimestamp"):
            self.look_at_owner(metadata["uid"])
            for owner in metadata.get("ownerReferences") or []:
                self.look_at_owner(owner["uid"])
            if resource == "namespaces":
                self.look_at_namespace(metadata["name"])

    def owner_gone(self, uid: str) -> None:
        for resource, object in self.store.owned(uid):
            metadata = object["metadata"]
            self.drop_if_orphaned(resource, metadata.get("namespace", ""), metadata["name"])

    def drop_if_orphaned(self, resource: str, namespace: str, name: str) -> None:
        """Deleted once no owner is left; one that is gone among others is struck out."""
        object = self.store.get(resource, namespace, name)
        if object is None or object["metadata"].get("deletionTimestamp"):
            return
        owners = object["metadata"].get("ownerReferences") or []
        left = [owner for owner in owners if owner["uid"] in self.store.uids]
        if not owners or len(left) == len(owners):
            return
        if left:
            self.store.edit(resource, namespace, name,
                            lambda copy: copy["metadata"].update(ownerReferences=left))
        else:
            self.delete(resource, object, "Background")

    def delete(self, resource: str, object: dict, propagation: str) -> None:
        metadata = object["metadata"]
        try:
            self.store.delete(resource, metadata.get("namespace"), metadata["name"],
                              uid=metadata["uid"], propagation=propagation)
        except ApiError:
            pass  # somebody else was quicker

    def look_at_owner(self, uid: str) -> None:
        """Goes on with a deletion in the foreground, or one that leaves orphans."""
        key = self.store.uids.get(uid)
        owner = self.store.get(*key) if key else None
        finalizers = (owner or {}).get("metadata", {}).get("finalizers") or []
        if "orphan" in finalizers:
            for resource, object in self.store.owned(uid):
                self.let_go(resource, object, uid)
            self.strike(key, "orphan")
        elif "foregroundDeletion" in finalizers:
            waits = False
            for resource, object in self.store.owned(uid):
                reference = next(one for one in object["metadata"]["ownerReferences"]
                                 if one["uid"] == uid)
                if not object["metadata"].get("deletionTimestamp"):
                    self.delete(resource, object, "Foreground")
                    key_left = self.store.uids.get(object["metadata"]["uid"])
                    waits = waits or bool(reference.get("blockOwnerDeletion") and key_left)
                else:
                    waits = waits or bool(reference.get("blockOwnerDeletion"))
            if not waits:
                self.strike(key, "foregroundDeletion")

    def let_go(self, resource: str, object: dict, uid: str) -> None:
        left = [one for one in object["metadata"]["ownerReferences"] if one["uid"] != uid]
        self.store.edit(resource, object["metadata"].get("namespace"), object["metadata"]["name"],
                        lambda copy: copy["metadata"].update(ownerReferences=left))

    def strike(self, key: tuple[str, str, str], finalizer: str) -> None:
        def change(copy: dict) -> None:
            copy["metadata"]["finalizers"] = [one for one in copy["metadata"]["finalizers"]
                                              if one != finalizer]
        self.store.edit(*key, change)

    def look_at_namespace(self, name: str) -> None:
        space = self.store.get("namespaces", "", name)
        if space is None or not space["metadata"].get("deletionTimestamp"):
            return
        left = 0
        for resource, kind in self.store.kinds.items():
            for object in self.store.list(resource, name) if kind.namespaced else []:
                if not object["metadata"].get("deletionTimestamp"):
                    self.delete(resource, object, "Background")
                left += self.store.get(resource, name, object["metadata"]["name"]) is not None
        if left == 0 and "kubernetes" in (space["metadata"].get("finalizers") or []):
            self.strike(("namespaces", "", name), "kubernetes")
