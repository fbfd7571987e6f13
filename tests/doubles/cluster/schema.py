"""Prunes, defaults and checks objects as the API server does by an openAPIV3Schema.

Our own small schemas always count. Where the real CustomResourceDefinitions are at hand (a folder
named by SANDBOX_TEST_CRDS, or ../shared/data/crds beside the repository), an object must get by
those too: they are walked in the same way, and asked of the jsonschema library.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import re

import jsonschema
import yaml

from errors import ApiError, invalid

ROOT = pathlib.Path(__file__).resolve().parents[3]
Problems = list[tuple[str, str, str]]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?")
LIKE_NAME = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
             "or '.', and must start and end with an alphanumeric character (e.g. 'example.com', "
             "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*"
             "[a-z0-9])?)*')")
METADATA = {"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "labels",
            "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "annotations",
            "ownerReferences", "finalizers", "managedFields", "selfLink"}
DATA_LIMIT = 1 << 20
ANNOTATIONS_LIMIT = 256 << 10

# What the server's typed kinds know at the top, where a client's mistake would show.
CORE_FIELDS = {
    "configmaps": {"data", "binaryData", "immutable"},
    "secrets": {"data", "stringData", "immutable", "type"},
    "pods": {"spec", "status"}, "namespaces": {"spec", "status"},
    "leases": {"spec"}, "roles": {"rules"}, "runtimeclasses": {"handler", "overhead", "scheduling"},
}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float)}


class Schemas:
    """Of one cluster. `folder`: where the real ones are, or None."""

    def __init__(self, kinds):
        self.kinds = kinds
        named = os.environ.get("SANDBOX_TEST_CRDS")
        folder = pathlib.Path(named) if named else ROOT.parent / "shared/data/crds"
        self.folder = folder if folder.is_dir() else None
        self.real: dict[str, tuple | None] = {}

    def real_of(self, kind):
        if self.folder is None or not kind.custom:
            return None
        if kind.plural not in self.real:
            path = self.folder / f"{kind.group}_{kind.plural}.yaml"
            found = read_definition(path, kind.version) if path.exists() else None
            self.real[kind.plural] = found and with_validators(found)
        return self.real[kind.plural]

    def settle(self, kind, object: dict, strict: str = "Ignore") -> list[str]:
        """Prunes and defaults in place. The unknown fields; with "Strict" they are an error."""
        unknown: list[str] = []
        for name in [name for name in object["metadata"] if name not in METADATA]:
            del object["metadata"][name]
            unknown.append(f"metadata.{name}")
        known = CORE_FIELDS.get(kind.plural)
        for name in list(object) if known else []:
            if name not in known and name not in ("apiVersion", "kind", "metadata"):
                del object[name]
                unknown.append(name)
        real = self.real_of(kind)
        for schema in [kind.schema] + ([real[0]] if real else []):
            if schema is not None:
                prune(object, schema, "", unknown, top=True)
                fill_defaults(object, schema)
        unknown = list(dict.fromkeys(unknown))
        if unknown and strict == "Strict":
            told = ", ".join(f'unknown field "{name}"' for name in unknown)
            raise ApiError(400, f'{kind.kind} in version "{kind.version}" cannot be handled as a '
                                f"{kind.kind}: strict decoding error: {told}")
        return unknown

    def check(self, kind, object: dict, before: dict | None = None) -> None:
        problems: Problems = []
        check_metadata(object["metadata"], kind, problems)
        if kind.schema is not None:
            judge(object, kind.schema, "", problems)
        check_core(kind, object)
        real = self.real_of(kind)
        # A spec that stays was checked when it came; controllers write the status again and again.
        if real is not None and before is not None and object.get("spec") == before.get("spec"):
            real = real[2]
        if real is not None and not problems:
            judge(object, real[0], "", problems)
            # What the status may hold is small; the library is asked of what somebody else wrote.
            is_same = before is not None and before.get("spec") == object.get("spec")
            problems = problems or is_same and [] or [
                (".".join(str(part) for part in error.absolute_path), "FieldValueInvalid",
                 f"Invalid value: {error.message}") for error in real[1].iter_errors(object)][:5]
        if before is not None:
            for path in kind.immutable:
                check_immutable(path, before, object, problems)
        if problems:
            name = object["metadata"].get("name") or object["metadata"].get("generateName", "")
            raise invalid(kind, name, problems)


def read_definition(path: pathlib.Path, version: str) -> dict | None:
    """The schema of that version. Only its part of the file is read: the rest is large."""
    text = path.read_text(encoding="utf-8")
    for item in yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]:
        if item["name"] == version:
            return item["schema"]["openAPIV3Schema"]
    return None


def with_validators(schema: dict) -> tuple:
    """Of the whole object, and third the same of its status alone."""
    parts = schema.get("properties", {})
    status = {"type": "object", "properties": {"status": parts.get("status", {}), "spec": {}}}
    return (schema, jsonschema.Draft4Validator(schema),
            (status, jsonschema.Draft4Validator(status)))


def is_open(schema: dict) -> bool:
    return bool(schema.get("x-open") or schema.get("x-kubernetes-preserve-unknown-fields") or
                schema.get("type") == "object" and "properties" not in schema and
                "additionalProperties" not in schema)


def prune(value, schema: dict, path: str, unknown: list[str], top: bool = False) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            prune(item, schema.get("items") or {}, f"{path}[{number}]", unknown)
        return
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    for name in list(value):
        if top and name in ("apiVersion", "kind", "metadata"):
            continue
        inside = f"{path}.{name}" if path else name
        if name in known:
            prune(value[name], known[name], inside, unknown)
        elif isinstance(more, dict):
            prune(value[name], more, inside, unknown)
        elif not is_open(schema) and more is not True and schema:
            del value[name]
            unknown.append(inside)


def fill_defaults(value, schema: dict) -> None:
    if isinstance(value, list) and schema.get("items"):
        for item in value:
            fill_defaults(item, schema["items"])
    elif isinstance(value, dict):
        for name, part in (schema.get("properties") or {}).items():
            if "default" in part and value.get(name) is None:
                default = part["default"]
                value[name] = dict(default) if isinstance(default, dict) else default
            if name in value:
                fill_defaults(value[name], part)


def shown(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else \
        "null" if value is None else type(value).__name__ if isinstance(value, (dict, list)) else \
        str(value)


def has_type(value, schema: dict) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    if value is None:
        return bool(schema.get("nullable"))
    wanted = TYPES.get(schema.get("type", ""))
    if wanted is None:
        return True
    return isinstance(value, wanted) and (not isinstance(value, bool) or wanted is bool)


def judge(value, schema: dict, path: str, problems: Problems) -> None:
    if not has_type(value, schema):
        problems.append((path or "<root>", "FieldValueTypeInvalid",
                         f"Invalid value: {shown(value)}: {path} in body must be of type "
                         f"{schema.get('type')}: {shown(value)}"))
    elif isinstance(value, dict):
        judge_object(value, schema, path, problems)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            judge(item, schema.get("items") or {}, f"{path}[{number}]", problems)
    elif value is not None:
        judge_scalar(value, schema, path, problems)


def judge_object(value: dict, schema: dict, path: str, problems: Problems) -> None:
    for name in schema.get("required", ()):
        if value.get(name) is None:
            problems.append((f"{path}.{name}" if path else name, "FieldValueRequired",
                             "Required value"))
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, item in value.items():
        part = known.get(name, more)
        if isinstance(part, dict) and not (name == "metadata" and not path) and \
                not (item is None and name in schema.get("required", ())):
            judge(item, part, f"{path}.{name}" if path else name, problems)


def judge_scalar(value, schema: dict, path: str, problems: Problems) -> None:
    def bad(text: str, reason: str = "FieldValueInvalid") -> None:
        problems.append((path, reason, text))

    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(f'"{item}"' for item in schema["enum"])
        bad(f"Unsupported value: {shown(value)}: supported values: {choices}",
            "FieldValueNotSupported")
    if isinstance(value, str):
        size = len(value)
        if size > schema.get("maxLength", size):
            bad(f"Too long: may not be more than {schema['maxLength']} bytes", "FieldValueTooLong")
        if size < schema.get("minLength", size):
            bad(f"Invalid value: {shown(value)}: {path} in body should be at least "
                f"{schema['minLength']} chars long")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            bad(f"Invalid value: {shown(value)}: {path} in body should match "
                f"'{schema['pattern']}'")
        if schema.get("format") == "date-time" and not is_time(value):
            bad(f"Invalid value: {shown(value)}: {path} in body must be of type date-time: "
                f"{shown(value)}")
    elif not isinstance(value, bool):
        if value < schema.get("minimum", value):
            bad(f"Invalid value: {value}: {path} in body should be greater than or equal to "
                f"{schema['minimum']}")
        if value > schema.get("maximum", value):
            bad(f"Invalid value: {value}: {path} in body should be less than or equal to "
                f"{schema['maximum']}")


def is_time(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


def check_metadata(metadata: dict, kind, problems: Problems) -> None:
    name = metadata.get("name", "")
    # RBAC names may hold a colon and more; they are path segments only.
    if name and not kind.group.startswith("rbac.") and \
            (len(name) > 253 or not NAME.fullmatch(name)):
        problems.append(("metadata.name", "FieldValueInvalid",
                         f'Invalid value: "{name}": {LIKE_NAME}'))
    for key, value in (metadata.get("labels") or {}).items():
        if not LABEL_KEY.fullmatch(key):
            problems.append(("metadata.labels", "FieldValueInvalid",
                             f'Invalid value: "{key}": name part must consist of alphanumeric '
                             "characters, '-', '_' or '.'"))
        if not isinstance(value, str) or not LABEL_VALUE.fullmatch(value):
            why = "must be no more than 63 characters" if len(str(value)) > 63 else \
                "a valid label must be an empty string or consist of alphanumeric characters, " \
                "'-', '_' or '.'"
            problems.append(("metadata.labels", "FieldValueInvalid",
                             f'Invalid value: "{value}": {why}'))
    annotations = metadata.get("annotations") or {}
    if sum(len(key) + len(str(value)) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        problems.append(("metadata.annotations", "FieldValueTooLong",
                         f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"))
    for number, owner in enumerate(metadata.get("ownerReferences") or []):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                problems.append((f"metadata.ownerReferences[{number}].{field}",
                                 "FieldValueInvalid", 'Invalid value: "": must not be empty'))


def check_core(kind, object: dict) -> None:
    for where in ("labels", "annotations"):
        for key, value in (object["metadata"].get(where) or {}).items():
            if not isinstance(value, str):
                raise wrong_type(kind, f"ObjectMeta.metadata.{where}", value)
    if kind.plural not in ("configmaps", "secrets"):
        return
    size = 0
    for part in ("data", "binaryData", "stringData"):
        for value in (object.get(part) or {}).values():
            if not isinstance(value, str):
                raise wrong_type(kind, f"{kind.kind}.{part}", value)
            size += len(value.encode())
    if size > (DATA_LIMIT if kind.plural == "configmaps" else DATA_LIMIT * 4 // 3 + 4):
        raise invalid(kind, object["metadata"].get("name", ""),
                      [("data" if kind.plural == "secrets" else "", "FieldValueTooLong",
                        f"Too long: may not be more than {DATA_LIMIT} bytes")])


def wrong_type(kind, where: str, value) -> ApiError:
    found = "number" if isinstance(value, (int, float)) else type(value).__name__
    return ApiError(400, f'{kind.kind} in version "{kind.version}" cannot be handled as a '
                         f"{kind.kind}: json: cannot unmarshal {found} into Go struct field "
                         f"{where} of type string")


def check_immutable(path: str, before: dict, after: dict, problems: Problems) -> None:
    old, new = before, after
    for name in path.strip(".").split("."):
        old = old.get(name) if isinstance(old, dict) else None
        new = new.get(name) if isinstance(new, dict) else None
    if old != new:
        last = path.rsplit(".", 1)[-1]
        # As the rule stands in the real definition: at the parent, by its own message.
        problems.append((path.strip(".").rsplit(".", 1)[0], "FieldValueInvalid",
                         f'Invalid value: "object": {last} is immutable'))
