"""The way out of Pods: command, library, agent and proxy, over the cluster double. Its Pods have
network namespaces of their own, out of which only the proxy is reached, from the Pod's address."""

import http.client
import importlib.util
import json
import os
import pathlib
import re
import secrets
import subprocess

import pytest
from guest import PLACEHOLDER, SECRET
from targets import Target
from workspace import CLI, LONG
from world import PATIENCE, RESOLVER, await_true

SERVICE = "127.53.0.1:3128"
ADMIN = "127.0.0.1:3129"
TOKEN = secrets.token_hex(16)
RULES = [{"match": {"host": "api.example.com",
                    "headers": [{"name": "x-api-key", "value_exact": PLACEHOLDER}]},
          "set": {"x-api-key": SECRET}}]
ASK = "curl -sS -m 20 -H 'x-api-key: {key}' http://127.0.0.1:3128/https/{host}/plain"

pytest.importorskip("aiohttp")
if os.geteuid() != 0 or not CLI:
    pytest.skip("Pods with namespaces of their own need root", allow_module_level=True)


def double_class():
    path = pathlib.Path(__file__).parents[1] / "cluster/conftest.py"
    spec = importlib.util.spec_from_file_location("cluster_double", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Double


class Proxy(Target):
    """As the manifests have it: both addresses over TCP, and a token."""

    name = "gke-proxy"

    def start(self):
        self.run(os.environ["SANDBOX_EGRESS_PROXY"], "--listen", SERVICE, "--admin", ADMIN,
                 f"--resolver={RESOLVER}", f"--ca-file={self.authority.bundle}",
                 environment={"SANDBOX_PROXY_TOKEN": TOKEN})
        await_true(lambda: "listen" in self.output() or self.answers(), "the proxy")

    def answers(self):
        assert self.process.poll() is None, self.output()
        try:
            return self.ask("/v1/version") is not None
        except OSError:
            return False

    def ask(self, path):
        """What the admin API says; None: it does not know."""
        def inside():
            line = http.client.HTTPConnection(*ADMIN.split(":"), timeout=PATIENCE)
            line.connect()
            return line
        line = self.world.inside.run(lambda: attempt(inside))
        if isinstance(line, OSError):
            raise line
        line.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = line.getresponse()
        said = answer.read()
        line.close()
        return json.loads(said) if answer.status == 200 else None


def attempt(work):
    try:
        return work()
    except OSError as error:
        return error


class Cluster:
    """The double and a proxy, in the world's inner namespace."""

    def __init__(self, world, authority):
        programs = pathlib.Path(CLI).parents[1]
        self.world, self.authority = world, authority
        self.proxy = Proxy(world, authority)
        self.proxy.start()
        kind = type("Double", (double_class(),), {"starter": tuple(world.inside.command())})
        self.double = kind("--pods", "process", "--agent", str(programs / "agent/sandbox-agent"),
                           "--shim", str(programs / "shim/sandbox-shim.so"), "--egress", SERVICE)
        os.chmod(self.double.directory, 0o711)
        self.environment = {
            **os.environ, "KUBECONFIG": str(self.double.kubeconfig), "SANDBOX_PROXY_TOKEN": TOKEN,
            "SANDBOX_URI": "gke://double/workspaces?pool=standard"
                           f"&egress=http://{SERVICE}&admin=http://{ADMIN}"}

    def run(self, *words, code=0, given=None, **variables):
        environment = {name: value for name, value in {**self.environment, **variables}.items()
                       if value is not None}
        done = subprocess.run(self.world.inside.command(CLI, *words), input=given,
                              capture_output=True, timeout=LONG, check=False, env=environment)
        assert code is None or done.returncode == code, (words, done)
        return done

    def inside(self, name, line, code=0):
        return self.run("exec", name, "-c", line, code=code).stdout

    def fetch(self, name, host="api.example.com", key=PLACEHOLDER):
        return self.inside(name, ASK.format(key=key, host=host))

    def show(self, name):
        return json.loads(self.run("--json", "egress", "show", name).stdout)

    def registered(self):
        return self.proxy.ask("/v1/workspaces")["workspaces"]

    def addresses(self):
        return {one["status"].get("podIP")
                for one in self.double.tell(do="objects", resource="pods")["objects"]}

    def end(self):
        self.double.end()
        self.proxy.stop()
        said = self.proxy.output()
        assert "Sanitizer" not in said and TOKEN not in said and SECRET not in said


@pytest.fixture(scope="module")
def cluster(world, authority):
    running = Cluster(world, authority)
    yield running
    running.end()


@pytest.fixture
def make(world, cluster):
    """Makes workspaces, which are gone afterwards, and forgotten by the proxy."""
    world.reset()
    made = []

    def begin(*words, given=None):
        made.append(f"w{secrets.token_hex(3)}")
        cluster.run("create", *words, made[-1], given=given)
        return made[-1]
    yield begin
    for name in made:
        cluster.run("delete", "--force", name, code=None)
    assert cluster.registered() == []


@pytest.fixture
def reaching(make, api):
    """The name of one that may reach api.example.com, with a credential for it."""
    return make("--allow", "api.example.com", "--transformations", "-",
                given=json.dumps(RULES).encode())


def key_seen(api):
    return dict((name.lower(), value) for name, value in api.told[-1]["fields"]).get("x-api-key")


def test_a_command_reaches_what_is_allowed_with_a_credential(cluster, reaching, api):
    said = cluster.fetch(reaching)
    assert said and SECRET.encode() not in said and key_seen(api) == SECRET
    seen = cluster.show(reaching)
    assert seen["allow"] == ["api.example.com"] and seen["registered"] is True
    # The proxy knows the workspace by its Pod's own address.
    (known,) = cluster.registered()
    assert known["source"]["address"] in cluster.addresses()


def test_a_tunnel_goes_end_to_end(cluster, reaching, api, authority):
    cluster.run("cp", str(authority.certificate), f"{reaching}:/workspace/ca.pem")
    said = cluster.inside(reaching, "curl -sS -m 20 --cacert /workspace/ca.pem "
                                    "https://api.example.com/plain")
    assert said and key_seen(api) is None


def test_what_is_not_allowed_is_refused_readably_and_told(cluster, reaching):
    assert b"'evil.example.org' is not allowed" in cluster.fetch(reaching, "evil.example.org")
    log = json.loads(cluster.run("--json", "egress", "log", reaching).stdout)
    assert [(one["reason"], one["host"]) for one in log] == [("host-not-allowed",
                                                              "evil.example.org")]


def test_the_guest_itself_is_nobody_to_the_proxy(cluster, reaching):
    """It can reach the proxy's address, as the agent does, and has no key, nor finds one."""
    said = cluster.inside(reaching, f"curl -sS -m 20 --noproxy '*' http://{SERVICE}/https/api."
                                    "example.com/plain")
    assert b"key" in said and cluster.proxy.ask("/v1/workspaces")["workspaces"][0]["refused"] == 1
    seen = cluster.inside(reaching, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline "
                                    "2>/dev/null | tr '\\0' '\\n'; env; exit 0")
    assert not re.search(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", seen), seen


def test_each_workspace_has_its_own_policy(cluster, make, api):
    one, other = make("--allow", "api.example.com"), make("--allow", "else.example")
    assert b"not allowed" not in cluster.fetch(one)
    assert b"'api.example.com' is not allowed" in cluster.fetch(other)
    cluster.run("egress", "allow", other, "api.example.com")
    assert b"not allowed" not in cluster.fetch(other)


def test_a_suspend_forgets_and_a_resume_registers_anew(cluster, reaching, api):
    cluster.fetch(reaching)
    (before,) = cluster.registered()
    cluster.run("suspend", reaching)
    assert cluster.registered() == []
    cluster.run("resume", reaching)
    (after,) = cluster.registered()
    assert after["id"] == before["id"] and after["source"] != before["source"]
    # The policy came back, the credential did not.
    assert cluster.fetch(reaching) and key_seen(api) == PLACEHOLDER
    cluster.run("suspend", reaching)
    cluster.run("resume", "--transformations", "-", reaching, given=json.dumps(RULES).encode())
    assert cluster.fetch(reaching) and key_seen(api) == SECRET


def test_a_checkpoint_keeps_the_credential(cluster, reaching, api):
    cluster.run("checkpoint", reaching)
    assert cluster.fetch(reaching) and key_seen(api) == SECRET


def test_a_connection_that_is_open_ends_with_a_suspend(cluster, reaching):
    hold = ("bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; touch /workspace/open; cat <&3; "
            "echo over >/workspace/over; exec sleep 1000'")
    holder = subprocess.Popen(cluster.world.inside.command(CLI, "exec", reaching, "-c", hold),
                              env=cluster.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        cluster.inside(reaching, "until [ -e /workspace/open ]; do sleep 0.02; done")
        cluster.run("suspend", "--force", reaching)
        cluster.run("resume", reaching)
        cluster.inside(reaching, "until [ -e /workspace/over ]; do sleep 0.02; done")
    finally:
        holder.kill()
        holder.wait()


def test_a_delete_forgets(cluster, make, api):
    name = make("--allow", "api.example.com")
    assert len(cluster.registered()) == 1
    cluster.run("delete", name)
    assert cluster.registered() == []


def test_without_the_proxy_nothing_goes_out_until_it_is_back(cluster, reaching, api):
    cluster.proxy.stop()
    try:
        said = cluster.inside(reaching, ASK.format(key="x", host="api.example.com") + " -i")
        assert b" 502 " in said and b"X-Proxy-Error: no-proxy" in said
        refused = cluster.run("egress", "allow", reaching, "else.example", code=None)
        assert refused.returncode != 0 and b"does not answer" in refused.stderr
    finally:
        cluster.proxy.start()
    cluster.run("open", reaching)
    assert cluster.show(reaching)["registered"] is True
    assert cluster.fetch(reaching) and key_seen(api) == PLACEHOLDER


@pytest.mark.parametrize("missing", ["egress", "admin", "token"])
def test_who_has_named_no_proxy_is_told_how_to(cluster, make, missing):
    uri = cluster.environment["SANDBOX_URI"]
    if missing != "token":
        uri = re.sub(f"&{missing}=[^&]*", "", uri)
    changed = {"SANDBOX_URI": uri}
    if missing == "token":
        changed["SANDBOX_PROXY_TOKEN"] = None
    refused = cluster.run("create", "--allow", "a.example", "none", code=None, **changed)
    assert refused.returncode != 0 and b"SANDBOX_PROXY_URL=http://" in refused.stderr, refused
    assert b"SANDBOX_PROXY_TOKEN" in refused.stderr
    assert json.loads(cluster.run("--json", "list").stdout) == []
    # All else goes on without it.
    cluster.run("create", "plain", **changed)
    cluster.run("exec", "plain", "--", "true", **changed)
    cluster.run("delete", "plain", **changed)


def test_the_environment_says_what_the_uri_leaves_open(cluster, make, api, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n", encoding="ascii")
    told = {"SANDBOX_URI": "gke://double/workspaces?pool=standard", "SANDBOX_PROXY_TOKEN": None,
            "SANDBOX_PROXY_URL": f"http://{SERVICE}", "SANDBOX_PROXY_ADMIN_URL": f"http://{ADMIN}",
            "SANDBOX_PROXY_TOKEN_FILE": str(token)}
    name = make("--allow", "api.example.com")
    cluster.run("egress", "set", name, "else.example", **told)
    assert b"not allowed" in cluster.fetch(name)
    token.write_text("somebody-elses-token-0123", encoding="ascii")
    refused = cluster.run("egress", "set", name, "api.example.com", code=None, **told)
    assert refused.returncode != 0 and b"token" in refused.stderr
    assert b"somebody" not in refused.stderr and TOKEN.encode() not in refused.stderr
    told["SANDBOX_PROXY_ADMIN_URL"] = f"http://user:{TOKEN}@{ADMIN}"
    refused = cluster.run("list", code=None, **told)
    assert refused.returncode != 0 and b"SANDBOX_PROXY_ADMIN_URL" in refused.stderr
    assert TOKEN.encode() not in refused.stderr
