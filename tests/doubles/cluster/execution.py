"""Exec in a Pod over WebSocket: v5.channel.k8s.io and v4.channel.k8s.io."""

from __future__ import annotations

import asyncio
import json

from aiohttp import WSMsgType, web

from calls import Call
from errors import ApiError
from faults import Fault, break_off

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
PIECE = 32 << 10
MESSAGE_LIMIT = 16 << 20


async def run(server, call: Call, fault: Fault | None) -> web.StreamResponse:
    pod = server.store.need("pods", call.namespace, call.name)
    container = container_of(pod, call)
    argv = call.request.query.getall("command", [])
    if not argv:
        raise ApiError(400, "you must specify at least 1 command for the container")
    if call.request.headers.get("Upgrade", "").lower() != "websocket":
        raise ApiError(400, "exec is spoken over WebSocket only here, not over SPDY: kubectl 1.30 or "
                            "newer does so")
    offered = call.request.headers.get("Sec-WebSocket-Protocol", "")
    if not any(one.strip() in PROTOCOLS for one in offered.split(",")):
        raise ApiError(400, f"unable to upgrade: no protocol of '{offered}' is known")
    if server.runner is None:
        raise ApiError(500, "no Pod here runs anything")
    wants = {name: call.is_set(name) for name in ("stdin", "stdout", "stderr", "tty")}
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=MESSAGE_LIMIT)
    await socket.prepare(call.request)
    server.execs += 1
    try:
        session = Session(socket, call.request, wants, fault)
        await session.run(server.runner, pod, container, argv)
    finally:
        server.execs -= 1
    return socket


def container_of(pod: dict, call: Call) -> str:
    names = [one["name"] for one in pod["spec"].get("containers", [])]
    wanted = call.query.get("container") or (names[0] if names else "")
    if wanted not in names:
        raise ApiError(400, f"container {wanted} is not valid for pod {call.name}")
    phase = pod["status"].get("phase")
    if phase in ("Succeeded", "Failed"):
        raise ApiError(400, "cannot exec into a container in a completed pod; current phase is "
                            f"{phase}")
    running = any(one.get("name") == wanted and "running" in (one.get("state") or {})
                  for one in pod["status"].get("containerStatuses") or [])
    if not running:
        raise ApiError(500, f'unable to upgrade connection: container not found ("{wanted}")')
    return wanted


class Session:
    def __init__(self, socket: web.WebSocketResponse, request: web.BaseRequest,
                 wants: dict[str, bool], fault: Fault | None):
        self.socket, self.request, self.wants, self.fault = socket, request, wants, fault
        self.left = int(fault.options.get("bytes", 0)) if fault else 0
        self.broken = False

    async def run(self, runner, pod: dict, container: str, argv: list[str]) -> None:
        lowest = STDOUT if self.wants["stdout"] else STDERR if self.wants["stderr"] else STATUS
        await self.send(lowest, b"")  # how a kubelet says that it is there
        if self.fault and self.fault.what == "exec-fail":
            message = str(self.fault.options.get("message", "command terminated"))
            await self.end(ApiError(500, message).status())
            return
        try:
            process = await runner.exec(pod, container, argv, stdin=self.wants["stdin"],
                                        tty=self.wants["tty"])
        except ApiError as problem:
            await self.end(problem.status())
            return
        inward = asyncio.ensure_future(self.take_input(process))
        readers = [asyncio.ensure_future(self.give_output(stream, channel, self.wants[name]))
                   for stream, channel, name in ((process.stdout, STDOUT, "stdout"),
                                                 (process.stderr, STDERR, "stderr"))
                   if stream is not None]
        if readers:
            await asyncio.wait(readers)
        code = await process.wait()
        await self.end(status_of(code))
        inward.cancel()
        await asyncio.gather(inward, *readers, return_exceptions=True)

    async def give_output(self, stream: asyncio.StreamReader, channel: int, wanted: bool) -> None:
        """To its end, also when nobody listens any more: the command is not to block."""
        while True:
            piece = await stream.read(PIECE)
            if not piece:
                return
            if not wanted or self.broken:
                continue
            if self.fault and self.fault.what == "exec-cut":
                piece = piece[:self.left]
                self.left -= len(piece)
            await self.send(channel, piece)
            if self.fault and self.fault.what == "exec-cut" and self.left <= 0:
                self.broken = True
                await asyncio.sleep(0.02)  # a reset throws away what is not yet sent
                break_off(self.request)

    async def take_input(self, process) -> None:
        try:
            async for message in self.socket:
                # The official Python client sends text in text messages; real servers take both.
                taken = message.data.encode() if message.type == WSMsgType.TEXT else message.data
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY) or not taken:
                    continue
                channel, data = taken[0], taken[1:]
                if channel == STDIN and process.stdin is not None:
                    process.stdin.write(data)
                    await process.stdin.drain()
                elif channel == CLOSE and data[:1] == b"\0" and \
                        self.socket.ws_protocol == PROTOCOLS[0]:
                    close(process)
        except (ConnectionError, RuntimeError):
            pass
        finally:
            # The connection is gone, or the command has ended: no more input either way.
            close(process)

    async def send(self, channel: int, data: bytes) -> None:
        try:
            await self.socket.send_bytes(bytes([channel]) + data)
        except (ConnectionError, RuntimeError):
            self.broken = True

    async def end(self, status: dict) -> None:
        if self.broken or self.socket.closed:
            return
        if not self.fault or self.fault.what != "exec-silent":
            await self.send(STATUS, json.dumps(status).encode())
        try:
            await self.socket.close()
        except (ConnectionError, RuntimeError):
            pass


def close(process) -> None:
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.close()


def status_of(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = 128 - code if code < 0 else code
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
