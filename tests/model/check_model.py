"""Runs doc/model/lifecycle.pml through spin: what must hold, what must be reached, what must fail.

    check_model.py MODEL MAKE_STATES TRANSITIONS WORK_DIRECTORY [--long]

Each run is a folder of its own in WORK_DIRECTORY; where something fails, the trail is there.
SANDBOX_MODEL_LONG=1 is the same as --long. Exit code 77: spin is not installed.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ONE = ["MISHAPS=2"]
# Of two owners a dead one is one that is never scheduled again.
TWO = ["OWNERS=2", "DEATHS=0", "LOST_ANSWERS=0", "TURNS=2", "BEGIN_RUNNING=1", "MAY_CREATE=0"]
STAYS = ["TAKE_ENDS=0"]
ONLY_SUSPEND = ["MAY_DELETE=0", "MAY_CHECKPOINT=0"]
ONLY_CHECKPOINT = ["MAY_DELETE=0", "MAY_SUSPEND=0"]

# What must hold: what it is, and its size.
HOLDS = {
    "one owner that dies": [*ONE, "TURNS=4"],
    "one owner that dies; a snapshot leaves the instance sealed": [*ONE, "TURNS=4", *STAYS],
    "two owners: suspend, resume, restart; two mishaps": [*TWO, *ONLY_SUSPEND, "MISHAPS=2"],
    "two owners: suspend, resume, restart; sealed": [*TWO, *ONLY_SUSPEND, *STAYS],
    "two owners: suspend, resume, restart; lost answers": [*TWO, *ONLY_SUSPEND, "LOST_ANSWERS=1"],
    "two owners: delete against everything": [*TWO, "MAY_CHECKPOINT=0"],
    "two owners: checkpoint": [*TWO, *ONLY_CHECKPOINT, "MISHAPS=0"],
}
HOLDS_LONG = {
    "two owners: delete against everything; sealed": [*TWO, "MAY_CHECKPOINT=0", *STAYS],
    "two owners: checkpoint; sealed": [*TWO, *ONLY_CHECKPOINT, *STAYS],
    "one owner, five operations": [*ONE, "TURNS=5"],
    "one owner, five operations; sealed": [*ONE, "TURNS=5", *STAYS],
    "two owners: checkpoint; a mishap": [*TWO, *ONLY_CHECKPOINT],
    "two owners: everything; sealed": [*TWO, *STAYS],
}
# What must fail, since otherwise the model would not notice: what is left out, and where it shows.
MUTATIONS = {
    "no fence": [*TWO, *ONLY_SUSPEND, "FENCED=0"],
    "the lease outlives the seal": [*ONE, "TURNS=4", "SEAL_ENDS_LEASE=0"],
    "opened without comparing the hash": [*ONE, "TURNS=4", "HASH_COMPARED=0"],
    "fresh memory over the right files is taken for the same": [*ONE, "TURNS=4", "MEMORY_ASKED=0"],
    "released before it is verified": [*ONE, "TURNS=4", *STAYS, "VERIFIED_FIRST=0"],
    "a snapshot restored over interrupted files": [*ONE, "TURNS=4", "TREE_KEPT_FIRST=0"],
    "a taker forgets the step": [*ONE, "TURNS=4", *STAYS, "BEGIN_RUNNING=1",
                                "RETAKEN_FROM_STEP=0"],
    "a taker does not tell the agent its epoch": [*TWO, *ONLY_SUSPEND, "TAKER_PROVES=0"],
    "a blocked instance that may hold work is replaced": [*ONE, "TURNS=4", "BLOCKED_IS_JUDGED=0"],
    "the gate is opened again without a word in the record": [*ONE, "TURNS=4", *STAYS,
                                                              "REOPEN_NOTED=0"],
    "an instance lost after its Open is forgotten": [*ONE, "TURNS=4", "GONE_IS_ASKED=0"],
}
REACHES = [*ONE, "TURNS=4"]

FAILED = re.compile(r"^pan:\d+: (.*)$", re.MULTILINE)
ERRORS = re.compile(r"errors: (\d+)")
STORED = re.compile(r"([\d.e+]+) states, stored")
MEMORY_MIB = 2500
SECONDS = 3000


def run(command: list[str], folder: pathlib.Path) -> str:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=SECONDS, check=False)
    text = done.stdout.decode("utf-8", "replace").replace("\0", "")
    if done.returncode != 0 and command[0] != "./pan":
        raise RuntimeError(f"{' '.join(command)}: {text[-2000:]}")
    return text


class Checker:
    def __init__(self, model: str, make_states: str, transitions: str, work: str, long: bool) -> None:
        self.long = long
        self.model = pathlib.Path(model).resolve()
        self.work = pathlib.Path(work).resolve()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.states = subprocess.run([sys.executable, make_states, transitions], check=True,
                                     stdout=subprocess.PIPE, text=True).stdout
        text = self.model.read_text(encoding="utf-8")
        self.properties = re.findall(r"assert\((\w+) \|\|", text)
        self.reaches = re.findall(r"^ltl (reach_\w+)", text, re.MULTILINE)
        self.steps = set(re.findall(r'^  "(\w+ \w+ [\w-]+)",$', self.states, re.MULTILINE))
        self.taken: set[str] = set()
        self.count = self.bad = 0

    def build(self, sizes: list[str], flags: list[str]) -> pathlib.Path:
        name = "-".join(sizes).replace("=", "")
        folder = self.work / f"{name}{''.join(flags)}"
        folder.mkdir()
        (folder / "states.pml").write_text(self.states, encoding="utf-8")
        shutil.copy(self.model, folder / "lifecycle.pml")
        run(["spin", *[f"-D{size}" for size in sizes], "-a", "lifecycle.pml"], folder)
        run(["cc", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", *flags, "-o", "pan", "pan.c"],
            folder)
        return folder

    def name_of(self, said: str) -> str:
        match = FAILED.search(said)
        if match is None:
            return "nothing"
        for name in self.properties:
            if re.search(rf"\b{name}\b", match.group(1)):
                return name
        return match.group(1)[:80]

    def say(self, good: bool, text: str) -> None:
        self.count += 1
        self.bad += not good
        print(("ok: " if good else "FAILED: ") + text, flush=True)

    def hold(self, what: str, sizes: list[str]) -> None:
        # Of a few million states optimizing takes longer than it saves.
        folder = self.build(sizes, ["-O2" if self.long else "-O0", "-DNOCLAIM"])
        began = time.monotonic()
        said = run(["./pan", "-m100000", "-w24"], folder)
        errors, stored = ERRORS.search(said), STORED.search(said)
        self.taken |= set(re.findall(r"^taken: (.*)$", said, re.MULTILINE))
        # A search that was cut off has proven nothing.
        whole = not re.search(r"not completed|max search depth too small|out of memory", said)
        if errors is None or stored is None or not whole or errors.group(1) != "0":
            self.say(False, f"{what}: {self.name_of(said)}; see 'spin -t -p -g "
                            f"{' '.join('-D' + size for size in sizes)} lifecycle.pml' in {folder}")
            return
        self.say(True, f"{what}: all {len(set(self.properties))} properties hold in "
                       f"{int(float(stored.group(1))):,} states ({time.monotonic() - began:.0f} s)")

    def reach(self) -> None:
        folder = self.build(REACHES, ["-O0"])
        for name in self.reaches:
            said = run(["./pan", "-m100000", "-w22", "-N", name], folder)
            errors = ERRORS.search(said)
            found = errors is not None and errors.group(1) != "0" and "never claim" in said
            self.say(found, f"{name} is {'reached' if found else 'not reached: the model is empty there'}")

    def mutate(self, what: str, sizes: list[str]) -> None:
        folder = self.build(sizes, ["-O0", "-DNOCLAIM"])
        said = run(["./pan", "-m100000", "-w22"], folder)
        name = self.name_of(said)
        self.say(name in self.properties, f"{what}: found by {name}")

    def cover(self) -> None:
        missed = sorted(self.steps - self.taken)
        self.say(not missed, f"{len(self.steps) - len(missed)} of the {len(self.steps)} steps of the "
                             f"table are taken{'; not: ' if missed else ''}{', '.join(missed)}")


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--long"]
    if len(arguments) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("spin") is None:
        print("spin is not installed: apt-get install spin")
        return 77
    long = "--long" in sys.argv or os.environ.get("SANDBOX_MODEL_LONG", "") not in ("", "0")
    checker = Checker(*arguments, long)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(checker.hold, what, sizes)
                for what, sizes in {**HOLDS, **(HOLDS_LONG if long else {})}.items()]
        jobs += [pool.submit(checker.reach)]
        jobs += [pool.submit(checker.mutate, what, sizes) for what, sizes in MUTATIONS.items()]
        for job in jobs:
            job.result()
    checker.cover()
    if checker.bad == 0:
        shutil.rmtree(checker.work)
    # As Check says it, for tools/summarize-tests.
    print(f"{100 * (checker.count - checker.bad) // checker.count}%: Checks: {checker.count}, "
          f"Failures: {checker.bad}, Errors: 0")
    return 1 if checker.bad else 0


if __name__ == "__main__":
    sys.exit(main())
