"""What the vectors run against: ours, squid and tinyproxy, each set up as well as can be.

An adapter starts its program in the world's inner namespace with the policy of a vector, and gives
connections whose next byte is the guest's. What a program has no notion of is in `knows_not`.
"""

import contextlib
import http.client
import ipaddress
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess

from world import EXTERNAL, GUEST, PATIENCE, PROXY, RESOLVER, await_true

RANGES = pathlib.Path(__file__).resolve().parents[1] / "data" / "ip-deny-ranges.json"


def denied_ranges():
    """IPv4 ranges to deny, and the IPv6 ones inside 2000::/3."""
    listed = json.loads(RANGES.read_text(encoding="utf-8"))
    return ([row["cidr"] for row in listed["ipv4"]],
            [row["cidr"] for row in listed["ipv6_exceptions_inside_2000_3"]])


def outside_2000():
    """All of IPv6 but 2000::/3 and the range in which squid keeps IPv4."""
    low = ipaddress.ip_network("::/3").address_exclude(ipaddress.ip_network("::ffff:0:0/96"))
    return [str(network) for network in low] + ["4000::/2", "8000::/1"]


class Target:
    """A program under test."""

    name, knows_not, path = "", (), None

    def __init__(self, world, authority):
        self.world, self.authority = world, authority
        self.directory = world.directory / f"{self.name}-{secrets.token_hex(4)}"
        self.directory.mkdir()
        self.process = self.said = None

    @classmethod
    def is_installed(cls):
        return cls.path is not None and shutil.which(cls.path) is not None

    def run(self, *words, environment=None):
        self.said = open(self.directory / "output", "wb")
        self.process = subprocess.Popen(
            self.world.inside.command(*words), stdin=subprocess.DEVNULL, stdout=self.said,
            stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})

    def output(self):
        return (self.directory / "output").read_text(encoding="utf-8", errors="replace")

    def await_port(self):
        def accepts():
            assert self.process.poll() is None, self.output()
            with contextlib.suppress(OSError):
                self.world.dial(source="10.8.16.1").close()
                return True
            return False
        await_true(accepts, f"{self.name} listening")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.said is not None:
            self.said.close()

    def connect(self, source=GUEST):
        return self.world.dial(source)

    def forget_names(self):
        """What was resolved before must not decide the next vector."""

    def is_alive(self):
        return self.process.poll() is None


class Squid(Target):
    """With lists of names for both ways out, address classes checked, and the ClientHello peeked
    at: spliced only if it names a listed host."""

    name, path = "squid", "/usr/sbin/squid"
    knows_not = ("credential", "response", "config", "identity-reused-address")

    def start(self, policy):
        self.authority.context("squid.test")
        key = self.authority.directory / "authority-2-squid.test"
        shutil.copyfile(f"{key}.pem", self.directory / "squid.pem")
        with open(self.directory / "squid.pem", "a", encoding="ascii") as both:
            both.write(pathlib.Path(f"{key}.key").read_text(encoding="ascii"))
        version_4, version_6 = denied_ranges()
        expressions = [self.expression(host) for host in policy["allow"]]
        plain = [self.expression(host) for host in policy["http_hosts"]]
        configuration = self.directory / "squid.conf"
        configuration.write_text("\n".join([
            f"http_port {PROXY}:3128 ssl-bump tls-cert={self.directory}/squid.pem "
            "generate-host-certificates=off",
            f"acl guests src {GUEST}",
            "acl connect method CONNECT", "acl encrypted port 443", "acl usual port 80",
            "acl hosts dstdom_regex -i -n " + " ".join(expressions),
            "acl plain dstdom_regex -i -n " + " ".join(plain),
            "acl special dst " + " ".join(version_4 + version_6),
            f"acl special dst {EXTERNAL}",
            "acl local6 dst " + " ".join(outside_2000()),
            "acl trace method TRACE", "http_access deny trace", "http_access deny !guests",
            "http_access deny connect !hosts",
            "http_access deny connect !encrypted", "http_access deny !connect !plain",
            "http_access deny !connect !usual", "http_access deny special",
            "http_access deny local6", "http_access allow guests", "http_access deny all",
            "acl first at_step SslBump1", "ssl_bump peek first",
            # A rule for each host: the ClientHello itself must name the host of the CONNECT.
            *(f"acl asked{number} dstdom_regex -i -n {expression}\n"
              f"acl named{number} ssl::server_name --client-requested {host.removeprefix('*')}\n"
              f"ssl_bump splice asked{number} named{number}"
              for number, (expression, host) in enumerate(
                  zip(expressions, policy["allow"], strict=True))),
            "ssl_bump terminate all", "on_unsupported_protocol respond all",
            "relaxed_header_parser off",
            "request_header_max_size 64 KB", "request_start_timeout 10 seconds",
            "request_timeout 10 seconds", "connect_timeout 2 seconds",
            "via off", "forwarded_for delete", "cache deny all", "cache_mem 8 MB",
            f"dns_nameservers {RESOLVER}", "dns_defnames off", "hosts_file none",
            "access_log none", f"cache_log {self.directory}/cache.log",
            f"pid_filename {self.directory}/squid.pid", f"coredump_dir {self.directory}",
            "cache_effective_user proxy", "shutdown_lifetime 0 seconds", "pinger_enable off",
            "max_filedescriptors 4096", "workers 1", f"visible_hostname {self.name}", "",
        ]), encoding="ascii")
        os.chmod(self.directory, 0o755)
        os.chmod(self.world.directory, 0o755)
        shutil.chown(self.directory, "proxy")
        self.policy = policy
        self.run(self.path, "-N", "-f", str(configuration))
        self.await_port()

    def forget_names(self):
        self.stop()
        self.start(self.policy)

    @staticmethod
    def expression(host):
        """A trailing dot is the same name; a wildcard is not the apex."""
        start = "^[^.].*" if host.startswith("*.") else "^"
        return start + re.escape(host.removeprefix("*")) + r"\.?$"


