"""Files of a workspace."""

import io

from ._errors import Closed
from ._wait import GONE, Cancel, Handle, Turn, how


class Files:
    """The files of a workspace: `workspace.files`.

    Paths are str, bytes or os.PathLike, absolute or relative to /workspace. A relative one never
    leads out of /workspace through a link, unless `follow_out` says so. Names that are not UTF-8
    come as str with surrogate escapes, as everywhere in Python, and may be given so.

    Every method takes `timeout`, in seconds or as a timedelta, and `cancel`, a Cancel.
    """

    __slots__ = ("_workspace",)

    def __init__(self, workspace):
        self._workspace = workspace

    @property
    def _handle(self):
        return self._workspace._handle

    def read(self, path, *, offset=None, length=None, limit=None, follow_out=None, timeout=None,
             cancel=None):
        """The content of a file, or of a part of it, as bytes.

        offset, length: the part; without a length to the end.
        limit: more than that many bytes raise Limit. Default: 256 MiB.
        """
        return self._handle.read_file(
            path, {"offset": offset, "length": length, "limit": limit, "follow_out": follow_out},
            how(timeout, cancel))

    def read_text(self, path, *, encoding="utf-8", errors="strict", limit=None, follow_out=None,
                  timeout=None, cancel=None):
        """The content of a file as str."""
        return self.read(path, limit=limit, follow_out=follow_out, timeout=timeout,
                         cancel=cancel).decode(encoding, errors)

    def write(self, path, data, *, mode=None, append=None, exclusive=None, no_parents=None,
              follow_out=None, timeout=None, cancel=None):
        """Write a whole file in one step: the old content or the new one, never a mixture.

        data: bytes or any other buffer; it is not copied.
        mode: permission bits. Default: the old file's, else 0o644.
        append: add to the end instead. exclusive: raise Exists if there is a file.
        no_parents: do not make missing directories.
        """
        self._handle.write_file(
            path, data, {"mode": mode, "append": append, "exclusive": exclusive,
                         "no_parents": no_parents, "follow_out": follow_out}, how(timeout, cancel))

    def write_text(self, path, text, *, encoding="utf-8", errors="strict", mode=None, append=None,
                   exclusive=None, no_parents=None, follow_out=None, timeout=None, cancel=None):
        """Write a str, as `write` does; no newline is translated."""
        self.write(path, text.encode(encoding, errors), mode=mode, append=append,
                   exclusive=exclusive, no_parents=no_parents, follow_out=follow_out,
                   timeout=timeout, cancel=cancel)

    def reader(self, path, *, offset=None, length=None, follow_out=None, timeout=None,
               cancel=None):
        """A FileReader, for files that are read piece by piece."""
        return FileReader(self._handle.open_reader(
            path, {"offset": offset, "length": length, "follow_out": follow_out},
            how(timeout, cancel)))

    def writer(self, path, *, mode=None, append=None, exclusive=None, no_parents=None,
               follow_out=None, timeout=None, cancel=None):
        """A FileWriter, for files that are written piece by piece and put in place at the end."""
        return FileWriter(self._handle.open_writer(
            path, {"mode": mode, "append": append, "exclusive": exclusive,
                   "no_parents": no_parents, "follow_out": follow_out}, how(timeout, cancel)))

    def stat(self, path, *, timeout=None, cancel=None):
        """A FileInfo about one file; a link is not followed."""
        return self._handle.stat_file(path, how(timeout, cancel))[0]

    def list(self, path=".", *, timeout=None, cancel=None):
        """What is in a directory: a list of FileInfo, by name; over 100,000 raise Limit."""
        return self._handle.list_directory(path, how(timeout, cancel))

    def remove(self, path, *, recursive=None, timeout=None, cancel=None):
        """Remove a file or an empty directory; `recursive`: with its content."""
        self._handle.remove_file(path, {"recursive": recursive}, how(timeout, cancel))

    def rename(self, path, new_path, *, replace=None, timeout=None, cancel=None):
        """Give it another name; `replace`: also over a file that is there."""
        self._handle.rename_file(path, new_path, {"replace": replace}, how(timeout, cancel))

    def make_directory(self, path, *, recursive=None, mode=None, timeout=None, cancel=None):
        """Make a directory; `recursive`: its parents too. mode: default 0o755."""
        self._handle.make_directory(path, {"recursive": recursive, "mode": mode},
                                    how(timeout, cancel))

    def set_mode(self, path, mode, *, timeout=None, cancel=None):
        """Set the twelve permission bits."""
        self._handle.set_file_mode(path, mode, how(timeout, cancel))

    def link(self, target, path, *, hard_link=None, replace=None, timeout=None, cancel=None):
        """Make a link at `path` that leads to `target`, a symbolic one unless `hard_link`."""
        self._handle.link_file(target, path, {"hard_link": hard_link, "replace": replace},
                               how(timeout, cancel))

    def watch(self, path=".", *, recursive=None, timeout=None, cancel=None):
        """A FileWatch: whatever happens to the file or directory after this returned is told.

        recursive: directories below too, also those made later; at most 8,192.
        """
        return FileWatch(self._handle.watch_files(path, {"recursive": recursive},
                                                  how(timeout, cancel)))

    def upload(self, host_path, guest_path, *, max_bytes=None, max_entries=None, max_depth=None,
               links=None, progress=None, timeout=None, cancel=None):
        """Copy a file or a whole tree from this machine to `guest_path`, which becomes the copy.

        Links on this machine are never followed.

        max_bytes, max_entries, max_depth: 64 GiB, 500,000 and 64 by default; more raises Limit.
        links: 'inside' keeps those that stay inside the tree (default), 'keep' all, 'skip' none.
        progress: is given a CopyProgress every 100 ms or so; what it raises ends the copy.
        Gives a CopyResult.
        """
        return self._handle.upload(host_path, guest_path,
                                   {"max_bytes": max_bytes, "max_entries": max_entries,
                                    "max_depth": max_depth, "links": links, "progress": progress},
                                   how(timeout, cancel))

    def download(self, guest_path, host_path, *, max_bytes=None, max_entries=None, max_depth=None,
                 links=None, progress=None, timeout=None, cancel=None):
        """Copy a file or a whole tree out of the workspace, to `host_path`, which becomes the copy.

        Whatever the guest sends, nothing outside `host_path` is written, and no link here is
        followed. Options and result as of `upload`.
        """
        return self._handle.download(guest_path, host_path,
                                     {"max_bytes": max_bytes, "max_entries": max_entries,
                                      "max_depth": max_depth, "links": links,
                                      "progress": progress}, how(timeout, cancel))


