"""gRPC as others speak it, and callers that mean no good."""
import base64
import os
import socket
import stat
import struct
import subprocess
import threading
import time

import grpc
import pytest

from conftest import BINARY, fails, guard_pb2, processes_pb2, times_out, until

CODE = grpc.StatusCode
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + \
        struct.pack(">I", stream) + payload


def literal(name, value):
    """A header without compression and without a place in the table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_headers(path):
    return (literal(b":method", b"POST") + literal(b":scheme", b"http") +
            literal(b":path", path) + literal(b":authority", b"x") +
            literal(b"content-type", b"application/grpc"))


class Raw:
    """HTTP/2 by hand."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)

    def greet(self):
        self.socket.sendall(PREFACE + frame(4, 0, 0))
        return self

    def ping(self):
        self.socket.sendall(frame(6, 0, 0, b"12345678"))
        assert any((kind, flags, payload) == (6, 1, b"12345678")
                   for kind, flags, _, payload in self.frames())
        return self

    def is_cut(self):
        """Reads until the agent has closed; whatever it had to say before."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True

    def frames(self):
        data = b""
        while True:
            while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
                more = self.socket.recv(1 << 16)
                if not more:
                    return
                data += more
            size = int.from_bytes(data[:3], "big")
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + size]
            data = data[9 + size:]


def curl(agent, method, *arguments, data=b"\0\0\0\0\0"):
    """The answer's headers and trailers, by a client nobody here wrote."""
    for _ in range(50):
        run = subprocess.run(
            ["curl", "-sS", "-D", "-", "-o", "/dev/null", "--max-time", "20",
             "--http2-prior-knowledge", "--unix-socket", agent.socket, "--data-binary", "@-",
             *arguments, "http://agent" + method],
            input=data, capture_output=True, check=False)
        # An answer that comes before curl has sent its body is more than this curl understands:
        # it fails, or ends without the trailers or without anything.
        if run.returncode == 0 and run.stdout and \
                (b"grpc-status" in run.stdout or b" 200" not in run.stdout):
            break
    lines = run.stdout.decode().split("\r\n")
    pairs = [line.split(": ", 1) for line in lines if ": " in line]
    return lines[0].split()[1] if lines[0] else None, dict(pairs), run


GRPC = ("-H", "content-type: application/grpc")


def test_the_socket_is_private_and_its_folder_is_made(agent):
    assert stat.S_IMODE(os.stat(agent.socket).st_mode) == 0o600


def test_a_stock_http2_client_is_served(agent):
    status, headers, run = curl(agent, "/sandbox.v1.Guard/Health", *GRPC)
    assert (status, headers["content-type"]) == ("200", "application/grpc+proto"), run.stderr
    assert headers["grpc-status"] == "0"


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/grpc+json", ""])
def test_other_content_types_are_415(agent, kind):
    status, headers, _ = curl(agent, "/sandbox.v1.Guard/Health", "-H", "content-type: " + kind)
    assert status == "415" and "grpc-status" not in headers


def test_other_http_methods_are_405(agent):
    status, _, _ = curl(agent, "/sandbox.v1.Guard/Health", *GRPC, "-X", "PUT")
    assert status == "405"


@pytest.mark.parametrize("path", ["/sandbox.v1.Guard/Nothing", "/", "/sandbox.v1.Guard/Health/",
                                  "/sandbox.v1.Guard/health"])
def test_unknown_methods_are_unimplemented(agent, path):
    _, headers, _ = curl(agent, path, *GRPC)
    assert (headers["grpc-status"], headers["sandbox-reason"]) == ("12", "no-such-method")


def test_compressed_messages_are_refused(agent):
    _, headers, _ = curl(agent, "/sandbox.v1.Guard/Health", *GRPC, data=b"\1\0\0\0\0")
    assert (headers["grpc-status"], headers["sandbox-reason"]) == ("12", "compressed")
    channel = grpc.insecure_channel("unix:" + agent.socket, compression=grpc.Compression.Gzip)
    call = channel.unary_unary("/sandbox.v1.Processes/Start",
                               request_serializer=lambda m: m.SerializeToString())
    request = processes_pb2.StartRequest(id=bytes(16), command=b"x" * 10_000)
    error = fails(CODE.UNIMPLEMENTED, "compressed", call, request, metadata=agent.metadata())
    assert "plain" in error.details()
    channel.close()


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\0\5ab", b"\0\0\0\0\2\xff\xff",
                                  b"\0\0\0\0\0" * 2])
def test_malformed_requests_are_refused(agent, data):
    _, headers, _ = curl(agent, "/sandbox.v1.Guard/Health", *GRPC, data=data)
    if data != b"\0\0\0\0\0" * 2:
        assert (headers["grpc-status"], headers["sandbox-reason"]) == ("3", "malformed")
    assert agent.run("echo on").stdout == b"on\n"


