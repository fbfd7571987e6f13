"""The agent's Files service, driven by stock grpcio."""
import concurrent.futures
import hashlib
import io
import os
import signal
import stat
import subprocess
import tarfile
import threading

import grpc
import pytest

from conftest import COUNT, DEADLINE, fails, until
import files_pb2  # conftest made it

CHUNK = 256 * 1024
KINDS = files_pb2.FileInfo
CHANGES = files_pb2.FileChange
LINKS = files_pb2.TreeOpen


def to_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


class Files:
    """The methods of the service over a caller's channel."""

    def __init__(self, caller):
        self.caller = caller

    def invoke(self, name, kind, request, timeout=DEADLINE):
        described = files_pb2.DESCRIPTOR.services_by_name["Files"].methods_by_name[name]
        reply = getattr(files_pb2, described.output_type.name)
        call = getattr(self.caller.channel, kind)(
            "/sandbox.v1.Files/" + name, request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=reply.FromString)
        return call(request, metadata=self.caller.metadata(), timeout=timeout)

    def read_chunks(self, path, **fields):
        request = files_pb2.ReadRequest(path=to_bytes(path), **fields)
        return self.invoke("Read", "unary_stream", request)

    def read(self, path, **fields):
        return b"".join(chunk.data for chunk in self.read_chunks(path, **fields))

    def write(self, path, data=b"", commit=True, chunks=None, **fields):
        opening = files_pb2.FileWriteOpen(path=to_bytes(path), **fields)

        def messages():
            yield files_pb2.FileWrite(open=opening)
            for piece in chunks or ():
                yield files_pb2.FileWrite(data=piece)
            for at in range(0, len(data), CHUNK):
                yield files_pb2.FileWrite(data=data[at:at + CHUNK])
            if commit:
                yield files_pb2.FileWrite(commit=True)
        return self.invoke("Write", "stream_unary", messages()).written

    def stat(self, path):
        return self.invoke("Stat", "unary_unary", files_pb2.PathRequest(path=to_bytes(path)))

    def list(self, path):
        request = files_pb2.PathRequest(path=to_bytes(path))
        return {info.name: info for info in self.invoke("List", "unary_stream", request)}

    def remove(self, path, **fields):
        request = files_pb2.RemoveRequest(path=to_bytes(path), **fields)
        return self.invoke("Remove", "unary_unary", request)

    def rename(self, source, to, **fields):
        request = files_pb2.RenameRequest(to=to_bytes(to), **fields)
        setattr(request, "from", to_bytes(source))
        return self.invoke("Rename", "unary_unary", request)

    def make_directory(self, path, **fields):
        request = files_pb2.MakeDirectoryRequest(path=to_bytes(path), **fields)
        return self.invoke("MakeDirectory", "unary_unary", request)

    def set_mode(self, path, mode):
        request = files_pb2.SetModeRequest(path=to_bytes(path), mode=mode)
        return self.invoke("SetMode", "unary_unary", request)

    def link(self, target, path, **fields):
        request = files_pb2.LinkRequest(target=to_bytes(target), path=to_bytes(path), **fields)
        return self.invoke("Link", "unary_unary", request)

    def watch(self, path, **fields):
        request = files_pb2.WatchRequest(path=to_bytes(path), **fields)
        events = self.invoke("Watch", "unary_stream", request)
        first = next(events)
        assert (first.kind, first.path) == (CHANGES.KIND_NONE, b"")
        return events

    def upload(self, path, archive, end=True, **fields):
        opening = files_pb2.TreeOpen(path=to_bytes(path), **fields)

        def messages():
            yield files_pb2.TreeChunk(open=opening)
            for at in range(0, len(archive), CHUNK):
                yield files_pb2.TreeChunk(data=archive[at:at + CHUNK])
            if end:
                yield files_pb2.TreeChunk(end=True)
        return self.invoke("Upload", "stream_unary", messages())

    def download(self, path, **fields):
        request = files_pb2.TreeRequest(open=files_pb2.TreeOpen(path=to_bytes(path), **fields))
        data, totals = [], None
        for chunk in self.invoke("Download", "unary_stream", request):
            assert totals is None, "nothing comes after the totals"
            data.append(chunk.data)
            if chunk.HasField("totals"):
                totals = chunk.totals
        assert totals is not None
        return b"".join(data), totals


