"""libsandbox.aio: the same for asyncio, and what becomes of a task that is cancelled."""

import asyncio
import inspect
import time

import pytest
from conftest import handles, no_handles_but, run_python, wait_until

import libsandbox
from libsandbox import aio


def in_loop(function):
    """A coroutine as a test: with a client and a workspace of its own."""
    def test(uri):
        async def body():
            async with aio.Client(uri) as client:
                async with await client.create_workspace(temporary=True) as made:
                    await function(client, made)
        asyncio.run(body())
    test.__name__, test.__doc__ = function.__name__, function.__doc__
    return test


def test_every_method_has_its_twin():
    for name in aio.__all__:
        if not inspect.isclass(getattr(aio, name)):
            assert inspect.iscoroutinefunction(getattr(aio, name))
            continue
        sync, twin = getattr(libsandbox, name), getattr(aio, name)
        for verb, method in inspect.getmembers(sync, inspect.isfunction):
            if verb.startswith("_") or verb in dir(libsandbox.FileReader.__mro__[1]):
                continue
            found = getattr(twin, verb)
            assert found.__doc__, (name, verb)
            parameters = dict(inspect.signature(method).parameters)
            if parameters.pop("cancel", None):
                assert inspect.iscoroutinefunction(found), (name, verb)
            assert list(inspect.signature(found).parameters) == list(parameters), (name, verb)


@in_loop
async def test_it_works(client, made):
    assert client.driver == "memory" and repr(made) == f"<libsandbox.aio.Workspace '{made.name}'>"
    result = await made.run("echo out; echo err >&2; exit 3", text=True)
    assert (result.stdout, result.stderr, result.returncode) == ("out\n", "err\n", 3)
    await made.files.write("f", b"1")
    assert await made.files.read("f") == b"1" and (await made.files.stat("f")).file_size == 1
    with pytest.raises(libsandbox.NotFound):
        await made.files.read("missing")
    with pytest.raises(TypeError):
        await made.run("true", memory_mb=1)
    with pytest.raises(TypeError, match="cancel the task"):
        await made.run("true", cancel=libsandbox.Cancel())
    assert (await made.suspend()).kept == "memory" and (await made.resume()).proof == "memory"
    assert (await client.find_workspace(made.name)).id == made.id
    assert made.name in [info.name for info in await client.list_workspaces()]


@in_loop
async def test_iterators(client, made):
    process = await made.start("for i in 1 2 3; do echo $i; done; exit 4")
    assert b"".join([event.data async for event in process]) == b"1\n2\n3\n"
    assert process.exit.code == 4
    process = await made.start(r"printf 'a\303'; printf '\251\nb'")
    assert "".join([text async for _, text in process.text()]) == "aé\nb"
    process = await made.start("printf 'a\nb'")
    assert [line async for _, line in process.lines()] == ["a\n", "b"]
    async with await made.files.writer("f") as writer:
        await writer.write(b"x" * 3000000)
    async with await made.files.reader("f") as reader:
        assert sum([len(piece) async for piece in reader]) == 3000000
    watch = await made.files.watch()
    await made.files.write("g", b"")
    assert (await watch.next(timeout=30)).change == "created"
    watch.close()
    assert [event async for event in watch] == []


@in_loop
async def test_many_wait_at_once_and_the_loop_goes_on(client, made):
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)
    turning = asyncio.ensure_future(turn())
    began = time.monotonic()
    await asyncio.gather(*[made.run("sleep 0.5") for _ in range(32)])
    assert time.monotonic() - began < 12 and turns > 10  # one by one it were 16 s
    turning.cancel()


@in_loop
async def test_p155_a_cancelled_task_has_ended_its_command(client, made):
    task = asyncio.ensure_future(made.run("sleep 61.5 | cat"))
    while not any(info.running for info in await made.list_processes()):
        await asyncio.sleep(0.01)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 2
    while (await made.run(["pgrep", "-f", "^sleep 61.5"])).stdout:
        await asyncio.sleep(0.01)


@in_loop
async def test_p054_a_timeout_of_asyncios_reaches_the_library(client, made):
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.1):
            await made.run("sleep 60")
    assert not isinstance(raised.value, libsandbox.Error)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(made.run("sleep 60"), 0.1)
    with pytest.raises(libsandbox.TimedOut):
        await made.run("sleep 60", timeout=0.1)
    # The first failure of a group ends the others.
    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(made.run("sleep 60"))
            tasks.create_task(made.files.read("missing"))
    assert [type(each) for each in group.value.exceptions] == [libsandbox.NotFound]


@in_loop
async def test_a_cancelled_reader_loses_nothing(client, made):
    process = await made.start("i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done")
    data, ended = b"", False
    while not ended:
        try:
            event = await asyncio.wait_for(process.next(), 0.0005)
            data += event.data
            ended = event.kind == "exit"
        except TimeoutError:
            pass
    assert data == b"".join(b"%d\n" % n for n in range(3000))


@in_loop
async def test_cancelled_twice_it_still_waits_for_the_library(client, made):
    task = asyncio.ensure_future(made.run("sleep 60"))
    await asyncio.sleep(0.1)
    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_workspace_that_was_made_too_late_is_deleted(uri, client, monkeypatch):
    """Whenever a create is cancelled, nothing is left behind."""
    async def body():
        async with aio.Client(uri) as other:
            for delay in [0, 0.001, 0.005, 0.01, 0.02, 0.04]:
                task = asyncio.ensure_future(other.create_workspace("made-late"))
                await asyncio.sleep(delay)
                task.cancel()
                try:
                    await (await task).delete()
                except asyncio.CancelledError:
                    pass
                while "made-late" in [info.name for info in await other.list_workspaces()]:
                    await asyncio.sleep(0.01)
    asyncio.run(body())


def test_a_client_is_opened_by_with_or_await(uri):
    async def body():
        client = await aio.Client(uri)
        assert (await client.list_workspaces()) is not None
        client.close()
        assert client.closed
        with pytest.raises(libsandbox.Closed):
            await client.list_workspaces()
        with pytest.raises(libsandbox.Unsupported):
            await aio.Client("nonsense:")
        assert await aio.doctor(uri)
    asyncio.run(body())


def test_ctrl_c_ends_the_loop_and_the_calls(uri):
    out, _ = run_python("""
import asyncio, os, signal, sys, time
from libsandbox import aio
async def body():
    async with aio.Client(sys.argv[1]) as client:
        async with await client.create_workspace(temporary=True) as made:
            asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
            try:
                await made.run("sleep 60")
            finally:
                print(time.monotonic() < began + 5)
began = time.monotonic()
try:
    asyncio.run(body())
except KeyboardInterrupt:
    print("interrupted")
""", uri)
    assert out == "True\ninterrupted\n"


def test_nothing_is_left(uri):
    before = handles()

    async def body():
        async with aio.Client(uri) as client:
            async with await client.create_workspace(temporary=True) as made:
                tasks = [asyncio.ensure_future(made.run("sleep 60")) for _ in range(20)]
                await asyncio.sleep(0.1)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.run(body())
    no_handles_but(before)
    wait_until(lambda: libsandbox._wait.pool.busy == 0)