def test_a_message_over_4_mib_is_refused_and_one_below_is_not(agent):
    id = agent.start("sha256sum > /dev/null", input=True)
    fails(CODE.RESOURCE_EXHAUSTED, "message-too-large", agent.write, id, b"x" * ((4 << 20) + 1))
    size = (4 << 20) - 100
    assert agent.write(id, b"x" * size, end=True) == size
    assert agent.wait(id).code == 0


def test_details_are_percent_encoded(agent):
    path = "/no/100%/\u00e9/\n"
    error = fails(CODE.NOT_FOUND, "no-such-program", agent.start, argv=[path.encode()])
    assert path in error.details()


def test_a_callers_deadline_is_honoured_without_its_help(agent):
    """The client here never resets the call; the agent ends it by grpc-timeout alone."""
    raw = Raw(agent.socket).greet()
    token = agent.metadata()[0][1]
    id = agent.start("exec sleep 1000")
    body = processes_pb2.WaitRequest(id=id).SerializeToString()
    headers = (request_headers(b"/sandbox.v1.Processes/Wait") + literal(b"grpc-timeout", b"100m") +
               literal(b"sandbox-token-bin", base64.b64encode(token)) +
               literal(b"sandbox-epoch", b"1"))
    raw.socket.sendall(frame(1, 4, 1, headers) +
                       frame(0, 1, 1, b"\0" + struct.pack(">I", len(body)) + body))
    begun = time.monotonic()
    for kind, flags, stream, _ in raw.frames():
        if (kind, stream) == (1, 1) and flags & 1:
            break
    assert 0.09 < time.monotonic() - begun < 10
    raw.socket.close()
    times_out(agent.wait, id, timeout=0.1)
    agent.signal(id, 9)
    assert agent.wait(id).signal == 9


@pytest.mark.parametrize("timeout", [b"", b"x", b"1", b"m", b"-1m", b"123456789m", b"1y"])
def test_a_timeout_that_is_none_resets_the_call(agent, timeout):
    raw = Raw(agent.socket).greet()
    headers = request_headers(b"/sandbox.v1.Guard/Health") + literal(b"grpc-timeout", timeout)
    raw.socket.sendall(frame(1, 4, 1, headers) + frame(0, 1, 1, bytes(5)))
    assert any(kind == 3 and stream == 1 for kind, _, stream, _ in raw.frames())
    raw.socket.close()


def test_pings_are_answered(agent):
    raw = Raw(agent.socket).greet().ping()
    raw.socket.close()


def test_an_early_answer_stops_the_callers_stream(agent):
    """Trailers first, then RST_STREAM(NO_ERROR): the caller has not ended its half."""
    raw = Raw(agent.socket).greet()
    raw.socket.sendall(frame(1, 4, 1, request_headers(b"/sandbox.v1.Ports/Dial")))
    kinds = []
    for kind, flags, stream, payload in raw.frames():
        if stream == 1:
            kinds.append((kind, flags & 1, payload if kind == 3 else b""))
        if kind == 3:
            break
    assert kinds == [(1, 1, b""), (3, 0, bytes(4))]
    raw.socket.close()


def test_windows_are_4_mib_a_stream_and_16_a_connection(agent):
    raw = Raw(agent.socket).greet()
    settings, window = {}, 65535
    for kind, flags, stream, payload in raw.frames():
        if kind == 4 and not flags & 1:
            settings = dict(struct.unpack(">HI", payload[at:at + 6])
                            for at in range(0, len(payload), 6))
        if kind == 8 and stream == 0:
            window += int.from_bytes(payload, "big")
        if settings and window > 65535:
            break
    assert (settings[3], settings[4], window) == (256, 4 << 20, 16 << 20)
    raw.socket.close()


def test_no_more_than_256_calls_at_once(agent):
    id = agent.start("exec sleep 1000")
    call = agent.method("Processes", "Wait").call
    futures = [call.future(processes_pb2.WaitRequest(id=id), metadata=agent.metadata(),
                           timeout=30) for _ in range(300)]
    # The client holds the rest back; another channel is not touched by that.
    other = agent.caller()
    other.health()
    other.signal(id, 9)
    assert {future.result().exit.signal for future in futures} == {9}
    other.close()


def test_the_idlest_of_64_connections_makes_way(agent):
    raws = [Raw(agent.socket).greet().ping() for _ in range(63)]
    first = raws[0]
    until(lambda: agent.stats().connections == 64, "all are there")
    late = Raw(agent.socket).greet().ping()
    assert first.is_cut()
    agent.health()
    for raw in raws + [late]:
        raw.socket.close()
    until(lambda: agent.stats().connections == 1, "they are forgotten")


