#!/usr/bin/python3
"""Writes tests/fuzz/corpus/{gate,manifest,opencode} and the records with snapshots: what a good
peer says, and the ways of saying it wrong that matter most.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
ID, NEWER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
HASH = "00112233445566778899aabbccddeeff" * 2
SEAL, PROVE, OPEN, ACTIVITY, HEALTH, QUIESCE = range(6)


def put(folder, name, data):
    place = HERE / "corpus" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def message(*fields):
    """(number, value): an integer, or bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value & (1 << 64) - 1)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def gate():
    process = message((1, 7), (2, b"sleep 100"))
    odd = message((1, -1), (2, b"\x1b[31m\x00\xff" * 40))
    active = message((1, b"x" * 16), (2, 12), (3, b"make -j8"), (4, 1))
    answers = {
        "sealed": (SEAL, message((1, b"h" * 32), (3, 4), (4, 2), (5, 1))),
        "not-sealed": (SEAL, message(*[(2, process)] * 16)),
        "obstacles-odd": (SEAL, message(*[(2, odd)] * 40)),
        "hash-short": (SEAL, message((1, b"h" * 31))),
        "says-nothing": (SEAL, b""),
        "proven": (PROVE, message((1, b"n" * 32), (2, 6), (3, b"i" * 16), (4, 1), (5, 1))),
        "proven-nothing": (PROVE, message((4, 1), (5, 1))),
        "nonce-long": (PROVE, message((1, b"n" * 33), (3, b"i" * 17))),
        "opened": (OPEN, message((1, 6), (2, -3600000), (7, 1), (9, 4), (10, 1), (12, -1),
                                 (13, 3))),
        "opened-late": (OPEN, message((1, 6), (3, 1), (8, 22), (12, 300))),
        "active": (ACTIVITY, message((1, 1), (3, 10), (5, b"x" * 16), (6, 1), (7, 2),
                                     *[(8, active)] * 20)),
        "active-odd": (ACTIVITY, message((8, message((2, -5), (3, b"\n\xc3\xa9" * 200))))),
        "health": (HEALTH, message((1, 2), (2, b"1"), (3, 4), (4, 6), (5, b"i" * 16), (7, 9))),
        "gate-unknown": (HEALTH, message((3, 99), (5, b"i"))),
        "quiet": (QUIESCE, b""),
        "unfinished": (QUIESCE, message((1, 3))),
        "cut": (PROVE, message((1, b"n" * 32))[:-1]),
    }
    for name, (call, answer) in answers.items():
        put("gate", name, bytes([call, 0]) + answer)
    for call in (SEAL, PROVE, OPEN):
        put("gate", f"refused-{call}", bytes([call, 9]))


def manifests():
    chunk = 8 << 20
    good = {
        "format": 1, "kind": "memory", "epoch": 6, "created_ms": 1796000000123,
        "features": "fpu vme sse2 avx2", "workspace": ID, "snapshot": NEWER, "run": ID,
        "seal_hash": HASH, "base": HASH, "tools": HASH, "runtime": HASH, "contents": HASH,
        "version": "runsc version release-20260126.0\nspec: 1.1.0-rc.1\n", "platform": "systrap",
        "flags": "--direct --background=false", "spec": HASH,
        "tree": {"digest": HASH, "entries": 12, "bytes": 4096},
        "parts": [{"chunks": [HASH], "path": "config.json", "size": 2000},
                  {"chunks": [HASH, HASH, HASH], "path": "image/pages.img", "size": 2 * chunk + 1},
                  {"chunks": [], "path": "image/empty", "size": 0}],
    }
    put("manifest", "memory.json", json.dumps(good, separators=(",", ":")))
    files = dict(good, kind="files", version="", platform="", flags="", spec="",
                 parts=[{"chunks": [HASH], "path": "files.list", "size": 9}])
    put("manifest", "files.json", json.dumps(files, separators=(",", ":")))
    wrong = {
        "leads-out": dict(good, parts=[{"chunks": [], "path": "../../etc/passwd", "size": 0}]),
        "hidden": dict(good, parts=[{"chunks": [], "path": "image/.", "size": 0}]),
        "chunks-few": dict(good, parts=[{"chunks": [HASH], "path": "a", "size": 3 * chunk}]),
        "size-huge": dict(good, parts=[{"chunks": [HASH], "path": "a", "size": 1e300}]),
        "size-fraction": dict(good, parts=[{"chunks": [HASH], "path": "a", "size": 0.5}]),
        "parts-many": dict(good, parts=[{"chunks": [], "path": "a", "size": 0}] * 65),
        "seal-long": dict(good, seal_hash=HASH + "0"),
        "field-more": dict(good, more=1),
        "epoch-large": dict(good, epoch=1 << 33),
        "features-long": dict(good, features="avx " * 2000),
    }
    for name, value in wrong.items():
        put("manifest", name + ".json", json.dumps(value, separators=(",", ":")))
    put("manifest", "twice.json", json.dumps(good)[:-1] + ',"seal_hash":"' + HASH + '"}')
    put("manifest", "deep.json", "[" * 2000)
    put("manifest", "runtime-facts.json", json.dumps({
        "origin": "8:1:2:3:4", "version": "runsc version release-20221219.0\nspec: 1.0.2\n",
        "flags": "  -overlay2 string\n  -platform string (default \"ptrace\")\n"}))
    put("manifest", "base-facts.json", json.dumps({"userland": "links"}))


