"""Files of a workspace."""

import io
import os
import threading

import pytest
from conftest import wait_until

import libsandbox


@pytest.mark.parametrize("data", [b"", b"a\0b", bytearray(b"abc"), memoryview(b"abcdef")[1:4]])
def test_what_is_written_is_read(own, data):
    own.files.write("deep/er/file", data)
    assert own.files.read("deep/er/file") == bytes(data)


def test_any_buffer_is_taken_and_text_is_not(own):
    import array

    own.files.write("numbers", array.array("I", [1, 2]))
    assert own.files.stat("numbers").file_size == 8
    with pytest.raises(TypeError):
        own.files.write("text", "str")
    with pytest.raises(BufferError):
        own.files.write("text", memoryview(b"abcdef")[::2])
    own.files.write_text("text", "grüße\n")
    assert own.files.read_text("text") == "grüße\n" and own.files.stat("text").file_size == 8


def test_parts_modes_and_ways_to_write(own):
    files = own.files
    files.write("f", b"0123456789", mode=0o600)
    assert files.read("f", offset=3, length=4) == b"3456"
    assert files.stat("f").mode == 0o600
    files.write("f", b"more", append=True)
    assert files.read("f", offset=8) == b"89more"
    with pytest.raises(libsandbox.Exists):
        files.write("f", b"", exclusive=True)
    with pytest.raises(libsandbox.Limit):
        files.read("f", limit=5)
    with pytest.raises(libsandbox.NotFound):
        files.write("no/such/folder", b"", no_parents=True)
    with pytest.raises(libsandbox.Denied) as raised:
        files.write("/etc/passwd", b"")
    assert isinstance(raised.value, PermissionError)


def test_names_are_bytes(own, tmp_path):
    import pathlib

    name = b"n\xe9w \xff"
    own.files.write(name, b"1")
    info, = own.files.list()
    assert os.fsencode(info.name) == name
    assert own.files.read(info.name) == own.files.read(pathlib.Path(info.name)) == b"1"
    assert info.modified > 1.6e9 and info.kind == "regular" and info.target == ""


def test_directories_links_and_changes(own):
    files = own.files
    files.make_directory("a/b", recursive=True, mode=0o700)
    files.write("a/b/c", b"x")
    files.link("c", "a/b/soft")
    files.link("a/b/c", "hard", hard_link=True)
    assert [(each.name, each.kind) for each in files.list("a/b")] == [("c", "regular"),
                                                                      ("soft", "link")]
    assert files.stat("a/b/soft").target == "c" and files.stat("hard").links == 2
    files.rename("hard", "a/soft")
    with pytest.raises(libsandbox.Exists):
        files.rename("a/soft", "a/b/c")
    files.rename("a/soft", "a/b/c", replace=True)
    files.set_mode("a/b/c", 0o640)
    assert files.stat("a/b/c").mode == 0o640
    with pytest.raises(libsandbox.Error):
        files.remove("a")
    files.remove("a", recursive=True)
    assert files.list() == []


def test_a_reader_is_a_file_of_pythons(own):
    whole = os.urandom(3 << 20)
    own.files.write("big", whole)
    with own.files.reader("big") as reader:
        assert b"".join(reader) == whole
    with io.BufferedReader(own.files.reader("big")) as buffered:
        assert buffered.read(10) == whole[:10] and buffered.read() == whole[10:]
    with own.files.reader("big", offset=5, length=3) as reader:
        assert reader.readall() == whole[5:8]
    own.files.write_text("lines", "a\nü\n")
    with io.TextIOWrapper(io.BufferedReader(own.files.reader("lines")), "utf-8") as text:
        assert list(text) == ["a\n", "ü\n"]
    closed = own.files.reader("big")
    closed.close()
    with pytest.raises((ValueError, libsandbox.Closed)):
        closed.read(1)


def test_a_writer_changes_nothing_before_its_commit(own):
    own.files.write("f", b"old")
    with own.files.writer("f") as writer:
        assert writer.write(b"new") == 3
        writer.write(bytearray(b" one"))
        assert own.files.read("f") == b"old"
    assert own.files.read("f") == b"new one"
    with pytest.raises(ZeroDivisionError), own.files.writer("f") as writer:
        writer.write(b"never")
        raise ZeroDivisionError
    assert own.files.read("f") == b"new one"
    with pytest.raises(libsandbox.Closed):
        writer.commit()


def test_a_watch_tells_changes_until_it_is_closed(own):
    own.files.make_directory("w")
    watch = own.files.watch("w")
    own.run("cd w && echo a >one && mv one two && rm two")
    seen = {}
    while "removed" not in seen:
        event = watch.next(timeout=30)
        seen[event.change] = (event.path, event.new_path)
    assert seen["created"] == ("one", "") and seen["moved"] == ("one", "two")
    ended = threading.Event()

    def follow():
        for _ in watch:
            pass
        ended.set()
    thread = threading.Thread(target=follow)
    thread.start()
    watch.close()
    thread.join(30)
    assert ended.is_set()
    with pytest.raises(libsandbox.Closed):
        watch.next()


def test_trees_are_copied_both_ways(own, tmp_path):
    source, target = tmp_path / "from", tmp_path / "to"
    (source / "sub").mkdir(parents=True)
    (source / "sub/a").write_bytes(b"1" * 100000)
    (source / "link").symlink_to("sub/a")
    told = []
    result = own.files.upload(source, "copy", progress=told.append)
    assert (result.bytes, result.skipped) == (100000, 0) and told[-1].bytes == 100000
    assert own.files.stat("copy/link").target == "sub/a"
    own.files.download("copy", target)
    assert (target / "sub/a").read_bytes() == b"1" * 100000 and (target / "link").is_symlink()
    with pytest.raises(libsandbox.Limit):
        own.files.download("copy", tmp_path / "small", max_bytes=10)
    assert not (tmp_path / "small").exists()


def test_what_progress_raises_ends_the_copy(own, tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/a").write_bytes(b"x" * 1000)

    def progress(_):
        raise ZeroDivisionError("enough")
    with pytest.raises(ZeroDivisionError, match="enough"):
        own.files.upload(tmp_path / "from", "copy", progress=progress)
    assert own.run("true").returncode == 0  # and nothing of it is left to be raised later
    with pytest.raises(TypeError):
        own.files.upload(tmp_path / "from", "copy", progress=5)


def test_paths_do_not_lead_out(own):
    own.run("ln -s /etc out")
    with pytest.raises(libsandbox.Denied) as raised:
        own.files.read("out/hostname")
    assert raised.value.reason == "leads-out"
    wait_until(lambda: own.files.read("out/passwd", follow_out=True))
