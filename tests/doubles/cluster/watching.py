"""Watches: a line of JSON for each change, until the time is over or somebody ends it."""

from __future__ import annotations

import asyncio
import json
import random

from aiohttp import web

import errors
import selecting
import table
from calls import Call
from faults import Fault, break_off
from history import Change, read_version

TICK = 5.0  # seconds; a client that went away is noticed, and the others get a bookmark


class Watch:
    """One that is going on."""

    def __init__(self, server, call: Call, fault: Fault | None):
        self.server, self.call, self.fault = server, call, fault
        self.match_labels = selecting.labels(call.query.get("labelSelector"))
        self.match_fields, self.only = selecting.fields(call.query.get("fieldSelector"),
                                                        call.kind.plural)
        self.form = table.wanted_form(call.request.headers.get("Accept", ""))
        self.bookmarks = call.is_set("allowWatchBookmarks")
        self.changes: asyncio.Queue[Change | str] = asyncio.Queue()
        self.version = 0
        self.left = int(fault.options.get("events", 0)) if fault else 0
        self.response = web.StreamResponse(headers={"Content-Type": "application/json"})

    def matches(self, object: dict | None) -> bool:
        if object is None:
            return False
        space = self.call.namespace
        return (not space or object["metadata"].get("namespace") == space) and \
            self.match_labels(object) and self.match_fields(object)

    def line_of(self, change: Change) -> bytes:
        """Empty if it is none of this watch's business."""
        now = change.event != "DELETED" and self.matches(change.object)
        before = self.matches(change.before)
        event = "MODIFIED" if now and before else "ADDED" if now else "DELETED" if before else ""
        if event == change.event and not self.form:
            change.line = change.line or encode(event, change.object)
            return change.line
        return encode(event, self.shaped(change.object)) if event else b""

    def shaped(self, object: dict) -> dict:
        if self.form == "Table":
            version = {"resourceVersion": object["metadata"]["resourceVersion"]}
            return table.table(self.call.kind, [object], version)
        return table.partial(object) if self.form == "Partial" else object

    def bookmark(self, initial: bool = False) -> bytes:
        metadata: dict[str, object] = {
            "resourceVersion": str(max(self.version, self.server.store.version)),
            "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return encode("BOOKMARK", {"kind": self.call.kind.kind,
                                   "apiVersion": self.call.kind.api_version, "metadata": metadata})

    def first_lines(self) -> list[bytes]:
        """What is sent before anything happens. 410 if the version is forgotten."""
        query, store = self.call.query, self.server.store
        initial, given = self.call.is_set("sendInitialEvents"), query.get("resourceVersion", "")
        matching = query.get("resourceVersionMatch", "")
        if ("sendInitialEvents" in query) != bool(matching) or \
                matching not in ("", "NotOlderThan"):
            raise errors.ApiError(422, "ListOptions.meta.k8s.io \"\" is invalid: "
                                       "resourceVersionMatch: Forbidden: sendInitialEvents requires "
                                       "setting resourceVersionMatch to NotOlderThan", "Invalid")
        version = read_version(given or "0")
        if version > store.version:
            raise errors.ApiError(504, f"Too large resource version: {version}, current: "
                                       f"{store.version}", "Timeout", retry_after=1)
        if version and not initial:
            return [line for line in map(self.line_of, self.server.store.histories[
                self.call.kind.plural].since(version)) if line]
        lines = []
        if initial or "sendInitialEvents" not in query:
            found = store.list(self.call.kind.plural, self.call.namespace or None)
            lines = [encode("ADDED", self.shaped(one)) for one in found if self.matches(one)]
        if initial and self.bookmarks:
            lines.append(self.bookmark(initial=True))
        return lines

    async def run(self) -> web.StreamResponse:
        plural = self.call.kind.plural
        lines = self.first_lines()
        key = None
        if self.only is not None and (self.call.namespace or not self.call.kind.namespaced):
            key = (self.call.namespace, self.only)
        end = self.server.store.histories[plural].watch(key, self.changes.put_nowait)
        self.server.watches.add(self)
        try:
            await self.response.prepare(self.call.request)
            for line in lines:
                if not await self.send(line):
                    return self.response
            await self.go_on()
        except ConnectionError:
            pass
        finally:
            end()
            self.server.watches.discard(self)
        return self.response

    async def go_on(self) -> None:
        loop = asyncio.get_running_loop()
        seconds = self.call.number("timeoutSeconds", 0) or random.randint(1800, 3600)
        deadline = loop.time() + seconds
        if self.fault and self.left == 0 and not await self.strike():
            return
        while (left := deadline - loop.time()) > 0:
            try:
                change = await asyncio.wait_for(self.changes.get(), min(left, TICK))
            except asyncio.TimeoutError:
                transport = self.call.request.transport
                if transport is None or transport.is_closing():
                    return
                change = "bookmark"
            if change == "close":
                break
            line = b""
            if isinstance(change, Change):
                line = self.line_of(change)
                self.version = change.version
            elif self.bookmarks:
                line = self.bookmark()
            if line and not await self.send(line):
                return
        await self.response.write_eof()

    async def send(self, line: bytes) -> bool:
        """False: the fault that was ordered has ended it."""
        if self.fault is None:
            await self.response.write(line)
            return True
        self.left -= 1
        if self.fault.what == "watch-cut" and self.left <= 0:
            await self.response.write(line[:len(line) // 2])
        else:
            await self.response.write(line)
        return self.left > 0 or await self.strike()

    async def strike(self) -> bool:
        fault, self.fault = self.fault, None
        if fault.what == "watch-410":
            await self.response.write(encode("ERROR", errors.expired(1, 2).status()))
        if fault.what == "watch-silent":
            await self.server.faults.hold(fault)
        if fault.what == "watch-cut":
            # Give what was written a turn: a reset throws away what is not yet sent.
            await asyncio.sleep(0.02)
            break_off(self.call.request)
        else:
            await self.response.write_eof()
        return False


def encode(event: str, object: dict) -> bytes:
    return json.dumps({"type": event, "object": object}, separators=(",", ":")).encode() + b"\n"
