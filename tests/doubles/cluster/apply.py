"""Server-side apply: who manages which field, conflicts, and what an applier no longer wants."""

from __future__ import annotations

from errors import ApiError, about
from patch import SETS, key_of

Path = tuple[object, ...]  # names, and (key, value) for an item of a keyed list

NOT_MANAGED = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"),
               ("metadata", "uid"), ("metadata", "resourceVersion"), ("metadata", "generation"),
               ("metadata", "creationTimestamp"), ("metadata", "managedFields"))


class Managers:
    """Of all objects, by their uid."""

    def __init__(self):
        # uid -> (manager, "Apply" or "Update") -> fields
        self.fields: dict[str, dict[tuple[str, str], set[Path]]] = {}

    def forget(self, uid: str) -> None:
        self.fields.pop(uid, None)

    def wrote(self, manager: str, before: dict | None, after: dict) -> None:
        """Another kind of write: what it changed is its own from now on."""
        old, new = leaves(before or {}), leaves(after)
        changed = {path for path, value in new.items() if path not in old or old[path] != value}
        gone = old.keys() - new.keys()
        owners = self.fields.setdefault(after["metadata"]["uid"], {})
        for owned in owners.values():
            owned -= changed | gone
        if changed:
            owners.setdefault((manager, "Update"), set()).update(changed)

    def apply(self, kind, manager: str, force: bool, before: dict | None, given: dict) -> dict:
        """The object as it will be; note it with applied() once it is stored."""
        if before is None:
            return given
        owners = self.fields.get(before["metadata"]["uid"], {})
        old, wanted = leaves(before), leaves(given)
        mine = owners.get((manager, "Apply"), set())
        conflicts = []
        for (other, how), fields in sorted(owners.items()):
            if (other, how) == (manager, "Apply"):
                continue
            for path in sorted(fields & wanted.keys(), key=str):
                if old.get(path) != wanted[path]:
                    conflicts.append((other, how, path))
        if conflicts and not force:
            raise conflict(kind, before, conflicts)
        held = set().union(*(fields for owner, fields in owners.items()
                             if owner != (manager, "Apply")))
        after = overlay(before, given)
        for path in sorted(mine - wanted.keys() - held, key=len, reverse=True):
            remove(after, path)
        return after

    def applied(self, manager: str, before: dict | None, given: dict, stored: dict) -> None:
        """An equal value is held by both; a field with another one was taken over."""
        wanted, old, present = leaves(given), leaves(before or {}), leaves(stored)
        taken = {path for path, value in wanted.items() if old.get(path) != value}
        owners = self.fields.setdefault(stored["metadata"]["uid"], {})
        for owner in list(owners):
            owners[owner] = {path for path in owners[owner] - taken if path in present}
        owners[(manager, "Apply")] = set(wanted)


def conflict(kind, before: dict, conflicts: list[tuple[str, str, Path]]) -> ApiError:
    causes, told = [], []
    for other, how, path in conflicts:
        using = f' using {kind.api_version}' if how == "Update" else ""
        told.append(f'conflict with "{other}"{using}: {shown(path)}')
        causes.append({"reason": "FieldManagerConflict", "field": shown(path),
                       "message": f'conflict with "{other}"{using}'})
    many = f"{len(conflicts)} conflict" + ("s" if len(conflicts) > 1 else "")
    return ApiError(409, f"Apply failed with {many}: " + ", ".join(told),
                    details={**about(kind, before["metadata"]["name"]), "causes": causes})


def shown(path: Path) -> str:
    return "".join(f'[{part[0]}="{part[1]}"]' if isinstance(part, tuple) else f".{part}"
                   for part in path)


def leaves(object: dict) -> dict[Path, object]:
    found: dict[Path, object] = {}
    for name, value in object.items():
        if name != "status":
            collect((name,), value, found)
    return {path: value for path, value in found.items() if path not in NOT_MANAGED}


def collect(path: Path, value: object, found: dict[Path, object]) -> None:
    if isinstance(value, dict) and value:
        for name, inside in value.items():
            collect((*path, name), inside, found)
    elif isinstance(value, list) and path[-1] in SETS:
        for item in value:
            found[(*path, ("=", str(item)))] = item
    elif isinstance(value, list) and (key := key_of(str(path[-1]), value)) and value:
        for item in value:
            collect((*path, (key, str(item.get(key)))), item, found)
    else:
        found[path] = value


def overlay(target: object, given: object, name: str = "") -> object:
    """What is given over what is there; nothing is taken away."""
    if isinstance(given, dict) and (given or isinstance(target, dict)):
        merged = dict(target) if isinstance(target, dict) else {}
        for field, value in given.items():
            merged[field] = overlay(merged.get(field), value, field)
        return merged
    if isinstance(given, list) and isinstance(target, list):
        if name in SETS:
            return target + [item for item in given if item not in target]
        key = key_of(name, given)
        if key:
            merged = {item.get(key): item for item in target}
            for item in given:
                merged[item.get(key)] = overlay(merged.get(item.get(key)), item)
            return list(merged.values())
    return given


def remove(object: object, path: Path) -> None:
    first, rest = path[0], path[1:]
    if isinstance(first, tuple):
        key, value = first
        for item in list(object) if isinstance(object, list) else []:
            if (str(item) if key == "=" else str(item.get(key))) == value:
                if rest and rest != (key,):
                    remove(item, rest)
                else:
                    object.remove(item)
        return
    if not isinstance(object, dict) or first not in object:
        return
    if rest:
        remove(object[first], rest)
        if object[first] in ({}, []):
            del object[first]
    else:
        del object[first]
