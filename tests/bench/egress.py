"""What `tools/bench --part egress` runs: the egress proxy beside squid, tinyproxy and nginx.

    egress.py BUILD ROUNDS [--only WORD] [--markdown]

BUILD is a release build with sandbox-egress-proxy and bench-egress. All of it runs on the loopback
of a network namespace of its own; programs that are not installed leave their columns empty. Each
figure is the median of the rounds, and in each round all programs have their turn. Exit code 1: a
goal was missed.
"""

import argparse
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEW_NETWORK = 0x40000000
PATIENCE = 60
ORIGIN, TLS_ORIGIN = "127.0.0.2", "127.0.0.3"
HOST = "h500.bench.test"
HOSTS = [f"h{number}.bench.test" for number in range(1000)]
HEAD = ["what", "ours", "peer", "direct", "ratio to the peer", "target", "met"]


def spawn(*words, **more):
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, **more)


def await_port(address, port, process):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"bench: {process.args[0]} ended")
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"bench: {process.args[0]} does not listen")


def memory_kib(process, name="Pss"):
    text = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE).group(1))


def family(process):
    """It and what it started: squid's and nginx's workers are processes of their own."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [process.pid, *map(int, children.read_text(encoding="ascii").split())]


class Program:
    """A proxy that runs; `way` is how bench-egress gets through it."""

    name, port, key = "", 0, "-"

    def __init__(self, bench):
        self.bench, self.folder = bench, bench.folder / self.name
        self.folder.mkdir(mode=0o755, exist_ok=True)
        self.process = self.start()
        await_port("127.0.0.1", self.port, self.process)

    def way(self):
        return ["127.0.0.1", str(self.port), HOST, self.key, str(self.bench.hello)]

    def begin_turn(self):
        """What it does before each measurement."""

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def idle_kib(self):
        total = 0
        for pid in family(self.process):
            status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
            total += int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
        return total


class Direct:
    name = "direct"

    def __init__(self, bench):
        self.bench = bench

    def begin_turn(self):
        """It has nothing to do."""

    def way(self):
        return [ORIGIN, "443", "-", "-", str(self.bench.hello)]


class Ours(Program):
    name, port, key = "ours", 13128, secrets.token_hex(32)

    def start(self):
        return spawn(str(self.bench.build / "programs/egress-proxy/sandbox-egress-proxy"),
                     "--listen", f"127.0.0.1:{self.port}", "--admin", f"unix:{self.folder}/admin",
                     "--host", f"{HOST}={ORIGIN}", "--host", f"tls.bench.test={TLS_ORIGIN}",
                     "--permit", "127.0.0.2/31", "--connections", "20000", "--rate", "1000000",
                     "--ca-file", str(self.bench.folder / "authority.pem"),
                     "--log", str(self.folder / "log"))

    def __init__(self, bench):
        super().__init__(bench)
        self.admin = Admin(str(self.folder / "admin"))
        self.empty_kib = self.idle_kib()
        self.register()

    def register(self):
        rule = {"match": {"host": "tls.bench.test",
                          "headers": [{"name": "x-api-key", "value_exact": "PLACEHOLDER"}]},
                "set": {"x-api-key": "REAL-VALUE"}}
        self.admin.ask("PUT", "/v1/workspaces/bench", {
            "source": {"address": "127.0.0.1"}, "key": self.key,
            "policy": {"mode": "custom", "allow": [*HOSTS, "tls.bench.test"]},
            "transformations": [rule], "limits": {"connections": 20000, "rate": 1000000}})


class Admin(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def ask(self, method, path, body):
        self.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        answer = self.getresponse()
        said = answer.read()
        if answer.status >= 300:
            sys.exit(f"bench: the proxy answered {answer.status}: {said.decode()}")


class Squid(Program):
    """Without a look into the ClientHello, which makes it slower. It gets slower with every thousand
    tunnels, down to a tenth, so each of its turns has a fresh one."""

    name, port = "squid", 13129

    def begin_turn(self):
        self.end()
        self.process = self.start()
        await_port("127.0.0.1", self.port, self.process)

    def start(self):
        (self.folder / "hosts").write_text(f"{ORIGIN} {HOST}\n", encoding="ascii")
        (self.folder / "allowed").write_text("\n".join(HOSTS) + "\n", encoding="ascii")
        shutil.chown(self.folder, "proxy")
        settings = self.folder / "squid.conf"
        settings.write_text("\n".join([
            f"http_port 127.0.0.1:{self.port}", f'acl hosts dstdomain "{self.folder}/allowed"',
            "acl encrypted port 443", "acl connect method CONNECT", "http_access deny !connect",
            "http_access deny !encrypted", "http_access allow hosts", "http_access deny all",
            "cache deny all", "access_log none", f"cache_log {self.folder}/cache.log",
            f"pid_filename {self.folder}/pid", f"hosts_file {self.folder}/hosts",
            "cache_effective_user proxy", f"coredump_dir {self.folder}", "pinger_enable off",
            "shutdown_lifetime 0 seconds", "max_filedescriptors 65536", "cache_mem 8 MB", ""]),
            encoding="ascii")
        return spawn("/usr/sbin/squid", "-N", "-f", str(settings))


class Tinyproxy(Program):
    name, port = "tinyproxy", 13130

    def start(self):
        (self.folder / "filter").write_text("".join(f"^{host}$\n" for host in HOSTS),
                                            encoding="ascii")
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{ORIGIN} {HOST}\n",
                                           encoding="ascii")
        settings = self.folder / "tinyproxy.conf"
        settings.write_text("\n".join([
            f"Port {self.port}", "Listen 127.0.0.1", "Timeout 600", "MaxClients 1000",
            "ConnectPort 443", f'Filter "{self.folder}/filter"', "FilterDefaultDeny Yes",
            "FilterExtended On", "LogLevel Critical", f'LogFile "{self.folder}/log"', ""]),
            encoding="ascii")
        return spawn("unshare", "--mount", "sh", "-c",
                     f"mount --bind {self.folder}/hosts /etc/hosts && exec tinyproxy -d -c "
                     f"{settings}")


class Nginx(Program):
    """proxy_pass to TLS with kept connections, the certificate verified, and the value put in."""

    name, port = "nginx", 13131

    def start(self):
        settings = self.folder / "nginx.conf"
        settings.write_text(f"""
