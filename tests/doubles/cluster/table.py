"""Tables for kubectl, and objects cut down to their metadata."""

from __future__ import annotations

import datetime
import re

PART = re.compile(r"\.([\w-]+)|\[\?\(@\.(\w+)=='([^']*)'\)\]|\[(\d+)\]")


def value_at(object: dict, path: str) -> object:
    place: object = object
    for name, key, wanted, number in PART.findall(path):
        if name:
            place = place.get(name) if isinstance(place, dict) else None
        elif not isinstance(place, list):
            return None
        elif number:
            place = place[int(number)] if int(number) < len(place) else None
        else:
            place = next((item for item in place if item.get(key) == wanted), None)
    return place


def age(text: object) -> str:
    if not isinstance(text, str):
        return "<unknown>"
    made = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    seconds = int((datetime.datetime.now(datetime.timezone.utc) - made).total_seconds())
    return f"{max(seconds, 0)}s" if seconds < 120 else f"{seconds // 60}m"


def cell(object: dict, kind: str, path: str) -> object:
    value = value_at(object, path)
    if kind == "date":
        return age(value)
    return value if value is not None else "" if kind == "string" else 0


def table(kind, objects: list[dict], metadata: dict) -> dict:
    columns = [{"name": "Name", "type": "string", "format": "name", "priority": 0,
                "description": "Name must be unique within a namespace."}]
    columns += [{"name": name, "type": "string" if form == "date" else form, "format": "",
                 "priority": 0, "description": ""} for name, form, _ in kind.columns]
    rows = [{"cells": [object["metadata"]["name"],
                       *(cell(object, form, path) for _, form, path in kind.columns)],
             "object": partial(object)} for object in objects]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows}


def partial(object: dict) -> dict:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"]}


def wanted_form(accept: str) -> str:
    """"Table", "Partial" or "" for whole objects: the first of the list that is known here."""
    for part in accept.split(","):
        fields = [field.strip() for field in part.split(";")]
        if fields[0] not in ("application/json", "*/*", "application/*"):
            continue
        form = next((field[3:] for field in fields if field.startswith("as=")), "")
        if form == "Table":
            return "Table"
        if form.startswith("PartialObjectMetadata"):
            return "Partial"
        if not form:
            return ""
    return ""
