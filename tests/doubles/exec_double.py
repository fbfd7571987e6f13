#!/usr/bin/python3
"""A double of what a Kubernetes API server does for exec: WebSockets with its channels, over TLS.

    exec_double.py DIRECTORY

Listens on a free port of 127.0.0.1, writes DIRECTORY/kubeconfig and then prints "ready PORT". It
ends when its standard input does. The Pod's name says what happens, the command what with.
"""

import asyncio
import base64
import hashlib
import json
import logging
import os
import pathlib
import ssl
import subprocess
import sys

from aiohttp import WSMsgType, web

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
TOKEN = "the-token-of-the-double"
PIECE = 32 << 10
seen = {}  # how often a Pod was asked


def status_of(code: int) -> dict:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


def refusal(code: int, reason: str, message: str, headers=None) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "code": code, "message": message, "details": {"name": "a-pod", "kind": "pods"}}
    return web.json_response(body, status=code, headers=headers)


def frame(opcode: int, data: bytes, final: bool = True) -> bytes:
    """As a server writes it: not masked."""
    head = bytes([(0x80 if final else 0) | opcode])
    if len(data) < 126:
        return head + bytes([len(data)]) + data
    if len(data) < 1 << 16:
        return head + b"\x7e" + len(data).to_bytes(2, "big") + data
    return head + b"\x7f" + len(data).to_bytes(8, "big") + data