worker_processes 1; daemon off; pid {self.folder}/pid; error_log {self.folder}/log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000;
    upstream origin {{ server {TLS_ORIGIN}:443; keepalive 64; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{self.port};
        location / {{
            proxy_pass https://origin; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Host tls.bench.test; proxy_set_header x-api-key REAL-VALUE;
            proxy_ssl_name tls.bench.test; proxy_ssl_server_name on; proxy_ssl_verify on;
            proxy_ssl_trusted_certificate {self.bench.folder}/authority.pem;
        }}
    }}
}}""", encoding="ascii")
        return spawn("/usr/sbin/nginx", "-c", str(settings), "-p", str(self.folder),
                     stderr=subprocess.DEVNULL)


class Bench:
    def __init__(self, build, rounds, only):
        self.build, self.rounds, self.only = pathlib.Path(build), rounds, only
        library = ctypes.CDLL(None, use_errno=True)
        if library.unshare(NEW_NETWORK) != 0:
            sys.exit("bench: a network namespace needs root")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("14000 65000",
                                                                          encoding="ascii")
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        # A proxy has two descriptors for each tunnel, and squid keeps a hundred back.
        self.tunnels = min(10_000, most // 2 - 200)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-bench."))
        self.folder.chmod(0o755)
        self.hello = self.folder / "hello"
        sys.path.insert(0, str(ROOT / "tests/egress"))
        from vectors import client_hello
        self.hello.write_bytes(client_hello(HOST))
        self.program = str(self.build / "tests/bench/bench-egress")
        self.make_certificates()
        self.origins = [spawn(self.program, "origin", ORIGIN, "443"), self.tls_origin()]
        for address, process in zip((ORIGIN, TLS_ORIGIN), self.origins, strict=True):
            await_port(address, 443, process)

    def make_certificates(self):
        def make(name, *more):
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                 "-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.pem",
                 *more], check=True, capture_output=True)
        make("authority", "-addext", "basicConstraints=critical,CA:TRUE")
        make("server", "-addext", "subjectAltName=DNS:tls.bench.test", "-addext",
             "basicConstraints=CA:FALSE", "-CA", f"{self.folder}/authority.pem",
             "-CAkey", f"{self.folder}/authority.key")

    def tls_origin(self):
        settings = self.folder / "origin.conf"
        settings.write_text(f"""