@pytest.fixture
def files(agent):
    return Files(agent)


@pytest.fixture
def place(agent):
    """The workspace directory, as the test sees it."""
    return agent.workspace.encode()


@pytest.fixture
def as_user(make_agent):
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else")
    agent = make_agent(user="1234:2345")
    os.chown(agent.workspace, 1234, 2345)
    return agent


def put(path, content=b"x", mode=0o644):
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def left_over(place):
    return [name for name in os.listdir(place) if b".sandbox-" in name]


def make_archive(*entries, mode=0o644):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            name, content = entry[0], entry[1] if len(entry) > 1 else b""
            info = tarfile.TarInfo(name)
            info.mode = mode
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                archive.addfile(info)
    return out.getvalue()


# ---- reading and writing ----

@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 5_000_000, 32 * 1024 * 1024 + 1])
def test_what_is_written_is_read_P043_P053(files, place, size):
    data = os.urandom(size)
    assert files.write("file", data) == size
    assert get(place + b"/file") == data
    assert hashlib.sha256(files.read("file")).digest() == hashlib.sha256(data).digest()
    assert left_over(place) == []


@pytest.mark.parametrize("name", [
    b".env", b"..hidden", b"a b", b"%41", "\u00e9".encode(), "\u65e5\u672c".encode(), b"n" * 255,
    b"\xff\xfe\x80", b"quote'\"\\$(touch pwn)`id`\nline", b"-rf", b"a\tb"])
def test_names_and_content_are_bytes_P042_P135(files, place, name):
    content = b"'\"\\$(touch pwn)\x00\n" + bytes(range(256))
    files.write(name, content)
    assert os.listdir(place) == [name]
    assert get(place + b"/" + name) == content
    assert files.read(name) == content
    assert files.stat(name).name == name
    assert list(files.list(".")) == [name]


def test_reading_a_part(files, place):
    put(place + b"/file", bytes(range(200)))
    assert files.read("file", offset=10, length=5) == bytes(range(10, 15))
    assert files.read("file", offset=190, length=100) == bytes(range(190, 200))
    assert files.read("file", offset=500) == b""
    chunks = list(files.read_chunks("file", offset=7))
    assert (chunks[0].offset, chunks[0].file_size) == (7, 200)
    assert files.read("/proc/self/status").startswith(b"Name:")


def test_missing_and_wrong_kinds_are_told_apart_P161(files, place):
    os.mkdir(place + b"/directory")
    os.mkfifo(place + b"/fifo")
    not_found = grpc.StatusCode.NOT_FOUND
    fails(not_found, "no-such-file", files.read, "missing")
    fails(not_found, "no-such-file", files.stat, "missing")
    fails(not_found, "no-such-file", files.rename, "missing", "other")
    fails(not_found, "no-such-file", files.remove, "missing")
    fails(not_found, "no-such-file", files.remove, "missing", recursive=True)
    fails(not_found, "no-such-file", files.list, "missing")
    fails(not_found, "no-such-file", files.download, "missing")
    fails(not_found, "no-such-file", files.write, "a/b", b"x", no_parents=True)
    fails(grpc.StatusCode.FAILED_PRECONDITION, "is-a-directory", files.read, "directory")
    fails(grpc.StatusCode.FAILED_PRECONDITION, "is-a-directory", files.write, "directory", b"x")
    fails(grpc.StatusCode.FAILED_PRECONDITION, "is-a-directory", files.write, ".", b"x")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "not-regular", files.read, "fifo")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "not-regular", files.write, "fifo", b"x")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "invalid", files.read, b"a\0b")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "name-too-long", files.read, b"a" * 300 + b"/b")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "name-too-long", files.read, b"a/" * 4000)


def test_a_write_without_commit_leaves_the_old_file(files, place):
    put(place + b"/file", b"old")
    fails(grpc.StatusCode.INVALID_ARGUMENT, "no-commit", files.write, "file", b"new",
          commit=False)
    until(lambda: not left_over(place), "the temporary is removed")
    assert get(place + b"/file") == b"old"


