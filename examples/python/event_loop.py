"""event_loop.py [URI]: a command's output and a connection to a port at once, as a program of
asyncio does it: no thread of its own, and no call that waits."""

import asyncio
import sys

import libsandbox
from libsandbox import aio

PORT = 8422
# It says "ready" once it listens, answers one connection with what it is sent, and ends.
SERVER = f"""
import socket
s = socket.socket(); s.bind(('127.0.0.1', {PORT})); s.listen(1); print('ready', flush=True)
c = s.accept()[0]
while data := c.recv(4096): c.sendall(data.upper())
"""


async def ask(workspace):
    async with await workspace.ports.dial(PORT) as connection:
        await connection.write(b"a question\n")
        # The server reads to the end, so it must be told that there is one.
        await connection.end_output()
        async for data in connection:
            print(data.decode(), end="")


async def serve(workspace):
    process = await workspace.start(["python3", "-c", SERVER])
    print("process", process.pid)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        async for _, text in process.text():
            print(text, end="")
            tasks.create_task(ask(workspace))
    print("ended with", (await process.wait()).code)


async def main(uri=None):
    async with aio.Client(uri) as client:
        async with await client.create_workspace(expires_after=600, temporary=True) as workspace:
            await serve(workspace)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (libsandbox.Error, TimeoutError) as error:
        sys.exit(f"event_loop: {error}")