worker_processes 1; daemon off; pid {self.folder}/origin.pid; error_log {self.folder}/log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000;
    server {{
        listen {TLS_ORIGIN}:443 ssl; listen {TLS_ORIGIN}:80;
        ssl_certificate {self.folder}/server.pem; ssl_certificate_key {self.folder}/server.key;
        location / {{ return 200 "ok"; }}
    }}
}}""", encoding="ascii")
        return spawn("/usr/sbin/nginx", "-c", str(settings), "-p", str(self.folder),
                     stderr=subprocess.DEVNULL)

    def client(self, what, way, *words):
        done = subprocess.run([self.program, what, *way, *words], capture_output=True, text=True,
                              timeout=PATIENCE * 2, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0 or not done.stdout:
            sys.exit(f"bench: {what} through {way[2]} at {way[1]} failed")
        return [float(word) for word in done.stdout.split()]

    def in_turns(self, targets, measure):
        """The median of each figure of each target."""
        found = {target.name: [] for target in targets}
        for _ in range(self.rounds):
            for target in targets:
                target.begin_turn()
                found[target.name].append(measure(target))
        return {name: [statistics.median(column) for column in zip(*rows, strict=True)]
                for name, rows in found.items()}

    def wants(self, word):
        return self.only in ("", word)

    def end(self):
        for process in self.origins:
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def installed(*kinds):
    paths = {Squid: "/usr/sbin/squid", Tinyproxy: "tinyproxy", Nginx: "/usr/sbin/nginx"}
    return [kind for kind in kinds if kind not in paths or shutil.which(paths[kind])]


def at_least(what, ours, peer, name, direct, share, shown):
    """A row of which more is better; `peer` None where it is not installed."""
    ratio = ours / peer if peer else None
    return [what, shown.format(ours), f"{name} {shown.format(peer)}" if peer else "",
            shown.format(direct) if direct else "", f"{ratio:.2f} ×" if ratio else "",
            f"≥ {share} ×", "" if ratio is None else "yes" if ratio >= share else "NO"]


def at_most(what, ours, unit, most, peer=""):
    return [what, f"{ours:,.2f} {unit}", peer, "", "", f"≤ {most:,} {unit}",
            "yes" if ours <= most else "NO"]


def tunnel_rows(bench, programs):
    everybody = [Direct(bench), *programs.values()]
    squid, rows = "squid" in programs, []
    for threads, number in (("1", "1000"), ("32", "2000")):
        if not bench.wants("setup"):
            continue
        found = bench.in_turns(everybody, lambda one, threads=threads, number=number:
                               bench.client("setup", one.way(), threads, number))
        failed = sum(figures[3] for figures in found.values())
        if failed:
            sys.exit(f"bench: {failed:.0f} tunnels failed")
        rows.append(at_least(f"tunnels set up in a second, {threads} at once, 1,000 hosts",
                             found["ours"][0], found["squid"][0] if squid else None, "squid",
                             found["direct"][0], 1.2, "{:,.0f}"))
        for name in ("tinyproxy",) if "tinyproxy" in programs else ():
            rows.append(at_least("the same", found["ours"][0], found[name][0], name, 0, 1.0,
                                 "{:,.0f}"))
    if bench.wants("trip"):
        found = bench.in_turns(everybody, lambda one: bench.client("trip", one.way(), "20000"))
        added = {name: figures[1] - found["direct"][1] for name, figures in found.items()}
        for name in ("squid", "tinyproxy"):
            if name in programs:
                ratio = added["ours"] / added[name]
                goal = 0.8 if name == "squid" else 1.0
                rows.append(["latency added to a round trip", f"{added['ours']:.1f} µs",
                             f"{name} {added[name]:.1f} µs", f"{found['direct'][1]:.1f} µs",
                             f"{ratio:.2f} ×", f"≤ {goal} ×", "yes" if ratio <= goal else "NO"])
    if bench.wants("down"):
        found = bench.in_turns(everybody, lambda one: bench.client("down", one.way(), "1.5"))
        ours, direct = found["ours"][0], found["direct"][0]
        rows.append(at_least("one stream, MB/s", ours, found["squid"][0] if squid else None,
                             "squid", direct, 1.2, "{:,.0f}"))
        rows.append(at_least("the same", ours, direct, "direct", direct, 0.38, "{:,.0f}"))
    return rows


def idle_rows(bench, programs):
    """Before they have had anything to do."""
    if not bench.wants("idle"):
        return []
    said = ", ".join(f"{name} {program.idle_kib() / 1024:.1f} MB"
                     for name, program in programs.items() if name != "ours")
    return [at_most("memory of the idle program (RSS)", programs["ours"].empty_kib / 1024, "MB",
                    3, said)]


def hold_rows(bench, programs):
    """After what is timed: squid is slower once it has held so many."""
    if not bench.wants("hold"):
        return []
    costs = {}
    for name in ("ours", "squid"):
        if name not in programs:
            continue
        process = programs[name].process
        before = memory_kib(process)
        holder = subprocess.Popen([bench.program, "hold", *programs[name].way(), str(bench.tunnels)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        held = int(holder.stdout.readline().split()[1])
        if held != bench.tunnels:
            sys.exit(f"bench: {name} held {held} tunnels")
        time.sleep(1)  # what it puts off by a moment shall be done
        costs[name] = (memory_kib(process) - before) / bench.tunnels
        holder.stdin.close()
        holder.wait()
    peer = f"squid {costs['squid']:.1f} KiB" if "squid" in costs else ""
    return [at_most(f"memory of each of {bench.tunnels:,} idle tunnels (PSS)", costs["ours"],
                    "KiB", 12, peer)]


def route_rows(bench, programs):
    if not bench.wants("route") or "nginx" not in programs:
        return []
    rows = []
    for threads in ("1", "32"):
        def measure(one, threads=threads):
            path = "/https/tls.bench.test/x" if one.name == "ours" else "/x"
            return bench.client("http", one.way(), threads, "2", path,
                                "x-api-key: PLACEHOLDER")
        found = bench.in_turns([programs["ours"], programs["nginx"]], measure)
        if found["ours"][3] or found["nginx"][3]:
            print("bench: requests of the credential route failed", file=sys.stderr)
        rows.append(at_least(f"requests on a credential route in a second, {threads} at once",
                             found["ours"][0], found["nginx"][0], "nginx proxy_pass", 0, 1.0,
                             "{:,.0f}"))
    return rows


def is_refused(program):
    with socket.create_connection(("127.0.0.1", program.port), PATIENCE) as stream:
        head = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
        if program.key != "-":
            head = f"SANDBOX-EGRESS/1 {program.key}\r\n".encode() + head
        stream.sendall(head)
        return b" 403 " in stream.recv(100)


def change_rows(bench, programs):
    """From asking for the change to the answer, after which every connection is judged by it."""
    if not bench.wants("change"):
        return []
    ours, times = programs["ours"], []
    others = [host for host in HOSTS if host != HOST]
    bodies = [json.dumps({"policy": {"mode": "custom", "allow": allow}}).encode()
              for allow in (others, HOSTS)]
    ours.admin.close()  # it may have been closed over there meanwhile
    for number in range(100):
        begin = time.monotonic()
        ours.admin.ask("PATCH", "/v1/workspaces/bench", bodies[number % 2])
        times.append(time.monotonic() - begin)
        if is_refused(ours) != (number % 2 == 0):
            sys.exit("bench: a change of the policy was not in force after its answer")
    ours.register()
    said = ""
    if "squid" in programs:
        said = f"squid {squid_change(programs['squid']) * 1000:.0f} ms"
    return [at_most("a policy of 1,000 hosts changed", statistics.median(times) * 1000, "ms", 1,
                    said)]


def squid_change(squid):
    """From asking it to read its list anew until the first refusal."""
    allowed = squid.folder / "allowed"
    text = allowed.read_text(encoding="ascii")
    allowed.write_text(text.replace(HOST + "\n", ""), encoding="ascii")
    seconds = squid_reload(squid, True)
    allowed.write_text(text, encoding="ascii")
    squid_reload(squid, False)
    return seconds


def squid_reload(squid, is_awaited):
    begin = time.monotonic()
    squid.process.send_signal(signal.SIGHUP)
    while time.monotonic() - begin < PATIENCE:
        try:
            if is_refused(squid) == is_awaited:
                break
        except OSError:
            continue  # it does not listen while it reads
    return time.monotonic() - begin


def print_table(rows, markdown):
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip())
        if number == 0 and markdown:
            print("|" + " --- |" * len(row))


def main():
    parser = argparse.ArgumentParser(description="Measure the egress proxy beside others.")
    parser.add_argument("build")
    parser.add_argument("rounds", type=int)
    parser.add_argument("--only", default="", help="setup, trip, down, idle, hold, route, change")
    parser.add_argument("--markdown", action="store_true")
    wanted = parser.parse_args()
    bench = Bench(wanted.build, wanted.rounds, wanted.only)
    programs = {}
    try:
        for kind in installed(Ours, Squid, Tinyproxy, Nginx):
            programs[kind.name] = kind(bench)
        idle = idle_rows(bench, programs)
        rows = tunnel_rows(bench, {name: program for name, program in programs.items()
                                   if name != "nginx"}) + idle
        rows += change_rows(bench, programs) + route_rows(bench, programs)
        rows += hold_rows(bench, programs)
    finally:
        for program in programs.values():
            program.end()
        bench.end()
    print_table([HEAD, *rows], wanted.markdown)
    return 1 if any(row[-1] == "NO" for row in rows) else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.exit(main())
