#!/usr/bin/python3
"""Measure the Python binding beside the peers of the registry: import, memory, cost of a call.

    tests/bench/python_binding.py [--rounds N] [--folder DIR]

Makes an environment in DIR (default build/bench-python), installs this tree and the packages e2b and
k8s-agent-sandbox there, and measures all three in turns: the time of the import in a fresh interpreter
and the memory after it, both over those of an interpreter that imports nothing; then calls.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = {"libsandbox": "libsandbox", "e2b": "e2b", "k8s-agent-sandbox": "k8s_agent_sandbox"}
LOADED = """
import os, resource, sys, time
begin = time.perf_counter()
{}
took = time.perf_counter() - begin
kib = int(next(l for l in open("/proc/self/smaps_rollup") if l.startswith("Pss:")).split()[1])
print(took * 1000, kib, len(sys.modules))
"""
CALLS = """
import sys, timeit, libsandbox, _libsandbox
def best(call, number=200000):
    return min(timeit.repeat(call, number=number, repeat=9)) / number * 1e9
with libsandbox.Client(sys.argv[1]) as client, client.create_workspace(temporary=True) as made:
    empty = best(lambda: None)
    print("workspace.name", best(lambda: made.name) - empty)
    print("client.can(word)", best(lambda: client.can("keep-memory")) - empty)
    print("_libsandbox.version()", best(_libsandbox.version))
    cancel = libsandbox.Cancel()
    cancel.trigger()
    def refused():
        try:
            made.measure(timeout=1, cancel=cancel)
        except libsandbox.Cancelled:
            pass
    print("a call that waits, cancelled at once, with its exception", best(refused, 20000) - empty)
    def round_trip():
        made.measure()
    print("a round trip to the agent", best(round_trip, 300))
"""


def run(*words, **options):
    found = subprocess.run(words, text=True, capture_output=True, check=False, **options)
    if found.returncode != 0:
        sys.exit(f"'{' '.join(map(str, words))}' failed:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return found.stdout


def prepare(folder):
    python = folder / "bin/python"
    if not python.exists():
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "-q", "e2b", "k8s-agent-sandbox")
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", ROOT)
    return python


def loaded(python, statement):
    took, kib, modules = run(python, "-c", LOADED.format(statement)).split()
    return float(took), int(kib), int(modules)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench-python")
    given = parser.parse_args()
    python = prepare(given.folder)
    names = ["nothing", *PEERS]
    figures = {name: [] for name in names}
    for turn in range(given.rounds + 1):
        for name in names:
            figure = loaded(python, f"import {PEERS[name]}" if name in PEERS else "pass")
            if turn > 0:  # the first one compiles
                figures[name].append(figure)
    middle = {name: [statistics.median(column) for column in zip(*rows)]
              for name, rows in figures.items()}
    ours = middle["libsandbox"]
    print("| import | ms | times ours | MiB over bare | times ours | modules |\n"
          "| --- | --- | --- | --- | --- | --- |")
    bare = middle["nothing"]
    for name in PEERS:
        took, kib, modules = middle[name]
        print(f"| {name} | {took:.1f} | {took / ours[0]:.1f} | {(kib - bare[1]) / 1024:.1f} | "
              f"{(kib - bare[1]) / (ours[1] - bare[1]):.1f} | {modules - bare[2]:.0f} |")
    with tempfile.TemporaryDirectory(prefix="sandbox-bench.") as place:
        os.chmod(place, 0o711)
        out = run(python, "-c", CALLS, f"memory:{place}/socket")
        for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if place.encode() in entry.read_bytes():
                    os.kill(int(entry.parent.name), 15)
            except OSError:
                pass
    print("\n| call | ns over an empty one |\n| --- | --- |")
    for line in out.splitlines():
        name, _, ns = line.rpartition(" ")
        print(f"| {name} | {float(ns):,.0f} |")


if __name__ == "__main__":
    main()
