"""The real agent, driven by stock grpcio over its Unix socket.

SANDBOX_AGENT_BINARY names the binary, SANDBOX_PROTO_PYTHON a folder of generated Python messages
(made with protoc where it is not set), SANDBOX_TEST_COUNT how often the repeating cases repeat.
"""
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import grpc
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(HERE, "..", "..", "lib", "agent", "proto", "sandbox", "v1")
BINARY = os.environ.get("SANDBOX_AGENT_BINARY", "")
COUNT = int(os.environ.get("SANDBOX_TEST_COUNT", "20"))
DEADLINE = 30


def _generate():
    folder = os.environ.get("SANDBOX_PROTO_PYTHON")
    if not folder:
        folder = tempfile.mkdtemp(prefix="sandbox-proto-")
        names = ["guard.proto", "processes.proto", "files.proto", "ports.proto", "egress.proto"]
        subprocess.run(["protoc", "-I", PROTO, "--python_out=" + folder] + names, check=True)
    sys.path.insert(0, folder)
    return folder if "SANDBOX_PROTO_PYTHON" not in os.environ else None


_GENERATED = _generate()
import egress_pb2  # noqa: E402
import guard_pb2  # noqa: E402
import ports_pb2  # noqa: E402
import processes_pb2  # noqa: E402


def pytest_sessionfinish(session, exitstatus):
    if _GENERATED:
        shutil.rmtree(_GENERATED, ignore_errors=True)


def until(question, what, seconds=DEADLINE):
    """Waits for something that nobody tells us about; fails once the deadline has passed."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < end, "never happened: " + what
        time.sleep(0.005)


def reason(error):
    """The agent's stable word for a failure."""
    return dict(error.trailing_metadata() or ()).get("sandbox-reason")


