"""The whole way out, on real gVisor: command, library, proxy, carrier, agent, and the tools that
people use inside a workspace that has no network."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest
from authority import over_tls
from guest import PLACEHOLDER, SECRET
from servers import git_application, serve
from workspace import CLI, Workspace, in_world
from world import GATE, PROXY, PUBLIC, PUBLIC_TLS, await_true

RUNSC = os.environ.get("SANDBOX_RUNSC") or shutil.which("runsc")
COUNT = int(os.environ.get("SANDBOX_TEST_COUNT", "3"))
RULES = [{"match": {"host": "api.example.com",
                    "headers": [{"name": "x-api-key", "value_exact": PLACEHOLDER}]},
          "set": {"x-api-key": SECRET}}]

if RUNSC is None or os.geteuid() != 0 or not CLI:
    pytest.skip("gVisor needs runsc and root", allow_module_level=True)


@pytest.fixture(scope="module")
def state(world, authority):
    """A state directory for all of them: what workspaces are made over takes a while to make."""
    first = in_world(world, authority, RUNSC)
    yield first
    first.end()


@pytest.fixture
def make(world, state):
    """Makes workspaces, which are gone afterwards."""
    world.reset()
    made = []

    def begin(*words, given=None):
        made.append(state.beside())
        state.run("create", *words, made[-1].name, given=given)
        return made[-1]
    yield begin
    for workspace in made:
        state.run("delete", workspace.name, code=None)
    await_true(lambda: "sandbox-egress-carrier" not in state.proxies(), "the end of the carriers")


@pytest.fixture
def reaching(make, api):
    """One that may reach api.example.com, with a credential for it."""
    return make("--allow", "api.example.com", "--transformations", "-",
                given=json.dumps(RULES).encode())


def fields_of(api):
    return dict((name.lower(), value) for name, value in api.told[-1]["fields"])


ASK = "curl -sS -m 20 -H 'x-api-key: {key}' http://127.0.0.1:3128/https/api.example.com/{path}"


def ask(workspace, path="plain", key=PLACEHOLDER):
    return workspace.inside(ASK.format(key=key, path=path)).stdout


def test_a_credential_is_put_in_outside_and_never_comes_in(reaching, api):
    shown = ask(reaching, "echo_identity")
    assert fields_of(api)["x-api-key"] == SECRET
    assert SECRET.encode() not in shown
    seen = reaching.json("egress", "show", reaching.name)
    assert seen["allow"] == ["api.example.com"] and seen["registered"] is True
    assert seen["credentials"] == ["api.example.com: x-api-key"]
    assert SECRET not in json.dumps(seen)


def test_base_urls_are_routed_and_what_a_command_sets_stays(reaching):
    said = reaching.inside("env", "-e", "OPENAI_BASE_URL=https://api.example.com/v1",
                           "-e", "HTTPS_PROXY=", "-e", "GIT_CONFIG_COUNT=1",
                           "-e", "GIT_CONFIG_KEY_0=user.name", "-e", "GIT_CONFIG_VALUE_0=me")
    told = dict(line.split("=", 1) for line in said.stdout.decode().splitlines())
    assert told["OPENAI_BASE_URL"] == "http://127.0.0.1:3128/https/api.example.com/v1"
    assert told["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:3128/https/api.anthropic.com"
    assert told["HTTPS_PROXY"] == "" and told["https_proxy"] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in told["NO_PROXY"] and told["NODE_USE_ENV_PROXY"] == "1"
    assert told["GIT_CONFIG_COUNT"] == "2" and told["GIT_CONFIG_KEY_0"] == "user.name"
    assert told["GIT_CONFIG_VALUE_1"] == "https://"


def test_tls_goes_end_to_end_through_a_tunnel(reaching, api, authority):
    reaching.put(authority.certificate, "/workspace/ca.pem")
    said = reaching.inside("curl -sS -m 20 --cacert /workspace/ca.pem https://api.example.com/plain")
    assert said.stdout and "x-api-key" not in fields_of(api)


def test_what_is_not_allowed_is_refused_readably_and_told(reaching):
    said = reaching.inside("curl -sS -m 20 -v https://evil.example.org/", code=56)
    assert b"X-Proxy-Error: host-not-allowed" in said.stderr
    said = reaching.inside("curl -sS -m 20 http://127.0.0.1:3128/https/evil.example.org/")
    assert b"'evil.example.org' is not allowed" in said.stdout
    log = reaching.json("egress", "log", reaching.name)
    assert [(one["reason"], one["kind"], one["host"]) for one in log] == [
        ("host-not-allowed", "connect", "evil.example.org"),
        ("host-not-allowed", "route", "evil.example.org")]


PROBE = r"""
import errno, socket, struct, sys
def attempt(kind, family, address, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as one:
            one.settimeout(3)
            if kind == socket.SOCK_STREAM:
                one.connect(address)
            else:
                one.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00" if kind == socket.SOCK_RAW else
                           b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01",
                           address)
                one.recv(512)
        return "went out"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
