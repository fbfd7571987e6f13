"""What the tests of the cluster double share: a double of their own, and plain ways to ask it."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/doubles/cluster/cluster.py"
PATIENCE = 60  # seconds; only a failure ever waits that long
SPACE = "workspaces"

CORE = "/api/v1"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1"
SNAPSHOTS = "/apis/podsnapshot.gke.io/v1"
MERGE = "application/merge-patch+json"


class Answer:
    def __init__(self, code, headers, body):
        self.code, self.headers, self.body = code, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def reason(self):
        return self.json.get("reason")


class Double:
    """One running cluster."""

    starter = ()  # words of a command that it is started by

    def __init__(self, *arguments):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cluster-double."))
        self.errors = open(f"{self.directory}.errors", "w+", encoding="utf-8")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [*self.starter, "/usr/bin/python3", str(PROGRAM), "--directory", str(self.directory),
             *arguments],
            stdin=subprocess.PIPE, stdout=self.errors, stderr=self.errors, env=environment)
        self.await_true(lambda: (self.directory / "ready").exists() or
                        self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        self.url = json.loads((self.directory / "ready").read_text())["url"]
        self.kubeconfig = self.directory / "kubeconfig"
        self.token = (self.directory / "serviceaccount/token").read_text()

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        shutil.rmtree(self.directory, ignore_errors=True)
        said = self.said()
        self.errors.close()
        os.unlink(self.errors.name)
        assert code == 0 and "Traceback" not in said, said

    @staticmethod
    def await_true(is_true, what="it"):
        """Polls: a test has no better way to hear of it."""
        end = time.monotonic() + PATIENCE
        while not (found := is_true()):
            assert time.monotonic() < end, f"{what} did not come true"
            time.sleep(0.02)
        return found

    def tell(self, **asked):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.directory / "admin.sock"))
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as reader:
                answer = json.loads(reader.readline())
        assert answer["ok"], answer
        return answer

    def connect(self, certificate=None):
        address = urllib.parse.urlsplit(self.url)
        if address.scheme == "http":
            return http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)
        context = ssl.create_default_context(cafile=self.directory / "certificates/ca.crt")
        if certificate:
            context.load_cert_chain(self.directory / f"certificates/{certificate}.crt",
                                    self.directory / f"certificates/{certificate}.key")
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=PATIENCE,
                                           context=context)

    def headers(self, form=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.token}", "Accept": "application/json",
                   "User-Agent": "raw/1"}
        return {**headers, "Content-Type": form} if form else headers

    def ask(self, method, path, body=None, form="application/json", **query):
        """One request over a connection of its own."""
        if query:
            path += "?" + urllib.parse.urlencode(query)
        with contextlib.closing(self.connect()) as connection:
            data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
            connection.request(method, path, data, self.headers(form if body is not None else None))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def get(self, path, **query):
        return self.ask("GET", path, **query)

    def patch(self, path, body, form=MERGE, **query):
        return self.ask("PATCH", path, body, form, **query)

    @contextlib.contextmanager
    def watch(self, path, **query):
        """Yields a function that returns the next event, None at the orderly end."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", f"{path}?" + urllib.parse.urlencode(
                {"watch": "true", **query}), headers=self.headers())
            answer = connection.getresponse()
            if answer.status != 200:
                raise LookupError(answer.status, answer.read())

            def following():
                line = answer.readline()
                return json.loads(line) if line else None
            yield following

    def make(self, plural, name, base=CORE, **rest):
        """Creates an object that is expected to be good, and returns it."""
        answer = self.ask("POST", path_of(plural, base), {"metadata": {"name": name}, **rest})
        assert answer.code == 201, answer.body
        return answer.json


def path_of(plural, base=CORE, name=None, space=SPACE):
    path = f"{base}/namespaces/{space}/{plural}"
    return f"{path}/{name}" if name else path


def claim(pool="standard", **spec):
    return {"spec": {"warmPoolRef": {"name": pool}, **spec}}


@pytest.fixture(scope="module")
def whole_double():
    made = Double("--pods", "none")
    yield made
    made.end()


@pytest.fixture
def double(whole_double):
    """The module's, without what an earlier test has ordered."""
    whole_double.tell(do="clear")
    yield whole_double
    whole_double.tell(do="clear")


@pytest.fixture(scope="session")
def upstream():
    """A Python that has the clients that others wrote."""
    done = subprocess.run([ROOT / "tools/upstream-clients"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def any_kubectl():
    """Calls the kubectl that is installed here; the double is its first argument."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    home = tempfile.mkdtemp(prefix="cluster-kubectl.")

    def run(double, *words, given=None, code=0):
        done = subprocess.run(
            [program, *words], input=given, capture_output=True, timeout=PATIENCE,
            env={"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(double.kubeconfig)},
            stdin=subprocess.DEVNULL if given is None else None, check=False)
        assert code is None or done.returncode == code, (words, done.stdout, done.stderr)
        return done
    yield run
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def kubectl(any_kubectl):
    """One that takes OpenAPI v3 for apply and a WebSocket for exec. Debian 12's is of 2021."""
    said = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True).stdout
    version = json.loads(said)["clientVersion"]
    if (int(version["major"]), int(version["minor"].rstrip("+"))) < (1, 31):
        pytest.skip(f"kubectl {version['gitVersion']} asks in the former way (OpenAPI v2, SPDY), "
                    "which the double does not speak")
    return any_kubectl


def as_yaml(*objects):
    return yaml.safe_dump_all(objects).encode()