def test_a_cancelled_write_leaves_the_old_file(agent, files, place):
    put(place + b"/file", b"old")
    go_on = threading.Event()

    def messages():
        yield files_pb2.FileWrite(open=files_pb2.FileWriteOpen(path=b"file"))
        yield files_pb2.FileWrite(data=b"new")
        go_on.wait(DEADLINE)
    call = agent.channel.stream_unary(
        "/sandbox.v1.Files/Write", request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=files_pb2.FileWriteReply.FromString)
    future = call.future(messages(), metadata=agent.metadata())
    until(lambda: left_over(place), "the temporary is there")
    future.cancel()
    go_on.set()
    until(lambda: not left_over(place), "the temporary is removed")
    assert get(place + b"/file") == b"old"


def test_a_killed_agent_leaves_the_old_file(folder):
    from conftest import Agent
    os.makedirs(folder + "/own")
    agent = Agent(folder + "/own")
    place = agent.workspace.encode()
    put(place + b"/file", b"old")
    go_on = threading.Event()

    def messages():
        yield files_pb2.FileWrite(open=files_pb2.FileWriteOpen(path=b"file"))
        yield files_pb2.FileWrite(data=b"new" * 1000)
        go_on.wait(DEADLINE)
    call = agent.channel.stream_unary(
        "/sandbox.v1.Files/Write", request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=files_pb2.FileWriteReply.FromString)
    future = call.future(messages(), metadata=agent.metadata())
    until(lambda: left_over(place), "the temporary is there")
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait(DEADLINE)
    go_on.set()
    assert isinstance(future.exception(DEADLINE), grpc.RpcError)
    assert get(place + b"/file") == b"old"
    agent.process.stdout.close()
    agent.close()


def test_modes_of_written_files(files, place):
    put(place + b"/run", b"old", 0o750)
    files.write("run", b"new")
    files.write("fresh", b"x")
    files.write("secret", b"x", mode=0o600)
    files.write("run2", b"x", mode=0o4755)
    assert stat.S_IMODE(os.stat(place + b"/run").st_mode) == 0o750
    assert stat.S_IMODE(os.stat(place + b"/fresh").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(place + b"/secret").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(place + b"/run2").st_mode) == 0o4755
    fails(grpc.StatusCode.INVALID_ARGUMENT, "invalid", files.write, "bad", b"x", mode=0o10000)


def test_appending_adds_and_waits_for_the_commit(files, place):
    files.write("log", b"one\n", append=True)
    files.write("log", b"two\n", append=True)
    fails(grpc.StatusCode.INVALID_ARGUMENT, "no-commit", files.write, "log", b"three\n",
          append=True, commit=False)
    assert get(place + b"/log") == b"one\ntwo\n"
    inode = os.stat(place + b"/log").st_ino
    files.write("log", b"x" * 3_000_000, append=True)
    assert os.stat(place + b"/log").st_size == 3_000_008
    assert os.stat(place + b"/log").st_ino == inode
    until(lambda: not left_over(place), "no temporary is left")


def test_many_appends_at_once_lose_nothing(agent, files, place):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: files.write("log", b"%04d\n" % i, append=True), range(100)))
    assert sorted(get(place + b"/log").split()) == [b"%04d" % i for i in range(100)]


def test_exclusive_writes_have_one_winner(files, place):
    def attempt(number):
        try:
            files.write("one", b"%d" % number, exclusive=True)
            return number
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.ALREADY_EXISTS
            return None
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        winners = [n for n in pool.map(attempt, range(32)) if n is not None]
    assert len(winners) == 1
    assert get(place + b"/one") == b"%d" % winners[0]
    os.symlink("target", place + b"/dangling")
    fails(grpc.StatusCode.ALREADY_EXISTS, "exists", files.write, "dangling", b"x", exclusive=True)
    until(lambda: not left_over(place), "no temporary is left")


