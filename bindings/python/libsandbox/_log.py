"""The library's log, brought to Python by a thread of Python's own."""

import _thread
import atexit
import os

import _libsandbox

_lock = _thread.allocate_lock()
_state = {"function": None, "running": False}
_levels = {number: word for word, number in _libsandbox.words["log_level"].items()}


def set_log(level, function=None):
    """Have the library's log told, or with level 'off' silence it again, which is the default.

    The library logs what it decided and cannot return: retries, things left behind, slow answers.
    Lines hold no secrets and no output of commands.

    level: the most talkative one wanted: 'off', 'error', 'warning', 'info' or 'debug'.
    function: is given (level, line), one line after the other, on a thread of its own. Without
        one the lines go to `logging.getLogger("libsandbox")`. What comes faster than it is
        taken is dropped, and counted in a line.
    """
    _libsandbox.set_log(level)
    with _lock:
        _state["function"] = None if level == "off" else function or _to_logging()
        start = level != "off" and not _state["running"]
        _state["running"] = _state["running"] or start
    if start:
        _thread.start_new_thread(_tell, ())


def _to_logging():
    import logging

    numbers = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO,
               "debug": logging.DEBUG}
    logger = logging.getLogger("libsandbox")
    return lambda level, line: logger.log(numbers[level], "%s", line)


def _tell():
    while True:
        taken = _libsandbox.take_log(200)
        with _lock:
            function = _state["function"]
            if function is None and taken is None:
                _state["running"] = False
                return
        if taken is None or function is None:
            continue
        level, line, dropped = taken
        try:
            if dropped:
                function("warning", f"{dropped} lines of the log were dropped")
            function(_levels.get(level, "error"), line)
        except Exception:
            import sys
            sys.unraisablehook(_Raised(*sys.exc_info(), function))


class _Raised:
    """What sys.unraisablehook wants."""

    err_msg = None

    def __init__(self, kind, value, trace, function):
        self.exc_type, self.exc_value, self.exc_traceback = kind, value, trace
        self.object = function


def _stop():
    _libsandbox.set_log("off")
    _state["function"] = None


def _after_fork():
    global _lock
    _lock = _thread.allocate_lock()
    _state.update(function=None, running=False)
    _libsandbox.set_log("off")


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_stop)