class FileReader(io.RawIOBase):
    """A file being read piece by piece: a raw binary file of Python's, and an iterator of pieces.

    `io.BufferedReader(reader)` and `io.TextIOWrapper` go on top of it as on any other.
    """

    def __init__(self, handle):
        super().__init__()
        self._handle = handle
        self._turn = Turn()
        self._left = memoryview(b"")

    def readable(self):
        """True."""
        return True

    def next(self, *, timeout=None, cancel=None):
        """The next piece as bytes, of a size of the library's choice; b"" is the end."""
        timeout = self._turn.take(timeout, cancel)
        try:
            if self._left:
                piece, self._left = bytes(self._left), memoryview(b"")
                return piece
            return self._handle.next(how(timeout, cancel))
        finally:
            self._turn.leave()

    def readinto(self, buffer):
        """As of io.RawIOBase."""
        wanted = memoryview(buffer).cast("B")
        if not wanted:
            return 0
        self._turn.take(None, None)
        try:
            if not self._left:
                self._left = memoryview(self._handle.next(None))
            count = min(len(wanted), len(self._left))
            wanted[:count] = self._left[:count]
            self._left = self._left[count:]
            return count
        finally:
            self._turn.leave()

    def __next__(self):
        piece = self.next()
        if not piece:
            raise StopIteration
        return piece

    def close(self):
        """Forget the reader."""
        self._handle = GONE
        super().close()


class FileWriter(Handle):
    """A file being written piece by piece. Nobody sees its content before `commit`.

    As a context manager it commits at the end of the block, and changes nothing if the block
    raises.
    """

    __slots__ = ()

    def write(self, data, *, timeout=None, cancel=None):
        """Add bytes, or any other buffer. Gives their number, as files of Python's do."""
        self._handle.write(data, how(timeout, cancel))
        return memoryview(data).nbytes

    def commit(self, *, timeout=None, cancel=None):
        """Make the content durable and put it in place, in one step."""
        self._handle.commit(how(timeout, cancel))
        self.close()

    def __exit__(self, kind, *_):
        if kind is None and not self.closed:
            self.commit()
        self.close()


class Stream(Handle):
    """A handle that is waited on for the next of something, and whose closing ends that wait."""

    __slots__ = ("_ending", "_turn")

    def __init__(self, handle):
        super().__init__(handle)
        self._ending = Cancel()
        self._turn = Turn()

    def _take(self, call, timeout, cancel):
        """Calls `call(how)` with the turn taken. A Closed if this was closed meanwhile."""
        timeout = self._turn.take(timeout, cancel or self._ending)
        try:
            return call(self._handle, how(timeout, cancel or self._ending))
        except Exception as error:
            if self.closed and getattr(error, "status", "") == "cancelled":
                raise Closed("the handle was closed", reason="handle-closed") from None
            raise
        finally:
            self._turn.leave()

    def close(self):
        """Forget it. Whoever waits for the next one is told that it was closed."""
        super().close()
        self._ending.trigger()


class Events(Stream):
    """A stream of events that is iterated over, until it is closed."""

    __slots__ = ()

    def next(self, *, timeout=None, cancel=None):
        """Wait for the next event; by default for ever."""
        return self._take(lambda handle, call: handle.next(call), timeout, cancel)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.next()
        except Closed:
            raise StopIteration from None


class FileWatch(Events):
    """A watch on a file or directory: an iterator of FileEvent that ends when it is closed."""

    __slots__ = ()