@pytest.mark.parametrize("attack", [
    b"GET / HTTP/1.1\r\n\r\n" * 10,
    os.urandom(4096),
    PREFACE + frame(6, 0, 0, b"12345678") * 200_000,
    PREFACE + frame(4, 0, 0) * 200_000,
    PREFACE + frame(4, 0, 0) + b"".join(
        frame(1, 4, 2 * n + 1, request_headers(b"/sandbox.v1.Ports/Dial")) +
        frame(3, 0, 2 * n + 1, struct.pack(">I", 8)) for n in range(20_000)),
    PREFACE + frame(4, 0, 0) + frame(1, 0, 1, request_headers(b"/x")) +
    frame(9, 0, 1, literal(b"a", b"b" * 100)) * 20_000,
    PREFACE + frame(4, 0, 0) + frame(0, 0, 1, b"x"),
    PREFACE + frame(4, 0, 0) + b"\xff\xff\xff" + bytes(6),
], ids=["http1", "noise", "ping_flood", "settings_flood", "rapid_reset", "continuation_flood",
        "data_on_idle_stream", "oversized_frame"])
def test_whoever_breaks_the_protocol_is_cut_off(agent, attack):
    raw = Raw(agent.socket)

    def send():
        try:
            raw.socket.sendall(attack)
        except OSError:
            pass
    sender = threading.Thread(target=send)
    sender.start()
    sender.join(60)  # a flood only floods while nobody takes the answers
    assert raw.is_cut()
    raw.socket.close()
    assert agent.run("echo on").stdout == b"on\n"
    assert agent.private_kib() < agent.memory_limit(16_000)


def test_a_header_list_has_a_limit(agent):
    metadata = agent.metadata() + [("x-large", "y" * 20_000)]
    with pytest.raises(grpc.RpcError):
        agent.method("Guard", "Health")(guard_pb2.HealthRequest(), metadata=metadata)
    agent.health()


def test_reset_calls_leave_nothing_behind(agent):
    id = agent.start("exec sleep 1000", input=True)
    call = agent.method("Processes", "Wait").call
    write = agent.method("Processes", "Write").call
    for _ in range(200):
        future = call.future(processes_pb2.WaitRequest(id=id), metadata=agent.metadata())
        other = write.future(processes_pb2.WriteRequest(id=id, data=b"x" * 100_000),
                             metadata=agent.metadata())
        reader = agent.attach(id)
        next(reader)
        for one in (future, other, reader):
            one.cancel()
    agent.signal(id, 9)
    assert agent.wait(id).signal == 9
    assert agent.private_kib() < agent.memory_limit(8_000)


def test_idle_it_costs_less_than_a_mebibyte(make_agent):
    agent = make_agent()
    agent.run("true")
    agent.close()
    with open(f"/proc/{agent.process.pid}/smaps_rollup", encoding="ascii") as file:
        anonymous = [int(line.split()[1]) for line in file if line.startswith("Anonymous:")]
    assert anonymous[0] < agent.memory_limit(1024)


def test_the_program_is_small_and_needs_nothing():
    program = os.environ.get("SANDBOX_AGENT_STATIC", BINARY)
    assert os.path.getsize(program) <= 2 << 20
    segments = subprocess.run(["readelf", "-lW", program], capture_output=True, check=True).stdout
    assert b"INTERP" not in segments and b"DYNAMIC" not in segments


def test_idle_it_does_nothing_at_all(agent):
    """No polling: the processor time of an idle agent stands still."""
    def ticks():
        with open(f"/proc/{agent.process.pid}/status", encoding="ascii") as file:
            return [line for line in file if "ctxt_switches" in line]
    agent.start("exec sleep 1000")
    agent.start(argv=["sleep", "1000"], terminal=(24, 80), role=1)
    agent.close()
    seen = []

    def unchanged():
        seen.append(ticks())
        return len(seen) > 40 and len(set(map(tuple, seen[-40:]))) == 1
    until(unchanged, "the agent sleeps")


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", "--socket"], ["serve", "--what"],
                                       ["relay"], ["nothing"], ["version", "extra"]])
def test_a_wrong_command_line_is_explained(arguments):
    run = subprocess.run([BINARY, *arguments], capture_output=True, check=False)
    assert run.returncode == 2 and run.stdout == b"" and b"usage:" in run.stderr


def test_version_is_printed():
    run = subprocess.run([BINARY, "version"], capture_output=True, check=True)
    assert run.stdout.count(b"\n") == 1 and run.stderr == b""


def test_what_stands_in_the_way_of_serving_is_said_in_one_line(folder, agent):
    for arguments in (["--socket", agent.socket], ["--socket", "/" + "x" * 200],
                      ["--socket", "/proc/none/socket"],
                      ["--socket", folder + "/s", "--workspace", "relative"]):
        run = subprocess.run([BINARY, "serve", *arguments], capture_output=True, check=False)
        assert run.returncode == 1 and run.stdout == b""
        assert run.stderr.startswith(b"sandbox-agent: ") and run.stderr.count(b"\n") == 1
    agent.health()
