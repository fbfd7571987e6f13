#!/usr/bin/python3
"""An agent that is none: what the client of the agent protocol is tested against.

    agent_double.py FOLDER

listens on Unix sockets in FOLDER and prints "ready". FOLDER/good is a stock gRPC server that speaks
the protocol's own files. Every other socket, FOLDER/NAME, is one way of misbehaving on the wire,
written out frame by frame; SCRIPTS lists them.
"""

import concurrent.futures
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "lib/agent/proto/sandbox/v1"
PIECE = 256 << 10


def load_messages():
    """The protocol's messages, made by the stock compiler."""
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(str(path) for path in PROTO.glob("*.proto"))
        subprocess.run(["protoc", "-I", str(PROTO), "--python_out=" + folder, *files], check=True)
        sys.path.insert(0, folder)
        import files_pb2
        import guard_pb2
        import ports_pb2
        import processes_pb2
        sys.path.pop(0)
    return guard_pb2, processes_pb2, files_pb2, ports_pb2


guard, processes, files, ports = load_messages()

# ---- the good one ----

cancelled = 0
cancelled_lock = threading.Lock()


def health(request, context):
    """What came with the call: the token as the id, the epoch, and the time that was left."""
    metadata = dict(context.invocation_metadata())
    left = context.time_remaining()
    return guard.HealthReply(protocol=1, version="double",
                             workspace_id=metadata.get("sandbox-token-bin", b""),
                             epoch=int(metadata.get("sandbox-epoch", "0")),
                             uptime_ms=0 if left is None else int(left * 1000))


def open_(request, context):
    """Fails with the status that is asked for, and the id as the reason."""
    context.set_trailing_metadata((("sandbox-reason", request.user),))
    context.set_code(next(code for code in grpc.StatusCode if code.value[0] == request.epoch))
    context.set_details(request.directory.decode())
    return guard.OpenReply()


def stats(request, context):
    """Never answers."""
    over = threading.Event()
    context.add_callback(over.set)
    over.wait()
    global cancelled
    with cancelled_lock:
        cancelled += 1
    return guard.StatsReply()


def activity(request, context):
    """How many calls of Stats were given up."""
    with cancelled_lock:
        return guard.ActivityReply(active_tasks=cancelled)


def attach(request, context):
    """`output_offset` bytes, counted up modulo 251, in pieces of `error_offset`; then the end."""
    size = request.error_offset or PIECE
    pattern = bytes(range(251)) * (size // 251 + 2)
    yield processes.ProcessEvent(kind=processes.ProcessEvent.KIND_ATTACHED, pid=7)
    for offset in range(0, request.output_offset, size):
        start = offset % 251
        piece = pattern[start:start + min(size, request.output_offset - offset)]
        yield processes.ProcessEvent(kind=processes.ProcessEvent.KIND_OUTPUT, offset=offset,
                                     data=piece)
    yield processes.ProcessEvent(kind=processes.ProcessEvent.KIND_EXIT,
                                 exit=processes.Exit(code=7))


def write(requests, context):
    """How many bytes came."""
    return files.FileWriteReply(written=sum(len(request.data) for request in requests))


def dial(requests, context):
    """Echo."""
    for request in requests:
        yield request


def good_server(path):
    def handlers(service, methods):
        return grpc.method_handlers_generic_handler("sandbox.v1." + service, methods)

    def unary(function, request):
        return grpc.unary_unary_rpc_method_handler(
            function, request.FromString, lambda message: message.SerializeToString())

    serialize = lambda message: message.SerializeToString()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=1200),
                         options=[("grpc.max_receive_message_length", -1),
                                  ("grpc.http2.max_ping_strikes", 0)])
    server.add_generic_rpc_handlers((
        handlers("Guard", {
            "Health": unary(health, guard.HealthRequest),
            "Open": unary(open_, guard.OpenRequest),
            "Stats": unary(stats, guard.StatsRequest),
            "Activity": unary(activity, guard.ActivityRequest),
        }),
        handlers("Processes", {"Attach": grpc.unary_stream_rpc_method_handler(
            attach, processes.AttachRequest.FromString, serialize)}),
        handlers("Files", {"Write": grpc.stream_unary_rpc_method_handler(
            write, files.FileWrite.FromString, serialize)}),
        handlers("Ports", {"Dial": grpc.stream_stream_rpc_method_handler(
            dial, ports.PortData.FromString, serialize)}),
    ))
    server.add_insecure_port("unix:" + path)
    server.start()
    return server