def pattern(size: int) -> bytes:
    return bytes((at * 7 + at // 251) & 255 for at in range(size))


class Session:
    """One command under way."""

    def __init__(self, request, socket, command):
        self.request, self.socket, self.command = request, socket, command

    async def send(self, channel: int, data: bytes) -> None:
        await self.socket.send_bytes(bytes([channel]) + data)

    async def end(self, status: dict) -> None:
        await self.send(STATUS, json.dumps(status).encode())

    def raw(self, data: bytes) -> None:
        self.request.transport.write(data)

    async def input(self):
        """What comes on stdin, until its end; None says that the connection ended."""
        async for message in self.socket:
            assert message.type == WSMsgType.BINARY
            if message.data == bytes([CLOSE, STDIN]):
                return
            assert message.data[0] == STDIN
            yield message.data[1:]
        yield None

    # What Pods do, by their names.

    async def exit(self):
        await self.end(status_of(int(self.command[-1])))

    async def words(self):
        """Tells the command back, one word a line."""
        await self.send(STDOUT, "".join(word + "\n" for word in self.command).encode())
        await self.end(status_of(0))

    async def resumed(self):
        """Whether the connection goes on with a TLS session of one before."""
        tls = self.request.transport.get_extra_info("ssl_object")
        await self.send(STDOUT, b"resumed" if tls.session_reused else b"new")
        await self.end(status_of(0))

    async def echo(self):
        async for data in self.input():
            if data is None:
                return
            await self.send(STDOUT, data)
        await self.send(STDOUT, b"end")
        await self.end(status_of(0))

    async def digest(self):
        digest, size = hashlib.sha256(), 0
        async for data in self.input():
            if data is None:
                return
            digest.update(data)
            size += len(data)
            if self.command[-1].isdigit() and size == int(self.command[-1]):
                break
        await self.send(STDOUT, f"{size} {digest.hexdigest()}".encode())
        await self.end(status_of(0))

    async def flood(self):
        """Megabytes of a pattern, with as much on the other channels between."""
        data = pattern(int(self.command[-1]))
        for at in range(0, len(data), PIECE):
            await self.send(STDERR, b"noise" * 100)
            await self.send(STDOUT, data[at:at + PIECE])
            await self.send(9, b"nobody knows this channel")
        await self.end(status_of(0))

    async def fragments(self):
        """A message's channel is only in its first frame; pings may come between two."""
        self.raw(frame(2, bytes([STDOUT]), False) + frame(0, b"one ", False) + frame(9, b"?") +
                 frame(0, b"", False) + frame(0, b"two ", True))
        self.raw(frame(2, b"", False) + frame(0, bytes([STDOUT]), False) + frame(0, b"three "))
        self.raw(frame(2, b"") + frame(2, bytes([STDOUT])) + frame(2, bytes([STDERR]) + b"x"))
        data = frame(2, bytes([STDOUT]) + pattern(70000))
        for at in range(0, len(data), 1009):
            self.raw(data[at:at + 1009])
            await asyncio.sleep(0)
        text = json.dumps(status_of(3)).encode()
        self.raw(frame(2, bytes([STATUS]), False) + frame(0, text[:9], False) + frame(0, text[9:]))

    async def pings(self):
        """Each is answered with what it holds, whatever else goes on."""
        answers = asyncio.get_running_loop().create_task(self.pongs(200))
        for number in range(200):
            self.raw(frame(9, b"%d" % number))
            await self.send(STDOUT, b"x" * 1000)
        await answers
        await self.end(status_of(0))

    async def pongs(self, count):
        heard = 0
        while heard < count:
            message = await self.socket.receive()
            assert message.type == WSMsgType.PONG and message.data == b"%d" % heard, message
            heard += 1

    async def listens(self):
        """Says nothing but pongs, until enough pings came."""
        for _ in range(5):
            message = await self.socket.receive()
            assert message.type == WSMsgType.PING
            await self.socket.pong(message.data)
        await self.end(status_of(0))

    async def unanswered(self):
        await self.socket.receive()
        await asyncio.sleep(3600)

    async def failure(self):
        await self.send(STDERR, b"first line\n" * 500 + b"OCI runtime\n exec failed\n")
        await self.end({"status": "Failure", "reason": "InternalError", "code": 500,
                        "message": "error executing command:\nno such\x1b[31m container"})

    async def stderr(self):
        await self.send(STDERR, b"sandbox-agent: cannot reach the agent\n")
        await self.end(status_of(1))

    async def lost(self):
        """All output, but no word on the end."""
        await self.send(STDOUT, b"some output")
        await self.socket.close(code=int(self.command[-1]), message=b"the kubelet went away")

    async def cut(self):
        await self.send(STDOUT, b"some output")
        await asyncio.sleep(0.05)
        self.request.transport.close()
        await asyncio.sleep(0.05)

    async def garbled(self):
        await self.send(STATUS, b"{no json")

    async def huge(self):
        for _ in range(40):
            await self.send(STATUS, b"x" * 4096)

    async def text(self):
        await self.socket.send_str("words")
        await self.socket.receive()

    async def masked(self):
        self.raw(b"\x82\x83abcdxyz")
        await self.socket.receive()

    async def unclosed(self):
        """The status, and then nothing: a server that forgets to close."""
        await self.send(STDOUT, b"done")
        await self.end(status_of(7))
        await self.socket.receive()

    async def deaf(self):
        """Reads nothing for a while, then all."""
        self.request.transport.pause_reading()
        await asyncio.sleep(0.5)
        self.request.transport.resume_reading()
        await self.digest()

    async def hold(self):
        """Until the other side goes."""
        await self.send(STDOUT, b"here")
        async for data in self.input():
            if data is None:
                break
        pathlib.Path(sys.argv[1], "gone-" + self.command[-1]).touch()


def refuse(name: str, request) -> web.StreamResponse | None:
    count = seen[name] = seen.get(name, 0) + 1
    if name.startswith("status-"):
        code = int(name.split("-")[1])
        reasons = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 500: "InternalError"}
        return refusal(code, reasons.get(code, ""), f"the double says {code}" + " and more" * 300)
    if name.startswith("throttled") and count == 1:
        return refusal(429, "TooManyRequests", "slow down", {"Retry-After": "0"})
    if name == "always-throttled":
        return refusal(429, "TooManyRequests", "slow down")
    if request.headers.get("Authorization") != "Bearer " + TOKEN:
        if name == "expired":
            pathlib.Path(sys.argv[1], "token").write_text(TOKEN, encoding="ascii")
        return refusal(401, "Unauthorized", "Unauthorized")
    return None


async def speak_badly(name: str, request) -> web.StreamResponse:
    """Handshakes that no WebSocket library makes, byte by byte."""
    key = request.headers["Sec-WebSocket-Key"]
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accept = base64.b64encode(digest).decode()
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    answers = {
        "other-key": head + "Sec-WebSocket-Accept: " + accept[::-1] + "\r\n\r\n",
        "no-protocol": head + f"Sec-WebSocket-Accept: {accept}\r\n\r\n",
        "chunked": "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "47\r\n{\"kind\":\"Status\",\"reason\":\"NotFound\",\"details\":{\"name\":\"a-pod\"},\"messag\r\n"
                   "13\r\ne\":\"no such chunk\"}\r\n0\r\n\r\n",
        "no-container": "HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\ncontainer not found",
        "no-http": "SSH-2.0-OpenSSH\r\n\r\n",
        "early": head + f"Sec-WebSocket-Accept: {accept}\r\n"
                 "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
    }
    data = answers.get(name, "").encode()
    if name == "early":
        data += frame(2, bytes([STDOUT]) + b"before you asked")
        data += frame(2, bytes([STATUS]) + json.dumps(status_of(0)).encode()) + frame(8, b"")
    request.transport.write(data)
    if name == "never":
        pathlib.Path(sys.argv[1], "asked").touch()
        await asyncio.sleep(3600)
    request.transport.close()
    return web.Response()


async def run(request) -> web.StreamResponse:
    pod = request.match_info["pod"]
    name, _, protocol = pod.partition(".")
    refused = refuse(name, request)
    if refused is not None:
        return refused
    if name in ("other-key", "no-container", "no-protocol", "chunked", "no-http", "early", "never", "dropped"):
        return await speak_badly(name, request)
    query = request.query
    assert [query[key] for key in ("stdin", "stdout", "stderr", "tty")] == 3 * ["true"] + ["false"]
    assert query["container"] == "workspace"
    offered = [each.strip() for each in request.headers["Sec-WebSocket-Protocol"].split(",")]
    assert offered == ["v5.channel.k8s.io", "v4.channel.k8s.io"]
    answers_pings = name not in ("pings", "listens", "unanswered")
    socket = web.WebSocketResponse(protocols=[(protocol or "v5") + ".channel.k8s.io"],
                                   max_msg_size=0, autoping=answers_pings, compress=False)
    await socket.prepare(request)
    session = Session(request, socket, query.getall("command"))
    method = "exit" if name.startswith(("throttled", "expired")) else name
    try:
        await getattr(session, method)()
    except ConnectionError:
        pass
    if not socket.closed:
        await socket.close()
    return socket


def make_certificates(folder: pathlib.Path) -> None:
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=double",
            "-days", "2")
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n", encoding="ascii")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", "names", "-days", "2", "-out", "server.crt")