class Tinyproxy(Target):
    """With its filter as a list of what is allowed, and CONNECT to 443 only. It knows nothing of
    addresses nor of what a tunnel carries."""

    name, path = "tinyproxy", "tinyproxy"
    knows_not = ("credential", "response", "config", "identity-reused-address")

    def start(self, policy):
        names = self.directory / "filter"
        names.write_text("".join(Squid.expression(host) + "\n"
                                 for host in policy["allow"] + policy["http_hosts"]),
                         encoding="ascii")
        resolver = self.directory / "resolv.conf"
        resolver.write_text(f"nameserver {RESOLVER}\n", encoding="ascii")
        configuration = self.directory / "tinyproxy.conf"
        configuration.write_text("\n".join([
            "Port 3128", f"Listen {PROXY}", "Timeout 10", "MaxClients 256", f"Allow {GUEST}",
            "ConnectPort 443", f'Filter "{names}"', "FilterDefaultDeny Yes", "FilterExtended On",
            "FilterCaseSensitive Off", "FilterURLs Off", "DisableViaHeader Yes",
            "LogLevel Critical", f'LogFile "{self.directory}/log"',
            "User nobody", "Group nogroup", "",
        ]), encoding="ascii")
        for path in (self.world.directory, self.directory):
            os.chmod(path, 0o755)
        # It asks the C library, which asks this file: a mount of its own shows it another.
        self.run("unshare", "--mount", "sh", "-c",
                 f"mount --bind {resolver} /etc/resolv.conf && exec {self.path} -d -c "
                 f"{configuration}")
        self.await_port()


class Ours(Target):
    """Ours, with one workspace registered at the guest's address."""

    name = "sandbox-egress-proxy"
    path = os.environ.get("SANDBOX_EGRESS_PROXY")

    def __init__(self, world, authority):
        super().__init__(world, authority)
        self.socket, self.keys = self.directory / "admin", {}

    def start(self, policy=None, *, arguments=(), environment=None, resolver=RESOLVER,
              listen=f"{PROXY}:3128", timeouts=None, administer=None, token=None):
        """`administer` is an address that `arguments` let the admin interface listen on."""
        self.administration, self.token = administer or str(self.socket), token
        clocks = {"head": 3000, "hello": 1000, "connect": 1000, **(timeouts or {})}
        self.run(self.path, "--listen", listen,
                 *(() if administer else ("--admin", f"unix:{self.socket}")),
                 *(("--resolver", resolver) if resolver else ()),
                 "--ca-file", str(self.authority.certificate),
                 "--log", str(self.directory / "log"),
                 *(word for name, clock in clocks.items() for word in ("--timeout",
                                                                       f"{name}={clock}")),
                 *arguments, environment=environment)
        await_true(self.answers, "the admin interface answering")
        if policy is not None:
            self.register("vector", {"address": GUEST}, policy=self.policy_of(policy),
                          transformations=policy.get("credentials", []))

    def answers(self):
        assert self.process.poll() is None, self.output()
        with contextlib.suppress(OSError):
            return self.admin("GET", "/v1/version").status == 200
        return False

    @staticmethod
    def policy_of(policy):
        """From the words of the table to ours."""
        return {"mode": "custom", "allow": policy["allow"], "http": policy["http_hosts"],
                "ech": policy["ech"]}

    def admin(self, method, path, body=None, headers=None):
        if self.token:
            headers = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        return Administration(self.administration).ask(method, path, body, headers)

    def register(self, name, source, key=None, expect=(200, 201), **more):
        key = key or secrets.token_hex(32)
        answer = self.admin("PUT", f"/v1/workspaces/{name}",
                            {"source": source, "key": key, **more})
        assert answer.status in expect, answer.text
        self.keys[source.get("address", source.get("socket"))] = key
        return key

    def patch(self, name, expect=(200, 204), **what):
        answer = self.admin("PATCH", f"/v1/workspaces/{name}", what)
        assert answer.status in expect, answer.text
        return answer

    def connect(self, source=GUEST, key=None):
        stream = self.world.dial(source)
        stream.sendall(preface(key or self.keys.get(source) or secrets.token_hex(32)))
        return stream

    def metrics(self):
        """Names with labels, and numbers."""
        answer = self.admin("GET", "/metrics")
        assert answer.status == 200, answer.text
        rows = [line.rsplit(" ", 1) for line in answer.text.splitlines()
                if line and not line.startswith("#")]
        return {name: float(number) for name, number in rows}

    def log(self):
        path = self.directory / "log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def refusals(self, name="vector"):
        return self.admin("GET", f"/v1/log?workspace={name}").json


def preface(key):
    return f"SANDBOX-EGRESS/1 {key}\r\n".encode()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers = status, headers
        self.text = body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.text)


class Administration(http.client.HTTPConnection):
    """The admin interface: a Unix socket's path, or an address and a port."""

    def __init__(self, place):
        super().__init__("localhost", timeout=PATIENCE)
        self.place = place

    def connect(self):
        is_path = isinstance(self.place, str)
        self.sock = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.place)

    def ask(self, method, path, body=None, headers=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        try:
            self.request(method, path, data, {"Content-Type": "application/json",
                                              **(headers or {})})
            answer = self.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            self.close()


ALL = (Ours, Squid, Tinyproxy)
