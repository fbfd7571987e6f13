"""Snapshots on the memory platform: the real agent sealed, frozen, restored and proven."""

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import secrets
import shutil
import stat

import grpc
import pytest

from conftest import (CONFLICT, EXISTS, FAILED, INVALID, LIMIT, NOT_FOUND, NOT_RESTORED,
                      UNAVAILABLE, UNSUPPORTED, lives, pid_of, script, wait_until)

HERE = pathlib.Path(__file__).parent


def load_agent_rig():
    """The agent's own tests know how to speak with it."""
    spec = importlib.util.spec_from_file_location("agent_rig", HERE.parent / "agent/conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rig = load_agent_rig()
guard = rig.guard_pb2
COUNT = "n=0; while :; do n=$((n + 1)); echo $n >> count; sleep 0.01; done"


class Workspace:
    """One workspace, driven as the library does it: record first, then the platform's step."""

    def __init__(self, platform, name="one"):
        self.platform, self.name = platform, name
        self.id = secrets.token_hex(16)
        self.files = platform.state / "workspaces" / self.id
        self.epoch, self.version, self.incarnation, self.caller = 0, "", "", None
        self.token = secrets.token_bytes(32)
        self.claim()

    def claim(self, precious=False):
        """A new operation of a higher epoch, as the record says it."""
        self.epoch += 1
        self.write(precious)

    def write(self, precious=False):
        text = json.dumps({"id": self.id, "epoch": self.epoch, "precious": precious,
                           "operation": {"id": f"op-{self.epoch}"}})
        self.version = self.platform.tell(do="record.store", name=self.name, text=text,
                                          expected=self.version)["version"]

    def fields(self, **more):
        return {"name": self.name, "id": self.id, "epoch": self.epoch,
                "operation": f"op-{self.epoch}", "incarnation": self.incarnation, **more}

    def ask(self, what, **more):
        return self.platform.ask(do=what, **self.fields(**more))

    def tell(self, what, **more):
        return self.platform.tell(do=what, **self.fields(**more))

    def connect(self):
        socket = self.tell("connect")["socket"]
        self.caller = rig.Caller(socket, self.token, self.epoch, bytes.fromhex(self.id))
        return self.caller

    def create(self):
        self.incarnation = self.tell("provision")["incarnation"]
        self.connect().open(directory=str(self.files).encode())
        return self

    def seal(self):
        """The hash that goes into the record."""
        self.claim()
        self.caller.epoch = self.epoch
        guard_call = self.caller.method
        guard_call("Guard", "Quiesce")(guard.QuiesceRequest(
            epoch=self.epoch, lease_ms=60_000, deadline_ms=10_000))
        self.caller.last = guard_call("Guard", "Seal")(guard.SealRequest(epoch=self.epoch))
        self.caller.close()
        return self.caller.last.seal_hash

    def take(self, kind="memory", sealed=True, id=None):
        snapshot = {"snapshot": id or secrets.token_hex(16), "kind": kind, "sealed": sealed}
        answer = self.tell("snapshot.take", **snapshot)
        return {**snapshot, "digest": answer["digest"], "bytes": answer["bytes"]}

    def suspend(self, kind="memory"):
        """Seal, take, release: the snapshot, with the hash of its nonce."""
        hash = self.seal()
        snapshot = self.take(kind)
        self.tell("release")
        self.incarnation = ""
        return {**snapshot, "hash": hash}

    def ask_restore(self, snapshot, keep=None):
        return self.ask("restore", snapshot=snapshot["snapshot"], digest=snapshot["digest"],
                        keep=keep or snapshot["kind"])

    def restore(self, snapshot, keep=None):
        self.claim()
        answer = self.ask_restore(snapshot, keep)
        assert answer and answer["ok"], answer
        self.incarnation = answer["incarnation"]
        self.connect()
        return answer

    def prove(self):
        return self.caller.method("Guard", "Prove")(guard.ProveRequest(epoch=self.epoch),
                                                    timeout=2)

    def is_proven(self, snapshot):
        """Whether what answers holds that snapshot; and how it proved it."""
        try:
            reply = self.prove()
        except grpc.RpcError:
            return False
        return hashlib.sha256(reply.nonce).digest() == snapshot["hash"] and reply

    def open(self, snapshot):
        self.write(precious=True)
        return self.caller.open(epoch=self.epoch, seal_hash=snapshot["hash"], restored=True,
                                directory=str(self.files).encode())

    def reopen(self, hash):
        """The undoing of a seal."""
        self.connect().open(epoch=self.epoch, seal_hash=hash,
                            directory=str(self.files).encode())

    def discard(self):
        self.caller.close()
        self.tell("discard")
        self.incarnation = ""

    def verify(self, snapshot):
        return self.tell("snapshot.verify", snapshot=snapshot["snapshot"],
                         digest=snapshot["digest"])

    def place(self, snapshot):
        return self.platform.state / "snapshots" / self.id / snapshot["snapshot"]

    def presence(self):
        return self.tell("inspect")["presence"]

    def count(self):
        lines = (self.files / "count").read_text().split()
        assert lines == [str(n + 1) for n in range(len(lines))], "the counter has a gap"
        return len(lines)


@pytest.fixture
def make(platform):
    made = []

    def make_one(name="one"):
        made.append(Workspace(platform, name).create())
        return made[-1]

    yield make_one
    for one in made:
        with contextlib.suppress(AttributeError):
            one.caller.close()


@pytest.fixture
def one(make):
    return make()


def count_of(platform):
    state = platform.tell(do="state")
    return state["instances"], state["frozen"], state["snapshots"]


def start_counter(workspace):
    id = workspace.caller.start(COUNT)
    wait_until(lambda: (workspace.files / "count").exists() and workspace.count() > 2, "it counts")
    return id


def goes_on(workspace):
    before = workspace.count()
    wait_until(lambda: workspace.count() > before + 2, "it counts on")


# ---- what is kept ----


def test_a_counter_goes_on_in_another_incarnation(one, platform):
    id, first = start_counter(one), one.incarnation
    snapshot = one.suspend()
    assert count_of(platform) == (0, 1, 1)
    assert one.presence() == "absent"
    assert one.verify(snapshot)["verdict"] == "intact"
    stood = one.count()

    answer = one.restore(snapshot)
    assert answer["evidence"] == "" and one.incarnation != first
    assert one.presence() == "running"
    reply = one.is_proven(snapshot)
    assert reply.in_memory and reply.in_file and reply.epoch == one.epoch - 1
    assert one.count() == stood, "sealed processes stand still"
    one.open(snapshot)
    goes_on(one)
    assert [process.id for process in one.caller.list()] == [id]
    assert count_of(platform) == (1, 0, 1)


def test_it_comes_back_again_and_again(one):
    start_counter(one)
    for _ in range(5):
        snapshot = one.suspend()
        one.restore(snapshot)
        assert one.is_proven(snapshot).in_memory
        one.open(snapshot)
        goes_on(one)


def test_files_without_memory_are_proven_by_the_file(one, platform):
    (one.files / "kept").write_text("kept")
    process = start_counter(one)
    one.seal()
    hash = one.caller.last.seal_hash
    snapshot = {**one.take("files"), "hash": hash}
    assert one.presence() == "running", "the instance stays until its release"
    stood = one.count()
    one.tell("release")
    assert one.presence() == "absent" and count_of(platform) == (0, 0, 1)

    one.restore(snapshot)
    reply = one.is_proven(snapshot)
    assert reply.in_file and not reply.in_memory
    one.open(snapshot)
    assert one.count() == stood and (one.files / "kept").read_text() == "kept"
    assert process not in [process.id for process in one.caller.list()]
    assert not (platform.state / "seals" / one.id / "seal").exists(), "the proof is spent"


def test_files_are_exactly_those_of_the_snapshot(one):
    files = one.files
    (files / "dir" / "deep").mkdir(parents=True)
    (files / "dir" / "deep" / "file").write_bytes(secrets.token_bytes(300_000))
    (files / "empty").mkdir(mode=0o700)
    (files / "with space\nand line % end").write_text("odd")
    (files / "script").write_text("#!/bin/sh\n")
    (files / "script").chmod(0o4750)
    (files / "link").symlink_to("dir/deep/file")
    (files / "dangling").symlink_to("/nowhere")
    os.mkfifo(files / "pipe", 0o640)
    (files / "kind").mkdir()
    os.utime(files / "script", ns=(1, 1_000_000_007))
    before = look(files)
    snapshot = one.suspend("files")

    shutil.rmtree(files / "dir")
    (files / "dir").write_text("a file now")
    (files / "kind").rmdir()
    (files / "kind").symlink_to("dir")
    (files / "script").write_text("#!/bin/sh\necho changed\n")
    (files / "link").unlink()
    (files / "added").mkdir()
    (files / "added" / "more").write_text("more")
    one.restore(snapshot)
    assert look(files) == before
    assert one.is_proven(snapshot)


def look(top):
    """Everything that a snapshot keeps, by path."""
    found = {}
    for path in [top, *sorted(top.rglob("*"))]:
        facts = path.lstat()
        found[str(path.relative_to(top))] = (
            oct(facts.st_mode), facts.st_uid, facts.st_gid,
            os.readlink(path) if path.is_symlink() else "",
            path.read_bytes() if stat.S_ISREG(facts.st_mode) else b"",
            facts.st_mtime_ns if stat.S_ISREG(facts.st_mode) else 0)
    return found


def test_files_of_a_lost_instance_are_kept_without_a_seal(one, platform):
    (one.files / "kept").write_text("kept")
    platform.tell(do="kill", id=one.id)
    one.claim()
    answer = one.ask("snapshot.take", snapshot="a" * 32, kind="files", sealed=True)
    assert (answer["status"], answer["reason"]) == (CONFLICT, "instance-gone")
    snapshot = one.take("files", sealed=False)
    one.tell("discard")
    (one.files / "kept").unlink()
    one.restore(snapshot)
    assert (one.files / "kept").read_text() == "kept"
    assert one.caller.health().gate == guard.GATE_NOT_OPENED


def test_a_fresh_start_finds_no_seal(one):
    snapshot = one.suspend("files")
    one.claim()
    one.incarnation = one.tell("provision")["incarnation"]
    assert one.connect().health().gate == guard.GATE_NOT_OPENED
    assert one.verify(snapshot)["verdict"] == "intact"


def test_an_unsealed_instance_is_not_kept_and_goes_on(one, platform):
    start_counter(one)
    one.claim()
    answer = one.ask("snapshot.take", snapshot="a" * 32, kind="memory", sealed=True)
    assert (answer["status"], answer["reason"]) == (FAILED, "not-sealed")
    assert count_of(platform) == (1, 0, 0)
    goes_on(one)


def test_what_processes_hold_open_stays_the_same_file(one):
    start_counter(one)
    snapshot = one.suspend()
    inode = (one.files / "count").stat().st_ino
    stood = one.count()
    with (one.files / "count").open("a") as file:
        file.write("tampered\n")
    one.restore(snapshot)
    assert one.count() == stood and (one.files / "count").stat().st_ino == inode
    assert one.is_proven(snapshot)


# ---- restoring more than once ----


def test_what_nobody_opened_goes_back_into_the_snapshot(one, platform):
    start_counter(one)
    snapshot = one.suspend()
    for _ in range(3):
        one.restore(snapshot)
        pid = pid_of(one.incarnation)
        one.discard()
        assert lives(pid) and count_of(platform) == (0, 1, 1)
        assert one.presence() == "absent"
    one.restore(snapshot)
    assert one.is_proven(snapshot).in_memory
    one.open(snapshot)
    goes_on(one)


def test_what_may_hold_work_does_not_go_back(one, platform):
    snapshot = one.suspend()
    one.restore(snapshot)
    one.open(snapshot)
    (one.files / "work").write_text("since")
    one.discard()
    assert count_of(platform) == (0, 0, 1)
    one.claim()
    answer = one.ask_restore(snapshot)
    assert (answer["status"], answer["reason"]) == (NOT_RESTORED, "memory-gone")
    one.restore(snapshot, keep="files")
    reply = one.is_proven(snapshot)
    assert reply.in_file and not reply.in_memory
    assert not (one.files / "work").exists()


def test_a_release_ends_what_was_restored(one, platform):
    snapshot = one.suspend()
    one.restore(snapshot)
    pid = pid_of(one.incarnation)
    one.tell("release")
    assert not lives(pid) and count_of(platform) == (0, 0, 1)


@pytest.mark.parametrize("how", ["destroy", "snapshot.remove", "end"])
def test_frozen_processes_end_with_what_keeps_them(make, platform, how):
    one = make()
    start_counter(one)
    agent = pid_of(one.incarnation)
    snapshot = one.suspend()
    inside = [pid for pid in rig.descendants_of(agent) if lives(pid)]
    assert inside and all(lives(pid) for pid in [agent, *inside])
    if how == "end":
        assert platform.end() == 0
    else:
        one.tell(how, snapshot=snapshot["snapshot"])
        assert count_of(platform) == (0, 0, 0)
        one.tell(how, snapshot=snapshot["snapshot"])
        assert platform.tell(do="state")["orphans"] == 0
    assert not any(lives(pid) for pid in [agent, *inside])


def test_frozen_processes_that_were_killed_are_missed(one, platform):
    snapshot = one.suspend()
    os.kill(pid_of_frozen(platform), 9)
    wait_until(lambda: count_of(platform)[1] == 0, "the platform has seen it")
    one.claim()
    assert one.ask_restore(snapshot)["reason"] == "memory-gone"
    one.restore(snapshot, keep="files")
    assert one.is_proven(snapshot).in_file


def pid_of_frozen(platform):
    found = [pid for pid in rig.descendants_of(platform.process.pid)
             if rig.state_of(pid) == "T" and parent_of(pid) == platform.process.pid]
    assert len(found) == 1
    return found[0]


def parent_of(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


# ---- damage ----


def flip(path, at=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_whatever_is_damaged_is_found_and_refused(one, platform):
    (one.files / "a").write_text("content")
    (one.files / "b").mkdir()
    (one.files / "b" / "c").symlink_to("../a")
    snapshot = one.suspend()
    place = one.place(snapshot)
    whole = platform.state.parent / "whole"
    shutil.copytree(place, whole, symlinks=True)
    ways = {
        "a bit of a file": (lambda: flip(place / "files/a"), "damaged", "files/a"),
        "a file cut off": (lambda: os.truncate(place / "files/a", 3), "damaged", "files/a"),
        "a file made longer": (lambda: os.truncate(place / "files/a", 1 << 40), "damaged", ""),
        "a file gone": ((place / "files/a").unlink, "missing", "files/a"),
        "a directory gone": (lambda: shutil.rmtree(place / "files/b"), "missing", "files/b"),
        "a file more": (lambda: (place / "files/z").write_text(""), "damaged", "files/z"),
        "another mode": (lambda: (place / "files/a").chmod(0o777), "damaged", "files/a"),
        "a link led elsewhere": (lambda: relink(place / "files/b/c", "/etc"), "damaged",
                                 "files/b/c"),
        "a bit of the seal": (lambda: flip(place / "seal", 40), "damaged", "seal"),
        "no seal": ((place / "seal").unlink, "missing", "seal"),
        "a bit of the listing": (lambda: flip(place / "listing"), "damaged", "listing"),
        "no listing": ((place / "listing").unlink, "missing", "listing"),
        "nothing left": (lambda: shutil.rmtree(place), "missing", "directory"),
    }
    for what, (damage, verdict, where) in ways.items():
        damage()
        seen = one.verify(snapshot)
        assert seen["verdict"] == verdict and where in seen["evidence"], (what, seen)
        one.claim()
        answer = one.ask_restore(snapshot)
        assert answer["status"] == NOT_RESTORED, (what, answer)
        assert answer["reason"] == "snapshot-" + verdict, (what, answer)
        assert count_of(platform)[:2] == (0, 1), what
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place, symlinks=True)
    assert one.verify(snapshot)["verdict"] == "intact"
    one.restore(snapshot)
    assert one.is_proven(snapshot).in_memory


def relink(path, target):
    path.unlink()
    path.symlink_to(target)


def swap(left, right):
    aside = left.with_name("aside")
    left.rename(aside)
    right.rename(left)
    aside.rename(right)


def test_swapped_and_older_snapshots_are_found(make):
    one, two = make("one"), make("two")
    older = one.suspend()
    one.restore(older)
    one.open(older)
    newer, other = one.suspend(), two.suspend()
    for left, right in [(one.place(newer), two.place(other)),
                        (one.place(newer), one.place(older))]:
        swap(left, right)
        seen = one.verify(newer)
        assert seen["verdict"] == "damaged" and "recorded one" in seen["evidence"]
        one.claim()
        assert one.ask_restore(newer)["reason"] == "snapshot-damaged"
        swap(left, right)
    one.restore(newer)
    assert one.is_proven(newer).in_memory


# ---- who may, and how much ----


def test_whoever_does_not_hold_the_record_is_refused(one, platform):
    snapshot = one.suspend()
    one.claim()
    for what in ("snapshot.prepare", "snapshot.take", "snapshot.adopt", "snapshot.remove",
                 "restore", "release"):
        for change in ({"epoch": one.epoch - 1}, {"operation": "other"}, {"name": "two"}):
            answer = platform.ask(do=what, **{**one.fields(**snapshot_fields(snapshot)), **change})
            assert (answer["status"], answer["reason"]) == (CONFLICT, "stale-epoch"), what
    assert count_of(platform) == (0, 1, 1)


def snapshot_fields(snapshot):
    return {"snapshot": snapshot["snapshot"], "kind": "memory", "keep": "memory", "sealed": True,
            "digest": snapshot["digest"]}


def test_a_restore_whose_record_was_taken_over_starts_nothing(one, platform):
    snapshot = one.suspend()
    one.claim()
    script(platform, on="restore", nth=1, do="hang")
    slow = platform.connect()
    slow.send(do="restore", **one.fields(**snapshot_fields(snapshot)))
    platform.tell(do="await-hung", count=1)
    one.claim()
    platform.tell(do="go")
    assert slow.take()["reason"] == "stale-epoch"
    slow.close()
    assert count_of(platform) == (0, 1, 1)


@pytest.mark.parametrize("id", ["", "..", "../" + "a" * 29, "a" * 31, "a" * 33, "g" * 32])
def test_what_is_no_id_leads_nowhere(one, id):
    snapshot = one.suspend("files")
    one.claim()
    for what in ("snapshot.prepare", "snapshot.take", "snapshot.adopt", "snapshot.verify",
                 "snapshot.remove", "restore"):
        answer = one.ask(what, **{**snapshot_fields(snapshot), "snapshot": id})
        assert answer["status"] == INVALID, what
    assert one.verify(snapshot)["verdict"] == "intact"


def test_an_unknown_snapshot_is_missing_everywhere(one):
    snapshot = {**one.suspend("files"), "snapshot": "b" * 32}
    one.claim()
    assert one.verify(snapshot)["verdict"] == "missing"
    assert one.ask("snapshot.adopt", snapshot="b" * 32)["status"] == NOT_FOUND
    assert one.ask_restore(snapshot)["reason"] == "snapshot-missing"
    one.tell("snapshot.remove", snapshot="b" * 32)


def test_prepare_says_what_stands_in_the_way(one, platform):
    def ask(**more):
        return one.ask("snapshot.prepare", **{"snapshot": "a" * 32, "kind": "memory", **more})

    one.claim()
    assert ask()["ok"] and ask(kind="files")["ok"]
    assert ask(kind="disk")["status"] == UNSUPPORTED
    with (one.files / "huge").open("wb") as file:
        file.truncate((1 << 30) + 1)
    assert ask()["status"] == LIMIT
    (one.files / "huge").unlink()
    deep = one.files.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    assert ask()["status"] == LIMIT
    shutil.rmtree(one.files / "d")
    platform.tell(do="kill", id=one.id)
    assert ask()["reason"] == "instance-gone" and ask(kind="files")["ok"]
    assert count_of(platform)[2] == 0


def test_too_large_a_workspace_is_refused_and_goes_on(one, platform):
    start_counter(one)
    with (one.files / "huge").open("wb") as file:
        file.truncate((1 << 30) + 1)
    hash = one.seal()
    answer = one.ask("snapshot.take", snapshot="a" * 32, kind="memory", sealed=True)
    assert answer["status"] == LIMIT and count_of(platform) == (1, 0, 0)
    one.reopen(hash)
    goes_on(one)


def test_snapshots_are_counted(one):
    one.seal()
    taken = [one.take("files") for _ in range(32)]
    again = one.ask("snapshot.take", **snapshot_fields(taken[0]))
    assert again["status"] == EXISTS
    answer = one.ask("snapshot.take", snapshot="a" * 32, kind="files", sealed=True)
    assert (answer["status"], answer["reason"]) == (LIMIT, "too-many-snapshots")
    one.tell("snapshot.remove", snapshot=taken[0]["snapshot"])
    one.take("files", id="a" * 32)


# ---- faults of a take ----


def ask_take(one, **more):
    return one.ask("snapshot.take", **{"snapshot": "c" * 32, "kind": "memory", "sealed": True,
                                       **more})


@pytest.mark.parametrize("fault", ["fail", "half-made"])
def test_a_failed_take_leaves_the_instance(one, platform, fault):
    start_counter(one)
    hash = one.seal()
    script(platform, on="snapshot.take", nth=1, do=fault)
    assert ask_take(one)["status"] == UNAVAILABLE
    assert count_of(platform) == (1, 0, fault == "half-made")
    assert one.ask("snapshot.adopt", snapshot="c" * 32)["status"] == NOT_FOUND
    assert count_of(platform) == (1, 0, 0)
    one.reopen(hash)
    goes_on(one)


def test_consume_and_fail_leaves_nothing_but_files(one, platform):
    start_counter(one)
    one.seal()
    script(platform, on="snapshot.take", nth=1, do="consume-and-fail")
    assert ask_take(one)["status"] == FAILED
    assert count_of(platform) == (0, 0, 0)
    assert one.presence() == "absent" and one.count() > 0
    assert one.ask("snapshot.adopt", snapshot="c" * 32)["status"] == NOT_FOUND


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_damaged_take_is_found_by_verify(one, platform, kind):
    one.seal()
    script(platform, on="snapshot.take", nth=1, do="damage")
    snapshot = one.take(kind)
    assert one.verify(snapshot)["verdict"] == "damaged"


def test_a_take_goes_on_without_its_caller_and_is_adopted(one, platform):
    start_counter(one)
    hash = one.seal()
    script(platform, on="snapshot.take", nth=1, do="hang-midway")
    dying = platform.connect()
    dying.send(do="snapshot.take", **one.fields(snapshot="c" * 32, kind="memory", sealed=True))
    platform.tell(do="await-hung", count=1)
    dying.close()
    one.claim()
    taker = platform.connect()
    taker.send(do="snapshot.adopt", **one.fields(snapshot="c" * 32))
    platform.tell(do="hello")
    assert count_of(platform)[:2] == (1, 0), "not complete yet"
    platform.tell(do="go")
    answer = taker.take()
    taker.close()
    assert answer["ok"] and count_of(platform) == (0, 1, 1)
    snapshot = {"snapshot": "c" * 32, "kind": "memory", "digest": answer["digest"], "hash": hash}
    assert one.verify(snapshot)["verdict"] == "intact"
    one.restore(snapshot)
    assert one.is_proven(snapshot).in_memory


def test_a_lost_answer_is_found_by_adopt(one, platform):
    one.seal()
    script(platform, on="snapshot.take", nth=1, do="lose-answer")
    assert ask_take(one) is None
    assert one.tell("snapshot.adopt", snapshot="c" * 32)["digest"]
    assert one.presence() == "absent"


def test_an_instance_that_dies_meanwhile_makes_no_snapshot(one, platform):
    one.seal()
    script(platform, on="snapshot.take", nth=1, do="hang-midway")
    slow = platform.connect()
    slow.send(do="snapshot.take", **one.fields(snapshot="c" * 32, kind="memory", sealed=True))
    platform.tell(do="await-hung", count=1)
    os.kill(pid_of(one.incarnation), 9)
    wait_until(lambda: one.presence() == "stopped", "it is dead")
    platform.tell(do="go")
    assert slow.take()["reason"] == "instance-gone"
    slow.close()
    assert count_of(platform)[1:] == (0, 0)


def test_the_end_of_the_platform_comes_while_a_take_hangs(one, platform):
    one.seal()
    agent = pid_of(one.incarnation)
    script(platform, on="snapshot.take", nth=1, do="hang-midway")
    slow = platform.connect()
    slow.send(do="snapshot.take", **one.fields(snapshot="c" * 32, kind="memory", sealed=True))
    platform.tell(do="await-hung", count=1)
    assert platform.end() == 0
    slow.close()
    assert not lives(agent)


# ---- what a platform may lie about ----


@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("lie", ["cold", "older", "foreign", "silent"])
def test_no_lie_is_proven_and_the_truth_still_is(make, platform, lie, kind):
    one, two = make("one"), make("two")
    start_counter(one)
    older = one.suspend(kind)
    one.restore(older)
    one.open(older)
    (one.files / "newer").write_text("newer")
    foreign, snapshot = two.suspend(kind), one.suspend(kind)

    script(platform, on="restore", nth=1, do=lie)
    one.restore(snapshot)
    assert not one.is_proven(snapshot)
    one.discard()
    one.restore(snapshot)
    assert one.is_proven(snapshot)
    assert (one.files / "newer").exists()
    one.open(snapshot)
    one.caller.run("true")
    two.restore(foreign)
    assert two.is_proven(foreign)


def test_older_really_restores_the_older_one(one, platform):
    older = one.suspend("files")
    one.restore(older)
    one.open(older)
    snapshot = one.suspend("files")
    script(platform, on="restore", nth=1, do="older")
    one.restore(snapshot)
    reply = one.prove()
    assert hashlib.sha256(reply.nonce).digest() == older["hash"] and reply.in_file


def test_foreign_really_restores_another_workspace(make, platform):
    one, two = make("one"), make("two")
    snapshot, foreign = one.suspend(), two.suspend()
    script(platform, on="restore", nth=1, do="foreign")
    one.restore(snapshot)
    one.caller.token, one.caller.epoch = two.token, two.epoch
    reply = one.caller.method("Guard", "Prove")(guard.ProveRequest(epoch=two.epoch))
    assert hashlib.sha256(reply.nonce).digest() == foreign["hash"] and reply.in_memory
    one.discard()
    assert count_of(platform) == (0, 2, 2)


@pytest.mark.parametrize("word", ["confirmed", "missing", "contrary"])
def test_the_platform_says_what_it_is_told(one, platform, word):
    snapshot = one.suspend()
    script(platform, on="restore", nth=1, do="evidence-" + word)
    assert one.restore(snapshot)["evidence"] == word
    assert one.is_proven(snapshot)
    for _ in range(3):
        assert one.tell("evidence.look")["evidence"] == word
    platform.tell(do="evidence", id=one.id, say="contrary")
    assert one.tell("evidence.look")["evidence"] == "contrary"
    platform.tell(do="evidence", id=one.id)
    assert one.tell("evidence.look")["evidence"] == "confirmed"
    one.discard()
    assert one.restore(snapshot)["evidence"] == ""
    assert one.tell("evidence.look")["evidence"] == ""


def test_evidence_comes_after_so_many_asks(one, platform):
    snapshot = one.suspend("files")
    script(platform, on="restore", nth=1, do="evidence-missing", asks=3)
    assert one.restore(snapshot)["evidence"] == "missing"
    seen = [one.tell("evidence.look")["evidence"] for _ in range(4)]
    assert seen == ["missing", "missing", "confirmed", "confirmed"]


@pytest.mark.parametrize("fault", ["half-made", "lose-answer", "hang-after"])
def test_a_restore_that_nobody_learns_of_is_undone_by_discard(one, platform, fault):
    snapshot = one.suspend()
    one.claim()
    script(platform, on="restore", nth=1, do=fault)
    dying = platform.connect()
    dying.send(do="restore", **one.fields(**snapshot_fields(snapshot)))
    if fault == "hang-after":
        platform.tell(do="await-hung", count=1)
    else:
        answer = dying.take()
        assert answer is None or answer["status"] == UNAVAILABLE
    dying.close()
    assert one.presence() == "other" and count_of(platform) == (1, 0, 1)
    one.tell("discard")
    assert count_of(platform) == (0, 1, 1)
    one.restore(snapshot)
    assert one.is_proven(snapshot).in_memory


def test_the_fault_of_a_killed_agent_is_that_of_any_other(one, platform):
    snapshot = one.suspend()
    script(platform, on="restore", nth=1, do="kill-agent")
    one.claim()
    answer = one.ask_restore(snapshot)
    assert answer["ok"]
    wait_until(lambda: one.presence() == "stopped", "it is dead")
    one.tell("discard")
    assert one.ask_restore(snapshot)["reason"] == "memory-gone"


@pytest.mark.parametrize("line", [b'{"do":"snapshot.take"}\n', b'{"do":"restore","id":7}\n',
                                  b'{"do":"snapshot.verify"}\n', b'{"do":"evidence"}\n',
                                  b'{"do":"evidence.look","id":"x"}\n', b'{"do":"release"}\n'])
def test_nonsense_does_no_harm(platform, line):
    connection = platform.connect()
    connection.socket.sendall(line)
    assert isinstance(connection.take()["ok"], bool)
    connection.close()
    assert platform.tell(do="hello")
