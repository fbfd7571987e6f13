"""The admin socket: one line of JSON in, one out. README.md lists the commands."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable

from errors import ApiError
from patch import merge

LINE_LIMIT = 8 << 20


class Admin:
    def __init__(self, server, namespace: str, stop: Callable[[], None]):
        self.server, self.store, self.stop = server, server.store, stop
        self.namespace = namespace  # where a command names none
        self.commands: dict[str, Callable[[dict], dict | None]] = {
            "state": self.state, "log": self.log, "objects": self.objects, "put": self.put,
            "edit": self.edit, "remove": self.remove, "many": self.many, "fault": self.fault,
            "release": self.release, "clear": self.clear, "deny": self.deny,
            "compact": self.compact, "close-watches": self.close_watches,
            "bookmark": self.bookmark, "token": self.token, "serve": self.serve,
            "stop": lambda asked: self.stop(),
        }
        # Controllers add to both: what "state" tells, and what "clear" undoes.
        self.more_state: list[Callable[[], dict]] = []
        self.more_clear: list[Callable[[], None]] = []

    async def listen(self, path: str) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self.serve_one, path, limit=LINE_LIMIT)

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self.answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    async def answer(self, line: bytes) -> dict:
        try:
            asked = json.loads(line)
            command = self.commands.get(asked.get("do"))
            if command is None:
                raise ValueError(f"no such command: '{asked.get('do')}'")
            told = command(asked)
            if asyncio.iscoroutine(told):
                told = await told
            return {"ok": True, **(told or {})}
        except (ApiError, ValueError, KeyError, TypeError, AttributeError, LookupError) as problem:
            return {"ok": False, "message": f"{type(problem).__name__}: {problem}"}

    def state(self, _: dict) -> dict:
        counts = {plural: sum(map(len, spaces.values()))
                  for plural, spaces in self.store.objects.items()}
        told = {"version": str(self.store.version), "requests": dict(self.server.counts),
                "requests_total": sum(self.server.counts.values()),
                "objects": {plural: count for plural, count in counts.items() if count},
                "watches": len(self.server.watches), "execs": self.server.execs,
                "held": len(self.server.faults.held), "faults_hit": self.server.faults.hits,
                "faults_left": len(self.server.faults.faults), "pods": counts["pods"]}
        for more in self.more_state:
            told.update(more())
        return told

    def log(self, _: dict) -> dict:
        return {"requests": list(self.server.log)}

    def objects(self, asked: dict) -> dict:
        found = self.store.list(asked["resource"], asked.get("namespace"),
                                asked.get("selector", ""))
        name = asked.get("name")
        return {"objects": [one for one in found if name in (None, one["metadata"]["name"])]}

    def put(self, asked: dict) -> dict:
        resource, object = asked["resource"], asked["object"]
        metadata = object.setdefault("metadata", {})
        if self.store.kinds[resource].namespaced:
            metadata.setdefault("namespace", self.namespace)
        status = object.get("status")
        if self.store.get(resource, metadata.get("namespace"), metadata.get("name", "")) is None:
            made = self.store.create(resource, object)
        else:
            made = self.store.update(resource, {**object, "metadata": {
                **metadata, "resourceVersion": ""}})
        if status is not None and self.store.kinds[resource].has_status:
            made = self.store.edit(resource, made["metadata"].get("namespace"),
                                   made["metadata"]["name"],
                                   lambda copy: copy.update(status=status), "status")
        return {"object": made}

    def edit(self, asked: dict) -> dict:
        resource, patch = asked["resource"], dict(asked["patch"])
        key = (resource, asked.get("namespace", self.namespace), asked["name"])
        status = patch.pop("status", None)

        def change(copy: dict) -> None:
            merged = merge(copy, patch)
            copy.clear()
            copy.update(merged)

        def change_status(copy: dict) -> None:
            copy["status"] = merge(copy.get("status"), status)

        done = self.store.edit(*key, change) if patch else self.store.need(*key)
        if status is not None:
            done = self.store.edit(*key, change_status, "status")
        if done is None:
            raise LookupError(f"there is no {resource} '{asked['name']}'")
        return {"object": done}

    def remove(self, asked: dict) -> None:
        self.store.remove(asked["resource"], asked.get("namespace", self.namespace), asked["name"])

    def many(self, asked: dict) -> None:
        for number in range(int(asked["count"])):
            self.store.create(asked["resource"], {"metadata": {
                "name": f"{asked['prefix']}-{number}", "labels": {"many": "yes"},
                "namespace": asked.get("namespace", self.namespace)}})

    def fault(self, asked: dict) -> dict:
        return {"id": self.server.faults.add(asked)}

    def release(self, asked: dict) -> dict:
        return {"released": self.server.faults.release(asked.get("id"))}

    def clear(self, _: dict) -> None:
        self.server.faults.clear()
        self.server.access.denied.clear()
        for more in self.more_clear:
            more()

    def deny(self, asked: dict) -> None:
        self.server.access.deny(asked)

    def compact(self, _: dict) -> None:
        for history in self.store.histories.values():
            history.compact(self.store.version)
        self.server.pages.clear()

    def close_watches(self, _: dict) -> dict:
        for watch in self.server.watches:
            watch.changes.put_nowait("close")
        return {"closed": len(self.server.watches)}

    def bookmark(self, _: dict) -> None:
        for watch in self.server.watches:
            watch.changes.put_nowait("bookmark")

    def token(self, asked: dict) -> dict:
        self.server.access.token = asked.get("value") or secrets.token_urlsafe(32)
        return {"token": self.server.access.token}

    def serve(self, asked: dict) -> None:
        self.server.discovery.serve(asked["group"], list(asked["versions"]))