def test_many_writers_of_new_directories_all_succeed_P176(files, place):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for turn in range(COUNT // 5 + 1):
            list(pool.map(lambda i: files.write(f"a{turn}/b/c/{i}", b"%d" % i), range(64)))
            assert len(os.listdir(place + b"/a%d/b/c" % turn)) == 64


def test_a_malformed_call_is_refused(files):
    def answer(method, *messages):
        return files.invoke(method, "stream_unary", iter(messages))
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    opening = files_pb2.FileWriteOpen(path=b"f")
    fails(invalid, "malformed", answer, "Write", files_pb2.FileWrite(data=b"x"))
    fails(invalid, "malformed", answer, "Write", files_pb2.FileWrite(open=opening),
          files_pb2.FileWrite(open=opening))
    fails(invalid, "message-too-large", answer, "Write", files_pb2.FileWrite(open=opening),
          files_pb2.FileWrite(data=b"x" * (CHUNK + 1)))
    fails(invalid, "no-commit", answer, "Write")
    fails(invalid, "malformed", answer, "Upload", files_pb2.TreeChunk(data=b"x"))
    fails(invalid, "no-end", answer, "Upload")


# ---- links and paths ----

@pytest.fixture
def links(place):
    os.makedirs(place + b"/sub/deep")
    put(place + b"/sub/file", b"inside")
    for target, name in [
            (b"sub/file", b"good"), (b"../sub/file", b"sub/deep-up"), (b"/etc", b"etc"),
            (b"/etc/passwd", b"passwd"), (b"../../../../../../etc", b"up"), (b"loop", b"loop"),
            (place + b"/sub/file", b"absolute"), (b"sub", b"directory"),
            (b"deep/../../sub/file", b"sub/winding"), (b"missing/file", b"dangling")]:
        os.symlink(target, place + b"/" + name)
    os.symlink(b"../file", place + b"/sub/deep/up")


def test_links_inside_are_followed(files, place, links):
    for path in ["good", "absolute", "directory/file", "sub/deep/up", "sub/winding",
                 "sub/../sub/deep/../file", "./sub//file"]:
        assert files.read(path) == b"inside", path
    files.write("good", b"changed")
    assert os.path.islink(place + b"/good")
    assert get(place + b"/sub/file") == b"changed"
    assert files.stat("good").kind == KINDS.KIND_LINK
    assert files.stat("good").target == b"sub/file"


def test_links_that_lead_out_are_refused_P159(files, links):
    denied = grpc.StatusCode.PERMISSION_DENIED
    for path in ["passwd", "etc/passwd", "up/passwd", "../../etc/passwd", "sub/../../x"]:
        fails(denied, "leads-out", files.read, path)
    fails(denied, "leads-out", files.list, "etc")
    fails(denied, "leads-out", files.write, "etc/new", b"x")
    fails(denied, "leads-out", files.remove, "etc/passwd")
    fails(denied, "leads-out", files.watch, "etc")
    fails(denied, "leads-out", files.download, "etc")
    fails(denied, "leads-out", files.upload, "etc", make_archive(("a", b"x")))
    fails(denied, "link", files.read, "loop")
    assert files.read("passwd", follow_out=True) == get("/etc/passwd")
    assert files.read("etc/passwd", follow_out=True) == get("/etc/passwd")
    assert files.read("/etc/passwd") == get("/etc/passwd")
    assert b"etc" in files.list(".") and files.list(".")[b"etc"].kind == KINDS.KIND_LINK


def test_a_dangling_link_is_written_through(files, place, links):
    files.write("dangling", b"now there")
    assert get(place + b"/missing/file") == b"now there"


def test_listing_P044(files, place):
    os.makedirs(place + b"/.config/sub")
    put(place + b"/.config/run", b"12345", 0o750)
    os.symlink("run", place + b"/.config/link")
    found = files.list(place + b"/.config")
    assert sorted(found) == [b"link", b"run", b"sub"]
    assert (found[b"run"].kind, found[b"run"].size, found[b"run"].mode) == \
        (KINDS.KIND_REGULAR, 5, 0o750)
    assert found[b"sub"].kind == KINDS.KIND_DIRECTORY
    assert (found[b"link"].kind, found[b"link"].target) == (KINDS.KIND_LINK, b"run")
    assert found[b"run"].modified_ms == os.stat(place + b"/.config/run").st_mtime_ns // 1_000_000
    fails(grpc.StatusCode.FAILED_PRECONDITION, "not-a-directory", files.list, ".config/run")
    for number in range(3000):
        put(place + b"/.config/sub/%d" % number)
    assert len(files.list(".config/sub")) == 3000


# ---- changes ----

def test_removing(files, place):
    os.makedirs(place + b"/a/b/c")
    put(place + b"/a/b/file")
    put(place + b"/outside")
    os.symlink("../../outside", place + b"/a/b/link")
    fails(grpc.StatusCode.FAILED_PRECONDITION, "not-empty", files.remove, "a")
    files.remove("a/b/c")
    files.remove("a", recursive=True)
    assert os.listdir(place) == [b"outside"]
    os.symlink("outside", place + b"/link")
    files.remove("link", recursive=True)
    files.remove("outside")
    assert os.listdir(place) == []
    fails(grpc.StatusCode.FAILED_PRECONDITION, "busy", files.remove, ".", recursive=True)


def test_removing_a_deep_tree(files, place):
    start = os.getcwd()
    os.mkdir(place + b"/deep")
    try:
        os.chdir(place + b"/deep")
        for _ in range(2000):
            os.mkdir("directory")
            os.chdir("directory")
    finally:
        os.chdir(start)
    files.remove("deep", recursive=True)
    assert os.listdir(place) == []


def test_renaming(files, place):
    put(place + b"/a", b"a")
    put(place + b"/b", b"b")
    fails(grpc.StatusCode.ALREADY_EXISTS, "exists", files.rename, "a", "b")
    files.rename("a", "b", replace=True)
    assert os.listdir(place) == [b"b"] and get(place + b"/b") == b"a"
    files.make_directory("d")
    files.rename("b", "d/c")
    assert get(place + b"/d/c") == b"a"
    fails(grpc.StatusCode.UNIMPLEMENTED, "other-mount", files.rename, "d/c", "/proc/c")


def test_making_directories(files, place):
    files.make_directory("plain")
    files.make_directory("special", mode=0o2770)
    assert stat.S_IMODE(os.stat(place + b"/plain").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(place + b"/special").st_mode) == 0o2770
    fails(grpc.StatusCode.ALREADY_EXISTS, "exists", files.make_directory, "plain")
    files.make_directory("plain", parents=True)
    fails(grpc.StatusCode.NOT_FOUND, "no-such-file", files.make_directory, "x/y/z")
    files.make_directory("x/y/z", parents=True)
    assert os.path.isdir(place + b"/x/y/z")
    put(place + b"/file")
    fails(grpc.StatusCode.ALREADY_EXISTS, "exists", files.make_directory, "file", parents=True)


def test_modes_and_links(files, place):
    put(place + b"/file", b"content")
    os.symlink("file", place + b"/link")
    files.set_mode("link", 0o4711)
    assert stat.S_IMODE(os.stat(place + b"/file").st_mode) == 0o4711
    fails(grpc.StatusCode.INVALID_ARGUMENT, "invalid", files.set_mode, "file", 0o10000)
    files.link("/anywhere/\u00e9", "symbolic")
    assert os.readlink(place + b"/symbolic") == "/anywhere/\u00e9".encode()
    fails(grpc.StatusCode.ALREADY_EXISTS, "exists", files.link, "x", "symbolic")
    files.link("x", "symbolic", replace=True)
    assert os.readlink(place + b"/symbolic") == b"x"
    files.link("file", "hard", hard=True)
    assert os.stat(place + b"/hard").st_ino == os.stat(place + b"/file").st_ino
    files.link("file", "hard", hard=True, replace=True)
    fails(grpc.StatusCode.NOT_FOUND, "no-such-file", files.link, "missing", "h2", hard=True)
    assert left_over(place) == []


def test_work_is_done_as_the_workspaces_user(as_user):
    files, place = Files(as_user), as_user.workspace.encode()
    files.write("a/b/file", b"x")
    files.make_directory("directory")
    files.upload("tree", make_archive(("sub/file", b"x")))
    for path in [b"/a", b"/a/b", b"/a/b/file", b"/directory", b"/tree", b"/tree/sub/file"]:
        about = os.stat(place + path)
        assert (about.st_uid, about.st_gid) == (1234, 2345), path
    put(place + b"/secret", b"root's", 0o600)
    os.mkdir(place + b"/closed", 0o700)
    denied = grpc.StatusCode.PERMISSION_DENIED
    fails(denied, "denied", files.read, "secret")
    fails(denied, "denied", files.list, "closed")
    fails(denied, "denied", files.write, "closed/file", b"x")
    fails(denied, "denied", files.set_mode, "secret", 0o644)
    fails(denied, "denied", files.read, "/etc/shadow")
    # The agent itself is root again: it can still start processes as root.
    assert as_user.run("id -u", user="root").stdout == b"0\n"


def test_threads_do_not_mix_users(as_user):
    files = Files(as_user)
    put(as_user.workspace.encode() + b"/secret", b"root's", 0o600)

    def attempt(number):
        if number % 2:
            files.write(f"file-{number}", b"x")
            return os.stat(as_user.workspace + f"/file-{number}").st_uid == 1234
        try:
            files.read("secret")
            return False
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.PERMISSION_DENIED
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(attempt, range(20 * COUNT)))


