"""Commands that run inside a workspace."""

import _libsandbox

from ._errors import Closed, Limit
from ._wait import Handle, Turn, how

LINE_LIMIT = 64 << 20


def what(command, options):
    """The options of a command, a str or bytes for the shell, else a program and its arguments."""
    options["command" if isinstance(command, (str, bytes)) else "argv"] = command
    return options


class Process(Handle):
    """A command inside a workspace. It belongs to the workspace: closing this leaves it running.

    Iterate over it for its output: ProcessEvent objects with `kind` 'stdout' or 'stderr' and
    `data`, in order, the last one of kind 'exit'. `text()` and `lines()` decode. A process whose
    output nobody takes waits once its buffer is full, as on any pipe (see `when_full`).
    """

    __slots__ = ("_exit", "_kept", "_turn")

    def __init__(self, handle):
        super().__init__(handle)
        self._turn = Turn()
        self._kept = []
        self._exit = None

    @property
    def id(self):
        """32 hexadecimal digits, by which `Workspace.find_process` finds it again."""
        return self._handle.id()

    @property
    def pid(self):
        """Its number inside the workspace."""
        return self._handle.pid()

    @property
    def exit(self):
        """How it ended, a ProcessExit, once `next`, an iterator or `wait` has told; else None."""
        return self._exit

    def __repr__(self):
        return "<libsandbox.Process closed>" if self.closed else f"<libsandbox.Process {self.id}>"

    def fileno(self):
        """A descriptor that poll() finds readable while `next` would not wait. Never read it."""
        return self._handle.descriptor()

    def next(self, *, timeout=None, cancel=None):
        """Wait for the next ProcessEvent, by default for ever; a timeout of 0 only looks.

        After the one of kind 'exit' Closed is raised.
        """
        timeout = self._turn.take(timeout, cancel)
        try:
            event = self._kept.pop() if self._kept else self._handle.next(how(timeout, cancel))
        finally:
            self._turn.leave()
        if event.exit is not None:
            self._exit = event.exit
        return event

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.next()
        except Closed as error:
            if error.reason != "ended":
                raise
            raise StopIteration from None

    def text(self, encoding="utf-8", errors="replace"):
        """Iterate over the output as (kind, text). A character that comes in two pieces is one."""
        decoding = Decoding(encoding, errors)
        for event in self:
            yield from decoding.take(event)

    def lines(self, encoding="utf-8", errors="replace", limit=LINE_LIMIT):
        """Iterate over whole lines as (kind, line), each with its newline but perhaps the last.

        encoding: None gives bytes. limit: a longer line raises Limit.
        """
        cutting = Cutting(encoding, errors, limit)
        for event in self:
            yield from cutting.take(event)

    def wait(self, *, timeout=None, cancel=None):
        """Wait for the end, whoever takes the output. Gives a ProcessExit."""
        self._exit = self._handle.wait(how(timeout, cancel))
        return self._exit

    def write(self, data, *, timeout=None, cancel=None):
        """Send bytes to its standard input or terminal; returns once the agent has them all."""
        self._handle.write(data, how(timeout, cancel))

    def end_input(self, *, timeout=None, cancel=None):
        """End its standard input. On a terminal: types the end-of-file character."""
        self._handle.end_input(how(timeout, cancel))

    def signal(self, number, *, timeout=None, cancel=None):
        """Send a signal to it and its group; SIGKILL also to every descendant that left it.

        If it has ended, nothing happens.
        """
        self._handle.signal(int(number), how(timeout, cancel))

    def kill(self, *, timeout=None, cancel=None):
        """Send SIGKILL to it and all its descendants."""
        self.signal(9, timeout=timeout, cancel=cancel)

    def resize(self, columns, rows, *, timeout=None, cancel=None):
        """Tell its terminal the new size; each 1 to 4,096."""
        self._handle.resize(columns, rows, how(timeout, cancel))


class Decoding:
    """Output events to text: a decoder for each stream, since each may be cut in a character."""

    def __init__(self, encoding, errors):
        import codecs

        self._make = codecs.getincrementaldecoder(encoding)
        self._errors = errors
        self._decoders = {}

    def take(self, event):
        """What the event makes known, a list of (kind, text)."""
        if event.kind == "exit":
            rest = [(kind, decoder.decode(b"", True)) for kind, decoder in self._decoders.items()]
            return [(kind, text) for kind, text in rest if text]
        decoder = self._decoders.get(event.kind)
        text = ""
        if decoder is None:
            decoder = self._decoders[event.kind] = self._make(self._errors)
        elif event.dropped:
            text = decoder.decode(b"", True)
            decoder.reset()
        text += decoder.decode(event.data)
        return [(event.kind, text)] if text else []


class Cutting:
    """Output events to whole lines."""

    def __init__(self, encoding, errors, limit):
        self._encoding, self._errors, self._limit = encoding, errors, limit
        self._pieces = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}

    def take(self, event):
        """The lines that the event ends, a list of (kind, line)."""
        if event.kind == "exit":
            return [self._join(kind) for kind, pieces in self._pieces.items() if pieces]
        *ended, begun = event.data.split(b"\n")
        lines = []
        for end in ended:
            self._add(event.kind, end + b"\n")
            lines.append(self._join(event.kind))
        if begun:
            self._add(event.kind, begun)
        return lines

    def _add(self, kind, piece):
        self._sizes[kind] += len(piece)
        if self._sizes[kind] > self._limit:
            raise Limit(f"a line is longer than {self._limit} bytes", reason="line-too-long")
        self._pieces[kind].append(piece)

    def _join(self, kind):
        line = b"".join(self._pieces[kind])
        self._pieces[kind].clear()
        self._sizes[kind] = 0
        return kind, line if self._encoding is None else line.decode(self._encoding, self._errors)


assert _libsandbox.words["process_event_kind"].keys() == {"stdout", "stderr", "exit"}
