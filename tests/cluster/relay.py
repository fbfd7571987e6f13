"""A Unix socket whose every connection is an exec of the agent's relay in a Pod, over WebSocket."""

import asyncio
import contextlib
import json
import os
import threading

import aiohttp
from conftest import CORE, path_of

AGENT = "/sandbox/agent/sandbox-agent"
PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255


async def pump(reader, socket):
    while piece := await reader.read(1 << 16):
        await socket.send_bytes(bytes([STDIN]) + piece)
    await socket.send_bytes(bytes([CLOSE, STDIN]))


class Execs:
    """Execs in the Pods of one double; a loop of its own in a thread."""

    def __init__(self, double):
        self.double, self.loop = double, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.session = self.call(self._session())

    async def _session(self):
        return aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.double.token}"})

    def call(self, work, seconds=60):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def end(self):
        self.call(self.session.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def connect(self, pod, argv):
        query = [("container", "workspace"), ("stdin", "true"), ("stdout", "true"),
                 ("stderr", "true"), *(("command", word) for word in argv)]
        return self.session.ws_connect(
            self.double.url + path_of("pods", CORE, pod) + "/exec", params=query, max_msg_size=0,
            protocols=[PROTOCOL])

    def run(self, pod, *argv):
        """(code, stdout, stderr); the code is None where no status came."""
        return self.call(self._run(pod, argv))

    async def _run(self, pod, argv):
        said = {STDOUT: b"", STDERR: b"", STATUS: b""}
        async with self.connect(pod, argv) as socket:
            await socket.send_bytes(bytes([CLOSE, STDIN]))
            async for message in socket:
                said[message.data[0]] += message.data[1:]
        code = None
        if said[STATUS]:
            status = json.loads(said[STATUS])
            causes = (status.get("details") or {}).get("causes") or []
            code = 0 if status["status"] == "Success" else \
                int(causes[0]["message"]) if causes else status["message"]
        return code, said[STDOUT], said[STDERR]

    @contextlib.contextmanager
    def socket_to(self, pod, name):
        """A path to connect to, whose connections reach the agent in the Pod of that name."""
        path = os.path.join(self.double.directory, f"to-{name}")
        server = self.call(self._listen(path, pod))
        yield path
        self.loop.call_soon_threadsafe(server.close)
        os.unlink(path)

    async def _listen(self, path, pod):
        async def serve(reader, writer):
            try:
                async with self.connect(pod, [AGENT, "relay", "@sandbox-agent"]) as socket:
                    upward = asyncio.ensure_future(pump(reader, socket))
                    async for message in socket:
                        if message.data[0] == STDOUT:
                            writer.write(message.data[1:])
                            await writer.drain()
                    upward.cancel()
            except (OSError, aiohttp.ClientError):
                pass
            writer.close()
        return await asyncio.start_unix_server(serve, path)
