"""Nothing leaks: calls, failures, handles, cancelled waits."""

import asyncio
import gc
import threading

import pytest
from conftest import count, handles, no_handles_but, resident

import libsandbox
from libsandbox import aio

GROWTH = 3 << 20  # bytes: what allocators keep, not what a leak of a few bytes a call would be
ROUNDS = 3  # a leak grows in each of them, a thread's new arena in one


def flat(work, times):
    """Does it that often, after as often as it takes for all caches to fill."""
    for _ in range(max(times // 5, 20)):
        work()
    there, grown = handles(), []
    while not grown or grown[-1] >= GROWTH:
        assert len(grown) < ROUNDS, grown
        before = resident()
        for _ in range(times):
            work()
        grown.append(resident() - before)
    no_handles_but(there)


def test_calls_leak_nothing(own):
    own.files.write("f", b"x" * 10000)

    def work():
        own.files.read("f")
        own.files.write("f", bytearray(10000), mode=0o600)
        own.files.list()
        own.measure()
        assert own.name and own.id
        with pytest.raises(libsandbox.NotFound):
            own.files.read("missing")
        with pytest.raises(TypeError):
            own.files.write("f", "text")
        with pytest.raises(ValueError):
            own.suspend(keep="no such word")
        with pytest.raises(OverflowError):
            own.measure(timeout=2**70)
        with pytest.raises(TypeError):
            own.run("true", env={"A": 5})
    flat(work, count(200, 10000))


def test_commands_leak_nothing(own):
    def work():
        own.run("echo x", text=True, env={"A": "b"}, input="y")
        with pytest.raises(libsandbox.CommandFailed):
            own.run("exit 3", check=True)
        for _ in own.start(["echo", "x"]).text():
            pass
    flat(work, count(100, 1000))


def test_handles_leak_nothing(uri):
    def work():
        with libsandbox.Client(uri) as client, client.create_workspace(temporary=True) as made:
            made.start("true").wait()
            with made.files.watch(), client.watch(), made.files.writer("f") as writer:
                writer.write(b"x")
            made.files.reader("f").close()
            with pytest.raises(libsandbox.Exists):
                client.create_workspace(made.name)
    flat(work, count(40, 1000))


def test_cancelled_waits_leak_nothing(own):
    process = own.start("sleep 1000")

    def work():
        cancel, ends = libsandbox.Cancel(), []

        def wait():
            try:
                process.next(cancel=cancel)
            except libsandbox.Cancelled:
                ends.append(True)
        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        cancel.trigger()
        for thread in threads:
            thread.join()
        assert len(ends) == 4
    flat(work, count(20, 50))
    process.kill()


def test_cancelled_tasks_leak_nothing(uri, own):
    async def body(client):
        made = await client.find_workspace(own.name)
        tasks = [asyncio.ensure_future(made.run("sleep 60")) for _ in range(5)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def all_of_them():
        async with aio.Client(uri) as client:
            for _ in range(20):
                await body(client)
            grown = []
            while not grown or grown[-1] >= GROWTH:
                assert len(grown) < ROUNDS, grown
                before = resident()
                for _ in range(count(8, 40)):
                    await body(client)
                grown.append(resident() - before)
    there = handles()
    asyncio.run(all_of_them())
    no_handles_but(there)


def test_checks_and_callbacks_leak_nothing(own, tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 1000)

    def raises(_):
        raise ZeroDivisionError

    def work():
        with pytest.raises(libsandbox.Busy):
            own.suspend(checks=[lambda workspace: "somebody"])
        with pytest.raises(ZeroDivisionError):
            own.suspend(checks=[raises])
        own.files.upload(tmp_path / "f", "f", progress=lambda progress: None)
        with pytest.raises(ZeroDivisionError):
            own.files.upload(tmp_path / "f", "f", progress=raises)
    flat(work, count(20, 200))


def test_iterators_that_are_dropped_in_the_middle_leak_nothing(own):
    def work():
        for _ in own.start("echo a; echo b; echo c").lines():
            break
        gc.collect()
    flat(work, count(25, 500))