import json
print(json.dumps({str(a): attempt(*a) for a in [
    (socket.SOCK_STREAM, socket.AF_INET, ("93.184.216.40", 443)),
    (socket.SOCK_STREAM, socket.AF_INET, ("169.254.169.254", 80)),
    (socket.SOCK_STREAM, socket.AF_INET, ("10.8.16.2", 22)),
    (socket.SOCK_STREAM, socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))),
    (socket.SOCK_STREAM, socket.AF_INET6, ("2606:4700::1", 443)),
    (socket.SOCK_STREAM, socket.AF_INET6, ("fd20:ce::254", 80)),
    (socket.SOCK_DGRAM, socket.AF_INET, ("8.8.8.8", 53)),
    (socket.SOCK_DGRAM, socket.AF_INET, ("127.0.0.53", 53)),
    (socket.SOCK_RAW, socket.AF_INET, ("93.184.216.40", 0), socket.IPPROTO_ICMP),
]}))
"""


def test_nothing_else_gets_out(reaching, world, tmp_path):
    """Not by another protocol or address, and not through the proxy to what is special."""
    listener = world.inside.run(lambda: socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    (tmp_path / "probe.py").write_text(PROBE, encoding="ascii")
    reaching.put(tmp_path / "probe.py", "/workspace/probe.py")
    world.wire.take(), world.own_wire.take()
    found = json.loads(reaching.inside(f"python3 /workspace/probe.py {port}", "--user",
                                       "root").stdout)
    assert len(found) == 9 and "went out" not in found.values(), found
    for target in ("169.254.169.254:443", "127.0.0.1:443", f"127.0.0.1:{port}",
                   "metadata.google.internal:443", f"{PROXY}:443", "[::1]:443", f"{GATE}:443"):
        said = reaching.inside(f"printf 'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'"
                               " | timeout 20 python3 -c \"import socket,sys;"
                               "s=socket.create_connection(('127.0.0.1',3128));"
                               "s.sendall(sys.stdin.buffer.read());"
                               "print(s.makefile('rb').readline().decode())\"").stdout
        assert re.match(rb"HTTP/1.1 (403|502) ", said), (target, said)
    assert not [one for one in world.wire.take() if one[1] != "8.8.8.8"]
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()


def test_git_clones_with_a_credential_that_is_outside(make, world, authority, tmp_path):
    """Inside there is the placeholder alone; the server asks for the real one."""
    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
                       cwd=tmp_path, check=True, capture_output=True, timeout=60)
    git("init", "-q", "origin")
    (tmp_path / "origin" / "file").write_text("content\n", encoding="ascii")
    git("-C", "origin", "add", "file")
    git("-C", "origin", "commit", "-qm", "first")
    server = git_application(tmp_path, "Basic UkVBTC1TRUNSRVQ=")
    world.servers.behind[PUBLIC_TLS] = over_tls(authority.context("github.com"), serve(server))
    world.names.anything = PUBLIC_TLS
    rules = [{"match": {"host": "github.com", "headers": [
                  {"name": "authorization", "value_exact": "Basic UExBQ0VIT0xERVI="}]},
              "set": {"authorization": "Basic UkVBTC1TRUNSRVQ="}}]
    workspace = make("--allow", "github.com", "--transformations", "-",
                     given=json.dumps(rules).encode())
    said = workspace.inside(
        "git -c http.extraHeader='Authorization: Basic UExBQ0VIT0xERVI=' clone -q "
        "https://github.com/origin/.git copy && cat copy/file && git -C copy log --oneline")
    assert b"content\n" in said.stdout and b"first" in said.stdout
    assert "Basic UkVBTC1TRUNSRVQ=" in server.told


def test_a_command_with_a_credential_does_not_run(reaching):
    for words in (("exec", reaching.name, "echo", SECRET),
                  ("exec", "-e", f"KEY=x{SECRET}y", reaching.name, "true"),
                  ("exec", reaching.name, "-c", "echo UkVBTC1TRUNSRVQtOTFhYg== | base64 -d")):
        said = reaching.run(*words, code=125)
        assert b"carries a credential (for api.example.com)" in said.stderr
        assert SECRET.encode() not in said.stderr + said.stdout
    assert reaching.inside(f"echo {PLACEHOLDER}").stdout == PLACEHOLDER.encode() + b"\n"


def test_an_environment_with_a_credential_is_refused(state, reaching):
    other = state.beside()
    given = json.dumps(RULES).encode()
    words = ("-e", f"KEY={SECRET}", "--transformations", "-")
    for line in (("create", *words, other.name), ("open", *words, other.name),
                 ("resume", *words, reaching.name)):
        said = state.run(*line, given=given, code=5)
        assert b"environment carries a credential" in said.stderr
        assert SECRET.encode() not in said.stderr
    assert [one["name"] for one in state.json("list")] == [reaching.name]


def test_without_a_proxy_nothing_is_made(world, authority):
    world.reset()
    workspace = in_world(world, authority, RUNSC)
    options = workspace.state / "egress" / "options"
    right = options.read_text(encoding="ascii")
    options.write_text("--no-such-option\n", encoding="ascii")
    said = workspace.run("create", "--allow", "api.example.com", workspace.name, code=6)
    assert b"the egress proxy does not start" in said.stderr and b"no-such-option" in said.stderr
    assert workspace.json("list") == [] and not workspace.proxies()
    options.write_text(right, encoding="ascii")
    workspace.run("create", workspace.name)
    assert workspace.json("egress", "show", workspace.name)["mode"] == "none"
    workspace.run("egress", "allow", workspace.name, "api.example.com")
    assert workspace.json("egress", "show", workspace.name)["registered"] is True
    workspace.end()


def test_changes_at_once_end_in_what_is_recorded(reaching):
    """Whoever is last to tell the proxy tells it what stands in the record."""
    hosts = [f"h{number}.example.com" for number in range(8)]
    running = [subprocess.Popen(
        reaching.network.command(CLI, "egress", "allow", reaching.name, host),
        env={**os.environ, "SANDBOX_URI": reaching.uri}) for host in hosts]
    assert [one.wait(60) for one in running] == [0] * len(hosts)
    recorded = reaching.json("egress", "show", reaching.name)["allow"]
    assert sorted(recorded) == sorted(["api.example.com", *hosts])
    told = json.loads(subprocess.run(
        ["curl", "-sS", "--unix-socket", str(reaching.state / "egress" / "admin.sock"),
         "http://x/v1/workspaces"], capture_output=True, check=True, timeout=60).stdout)
    assert sorted(told["workspaces"][0]["policy"]["allow"]) == sorted(recorded)


def test_policy_survives_a_suspend_and_credentials_do_not(reaching, api):
    for number in range(COUNT):
        reaching.run("suspend", reaching.name)
        assert reaching.json("egress", "show", reaching.name)["registered"] is False
        assert "sandbox-egress-carrier" not in reaching.proxies()
        reaching.run("resume", reaching.name)
        seen = reaching.json("egress", "show", reaching.name)
        assert (seen["registered"], seen["credentials"]) == (True, [])
        assert ask(reaching) and fields_of(api)["x-api-key"] == PLACEHOLDER
        if number % 2 == 0:
            reaching.run("egress", "set", reaching.name, "--transformations", "-",
                         given=json.dumps(RULES).encode())
        else:
            reaching.run("suspend", reaching.name)
            reaching.run("resume", "--transformations", "-", reaching.name,
                         given=json.dumps(RULES).encode())
        assert ask(reaching) and fields_of(api)["x-api-key"] == SECRET


def test_a_carrier_that_is_just_starting_is_in_nobodys_way(reaching):
    for _ in range(2 * COUNT):
        reaching.run("suspend", reaching.name)
        reaching.run("resume", reaching.name)
    assert b"not allowed" in reaching.inside(
        "curl -sS -m 20 http://127.0.0.1:3128/https/evil.example.org/").stdout


def test_a_checkpoint_keeps_credentials(reaching, api):
    reaching.run("checkpoint", reaching.name)
    assert ask(reaching) and fields_of(api)["x-api-key"] == SECRET


def test_a_suspend_that_is_refused_costs_no_connection(reaching, api):
    api.gate.clear()
    with subprocess.Popen(
            reaching.network.command(CLI, "exec", reaching.name, "-c",
                                     ASK.format(key=PLACEHOLDER, path="held")),
            env={**os.environ, "SANDBOX_URI": reaching.uri}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE) as running:
        await_true(lambda: any("/held" in one["line"] for one in api.told), "the request")
        for _ in range(COUNT):
            said = reaching.run("suspend", reaching.name, code=6)
            assert b"is active" in said.stderr
        assert ask(reaching), "new connections find a way out too"
        api.gate.set()
        out, problem = running.communicate(timeout=60)
        assert running.returncode == 0, problem
        assert out == b"held until now"


def test_connections_that_are_open_end_with_a_suspend(reaching, api):
    """They are cut, and the program goes on; what it asks for next finds its way."""
    api.gate.clear()
    reaching.inside("nohup sh -c '" + ASK.format(key=PLACEHOLDER, path="held").replace("'", "\"")
                    + "; echo ended $? >/workspace/ended' >/workspace/out 2>&1 &")
    await_true(lambda: any("/held" in one["line"] for one in api.told), "the request")
    reaching.run("suspend", "--force", reaching.name)
    api.gate.set()
    reaching.run("resume", reaching.name)
    await_true(lambda: b"ended" in reaching.inside("cat /workspace/ended 2>/dev/null",
                                                   code=None).stdout, "the end of the request")
    assert b"ended 0" not in reaching.inside("cat /workspace/ended").stdout
    assert ask(reaching)


def test_hosts_come_and_go(reaching, api, world):
    world.names.set("deb.example.org", PUBLIC)

    def shown():
        seen = reaching.json("egress", "show", reaching.name)
        return seen["mode"], seen["allow"], seen["http"]
    name = reaching.name
    reaching.run("egress", "allow", name, "Two.Example.NET.", "*.three.example")
    reaching.run("egress", "allow", "--http", name, "deb.example.org")
    assert shown() == ("custom", ["api.example.com", "two.example.net", "*.three.example"],
                       ["deb.example.org"])
    assert reaching.inside("curl -sS -m 20 http://deb.example.org/").stdout == b"ok"
    reaching.run("egress", "deny", name, "two.example.net", "deb.example.org", "*.three.example")
    assert shown() == ("custom", ["api.example.com"], [])
    reaching.run("egress", "set", name, "--none")
    assert shown() == ("deny-all", [], [])
    assert b"not allowed" in ask(reaching)
    reaching.run("egress", "set", name, "--all")
    assert shown()[0] == "allow-all" and ask(reaching) and fields_of(api)
    said = reaching.run("egress", "deny", name, "api.example.com", code=2)
    assert b"set the mode to custom" in said.stderr
    reaching.run("egress", "set", name, "api.example.com")
    assert ask(reaching) and fields_of(api)["x-api-key"] == SECRET
    for wrong in ("10.0.0.0/8", "https://x.example/", "a b", "*"):
        said = reaching.run("egress", "allow", name, wrong, code=None)
        assert said.returncode in (1, 2) and said.stderr, wrong
    assert shown() == ("custom", ["api.example.com"], [])


def test_a_proxy_that_was_killed_is_started_again(reaching, api):
    [proxy] = reaching.proxies()["sandbox-egress-proxy"]
    os.kill(proxy, 9)
    await_true(lambda: "sandbox-egress-proxy" not in reaching.proxies(), "its end")
    said = reaching.inside("curl -sS -m 20 -v https://api.example.com/", code=56)
    assert b"X-Proxy-Error: no-proxy" in said.stderr
    assert reaching.json("egress", "show", reaching.name)["registered"] is False
    reaching.run("open", reaching.name)
    said = ask(reaching)
    assert api.told, said
    assert fields_of(api)["x-api-key"] == PLACEHOLDER


def test_two_workspaces_have_their_own_policies(make, api):
    one, other = make("--allow", "api.example.com"), make("--allow", "else.example")
    assert ask(one) and b"not allowed" in ask(other)
    assert len(one.proxies()["sandbox-egress-proxy"]) == 1
    assert len(one.proxies()["sandbox-egress-carrier"]) == 2
    one.run("delete", other.name)
    assert len(one.proxies()["sandbox-egress-carrier"]) == 1 and ask(one)


def test_wrong_policies_make_nothing(state):
    workspace = state.beside()
    for words, given, said in (
            (("--allow", "1.2.3.4/8"), None, b"no host"),
            (("--allow", "-bad-.example"), None, b"allow"),
            (("--allow", "a.example", "--transformations", "-"), b"{", b"JSON"),
            (("--transformations", "-"), b'[{"match": {}, "set": {"a": "SECRETSECRET"}}]', b"host"),
            (("--transformations", "/no/such/file"), None, b"/no/such/file")):
        done = workspace.run("create", *words, workspace.name, code=None, given=given)
        assert done.returncode in (1, 2) and said in done.stderr, done
        assert b"SECRETSECRET" not in done.stderr
    assert workspace.json("list") == []
    assert "sandbox-egress-carrier" not in workspace.proxies()


def test_no_secret_is_anywhere(reaching, api):
    """Not in a record, log, metric, snapshot or file; not in the guest's /proc; not in answers."""
    secret = SECRET.encode()
    forms = [secret, b"UkVBTC1TRUNSRVQtOTFhYg", secret.hex().encode()]
    assert not any(form in ask(reaching, path) for path in ("echo_identity", "echo_bytes", "plain") for form in forms)
    seen = reaching.inside(
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/net/* 2>/dev/null | tr '\\0' '\\n'; "
        "env", "--user", "root").stdout
    key = re.compile(rb"SANDBOX-EGRESS/1 [0-9a-f]{64}")
    assert not any(form in seen for form in forms) and not key.search(seen)
    metrics = subprocess.run(
        ["curl", "-sS", "--unix-socket", str(reaching.state / "egress" / "admin.sock"),
         "http://x/metrics"], capture_output=True, check=True, timeout=60).stdout
    assert b"sandbox_egress_credentials_total" in metrics
    reaching.run("suspend", reaching.name)
    looked = 0
    for path in [*reaching.state.rglob("*"), *pathlib.Path(reaching.directory).rglob("*")]:
        if path.is_file() and "base" not in path.parts and "runtimes" not in path.parts:
            content = path.read_bytes()
            looked += 1
            assert not any(form in content for form in forms), path
            assert not key.search(content), path
    assert looked > 10 and not any(form in metrics for form in forms)


def test_a_real_package_is_installed():
    """From the registry, where that can be reached: outside the tests' own little internet."""
    script = pathlib.Path(__file__).with_name("npm_install.py")
    namespace = f"/proc/{os.getppid()}/ns/net"
    done = subprocess.run(["nsenter", f"--net={namespace}", "--", "python3", str(script)],
                          capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