def records():
    plain = {"format": 1, "id": ID, "name": "w", "state": "suspended"}
    snapshot = {"id": NEWER, "kind": "memory", "seal_hash": HASH, "digest": HASH, "run": ID,
                "key_id": 1, "epoch": 6, "incarnation": "boot:1:2", "created_ms": 1796000000123,
                "bytes": 1 << 30, "proven": True, "unheard_of": [1]}
    whole = dict(plain, precious=True, snapshot=NEWER, snapshots=[snapshot, dict(snapshot, id=ID)],
                 making=snapshot, next_run=ID, next_key_id=2, generation=3, retain=4,
                 checks=["opencode:4096"], suspend_after_idle_ms=900000,
                 operation={"kind": "suspend", "id": ID, "step": "take", "owner": "b:1:2",
                            "lease_ms": 30000, "wanted": True})
    put("record", "snapshots.json", json.dumps(whole))
    put("record", "point-missing.json", json.dumps(dict(whole, snapshots=[])))
    put("record", "snapshot-twice.json", json.dumps(dict(whole, snapshots=[snapshot, snapshot])))
    put("record", "snapshots-many.json", json.dumps(dict(plain, snapshots=[
        dict(snapshot, id=f"{number:032x}") for number in range(21)])))
    text = json.dumps(whole)
    for name in ("making", "snapshots", "precious"):
        value = json.dumps(whole[name])
        put("record", f"{name}-twice.json", text[:-1] + f', "{name}": {value}}}')


def http(body, status="200 OK", kind="application/json", more=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def opencode():
    own = http({"directory": "/srv/own"})
    projects = http([{"worktree": "/"}, {"worktree": "/srv/a b", "sandboxes": ["/srv/tree"]}])
    sessions = http([{"id": "ses_1", "directory": "/srv/plain"}])
    nobody, no_turn, none = http({"data": {}}), http({}), http([])
    terminal = http([{"id": "pty_1", "status": "running", "pid": 12}])
    begin = [own, projects, sessions, nobody]
    stat = b"12 (ba) sh) S 1 12 12 34816 %d 4194304"
    idle_directory = [no_turn, none, http({"data": []})]
    answers = {
        "busy-second-engine": [own, none, none, http({"data": {"ses_2": {"type": "running"}}})],
        "busy": begin + [http({"ses_1": {"type": "busy"}})],
        "terminal-job": begin + [no_turn, terminal, stat % 99],
        "terminal-prompt": begin + [no_turn, terminal, stat % 12] + idle_directory * 4,
        "terminal-no-foreground": begin + [no_turn, terminal, stat % 0, b"1\n12\n13\nself\n",
                                           b"1 (a) S 0 1 1 0 -1", stat % 0,
                                           b"13 (job) R 12 13 12 0 0"],
        "idle": [own, none, none, nobody] + idle_directory + [b"1", b"1\n2\n",
                                                              b"1 (node) S 0 1 1 0 -1",
                                                              b"2 (sh) S 1 2 2 34816 2"],
        "pages": [own, none, http([], more="x-next-cursor: 5\r\n"),
                  http([{"directory": "/srv/late"}], more="X-Next-Cursor:  \r\n")] + [nobody],
        "cursor-long": [own, none, http([], more="x-next-cursor: " + "9" * 600 + "\r\n")],
        "denied": [http({}, "401 Unauthorized")],
        "redirected": [http({}, "302 Found", more="Location: http://169.254.169.254/\r\n")],
        "html": [http(b"<html>", kind="text/html")],
        "chunked": [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
        "no-head": [b"{}"],
        "cut": [own[:-4]],
        "empty": [b""],
        "items-many": [http(b"[" + b"0," * 30000 + b"0]")],
        "relative": [http({"directory": "etc"})],
        "odd-words": [own, none, none,
                      http({"data": {"\u001b[31m\n" * 9: {"type": "\u0000\u009b" * 60}}})],
        "stat-odd": begin + [no_turn, terminal, b"12 no name"],
    }
    for name, said in answers.items():
        put("opencode", name, b"\x1e".join(said))


if __name__ == "__main__":
    gate()
    manifests()
    records()
    opencode()