# ---- watching ----

class Seen:
    """Collects a watch's events on a thread of its own."""

    def __init__(self, events):
        self.events, self.seen = events, []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            for event in self.events:
                self.seen.append((event.kind, event.path, event.new_path))
        except grpc.RpcError:
            pass

    def expect(self, kind, path, new_path=b""):
        until(lambda: (kind, path, new_path) in self.seen, f"{kind} {path} in {self.seen}")

    def end(self):
        self.events.cancel()
        self.thread.join(DEADLINE)


def test_watching_a_tree(files, place):
    os.makedirs(place + b"/sub/deep")
    seen = Seen(files.watch(".", recursive=True))
    put(place + b"/a")
    seen.expect(CHANGES.KIND_CREATED, b"a")
    put(place + b"/sub/deep/b")
    seen.expect(CHANGES.KIND_CREATED, b"sub/deep/b")
    put(place + b"/a", b"more")
    seen.expect(CHANGES.KIND_MODIFIED, b"a")
    os.rename(place + b"/a", place + b"/sub/c")
    seen.expect(CHANGES.KIND_MOVED, b"a", b"sub/c")
    os.remove(place + b"/sub/c")
    seen.expect(CHANGES.KIND_REMOVED, b"sub/c")
    os.makedirs(place + b"/new/er/est")
    put(place + b"/new/er/est/file")
    seen.expect(CHANGES.KIND_CREATED, b"new/er/est/file")
    os.rename(place + b"/new/er", place + b"/moved")
    seen.expect(CHANGES.KIND_MOVED, b"new/er", b"moved")
    put(place + b"/moved/est/after")
    seen.expect(CHANGES.KIND_CREATED, b"moved/est/after")
    os.rename(place + b"/moved", place + b"/../gone")
    seen.expect(CHANGES.KIND_REMOVED, b"moved")
    put(place + b"/../gone/est/unseen")
    put(place + b"/last")
    seen.expect(CHANGES.KIND_CREATED, b"last")
    assert not any(b"unseen" in path for _, path, _ in seen.seen)
    seen.end()


