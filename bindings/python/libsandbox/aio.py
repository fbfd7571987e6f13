"""The same for asyncio: every method that can wait is a coroutine.

    from libsandbox import aio

    async with aio.Client() as client:
        async with await client.create_workspace(temporary=True) as workspace:
            print((await workspace.run("uname -sr", text=True)).stdout)

Names, options and results are those of `libsandbox`; iterators are asynchronous. Each call that is
under way has a thread of its own, so the loop never waits for one. A task that is cancelled ends
its call in the library, and goes on only when that has really stopped: a command that was run is
killed by then, a suspend rolled back. `cancel=` is not needed here and not taken.
"""

import asyncio
import functools
import inspect

import libsandbox as _sync

from . import _wait
from ._errors import Closed
from ._process import LINE_LIMIT, Cutting, Decoding

__all__ = ["Client", "Connection", "FileReader", "FileWatch", "FileWriter", "Files", "Forward",
           "Ports", "Process", "Watch", "Workspace", "apply_manifests", "doctor"]


async def _call(function, *args, **kwargs):
    return _wrapped(await _call_plain(function, *args, **kwargs))


async def _call_plain(function, *args, late=None, **kwargs):
    """Runs it on a thread. `late` is given what came of a call that was cancelled too late."""
    if "cancel" in kwargs:
        raise TypeError("cancel the task instead of giving 'cancel'")
    loop = asyncio.get_running_loop()
    cancel = _sync.Cancel()
    future = loop.create_future()

    def work():
        try:
            outcome = function(*args, cancel=cancel, **kwargs), None
        except BaseException as error:
            outcome = None, error
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    def settle(result, error):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    _wait.pool.submit(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel.trigger()
        await _see_out(future, late)
        raise
    finally:
        del future


async def _see_out(future, late):
    """However often it is cancelled, a task does not go on while the library still works for it."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if future.exception() is None and late is not None:
        late(future.result())


def _wrapped(result):
    kind = _WRAPPERS.get(type(result))
    return result if kind is None else kind._of(result)


def _signature(function, drop):
    """Of the coroutine: without `cancel`, and without `self` where there is none."""
    signature = inspect.signature(function)
    return signature.replace(parameters=[each for each in signature.parameters.values()
                                         if each.name not in drop])


def _method(name, function):
    @functools.wraps(function)
    async def method(self, *args, **kwargs):
        return await _call(getattr(self._sync, name), *args, **kwargs)

    method.__signature__ = _signature(function, ("cancel",))
    return _named(method)


def _function(function):
    @functools.wraps(function)
    async def call(*args, **kwargs):
        return await _call(function, *args, **kwargs)

    call.__signature__ = _signature(function, ("cancel",))
    return _named(call)


def _named(function):
    function.__module__ = __name__
    del function.__wrapped__
    return function


def _attribute(name, found):
    def get(self):
        return _wrapped(getattr(self._sync, name))
    return property(get, doc=found.__doc__)


def _like(sync, *attributes):
    """Gives a class the methods of its blocking twin: those that take `cancel` as coroutines."""
    def decorate(kind):
        for name in dir(sync):
            found = inspect.getattr_static(sync, name)
            if name.startswith("_") or name in kind.__dict__:
                continue
            if isinstance(found, property):
                setattr(kind, name, _attribute(name, found))
            elif inspect.isfunction(found) and "cancel" in inspect.signature(found).parameters:
                setattr(kind, name, _method(name, found))
            elif name in attributes:
                setattr(kind, name, _plain(name, found))
        kind.__doc__ = kind.__doc__ or sync.__doc__
        _WRAPPERS[sync] = kind
        return kind
    return decorate


def _plain(name, function):
    @functools.wraps(function)
    def method(self, *args, **kwargs):
        return _wrapped(getattr(self._sync, name)(*args, **kwargs))

    method.__signature__ = inspect.signature(function)
    return _named(method)


_WRAPPERS = {}


class _Twin:
    """Holds the blocking object that it stands for."""

    __slots__ = ("__weakref__", "_sync")

    @classmethod
    def _of(cls, sync):
        twin = cls.__new__(cls)
        twin._sync = sync
        return twin

    def __repr__(self):
        return repr(self._sync).replace("<libsandbox.", "<libsandbox.aio.")


class _Handle(_Twin):
    __slots__ = ()

    @property
    def closed(self):
        """Whether this handle was closed."""
        return self._sync.closed

    def close(self):
        """Forget the handle. What it stands for goes on; calls under way end as they would."""
        self._sync.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._sync.close()


class _Stream(_Handle):
    """An asynchronous iterator. What was taken for a task that was cancelled is not lost."""

    __slots__ = ("_kept",)

    @classmethod
    def _of(cls, sync):
        twin = super()._of(sync)
        twin._kept = []
        return twin

    async def _next(self, take, timeout):
        if self._kept:
            return self._kept.pop(0)
        return await _call(take, timeout=timeout, late=self._kept.append)

    def __aiter__(self):
        return self


class _Events(_Stream):
    __slots__ = ()

    async def next(self, *, timeout=None):
        """Wait for the next event; by default for ever."""
        return await self._next(self._sync.next, timeout)

    async def __anext__(self):
        try:
            return await self.next()
        except Closed:
            raise StopAsyncIteration from None


@_like(_sync.Client, "can", "watch")
class Client(_Handle):
    """A connection to one platform where workspaces live, see libsandbox.Client.

    `async with Client(uri) as client`, or `client = await Client(uri)`: until then nothing is done.
    """

    __slots__ = ("_arguments",)

    def __init__(self, uri=None, *, timeout=None):
        self._arguments = {"uri": uri, "timeout": timeout}
        self._sync = None

    def __await__(self):
        return self._open().__await__()

    async def _open(self):
        if self._sync is None:
            self._sync = await _call_plain(_sync.Client, **self._arguments)
        return self

    async def __aenter__(self):
        return await self._open()

    @functools.wraps(_sync.Client.create_workspace)
    async def create_workspace(self, *args, **kwargs):
        def late(workspace):
            # Nobody else knows of it. It goes, like what a failed call has made.
            _wait.pool.submit(functools.partial(_delete, workspace))
        return await _call(self._sync.create_workspace, *args, late=late, **kwargs)

    create_workspace.__signature__ = _signature(_sync.Client.create_workspace, ("cancel",))
    _named(create_workspace)


def _delete(workspace):
    try:
        workspace.delete()
    except _sync.Error:
        pass  # its time runs out, or the next sweep takes it


@_like(_sync.Workspace)
class Workspace(_Handle):
    __slots__ = ()

    async def __aexit__(self, *_):
        if self._sync._temporary and not self._sync.closed:
            await self.delete()
        self._sync.close()


@_like(_sync.Process, "fileno")
class Process(_Stream):
    __slots__ = ()

    async def next(self, *, timeout=None):
        """Wait for the next ProcessEvent, by default for ever; a timeout of 0 only looks.

        After the one of kind 'exit' Closed is raised.
        """
        return await self._next(self._sync.next, timeout)

    async def __anext__(self):
        try:
            return await self.next()
        except Closed as error:
            if error.reason != "ended":
                raise
            raise StopAsyncIteration from None

    async def text(self, encoding="utf-8", errors="replace"):
        """Iterate over the output as (kind, text). A character that comes in two pieces is one."""
        decoding = Decoding(encoding, errors)
        async for event in self:
            for each in decoding.take(event):
                yield each

    async def lines(self, encoding="utf-8", errors="replace", limit=LINE_LIMIT):
        """Iterate over whole lines as (kind, line), each with its newline but perhaps the last."""
        cutting = Cutting(encoding, errors, limit)
        async for event in self:
            for each in cutting.take(event):
                yield each


@_like(_sync.Files)
class Files(_Twin):
    __slots__ = ()


@_like(_sync.Ports)
class Ports(_Twin):
    __slots__ = ()


@_like(_sync.FileReader)
class FileReader(_Stream):
    """A file being read piece by piece: an asynchronous iterator of pieces."""

    __slots__ = ()

    async def next(self, *, timeout=None):
        """The next piece as bytes, of a size of the library's choice; b"" is the end."""
        return await self._next(self._sync.next, timeout)

    async def __anext__(self):
        piece = await self.next()
        if not piece:
            raise StopAsyncIteration
        return piece


@_like(_sync.FileWriter)
class FileWriter(_Handle):
    __slots__ = ()

    async def __aexit__(self, kind, *_):
        if kind is None and not self._sync.closed:
            await self.commit()
        self._sync.close()


@_like(_sync.FileWatch)
class FileWatch(_Events):
    __slots__ = ()


@_like(_sync.Watch)
class Watch(_Events):
    __slots__ = ()


@_like(_sync.Connection, "fileno")
class Connection(_Stream):
    __slots__ = ()

    async def read(self, *, timeout=None):
        """Wait for bytes, by default for ever; b"" is the end."""
        return await self._next(self._sync.read, timeout)

    async def __anext__(self):
        try:
            data = await self.read()
        except Closed:
            data = b""
        if not data:
            raise StopAsyncIteration
        return data


@_like(_sync.Forward)
class Forward(_Handle):
    __slots__ = ()


doctor = _function(_sync.doctor)
apply_manifests = _function(_sync.apply_manifests)
