"""One HTTP request, read as a Kubernetes API request: verb, kind, namespace, name, part."""

from __future__ import annotations

import dataclasses
import json

import yaml
from aiohttp import web

from errors import ApiError, no_such_path
from kinds import Kind

BODY_LIMIT = 3 << 20
PATCHES = {"application/merge-patch+json": "merge", "application/json-patch+json": "json",
           "application/strategic-merge-patch+json": "strategic",
           "application/apply-patch+yaml": "apply"}
YAML = ("application/yaml", "text/yaml", "application/apply-patch+yaml")


@dataclasses.dataclass
class Call:
    request: web.BaseRequest
    verb: str
    kind: Kind
    namespace: str
    name: str
    part: str
    query: dict[str, str]
    user: str = ""

    @property
    def dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    def is_set(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise ApiError(400, f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    @property
    def manager(self) -> str:
        named = self.query.get("fieldManager")
        return named or self.request.headers.get("User-Agent", "unknown").split("/")[0]


def read_call(request: web.BaseRequest, kind_of) -> Call:
    """`kind_of`: group, version, plural -> kind or None. 404 for what is no resource here."""
    parts = [part for part in request.path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = kind_of(group, version, rest[0])
    if kind is None or len(rest) > 3 or namespace and not kind.namespaced:
        raise no_such_path()
    name, part = (rest + ["", ""])[1:3]
    if kind.namespaced and name and not namespace:
        raise no_such_path()
    query = dict(request.query)
    call = Call(request, "", kind, namespace, name, part, query)
    call.verb = verb_of(request, call)
    return call


def verb_of(request: web.BaseRequest, call: Call) -> str:
    if call.part == "exec" and request.method in ("GET", "POST"):
        return "exec"
    if request.method in ("GET", "HEAD"):
        if call.is_set("watch"):
            return "watch"
        return "get" if call.name else "list"
    if request.method == "DELETE":
        return "delete" if call.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(request.method)
    if verb is None or (verb == "create") == bool(call.name):
        raise ApiError(405, "the server does not allow this method on the requested resource")
    if verb == "patch" and patch_form(request) == "apply":
        return "apply"
    return verb


def patch_form(request: web.BaseRequest) -> str:
    form = PATCHES.get(request.content_type)
    if form is None:
        raise ApiError(415, "the body of the request was in an unknown format - accepted media types "
                            "include: " + ", ".join(PATCHES))
    return form


async def read_body(request: web.BaseRequest) -> object:
    length = request.content_length
    if length is not None and length > BODY_LIMIT:
        raise ApiError(413, f"Request entity too large: limit is {BODY_LIMIT}")
    body = await request.content.read(BODY_LIMIT + 1)
    while not request.content.at_eof() and len(body) <= BODY_LIMIT:
        body += await request.content.read(BODY_LIMIT + 1 - len(body))
    if len(body) > BODY_LIMIT:
        raise ApiError(413, f"Request entity too large: limit is {BODY_LIMIT}")
    if not body:
        return None
    form = request.content_type
    if request.method == "POST" and form not in ("application/json", "application/yaml",
                                                 "application/octet-stream"):
        raise ApiError(415, "the body of the request was in an unknown format - accepted media types "
                            "include: application/json, application/yaml")
    try:
        if form in YAML:
            return plain(yaml.load(body, yaml.CSafeLoader))
        return json.loads(body)
    except (ValueError, yaml.YAMLError, RecursionError) as problem:
        raise ApiError(400, f"error decoding the body: {problem}") from None


def plain(value: object) -> object:
    """YAML's dates become text again, as the server sees them."""
    return json.loads(json.dumps(value, default=lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ")))


def object_of(call: Call, body: object) -> dict:
    """An object for this path: its kind, name and namespace must not speak against it."""
    kind = call.kind
    if not isinstance(body, dict):
        raise ApiError(400, "Object 'Kind' is missing in the body")
    if body.get("kind", kind.kind) != kind.kind or \
            body.get("apiVersion", kind.api_version) != kind.api_version:
        raise ApiError(400, f"the API version in the data ({body.get('apiVersion')}, Kind="
                            f"{body.get('kind')}) does not match the expected API version "
                            f"({kind.api_version}, Kind={kind.kind})")
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise ApiError(400, "json: cannot unmarshal into Go struct field .metadata")
    if call.name and metadata.get("name", call.name) != call.name:
        raise ApiError(400, f"the name of the object ({metadata['name']}) does not match the name "
                            f"on the URL ({call.name})")
    if kind.namespaced:
        if metadata.get("namespace", call.namespace) != call.namespace:
            raise ApiError(400, "the namespace of the provided object does not match the namespace "
                                "sent on the request")
        metadata["namespace"] = call.namespace
    if call.name:
        metadata["name"] = call.name
    return body