def test_watching_a_file_that_is_replaced(files, place):
    put(place + b"/file", b"old")
    seen = Seen(files.watch("file"))
    put(place + b"/other")
    files.write("file", b"new")
    seen.expect(CHANGES.KIND_CREATED, b"")
    os.remove(place + b"/file")
    seen.expect(CHANGES.KIND_REMOVED, b"")
    assert all(path == b"" for _, path, _ in seen.seen)
    seen.end()


def test_a_watch_misses_nothing_in_new_directories(files, place):
    seen = Seen(files.watch(".", recursive=True))
    for number in range(COUNT):
        os.makedirs(place + b"/%d/a/b" % number)
        put(place + b"/%d/a/b/file" % number)
    for number in range(COUNT):
        seen.expect(CHANGES.KIND_CREATED, b"%d/a/b/file" % number)
    seen.end()


def descriptors(agent):
    folder = f"/proc/{agent.process.pid}/fd"
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except FileNotFoundError:
            pass
    return found


def test_a_cancelled_watch_is_gone_P045(agent, files, place):
    before = sum("inotify" in link for link in descriptors(agent))
    seen = Seen(files.watch(".", recursive=True))
    assert sum("inotify" in link for link in descriptors(agent)) == before + 1
    seen.end()
    known = len(seen.seen)
    for number in range(1000):
        put(place + b"/%d" % number)
    until(lambda: sum("inotify" in link for link in descriptors(agent)) == before,
          "the inotify descriptor is closed")
    assert len(seen.seen) == known


