"""Patches: JSON merge (RFC 7386), JSON (RFC 6902), and Kubernetes' strategic merge."""

from __future__ import annotations

import json

from errors import ApiError

OPERATIONS = 10_000

# The key by which items of a list are the same item, by the list's name. As Kubernetes' types say
# it; a list that is not here is replaced as a whole.
KEYS = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name",
    "volumes": "name", "env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath",
    "imagePullSecrets": "name", "hostAliases": "ip", "conditions": "type",
    "ownerReferences": "uid", "topologySpreadConstraints": "topologyKey", "secrets": "name",
    "podIPs": "ip",
}
PORT_KEYS = ("containerPort", "port")
SETS = ("finalizers",)


def merge(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


# ---- JSON patch ----

def apply_operations(target: object, operations: object) -> object:
    if not isinstance(operations, list):
        raise ApiError(400, "error decoding patch: json: cannot unmarshal object into Go value of "
                            "type jsonpatch.Patch")
    if len(operations) > OPERATIONS:
        raise ApiError(413, f"The allowed maximum operations in a JSON patch is {OPERATIONS}, got "
                            f"{len(operations)}")
    whole = {"": json.loads(json.dumps(target))}
    for operation in operations:
        try:
            operate(whole, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as problem:
            raise ApiError(422, "the server rejected our request due to an error in our request",
                           "Invalid") from problem
    return whole[""]


def pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def parent_of(whole: dict, path: list[str]):
    place: object = whole
    for part in path[:-1]:
        place = place[int(part)] if isinstance(place, list) else place[part]
    return place


def value_at(whole: dict, path: list[str]):
    place = parent_of(whole, path)
    return place[int(path[-1])] if isinstance(place, list) else place[path[-1]]


def add_at(whole: dict, path: list[str], value: object) -> None:
    place, last = parent_of(whole, path), path[-1]
    if not isinstance(place, list):
        place[last] = value
    elif last == "-":
        place.append(value)
    elif 0 <= int(last) <= len(place):
        place.insert(int(last), value)
    else:
        raise IndexError(last)


def remove_at(whole: dict, path: list[str]) -> object:
    place = parent_of(whole, path)
    return place.pop(int(path[-1]) if isinstance(place, list) else path[-1])


def operate(whole: dict, operation: dict) -> None:
    what, path = operation["op"], pointer(operation["path"])
    if what == "add":
        add_at(whole, path, operation["value"])
    elif what == "remove":
        remove_at(whole, path)
    elif what == "replace":
        value_at(whole, path)
        place = parent_of(whole, path)
        place[int(path[-1]) if isinstance(place, list) else path[-1]] = operation["value"]
    elif what == "move":
        add_at(whole, path, remove_at(whole, pointer(operation["from"])))
    elif what == "copy":
        add_at(whole, path, json.loads(json.dumps(value_at(whole, pointer(operation["from"])))))
    elif what == "test":
        if value_at(whole, path) != operation["value"]:
            raise ValueError("test failed")
    else:
        raise ValueError(what)


# ---- strategic merge ----

def key_of(name: str, items: list) -> str | None:
    if name == "ports":
        return next((key for key in PORT_KEYS if any(key in item for item in items
                                                     if isinstance(item, dict))), None)
    return KEYS.get(name)


def strategic(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "delete":
        return {}
    if "$retainKeys" in patch:
        merged = {name: value for name, value in merged.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.split("/", 1)[1]
            merged[field] = [one for one in merged.get(field) or [] if one not in value]
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = strategic_list(name, merged.get(name) or [], value)
        else:
            merged[name] = strategic(merged.get(name), value)
    for name, order in patch.items():
        if name.startswith("$setElementOrder/"):
            field = name.split("/", 1)[1]
            if field in merged:
                merged[field] = in_order(field, merged[field], order)
    return merged


def strategic_list(name: str, target: list, patch: list) -> list:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item != {"$patch": "replace"}]
    if name in SETS:
        return target + [item for item in patch if item not in target]
    key = key_of(name, patch)
    if key is None:
        return patch
    merged = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = strategic(merged.get(item.get(key)), item)
    return list(merged.values())


def in_order(name: str, items: list, order: list) -> list:
    key = key_of(name, order)

    def place(item: object) -> int:
        wanted = [one.get(key) for one in order] if key else order
        mine = item.get(key) if key and isinstance(item, dict) else item
        return wanted.index(mine) if mine in wanted else len(wanted)
    return sorted(items, key=place)
