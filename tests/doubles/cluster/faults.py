"""Faults that tests order: which requests they hit, and what then happens to those."""

from __future__ import annotations

import asyncio
import dataclasses
import fnmatch
import socket
import struct

from aiohttp import web

import errors
from errors import ApiError

KNOWN = ("reset", "reset-after", "late", "late-after", "never", "stale", "body", "410", "429",
         "watch-close", "watch-cut", "watch-410", "watch-silent", "exec-cut", "exec-silent",
         "exec-fail")


@dataclasses.dataclass
class Fault:
    id: int
    verb: str
    resource: str
    name: str
    what: str
    left: int  # -1: for ever
    after: int
    options: dict

    def matches(self, verb: str, resource: str, part: str, name: str) -> bool:
        whole = f"{resource}/{part}" if part else resource
        return (self.verb in ("*", verb) and self.resource in ("*", resource, whole) and
                fnmatch.fnmatchcase(name or "", self.name))


class Faults:
    def __init__(self):
        self.faults: list[Fault] = []
        self.next_id = 1
        self.held: dict[object, tuple[int, asyncio.Event]] = {}
        self.hits = 0

    def add(self, asked: dict) -> int:
        on, what = asked.get("on") or {}, str(asked.get("what", ""))
        code = what.removeprefix("status-after-").removeprefix("status-")
        if what not in KNOWN and not (what.startswith("status-") and code.isdigit()):
            raise ValueError(f"no such fault: '{what}'")
        times = int(asked.get("times", 1))
        self.faults.append(Fault(self.next_id, on.get("verb", "*"), on.get("resource", "*"),
                                 on.get("name", "*"), what, times or -1,
                                 int(asked.get("after", 0)), asked))
        self.next_id += 1
        return self.next_id - 1

    def hit(self, verb: str, resource: str, part: str, name: str) -> Fault | None:
        """The first that matches; it counts down."""
        found = None
        for fault in list(self.faults):
            if not fault.matches(verb, resource, part, name):
                continue
            if fault.after > 0:
                fault.after -= 1
            elif found is None:
                found = fault
                fault.left -= 1
                if fault.left == 0:
                    self.faults.remove(fault)
        self.hits += found is not None
        return found

    async def hold(self, fault: Fault) -> None:
        if "ms" in fault.options and fault.what != "never":
            await asyncio.sleep(int(fault.options["ms"]) / 1000)
            return
        token, event = object(), asyncio.Event()
        self.held[token] = (fault.id, event)
        try:
            await event.wait()
        finally:
            del self.held[token]

    def release(self, id: int | None) -> int:
        """What is yet to be hit is let go, too, when all are."""
        let_go = [event for held, event in self.held.values() if id in (None, held)]
        for event in let_go:
            event.set()
        return len(let_go)

    def clear(self) -> None:
        self.faults.clear()
        self.release(None)


def error_of(fault: Fault) -> ApiError:
    """The answer that a fault gives instead of the real one."""
    code = int(fault.what.removeprefix("status-after-").removeprefix("status-"))
    words = {429: "the server has received too many requests and has asked us to try again later",
             503: "the server is currently unable to handle the request",
             500: "Internal error occurred: an error that was ordered"}
    retry = fault.options.get("retry_after")
    if code == 429 and retry is None:
        retry = 1
    if code == 410:
        return errors.expired(1, 2)
    return ApiError(code, str(fault.options.get("message", words.get(code, "ordered"))),
                    fault.options.get("reason"), retry_after=retry)


def break_off(request: web.BaseRequest) -> None:
    """The connection ends with a reset, not with an orderly end."""
    transport = request.transport
    if transport is None:
        return
    plain = transport.get_extra_info("socket")
    if plain is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
