"""Questions of which nothing is kept: SelfSubjectAccessReview and SelfSubjectReview.

kubectl asks them in Kubernetes' protobuf, so that is read, as far as these two need it.
"""

from __future__ import annotations

from aiohttp import web

from calls import read_body
from errors import ApiError, no_such_path

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
LIMIT = 64 << 10
ATTRIBUTES = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource",
              6: "subresource", 7: "name"}


async def answer(request: web.BaseRequest, access, user: str) -> dict:
    if request.content_type == PROTOBUF:
        asked = unpacked(await request.content.read(LIMIT))
    else:
        body = await read_body(request)
        asked = body if isinstance(body, dict) else {}
    kind = {"selfsubjectaccessreviews": "SelfSubjectAccessReview",
            "selfsubjectreviews": "SelfSubjectReview"}.get(request.path.rsplit("/", 1)[-1])
    if kind is None:
        raise no_such_path()
    told = {"kind": kind, "apiVersion": "/".join(request.path.split("/")[2:4]), "metadata": {},
            "spec": asked.get("spec") or {}}
    if kind == "SelfSubjectReview":
        return {**told, "status": {"userInfo": {"username": user}}}
    wanted = told["spec"].get("resourceAttributes") or {}
    allowed = access.may(*(wanted.get(field, "") for field in (
        "verb", "resource", "subresource", "namespace", "name")))
    return {**told, "status": {"allowed": allowed,
                               **({} if allowed else {"reason": "it was denied"})}}


def unpacked(data: bytes) -> dict:
    """runtime.Unknown: its second field is the object; there, spec is the second, too."""
    try:
        if not data.startswith(MAGIC):
            raise ValueError("no magic number")
        inside = fields(fields(data[len(MAGIC):])[2]).get(2, b"")
        attributes = fields(fields(inside).get(1, b""))
        return {"spec": {"resourceAttributes": {
            name: attributes[number].decode() for number, name in ATTRIBUTES.items()
            if number in attributes}}}
    except (KeyError, IndexError, ValueError) as problem:
        raise ApiError(400, f"error decoding the body: {problem}") from None


def fields(data: bytes) -> dict[int, bytes]:
    """The parts of a message that have a length; the last of each number."""
    found, place = {}, 0
    while place < len(data):
        key, place = number_at(data, place)
        if key & 7 == 0:
            _, place = number_at(data, place)
        elif key & 7 == 2:
            size, place = number_at(data, place)
            found[key >> 3] = data[place:place + size]
            place += size
        else:
            raise ValueError(f"wire type {key & 7}")
    return found


def number_at(data: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
