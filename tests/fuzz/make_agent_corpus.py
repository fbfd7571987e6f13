#!/usr/bin/python3
"""Writes tests/fuzz/corpus/agent: what a gRPC client sends, for each kind of call, and some that no
client should. HTTP/2 is written by hand, so that the files hold what their names say.
"""

import pathlib
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
TOKEN = "A" * 43


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) \
        + struct.pack(">I", stream) + payload


def text(value: str) -> bytes:
    raw = value.encode()
    size = bytes([len(raw)]) if len(raw) < 127 else bytes([127, len(raw) - 127])
    return size + raw


def headers(stream: int, path: str, flags: int = END_HEADERS, **more: str) -> bytes:
    pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "agent",
             "content-type": "application/grpc", "te": "trailers", "sandbox-token-bin": TOKEN,
             "sandbox-epoch": "1"}
    pairs.update({name.replace("__", ":").replace("_", "-"): value for name, value in more.items()})
    block = b"".join(b"\x00" + text(name) + text(value) for name, value in pairs.items())
    return frame(HEADERS, flags, stream, block)


def message(payload: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + struct.pack(">I", len(payload)) + payload


def data(stream: int, payload: bytes, end: bool = True) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, payload)


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


OPENING = PREFACE + frame(SETTINGS, 0, 0) + frame(WINDOW, 0, 0, struct.pack(">I", 1 << 20))
FILES = {
    "health": OPENING + headers(1, "/sandbox.v1.Guard/Health") + data(1, message(b"")),
    "open": OPENING + headers(1, "/sandbox.v1.Guard/Open")
    + data(1, message(b"\x08\x01" + field(2, b"i" * 16) + field(3, b"t" * 32)
                      + field(5, b"A=b") + field(6, b"root"))),
    "start-refused": OPENING + headers(1, "/sandbox.v1.Processes/Start", grpc_timeout="5S")
    + data(1, message(field(1, b"p" * 16) + field(3, b"echo \xff\n%41"))),
    "attach": OPENING + headers(1, "/sandbox.v1.Processes/Attach")
    + data(1, message(field(1, b"p" * 16))) + frame(WINDOW, 0, 1, struct.pack(">I", 1 << 22)),
    "attach-reset": OPENING + headers(1, "/sandbox.v1.Processes/Attach")
    + data(1, message(field(1, b"p" * 16))) + frame(RST, 0, 1, struct.pack(">I", 8)),
    "write": OPENING + headers(1, "/sandbox.v1.Files/Write")
    + data(1, message(field(2, b"1234")) + message(field(2, b"x")), False)
    + data(1, message(field(2, b"yyyy"))),
    "write-split": OPENING + headers(1, "/sandbox.v1.Files/Write")
    + b"".join(data(1, bytes([byte]), False) for byte in message(field(2, b"abcd")))
    + data(1, b""),
    "dial": OPENING + headers(1, "/sandbox.v1.Ports/Dial") + data(1, message(b"\x08\x50"), False)
    + data(1, message(field(2, b"hello")), False) + data(1, message(b"\x18\x01")),
    "two-calls": OPENING + headers(1, "/sandbox.v1.Guard/Health")
    + headers(3, "/sandbox.v1.Ports/Dial") + data(3, message(field(2, b"a")), False)
    + data(1, message(b"")) + data(3, b""),
    "no-token": OPENING + headers(1, "/sandbox.v1.Ports/Dial", sandbox_token_bin="short"),
    "no-method": OPENING + headers(1, "/sandbox.v1.Nobody/Nothing") + data(1, message(b"")),
    "get": OPENING + headers(1, "/sandbox.v1.Guard/Health", __method="GET"),
    "not-grpc": OPENING + headers(1, "/", content_type="text/html"),
    "compressed": OPENING + headers(1, "/sandbox.v1.Guard/Health") + data(1, message(b"", 1)),
    "too-large": OPENING + headers(1, "/sandbox.v1.Guard/Health")
    + data(1, b"\x00\x7f\xff\xff\xff", False),
    "cut-message": OPENING + headers(1, "/sandbox.v1.Guard/Health") + data(1, b"\x00\x00\x00\x00\x09a"),
    "malformed": OPENING + headers(1, "/sandbox.v1.Guard/Open") + data(1, message(b"\xff" * 20)),
    "timeout-bad": OPENING + headers(1, "/sandbox.v1.Guard/Health", grpc_timeout="999999999H"),
    "ping-goaway": OPENING + frame(PING, 0, 0, b"12345678") + frame(GOAWAY, 0, 0, b"\0" * 8),
    "http1": b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n",
    "window-overflow": OPENING + frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFFFFFF)),
    "continuation": PREFACE + frame(SETTINGS, 0, 0) + headers(1, "/x", flags=0)
    + frame(CONTINUATION, END_HEADERS, 1, b"\x00" + text("a") + text("b")),
}


def main() -> None:
    folder = pathlib.Path(__file__).resolve().parent / "corpus" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)


main()