def fails(code, word, function, *arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        function(*arguments, **named)
    assert (caught.value.code(), reason(caught.value)) == (code, word), caught.value.details()
    return caught.value


def times_out(function, *arguments, **named):
    """Whichever of the two ends notices first."""
    with pytest.raises(grpc.RpcError) as caught:
        function(*arguments, **named)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED, caught.value.details()


def state_of(pid):
    """The letter of /proc/PID/stat, or None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return None


def lives(pid):
    return state_of(pid) not in (None, "Z", "X")


def descendants_of(pid):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rsplit(b")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(name)] = (int(fields[1]), fields[0].decode())
    found = {}
    changed = True
    while changed:
        changed = False
        for child, (parent, state) in parents.items():
            if child not in found and (parent == pid or parent in found):
                found[child] = state
                changed = True
    return found


class Output:
    """All of an Attach: bytes of both streams, and the end."""

    def __init__(self):
        self.stdout = b""
        self.stderr = b""
        self.exit = None
        self.pid = None
        self.lost = 0

    def add(self, event):
        kinds = processes_pb2.ProcessEvent
        assert self.exit is None, "an event after the last one"
        if event.kind == kinds.KIND_ATTACHED:
            assert self.pid is None
            self.pid = event.pid
        elif event.kind == kinds.KIND_OUTPUT:
            self.lost += event.offset - len(self.stdout) - self.lost
            self.stdout += event.data
        elif event.kind == kinds.KIND_ERROR:
            self.stderr += event.data
        elif event.kind == kinds.KIND_EXIT:
            self.exit = event.exit
        assert self.pid is not None, "ATTACHED comes first"
        return self


class Caller:
    """One channel to an agent, with its own token and epoch."""

    def __init__(self, path, token, epoch, workspace_id):
        self.channel = grpc.insecure_channel(
            "unix:" + path,
            options=[("grpc.max_receive_message_length", -1),
                     ("grpc.max_send_message_length", -1),
                     ("grpc.use_local_subchannel_pool", 1),
                     ("grpc.initial_reconnect_backoff_ms", 20)])
        self.token, self.epoch, self.workspace_id = token, epoch, workspace_id

    def metadata(self):
        return [("sandbox-token-bin", self.token), ("sandbox-epoch", str(self.epoch))]

    def method(self, service, name, kind="unary_unary"):
        module = {"Guard": guard_pb2, "Processes": processes_pb2, "Ports": ports_pb2,
                  "Egress": egress_pb2}[service]
        described = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
        reply = getattr(module, described.output_type.name, None) or ports_pb2.PortData
        call = getattr(self.channel, kind)(f"/sandbox.v1.{service}/{name}",
                                           request_serializer=lambda m: m.SerializeToString(),
                                           response_deserializer=reply.FromString)

        def invoke(request, metadata=None, timeout=DEADLINE):
            return call(request, metadata=self.metadata() if metadata is None else metadata,
                        timeout=timeout)
        invoke.call = call
        return invoke

    def health(self, **named):
        return self.method("Guard", "Health")(guard_pb2.HealthRequest(), metadata=[], **named)

    def open(self, **fields):
        fields.setdefault("epoch", self.epoch)
        fields.setdefault("workspace_id", self.workspace_id)
        fields.setdefault("token", self.token)
        fields.setdefault("user", "root")
        reply = self.method("Guard", "Open")(guard_pb2.OpenRequest(**fields))
        self.epoch, self.token = fields["epoch"], fields["token"]
        return reply

    def guard(self, name, **fields):
        """Another method of Guard, with a request of these fields."""
        named = {key: fields.pop(key) for key in ("timeout", "metadata") if key in fields}
        request = getattr(guard_pb2, name + "Request")(**fields)
        return self.method("Guard", name)(request, **named)

    def quiesce(self, lease_ms=60_000, deadline_ms=30_000, **fields):
        fields.setdefault("epoch", self.epoch)
        return self.guard("Quiesce", lease_ms=lease_ms, deadline_ms=deadline_ms, **fields)

    def seal(self, **fields):
        fields.setdefault("epoch", self.epoch)
        return self.guard("Seal", **fields)

    def prove(self, **fields):
        fields.setdefault("epoch", self.epoch)
        return self.guard("Prove", **fields)

    def power_off(self, **fields):
        fields.setdefault("epoch", self.epoch)
        return self.guard("PowerOff", **fields)

    def activity(self):
        return self.method("Guard", "Activity")(guard_pb2.ActivityRequest())

    def stats(self):
        return self.method("Guard", "Stats")(guard_pb2.StatsRequest())

    def start(self, command=None, argv=None, id=None, env=(), terminal=None, **fields):
        request = processes_pb2.StartRequest(id=id or secrets.token_bytes(16), **fields)
        if command is not None:
            request.command = command if isinstance(command, bytes) else command.encode()
        for word in argv or ():
            request.argv.append(word if isinstance(word, bytes) else word.encode())
        for word in env:
            request.environment.append(word if isinstance(word, bytes) else word.encode())
        if terminal:
            request.terminal.rows, request.terminal.columns = terminal[:2]
            request.terminal.type = terminal[2].encode() if len(terminal) > 2 else b""
        self.last = self.method("Processes", "Start")(request)
        return request.id

    def attach(self, id, output=0, error=0, timeout=DEADLINE):
        request = processes_pb2.AttachRequest(id=id, output_offset=output, error_offset=error)
        return self.method("Processes", "Attach", "unary_stream")(request, timeout=timeout)

    def collect(self, id, timeout=DEADLINE):
        output = Output()
        for event in self.attach(id, timeout=timeout):
            output.add(event)
        assert output.exit is not None
        return output

    def run(self, command=None, timeout=DEADLINE, **fields):
        return self.collect(self.start(command, **fields), timeout=timeout)

    def write(self, id, data=b"", offset=0, end=False, timeout=DEADLINE):
        request = processes_pb2.WriteRequest(id=id, data=data, offset=offset, end=end)
        return self.method("Processes", "Write")(request, timeout=timeout).written

    def signal(self, id, number):
        request = processes_pb2.SignalRequest(id=id, signal=number)
        return self.method("Processes", "Signal")(request).running

    def resize(self, id, rows, columns):
        request = processes_pb2.ResizeRequest(id=id, rows=rows, columns=columns)
        return self.method("Processes", "Resize")(request)

    def wait(self, id, timeout=DEADLINE):
        return self.method("Processes", "Wait")(processes_pb2.WaitRequest(id=id),
                                                timeout=timeout).exit

    def list(self):
        return self.method("Processes", "List")(processes_pb2.ProcessListRequest()).processes

    def close(self):
        self.channel.close()


class Agent(Caller):
    """A running agent, opened unless asked otherwise, and its first caller."""

    def __init__(self, folder, opened=True, arguments=(), seal=None, sealable=True,
                 complains=False, **fields):
        self.folder, self.complains = folder, complains
        self.workspace = os.path.join(folder, "workspace")
        os.makedirs(self.workspace, exist_ok=True)
        self.socket = os.path.join(folder, "agent", "socket")
        self.errors = os.path.join(folder, "errors")
        self.seal_file = os.path.join(folder, "seal", "seal")
        os.makedirs(os.path.dirname(self.seal_file), mode=0o700, exist_ok=True)
        if seal is not None:
            seal(self.seal_file)
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--socket", self.socket, "--workspace", self.workspace,
                 *(["--seal", self.seal_file] if sealable else []), *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        until(self.is_listening, "the agent listens")
        super().__init__(self.socket, secrets.token_bytes(32), 1, secrets.token_bytes(16))
        if opened:
            self.open(**fields)

    def is_listening(self):
        assert self.process.poll() is None, open(self.errors, "rb").read()
        with socket.socket(socket.AF_UNIX) as attempt:
            return attempt.connect_ex(self.socket) == 0

    def caller(self):
        return Caller(self.socket, self.token, self.epoch, self.workspace_id)

    def private_kib(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))

    def memory_limit(self, kib):
        """No limit where a sanitizer keeps what was freed."""
        with open(f"/proc/{self.process.pid}/maps", encoding="ascii") as file:
            return kib if "san.so" not in file.read() else float("inf")

    def end(self):
        self.close()
        pid = self.process.pid
        left = descendants_of(pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, open(self.errors, "rb").read()
        assert self.process.stdout.read() == b"", "the agent prints nothing on stdout"
        self.process.stdout.close()
        until(lambda: not any(lives(child) for child in left), "nothing outlives the agent")
        assert not os.path.exists(self.socket)
        with open(self.errors, "rb") as errors:
            assert (errors.read() != b"") == self.complains, "of what it complains"


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="sandbox-agent-")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_agent(folder):
    agents = []

    def make(**named):
        place = os.path.join(folder, str(len(agents)))
        os.makedirs(place)
        agents.append(Agent(place, **named))
        return agents[-1]
    yield make
    for agent in agents:
        agent.end()


@pytest.fixture
def agent(make_agent):
    return make_agent()


def operation_of(agent, epoch=2):
    """A caller that suspends or resumes."""
    caller = agent.caller()
    caller.epoch = epoch
    return caller


@pytest.fixture
def operation(agent):
    caller = operation_of(agent)
    yield caller
    caller.close()
