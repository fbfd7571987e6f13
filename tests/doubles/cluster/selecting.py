"""Label and field selectors, read once and then asked of many objects."""

from __future__ import annotations

import re
from collections.abc import Callable

from errors import ApiError

Match = Callable[[dict], bool]

PART = re.compile(r"\s*(?:(?P<absent>!)?\s*(?P<key>[A-Za-z0-9][\w./-]*)\s*"
                  r"(?:(?P<sign>==|=|!=)\s*(?P<value>[\w.-]*)"
                  r"|\s(?P<word>in|notin)\s*\((?P<set>[^()]*)\))?)\s*(?:,|$)")

# Fields that a selector may name, beside metadata.name and metadata.namespace.
FIELDS = {
    "pods": ("status.phase", "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName",
             "status.podIP"),
    "events": ("involvedObject.kind", "involvedObject.name", "involvedObject.namespace",
               "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
               "involvedObject.fieldPath", "reason", "type", "reportingComponent", "source"),
    "secrets": ("type",), "namespaces": ("status.phase",),
}


def everything(_: dict) -> bool:
    return True


def labels(selector: str | dict[str, str] | None) -> Match:
    if not selector:
        return everything
    if isinstance(selector, dict):
        wanted = dict(selector)
        return lambda object: wanted.items() <= labels_of(object).items()
    tests, place = [], 0
    while place < len(selector):
        found = PART.match(selector, place)
        if found is None or found.end() == place:
            raise ApiError(400, f'unable to parse requirement: found "{selector[place:]}"')
        tests.append(label_test(found))
        place = found.end()
    return lambda object: all(test(labels_of(object)) for test in tests)


def labels_of(object: dict) -> dict[str, str]:
    return object["metadata"].get("labels") or {}


def label_test(found: re.Match[str]) -> Callable[[dict[str, str]], bool]:
    key, sign, value = found["key"], found["sign"], found["value"]
    if found["absent"]:
        return lambda has: key not in has
    if sign in ("=", "=="):
        return lambda has: has.get(key) == value
    if sign == "!=":
        return lambda has: has.get(key) != value
    if found["word"]:
        wanted = {item.strip() for item in found["set"].split(",")}
        if found["word"] == "in":
            return lambda has: has.get(key) in wanted
        return lambda has: has.get(key) not in wanted
    return lambda has: key in has


def field(object: dict, path: str) -> str:
    value: object = object
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    return "" if value is None else str(value)


def fields(selector: str | None, plural: str) -> tuple[Match, str | None]:
    """The test, and the name if the selector asks for exactly one."""
    if not selector:
        return everything, None
    tests, name = [], None
    for part in selector.split(","):
        found = re.fullmatch(r"([\w.]+)(==|=|!=)(.*)", part)
        if found is None:
            raise ApiError(400, f"invalid selector: '{selector}'; can't understand '{part}'")
        path, sign, value = found.groups()
        if path not in ("metadata.name", "metadata.namespace", *FIELDS.get(plural, ())):
            raise ApiError(400, f'field label not supported: {path}')
        if path == "metadata.name" and sign != "!=":
            name = value
        tests.append((path, sign != "!=", value))
    return lambda object: all((field(object, path) == value) is equal
                              for path, equal, value in tests), name