def test_too_many_directories_are_refused(files, place):
    for number in range(91):
        for below in range(91):
            os.makedirs(place + b"/%d/%d" % (number, below))
    fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "limit", files.watch, ".", recursive=True)
    files.watch(".").cancel()


def test_no_descriptor_is_left(agent, files, place):
    put(place + b"/file", b"x" * 1000)
    os.makedirs(place + b"/a/b/c")

    def everything():
        files.read("file")
        files.write("file", b"y")
        files.list(".")
        files.download(".")
        files.upload("up", make_archive(("a/b", b"x")))
        for wrong in [lambda: files.read("none"), lambda: files.write("a", b"x"),
                      lambda: files.upload("file", make_archive(("a/b", b"x"))),
                      lambda: files.upload("up", b"nonsense" * 100),
                      lambda: files.download(".", max_entries=1)]:
            with pytest.raises(grpc.RpcError):
                wrong()
    everything()
    count = len(descriptors(agent))
    for _ in range(COUNT):
        everything()
    until(lambda: len(descriptors(agent)) <= count, "all descriptors are closed")


# ---- trees ----

def test_uploading_and_downloading_a_tree(files, place):
    entries = [("./", (tarfile.DIRTYPE, "")), ("./sub/file", b"content"), ("./empty", b""),
               ("./link", (tarfile.SYMTYPE, "sub/file")), ("./hard", (tarfile.LNKTYPE, "sub/file")),
               ("./" + "n" * 200, b"long"), ("./fifo", (tarfile.FIFOTYPE, ""))]
    reply = files.upload("tree", make_archive(*entries, mode=0o6755))
    assert (reply.entries, reply.bytes, reply.skipped) == (8, 11, 1)
    tree = place + b"/tree"
    assert get(tree + b"/sub/file") == b"content"
    assert stat.S_IMODE(os.stat(tree + b"/sub/file").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(tree).st_mode) == 0o755
    assert os.stat(tree + b"/hard").st_ino == os.stat(tree + b"/sub/file").st_ino
    assert sorted(os.listdir(tree)) == [b"empty", b"hard", b"link", b"n" * 200, b"sub"]
    os.mkfifo(tree + b"/fifo")
    archive, totals = files.download("tree")
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        names = {member.name: member for member in found.getmembers()}
        assert set(names) == {".", "sub", "sub/file", "empty", "link", "hard", "n" * 200}
        assert names["link"].linkname == "sub/file"
        assert {names["hard"].islnk(), names["sub/file"].islnk()} == {True, False}
    assert (totals.entries, totals.bytes, totals.skipped) == (8, 11, 1)
    assert left_over(place) == []


def test_a_single_file_as_a_tree(files, place):
    put(place + b"/file", b"content", 0o750)
    archive, _ = files.download("file")
    files.upload("deep/copy", archive)
    assert get(place + b"/deep/copy") == b"content"
    assert stat.S_IMODE(os.stat(place + b"/deep/copy").st_mode) == 0o750
    fails(grpc.StatusCode.ALREADY_EXISTS, "other-kind", files.upload, "deep", archive)


def test_uploading_into_a_tree_that_is_there(files, place):
    os.makedirs(place + b"/tree/sub")
    put(place + b"/tree/sub/old", b"old")
    put(place + b"/tree/sub/both", b"old")
    files.upload("tree", make_archive(("sub/both", b"new"), ("sub/more/file", b"x")))
    assert get(place + b"/tree/sub/old") == b"old"
    assert get(place + b"/tree/sub/both") == b"new"
    assert get(place + b"/tree/sub/more/file") == b"x"
    files.upload(".", make_archive(("top", b"y")))
    assert sorted(os.listdir(place)) == [b"top", b"tree"]


def test_an_upload_without_end_keeps_nothing(files, place):
    fails(grpc.StatusCode.INVALID_ARGUMENT, "no-end", files.upload, "tree",
          make_archive(("a", b"x")), end=False)
    until(lambda: os.listdir(place) == [], "nothing is left")
    fails(grpc.StatusCode.FAILED_PRECONDITION, "bad-archive", files.upload, "tree",
          make_archive(("a", b"x"))[:700])
    until(lambda: os.listdir(place) == [], "nothing is left")


