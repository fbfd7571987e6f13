"""How calls wait: cancelling, turns, threads, and the end of the program."""

import _thread
import atexit
import os
import time

import _libsandbox

from ._errors import Cancelled, Closed, TimedOut

SLICE = 0.05  # seconds between two looks at whether a wait was cancelled
PATIENCE = 2  # seconds that the end of the program waits for cancelled calls


class Cancel:
    """Ends waits from another thread. One may serve any number of calls.

    Give it as `cancel=` and call `trigger()`: every wait that uses it, now and later, raises
    `Cancelled` within 100 ms.
    """

    __slots__ = ("__weakref__", "_handle", "_triggered")

    def __init__(self):
        self._handle = _libsandbox.create_cancel()
        self._triggered = False

    def trigger(self):
        """End every wait that uses this. From any thread, as often as you like."""
        self._triggered = True
        self._handle.trigger()

    @property
    def triggered(self):
        """Whether it was triggered."""
        return self._triggered


class _Gone:
    """Stands where a handle was that has been closed."""

    __slots__ = ()

    def __getattr__(self, name):
        raise Closed("the handle was closed", reason="handle-closed")


GONE = _Gone()


class Handle:
    """What all handles have in common. The library's one is freed with the last use of it."""

    __slots__ = ("__weakref__", "_handle")

    def __init__(self, handle):
        self._handle = handle

    @property
    def closed(self):
        """Whether this handle was closed."""
        return self._handle is GONE

    def close(self):
        """Forget the handle. What it stands for goes on; calls under way end as they would."""
        self._handle = GONE

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def how(timeout, cancel):
    """The two as the extension takes them."""
    if cancel is None:
        return timeout
    if not isinstance(cancel, Cancel):
        raise TypeError("'cancel' must be a libsandbox.Cancel")
    # The library looks when it has to wait, which it need not where there is always something.
    if cancel.triggered:
        raise Cancelled("cancelled by the caller")
    return timeout, cancel._handle


def seconds(timeout):
    """A duration as a number, or None."""
    return timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout


class Clock:
    """What is left of a timeout that several calls share."""

    __slots__ = ("_end",)

    def __init__(self, timeout):
        timeout = seconds(timeout)
        self._end = None if timeout is None else time.monotonic() + timeout

    def left(self):
        return None if self._end is None else max(0.0, self._end - time.monotonic())


class Turn:
    """One thread at a time: what the library lends is copied before the next call takes it back."""

    __slots__ = ("_lock",)

    def __init__(self):
        self._lock = _thread.allocate_lock()

    def take(self, timeout, cancel):
        """Waits for the turn; gives what is left of the timeout."""
        if self._lock.acquire(False):
            return timeout
        clock = Clock(timeout)
        while True:
            left = clock.left()
            if self._lock.acquire(timeout=SLICE if left is None else min(SLICE, left)):
                return clock.left()
            if cancel is not None and cancel.triggered:
                raise Cancelled("cancelled by the caller")
            if left == 0:
                raise TimedOut("the call's deadline passed")

    def leave(self):
        self._lock.release()


class Pool:
    """Threads for calls that wait, as many as there are such calls. They end with the program.

    Not those of concurrent.futures: the program's end would wait for them, for ever where a call
    has no deadline.
    """

    def __init__(self):
        self._lock = _thread.allocate_lock()
        self._idle = []
        self.busy = 0

    def submit(self, work):
        """Runs `work`, which must not raise, on a thread of the pool."""
        with self._lock:
            self.busy += 1
            box = self._idle.pop() if self._idle else None
        if box is None:
            _thread.start_new_thread(self._serve, ([work], _thread.allocate_lock()))
        else:
            box[0].append(work)
            box[1].release()

    def _serve(self, work, wake):
        wake.acquire()
        while True:
            work.pop()()
            with self._lock:
                self.busy -= 1
                if len(self._idle) >= 16:
                    return
                self._idle.append((work, wake))
            wake.acquire()


pool = Pool()


def apart(function, cancel):
    """Runs `function(cancel)` on a thread of the pool, so that a signal or `cancel` can end what
    the library itself does on several threads."""
    own, done, outcome = Cancel(), _thread.allocate_lock(), []
    done.acquire()

    def work():
        try:
            outcome.append((function(own), None))
        except BaseException as error:
            outcome.append((None, error))
        done.release()

    pool.submit(work)
    try:
        while not done.acquire(timeout=SLICE):
            if cancel is not None and cancel.triggered:
                own.trigger()
    except BaseException:
        own.trigger()
        done.acquire()
        raise
    result, error = outcome.pop()
    try:
        if error is not None:
            raise error
        return result
    finally:
        del error


def _before_fork():
    """A module that another thread is importing would stay locked in the child for ever."""
    from . import _run  # noqa: F401


def _after_fork():
    global pool
    pool = Pool()


def _at_exit():
    """No call may still be in the library's hands when the interpreter goes."""
    _libsandbox.stop_calls()
    end = time.monotonic() + PATIENCE
    while pool.busy and time.monotonic() < end:
        time.sleep(0.005)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
atexit.register(_at_exit)