def write_kubeconfig(folder: pathlib.Path, port: int) -> None:
    ca = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "double",
              "clusters": [{"name": "double", "cluster": {
                  "server": f"https://127.0.0.1:{port}", "certificate-authority-data": ca}},
                           {"name": "stranger", "cluster": {
                               "server": f"https://127.0.0.1:{port}"}},
                           {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
              "users": [{"name": "double", "user": {"token": TOKEN}},
                        {"name": "late", "user": {"tokenFile": str(folder / "token")}}],
              "contexts": [{"name": name, "context": {
                  "cluster": cluster, "user": user, "namespace": "workspaces"}}
                  for name, cluster, user in (
                      ("double", "double", "double"), ("late", "double", "late"),
                      ("stranger", "stranger", "double"), ("nowhere", "nowhere", "double"))]}
    (folder / "token").write_text("of yesterday", encoding="ascii")
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config), encoding="ascii")  # which is YAML


async def serve(folder: pathlib.Path) -> None:
    logging.disable(logging.CRITICAL)  # callers that leave are no news
    make_certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    application = web.Application()
    application.router.add_get("/api/v1/namespaces/workspaces/pods/{pod}/exec", run)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    write_kubeconfig(folder, port)
    print("ready", port, flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await ended
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(pathlib.Path(sys.argv[1])))