def test_hostile_archives_write_nothing_outside_P092(files, place):
    os.mkdir(place + b"/outside")
    wrong = [
        [("../outside/x", b"evil")], [(os.fsdecode(place) + "/outside/x", b"evil")],
        [("up", (tarfile.SYMTYPE, "../outside")), ("up/x", b"evil")],
        [("a/b", (tarfile.SYMTYPE, "../../outside")), ("a/b/x", b"evil")],
        [("hard", (tarfile.LNKTYPE, "../outside/secret"))],
        [(".", (tarfile.SYMTYPE, "../outside")), ("x", b"evil")]]
    put(place + b"/outside/secret", b"secret")
    for entries in wrong:
        fails(grpc.StatusCode.FAILED_PRECONDITION, "bad-archive", files.upload, "tree",
              make_archive(*entries), links=LINKS.LINKS_KEEP)
        until(lambda: os.listdir(place) == [b"outside"], "nothing is left")
        assert os.listdir(place + b"/outside") == [b"secret"]
    reply = files.upload("tree", make_archive(("up", (tarfile.SYMTYPE, "../outside")),
                                              ("abs", (tarfile.SYMTYPE, "/root/.ssh"))))
    assert reply.skipped == 2 and os.listdir(place + b"/tree") == []


def test_limits_of_trees_P094(files, place):
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    archive = make_archive(*[(f"d{number}/e/f/file", b"0123456789") for number in range(20)])
    for fields, word in [({"max_entries": 10}, "max-entries"), ({"max_bytes": 100}, "max-bytes"),
                         ({"max_depth": 2}, "max-depth")]:
        fails(exhausted, word, files.upload, "tree", archive, **fields)
        until(lambda: os.listdir(place) == [], "nothing is left")
    files.upload("tree", archive, max_entries=80, max_bytes=200, max_depth=3)
    for fields, word in [({"max_entries": 10}, "max-entries"), ({"max_bytes": 100}, "max-bytes"),
                         ({"max_depth": 2}, "max-depth")]:
        fails(exhausted, word, files.download, "tree", **fields)
    fails(grpc.StatusCode.INVALID_ARGUMENT, "max-depth", files.download, "tree", max_depth=1000)


def test_holes_are_kept(files, place):
    with open(place + b"/sparse", "wb") as file:
        file.truncate(1 << 30)
        file.seek(700_000_000)
        file.write(b"middle")
    archive, totals = files.download("sparse")
    assert len(archive) < 1 << 20
    files.upload("copy", archive)
    about = os.stat(place + b"/copy")
    assert about.st_size == 1 << 30 and about.st_blocks < 4096
    with open(place + b"/copy", "rb") as file:
        file.seek(700_000_000)
        assert file.read(8) == b"middle\0\0"


def test_ten_thousand_small_files(files, place):
    archive = make_archive(*[(f"{number % 100}/{number}", b"content") for number in range(10_000)])
    files.upload("tree", archive)
    back, totals = files.download("tree")
    assert totals.entries == 10_101 and totals.bytes == 70_000
    with tarfile.open(fileobj=io.BytesIO(back)) as found:
        assert len(found.getmembers()) == 10_101


def test_a_slow_reader_does_not_grow_the_agent(agent, files, place):
    with open(place + b"/large", "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
    before = agent.private_kib()
    chunks = files.read_chunks("large")
    next(chunks)
    calls = [files.invoke("Download", "unary_stream", files_pb2.TreeRequest(
        open=files_pb2.TreeOpen(path=b"."))) for _ in range(3)]
    for call in calls:
        next(call)
    # Nobody takes more: what the agent holds for them is bounded.
    assert files.stat("large").size == 200 << 20
    assert agent.private_kib() - before < 60_000
    assert sum(len(chunk.data) for chunk in chunks) > 199 << 20
    for call in calls:
        call.cancel()


def test_a_removed_user_directory_is_told(files, place):
    put(place + b"/a")
    subprocess.run(["rm", "-rf", place], check=True)
    fails(grpc.StatusCode.NOT_FOUND, "no-such-file", files.read, "a")
    os.mkdir(place)