# ---- the wicked ones: HTTP/2 by hand ----

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits):
    """An integer as HPACK writes it."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    text, value = bytes([most]), value - most
    while value >= 128:
        text += bytes([value % 128 + 128])
        value //= 128
    return text + bytes([value])


def headers(stream, fields, flags=END_HEADERS):
    block = b""
    for name, value in fields:
        name, value = name.encode(), value.encode() if isinstance(value, str) else value
        block += b"\0" + number(len(name), 7) + name + number(len(value), 7) + value
    frames = frame(HEADERS, flags & ~END_HEADERS if len(block) > 16000 else flags, stream,
                   block[:16000])
    for at in range(16000, len(block), 16000):
        last = at + 16000 >= len(block)
        frames += frame(9, END_HEADERS if last else 0, stream, block[at:at + 16000])
    return frames


def message(payload, flag=0, size=None):
    return struct.pack(">BI", flag, len(payload) if size is None else size) + payload


BEGIN = [(":status", "200"), ("content-type", "application/grpc")]
HEALTH = guard.HealthReply(protocol=1, version="raw").SerializeToString()


def event(**fields):
    return message(processes.ProcessEvent(**fields).SerializeToString())


def answer(body, *trailers):
    """Headers, a body and trailers, all in one packet."""
    def script(peer, stream):
        peer.send(headers(stream, BEGIN) + frame(DATA, 0, stream, body) +
                  headers(stream, trailers or [("grpc-status", "0")], END_HEADERS | END_STREAM))
    return script


def refusal(*trailers):
    def script(peer, stream):
        peer.send(headers(stream, BEGIN + list(trailers), END_HEADERS | END_STREAM))
    return script


def cut(peer, stream):
    peer.close()


def cut_in_answer(peer, stream):
    peer.send(headers(stream, BEGIN) + frame(DATA, 0, stream, message(HEALTH)[:4]))
    peer.close()


def no_trailers(peer, stream):
    peer.send(headers(stream, BEGIN) + frame(DATA, END_STREAM, stream, message(HEALTH)))


def output_without_end(peer, stream):
    peer.send(headers(stream, BEGIN) + frame(DATA, END_STREAM, stream, event(
        kind=processes.ProcessEvent.KIND_OUTPUT, data=b"half")))


def reset(peer, stream):
    peer.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 2)))


def refuse_stream(peer, stream):
    peer.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 7)))


def goaway_then_answer(peer, stream):
    peer.send(frame(GOAWAY, 0, 0, struct.pack(">II", stream, 0)))
    answer(message(HEALTH))(peer, stream)


def data_after_trailers(peer, stream):
    answer(message(HEALTH))(peer, stream)
    peer.send(frame(DATA, 0, stream, b"more") + frame(DATA, 0, 99, b"for nobody"))


def http_error(peer, stream):
    peer.send(headers(stream, [(":status", "502"), ("content-type", "text/html")]) +
              frame(DATA, END_STREAM, stream, b"<html>"))


def garbage(peer, stream):
    peer.send(b"\xff" * 4096)


def silent(peer, stream):
    """Answers nothing, not even a ping."""
    peer.mute = True


SCRIPTS = {
    "cut": cut,
    "cut-in-answer": cut_in_answer,
    "no-trailers": no_trailers,
    "output-without-end": output_without_end,
    "reset": reset,
    "refuse-stream": refuse_stream,
    "goaway-then-answer": goaway_then_answer,
    "data-after-trailers": data_after_trailers,
    "http-error": http_error,
    "garbage": garbage,
    "silent": silent,
    "one-packet": answer(
        event(kind=processes.ProcessEvent.KIND_ATTACHED, pid=7) +
        event(kind=processes.ProcessEvent.KIND_OUTPUT, data=b"a\n\n\nb\r\n\n\0\xff") +
        event(kind=processes.ProcessEvent.KIND_EXIT, exit=processes.Exit(code=7))),
    "compressed": answer(message(HEALTH, flag=1)),
    "too-large": answer(message(b"", size=(4 << 20) + 1)),
    "two-answers": answer(message(HEALTH) * 2),
    "no-answer": answer(b""),
    "wrong-message": answer(message(b"\x0a\xff\xff\xff\xff\x0f")),
    "cut-message": answer(message(HEALTH)[:-1]),
    "unknown-status": answer(message(HEALTH), ("grpc-status", "99")),
    "status-no-number": answer(message(HEALTH), ("grpc-status", "0x0")),
    "huge-message": refusal(("grpc-status", "5"), ("sandbox-reason", "no-such-file"),
                            ("grpc-message", "x" * 20000)),
    "wild-message": refusal(("grpc-status", "5"), ("sandbox-reason", "No such File"),
                            ("grpc-message", b"a%0Ab%1B%FF%C3%A9%zz%e2%80%a8")),
    "many-headers": refusal(("grpc-status", "0"), *(("x-%d" % each, "y" * 1000)
                                                    for each in range(100))),
}


class Peer:
    """One connection of a wicked agent."""

    def __init__(self, connection, script):
        self.connection, self.script, self.mute = connection, script, False

    def send(self, data):
        self.connection.sendall(data)

    def close(self):
        self.connection.shutdown(socket.SHUT_RDWR)

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def serve(self):
        try:
            self.take(24)
            self.send(frame(SETTINGS, 0, 0))
            while True:
                head = self.take(9)
                size = int.from_bytes(head[:3], "big")
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                payload = self.take(size)
                if kind == SETTINGS and not flags & ACK:
                    self.send(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK and not self.mute:
                    self.send(frame(PING, ACK, 0, payload))
                elif kind == DATA and flags & END_STREAM:
                    self.script(self, stream)
        except OSError:
            pass
        finally:
            self.connection.close()


def wicked_server(path, script):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=Peer(connection, script).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def main():
    folder = sys.argv[1]
    server = good_server(os.path.join(folder, "good"))
    for name, script in SCRIPTS.items():
        wicked_server(os.path.join(folder, name), script)
    print("ready", flush=True)
    sys.stdin.read()  # until whoever started it is gone
    server.stop(0)
    os._exit(0)


if __name__ == "__main__":
    main()
