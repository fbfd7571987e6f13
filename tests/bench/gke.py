"""What `tools/bench --part gke` runs: the library and others on the same cluster double.

    gke.py BUILD ROUNDS CLAIMS [--markdown]

BUILD is a build folder with the agent, the shim, the command and bench-gke. The SDK of Agent Sandbox
comes from tools/upstream-clients; without it its columns stay empty.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
UPSTREAM = ROOT / "tests/bench/gke_upstream.py"
URI = "gke://double/workspaces?pool=standard"
PATIENCE = 600
WIDTH = 16
MARK = "98765"  # seconds that the process sleeps by which memory is known again
# What the double does, and what a client that tells no untruth makes of it. "go" is told after so many
# seconds.
STORIES = [
    ("nothing goes wrong", []),
    ("the snapshot is complete, but ready only 3 s later", [{"how": "snapshot-late", "go": 3}]),
    ("the snapshot is complete, and never gets ready", [{"how": "snapshot-failed"}]),
    ("the storage is away for a moment", [{"how": "storage-unavailable"}]),
    ("the new Pod starts cold, without a word", [{"how": "cold", "times": 0}]),
    ("the same, but the Pod says that it was restored", [{"how": "cold-lying", "times": 0}]),
    ("the Pod is replaced right after it got ready",
     [{"how": "replaced"}, {"how": "cold", "after": 1}]),
    ("the container starts anew after its restore", [{"how": "restarted"}]),
    ("the restore is told 1 s after Ready", [{"how": "condition-late", "go": 1}]),
    ("the watch ends before the snapshot is complete",
     [{"fault": {"verb": "watch", "resource": "podsnapshotmanualtriggers"},
       "what": "watch-close"}]),
    ("the answer to the suspension is lost",
     [{"fault": {"verb": "patch", "resource": "sandboxes"}, "what": "reset-after"}]),
    ("two reads of the Sandbox answer 500",
     [{"fault": {"verb": "get", "resource": "sandboxes"}, "what": "status-500", "times": 2}]),
]


class Double:
    def __init__(self, build):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-bench."))
        self.process = subprocess.Popen(
            ["/usr/bin/python3", str(ROOT / "tests/doubles/cluster/cluster.py"), "--directory",
             str(self.directory), "--pods", "process",
             "--agent", str(build / "programs/agent/sandbox-agent"),
             "--shim", str(build / "programs/shim/sandbox-shim.so")], stdin=subprocess.PIPE)
        while not (self.directory / "ready").exists():
            if self.process.poll() is not None:
                sys.exit("bench: the cluster double did not start")
            time.sleep(0.02)
        self.environment = {**os.environ, "KUBECONFIG": str(self.directory / "kubeconfig"),
                            "HOME": str(self.directory)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        shutil.rmtree(self.directory, ignore_errors=True)

    def tell(self, **asked):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.directory / "admin.sock"))
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as reader:
                answer = json.loads(reader.readline())
        if not answer["ok"]:
            sys.exit(f"bench: the double refused {asked}: {answer}")
        return answer

    def requests(self):
        return self.tell(do="state")["requests_total"]

    def run(self, *words, check=True):
        done = subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=PATIENCE, check=False)
        if check and done.returncode != 0:
            sys.exit(f"bench: {' '.join(map(str, words))} failed: {done.stderr[-2000:]}")
        return done


def numbers(text):
    found = {}
    for line in text.splitlines():
        name, value = line.split()
        found.setdefault(name, []).append(float(value))
    return found


def shown(seconds):
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# ---- times ----

def sleep_rows(build, python, rounds):
    own, columns = {}, []
    for words in ([str(build / "tests/bench/bench-gke"), URI], python and [python, str(UPSTREAM)]):
        if not words:
            columns.append({})
            continue
        with Double(build) as double:
            before = double.requests()
            found = numbers(double.run(*words, "sleep", str(rounds)).stdout)
            found["requests"] = [(double.requests() - before) / rounds]
            columns.append(found)
            own = own or double.tell(do="state")["own_seconds"]
    # What the double takes itself for what a client waits for.
    spent = {"create": own.get("create", [0]),
             "suspend": [sum(pair) for pair in zip(own["snapshot"], own["suspend"])],
             "resume": own["resume"]}
    rows = [["what", "ours", "the double's own time", "SDK of Agent Sandbox"]]
    for name in ("create", "suspend", "resume"):
        rows.append([name, shown(statistics.median(columns[0][name])),
                     shown(statistics.median(spent[name])),
                     shown(statistics.median(columns[1][name])) if columns[1] else ""])
    rows.append(["snapshots lost", f"0 of {rounds}", "",
                 f"{columns[1]['lost'][0]:.0f} of {rounds}" if columns[1] else ""])
    rows.append(["requests for a suspend and a resume", f"{columns[0]['requests'][0]:.0f}", "",
                 f"{columns[1]['requests'][0]:.0f}" if columns[1] else ""])
    return rows


def many_rows(build, python, claims):
    columns = []
    for words in ([str(build / "tests/bench/bench-gke"), URI], python and [python, str(UPSTREAM)]):
        if not words:
            columns.append(None)
            continue
        with Double(build) as double:
            before = double.requests()
            with subprocess.Popen([*words, "many", str(claims), str(WIDTH)], text=True,
                                  env=double.environment, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE) as process:
                lines = []
                while line := process.stdout.readline():
                    lines.append(line)
                    if line.startswith("made"):
                        break
                asked = double.requests() - before
                process.communicate("", timeout=PATIENCE)
            if process.returncode != 0:
                sys.exit("bench: the measurement of many workspaces failed")
        columns.append({**numbers("".join(lines)), "requests": [asked / claims]})
    kinds = [("half of them were there after", lambda one: shown(at(one["create"], 0.5))),
             ("99 of 100 were there after", lambda one: shown(at(one["create"], 0.99))),
             ("requests for each", lambda one: f"{one['requests'][0]:.1f}"),
             ("processor time for each", lambda one: f"{one['processor'][0] / claims * 1e3:.2f} ms"),
             ("memory of the process", lambda one: f"{one['memory-kib'][0] / 1024:.0f} MiB"),
             ("all of them took", lambda one: f"{one['all'][0]:.1f} s")]
    rows = [[f"{claims:,} workspaces, {WIDTH} at a time", "ours", "SDK of Agent Sandbox"]]
    return rows + [[name, *(one and show(one) or "" for one in columns)] for name, show in kinds]


def watched_rows(build, count):
    """Copies of one record: a workspace that nobody works in is that, and a handle."""
    with Double(build) as double:
        double.run(str(build / "programs/cli/sandbox"), "-u", URI, "create", "watched")
        one = double.tell(do="objects", resource="configmaps")["objects"][0]
        record = json.loads(one["data"]["record"])
        for number in range(count):
            name, made = f"watched-{number:05}", {**record, "id": f"{number:032x}"}
            double.tell(do="put", resource="configmaps", namespace="workspaces", object={
                "metadata": {"name": f"sandbox-record-{name}", "namespace": "workspaces",
                             "labels": {**one["metadata"]["labels"],
                                        "sandbox.users.io/workspace": made["id"]}},
                "data": {"record": json.dumps({**made, "name": name})}})
        done = double.run(str(build / "tests/bench/bench-gke"), URI, "watched", str(count))
    found = numbers(done.stdout)
    rows = [[f"{count:,} workspaces, held and listened to by one process", "found", "listed too"]]
    rows.append(["seconds", *(shown(found[what][0]) for what in ("found", "listed"))])
    rows.append(["memory of the process", *(f"{kib / 1024:.0f} MiB" for kib in found["memory-kib"])])
    return rows


def command_rows(build, rounds):
    kubectl, theirs = shutil.which("kubectl"), []
    with Double(build) as double:
        done = double.run(str(build / "tests/bench/bench-gke"), URI, "command", str(rounds * 4))
        ours = numbers(done.stdout)["command"]
        if kubectl:
            pod = double.run(kubectl, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
            for _ in range(rounds):
                began = time.monotonic()
                double.run(kubectl, "exec", pod.stdout, "-c", "workspace", "--", "/bin/true")
                theirs.append(time.monotonic() - began)
    return [["what", "ours", "kubectl exec"],
            ["/bin/true, first (the channel is made)", shown(ours[0]), ""],
            ["/bin/true", shown(statistics.median(ours[1:])),
             shown(statistics.median(theirs)) if theirs else ""]]


# ---- stories ----

class Ours:
    """The command, as anybody has it."""

    def __init__(self, build, double):
        self.double, self.words = double, [str(build / "programs/cli/sandbox"), "-u", URI]
        double.run(*self.words, "create", "story")
        claim = double.tell(do="objects", resource="sandboxclaims")["objects"][0]
        self.claim, self.pod = claim["metadata"]["name"], claim["status"]["sandbox"]["name"]

    def order(self, what):
        words = ["list"] if what == "attach" else [what, "story"]
        done = self.double.run(*self.words, *words, check=False)
        return {"success": done.returncode == 0, "restored": done.returncode == 0,
                "why": done.stderr.strip()}

    def end(self):
        pass


class Theirs:
    def __init__(self, python, double):
        self.process = subprocess.Popen([python, str(UPSTREAM), "story"], env=double.environment,
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        made = json.loads(self.process.stdout.readline())
        self.claim, self.pod = made["claim"], made["pod"]

    def order(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def mark(double, pod):
    """A process that only memory remembers, started by neither of the two."""
    double.run("kubectl", "exec", pod, "-c", "workspace", "--", "sh", "-c",
               f"setsid sleep {MARK} >/dev/null 2>&1 </dev/null &")


def is_marked(double, pod):
    done = double.run("kubectl", "exec", pod, "-c", "workspace", "--", "sh", "-c",
                      f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep [{MARK[0]}]"
                      f"{MARK[1:]}'", check=False)
    return done.returncode == 0


def order_trouble(double, client, trouble):
    """What is to be told to go on, and when."""
    later = []
    for one in trouble:
        asked = {key: value for key, value in one.items() if key not in ("go", "fault")}
        if "fault" in one:
            double.tell(do="fault", on=one["fault"], **asked)
            continue
        made = double.tell(do="behave", object=client.claim, **asked)
        if "go" in one:
            later.append((one["go"], made["id"]))
    return later


def go_on_later(double, later):
    """A helper process of its own, so that the orders to the clients may block."""
    for seconds, number in later:
        if os.fork() == 0:
            try:
                time.sleep(seconds)
                double.tell(do="behave", how="go", id=number)
            finally:
                os._exit(0)


def live_through(double, client, trouble):
    mark(double, client.pod)
    later = order_trouble(double, client, trouble)
    is_restore_trouble = any(one.get("how", "").startswith("condition") for one in trouble)
    requests, began = double.requests(), time.monotonic()
    if not is_restore_trouble:
        go_on_later(double, later)
    said = client.order("suspend")
    if said["success"]:
        if is_restore_trouble:
            go_on_later(double, later)
        resumed = client.order("resume")
        said = {**resumed, "at": "resume"}
    else:
        said["at"] = "suspend"
    took, asked = time.monotonic() - began, double.requests() - requests
    told = "it is back" if said["success"] and said.get("restored") else \
        "it is back, but cold" if said["success"] else f"{said['at']} failed"
    return told, took, asked


def truth(double, client, told):
    """Whether what was said is so. After a failure, the memory must be there still, or come back."""
    if is_marked(double, client.pod):
        return "right" if told in ("it is back", "suspend failed") else "false alarm"
    if told == "it is back":
        return "**untrue: memory is gone**"
    if told == "it is back, but cold":
        return "**memory is gone, told as success**"
    double.tell(do="clear")
    if client.order("resume")["success"] and is_marked(double, client.pod):
        return "right, and back at the next try"
    return "right, but **a cold Pod is in its place**"


def story_rows(build, python):
    rows = [["what happens", "ours", "s", "requests", "SDK of Agent Sandbox", "s", "requests"]]
    for title, trouble in STORIES:
        row = [title]
        for make in (lambda double: Ours(build, double),
                     python and (lambda double: Theirs(python, double))):
            if not make:
                row += ["", "", ""]
                continue
            with Double(build) as double:
                client = make(double)
                told, took, asked = live_through(double, client, trouble)
                row += [f"{told}: {truth(double, client, told)}", f"{took:.1f}", f"{asked}"]
                client.end()
        rows.append(row)
    return rows


def print_table(rows, markdown):
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip())
        if number == 0 and markdown:
            print("|" + " --- |" * len(row))
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description="Measure the library over a cluster double.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("rounds", type=int)
    parser.add_argument("claims", type=int)
    parser.add_argument("--watched", type=int, default=10000)
    parser.add_argument("--markdown", action="store_true")
    wanted = parser.parse_args()
    made = subprocess.run([ROOT / "tools/upstream-clients"], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
    python = made.stdout.strip() if made.returncode == 0 else ""
    if not python:
        print(f"bench: without the SDK of Agent Sandbox: {made.stderr.strip()}", file=sys.stderr)
    print_table(sleep_rows(wanted.build, python, wanted.rounds), wanted.markdown)
    print_table(command_rows(wanted.build, wanted.rounds), wanted.markdown)
    print_table(many_rows(wanted.build, python, wanted.claims), wanted.markdown)
    print_table(watched_rows(wanted.build, wanted.watched), wanted.markdown)
    if shutil.which("kubectl"):
        print_table(story_rows(wanted.build, python), wanted.markdown)


if __name__ == "__main__":
    main()
