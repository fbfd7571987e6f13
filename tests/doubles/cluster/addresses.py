"""Addresses of Pods that can really be connected to: of this machine's loopback, 127.64.0.0 and on.

A Pod that is a process has a network namespace with a loopback of its own, on which every address
of 127.0.0.0/8 is its. So what listens on all addresses there is reached at the Pod's one, and sees
itself under it, as in a cluster. Outside, whoever connects to that address at the agent's port is
led inside. Where nobody listens there he is cut at once, not refused.

The other way round there is one place outside that a Pod may reach, as its network policy would let
it: whoever connects to it inside is led to the same address outside, and comes from the Pod's own.
"""
import asyncio
import ctypes
import os
import random
import socket
import threading

import bodies

CLONE_NEWNET = 0x40000000
PIECE = 1 << 16
TRIES = 20


def port_of(container):
    """Where the agent listens on TCP, or None."""
    words = bodies.argv_of(container)
    if "--tcp" not in words[:-1]:
        return None
    return int(words[words.index("--tcp") + 1].rsplit(":", 1)[1])


def _work_inside(pid, work, result):
    """On a thread of its own, which alone changes over."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        with open(f"/proc/{pid}/ns/net", "rb") as space:
            if libc.setns(space.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        result.append(work())
    except OSError as error:
        result.append(error)


async def inside(pid, work):
    """A socket that `work` makes there."""
    result = []
    thread = threading.Thread(target=_work_inside, args=(pid, work, result), daemon=True)
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)
    if isinstance(result[0], OSError):
        raise result[0]
    result[0].setblocking(False)
    return result[0]


async def connect_inside(pid, place):
    made = await inside(pid, lambda: socket.create_connection(place, 5))
    return await asyncio.open_connection(sock=made)


async def copy(reader, writer):
    try:
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


class Address:
    """Of one Pod: `body()` is what runs in it now."""

    def __init__(self, body):
        self.body, self.server, self.way, self.tasks = body, None, None, set()
        self.text = ""

    async def open(self, port):
        for _ in range(TRIES):
            self.text = "127." + ".".join(str(random.randint(low, 254)) for low in (64, 0, 1))
            try:
                if port is not None:
                    self.server = await asyncio.start_server(self._lead, self.text, port)
                return
            except OSError:
                continue
        raise bodies.StartFailed("no address is free for the Pod")

    async def open_way(self, place):
        """To "ADDRESS:PORT" of 127.0.0.0/8, for what runs in the Pod now."""
        host, port = place.rsplit(":", 1)
        listener = await inside(self.body().first, lambda: socket.create_server((host, int(port))))
        self.close_way()
        self.way = await asyncio.start_server(self._lead_out, sock=listener)

    def close_way(self):
        if self.way is not None:
            self.way.close()

    async def _lead(self, reader, writer):
        async def connect():
            body = self.body()
            if body is None or body.ended.done():
                raise OSError("nobody is there")
            return await connect_inside(body.first, writer.get_extra_info("sockname")[:2])
        await self._join(reader, writer, connect)

    async def _lead_out(self, reader, writer):
        async def connect():
            host, port = writer.get_extra_info("sockname")[:2]
            return await asyncio.open_connection(host, port, local_addr=(self.text, 0))
        await self._join(reader, writer, connect)

    async def _join(self, reader, writer, connect):
        self.tasks.add(asyncio.current_task())
        other = None
        try:
            back, other = await connect()
            await asyncio.gather(copy(reader, other), copy(back, writer))
        except OSError:
            pass
        finally:
            for one in (writer, other):
                if one is not None:
                    one.transport.abort()
            self.tasks.discard(asyncio.current_task())

    def close(self):
        if self.server is not None:
            self.server.close()
        self.close_way()
        for task in list(self.tasks):
            task.cancel()
