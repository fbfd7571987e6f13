#!/usr/bin/python3
"""Writes tests/fuzz/corpus/exec: what a good server says to an exec, and the ways of saying it wrong
that matter most. The first byte says what it is: see fuzz_exec.c.
"""

import json
import pathlib

PLACE = pathlib.Path(__file__).resolve().parent / "corpus" / "exec"
STATUS, ANSWER, FRAMES = 0, 1, 2


def put(name, kind, data, piece=4):
    PLACE.mkdir(parents=True, exist_ok=True)
    data = data if isinstance(data, bytes) else data.encode()
    (PLACE / name).write_bytes(bytes([kind | (piece - 1) << 2]) + data)


def frame(opcode, data, final=True, mask=b""):
    head = bytes([(0x80 if final else 0) | opcode])
    length = len(data)
    flag = 0x80 if mask else 0
    if length < 126:
        return head + bytes([flag | length]) + mask + data
    if length < 1 << 16:
        return head + bytes([flag | 126]) + length.to_bytes(2, "big") + mask + data
    return head + bytes([flag | 127]) + length.to_bytes(8, "big") + mask + data


def failure(code):
    return json.dumps({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                       "details": {"causes": [{"reason": "ExitCode", "message": code}]}})


def statuses():
    put("status-success", STATUS, '{"metadata":{},"status":"Success"}')
    put("status-42", STATUS, failure("42"))
    put("status-huge", STATUS, failure("99999999999"))
    put("status-negative", STATUS, failure("-1"))
    put("status-words", STATUS, failure("forty-two"))
    put("status-number", STATUS, failure(42))
    put("status-no-cause", STATUS, '{"status":"Failure","reason":"NonZeroExitCode"}')
    put("status-error", STATUS, '{"status":"Failure","reason":"InternalError",'
                                '"message":"no\\u001b[31m\\n such container"}')
    put("status-list", STATUS, '["Success"]')
    put("status-deep", STATUS, "[" * 2000)
    put("status-cut", STATUS, '{"status":"Succ')
    put("status-none", STATUS, "")


def answers():
    head = ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
            "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n")
    put("answer-101", ANSWER, head.encode() + frame(2, b"\1early"))
    put("answer-length", ANSWER, "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n"
                                 "Retry-After: 7\r\nContent-Length: 18\r\n\r\n{\"kind\":\"Status\"}\n")
    put("answer-chunked", ANSWER, "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")
    put("answer-chunk-large", ANSWER, "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                                      "ffffffffffffffffff\r\nhello\r\n")
    put("answer-until-close", ANSWER, "HTTP/1.0 500 Internal Server Error\r\n\r\nout of order")
    put("answer-length-large", ANSWER, "HTTP/1.1 500 X\r\nContent-Length: 999999999999\r\n\r\nx")
    put("answer-length-wrong", ANSWER, "HTTP/1.1 500 X\r\nContent-Length: -1\r\n\r\nx")
    put("answer-100", ANSWER, "HTTP/1.1 100 Continue\r\n\r\n")
    put("answer-bare", ANSWER, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n")
    put("answer-other", ANSWER, "SSH-2.0-OpenSSH_9.2\r\n\r\n")
    put("answer-zero", ANSWER, b"HTTP/1.1 101 \0\r\nUpgrade:\0\r\n\r\n")


def frames():
    success = frame(2, b'\3{"metadata":{},"status":"Success"}')
    close = frame(8, b"\3\xe8bye")
    put("frames-good", FRAMES, frame(2, b"\1out") + frame(2, b"\2err") + success + close)
    put("frames-fragments", FRAMES, frame(2, b"\1", False) + frame(9, b"?") +
        frame(0, b"one ", False) + frame(0, b"", False) + frame(0, b"two") + success + close, 1)
    put("frames-empty", FRAMES, frame(2, b"") + frame(2, b"\1") + frame(2, b"", False) +
        frame(0, b"\1x") + close)
    put("frames-long", FRAMES, frame(2, b"\1" + b"x" * 70000) + frame(2, b"\2" + b"e" * 9000) +
        close, 64)
    put("frames-pings", FRAMES, frame(9, b"p" * 125) * 40 + success, 64)
    put("frames-unknown", FRAMES, frame(2, b"\x09who") + frame(2, b"\xff\1") + success)
    put("frames-text", FRAMES, frame(1, b"1words") + success)
    put("frames-masked", FRAMES, frame(2, b"abcd", mask=b"key!"))
    put("frames-reserved", FRAMES, b"\xf2\1x" + success)
    put("frames-opcode", FRAMES, b"\x83\1x" + success)
    put("frames-no-start", FRAMES, frame(0, b"\1x") + success)
    put("frames-two-starts", FRAMES, frame(2, b"\1x", False) + frame(2, b"\1y"))
    put("frames-ping-cut", FRAMES, frame(9, b"x", False))
    put("frames-ping-long", FRAMES, b"\x89\x7e\0\x7e" + b"x" * 126)
    put("frames-length", FRAMES, b"\x82\x7f\xff" + b"\xff" * 7 + b"\1x")
    put("frames-length-wide", FRAMES, b"\x82\x7e\0\x05\1wide" + success)
    put("frames-close-code", FRAMES, frame(8, b"\x03"))
    put("frames-close-words", FRAMES, frame(8, b"\3\xf3" + b"\xff\x1b\n"))
    put("frames-after-close", FRAMES, close + frame(2, b"\1late"))


statuses()
answers()
frames()
