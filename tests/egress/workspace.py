"""A workspace of the command's, whose proxy the library starts in the world's inner namespace."""

import copy
import json
import os
import secrets
import shutil
import subprocess

from world import PATIENCE, RESOLVER, await_true

CLI = os.environ.get("SANDBOX_CLI", "")
LONG = 6 * PATIENCE


class Workspace:
    """One on real gVisor, in a state directory of its own."""

    def __init__(self, network, directory, runsc, options=()):
        self.network, self.directory, self.runsc = network, directory, runsc
        self.state = directory / "st"
        (self.state / "egress").mkdir(parents=True, mode=0o700)
        (self.state / "egress" / "options").write_text(
            "# for the proxy\n\n" + "".join(word + "\n" for word in options), encoding="ascii")
        self.uri = f"gvisor:{self.state}?runsc={runsc}"
        self.name = f"w{secrets.token_hex(3)}"

    def run(self, *words, code=0, given=None):
        """The command; `code` is how it must end."""
        line = self.network.command(CLI, *words) if self.network else [CLI, *words]
        done = subprocess.run(line, input=given, capture_output=True, timeout=LONG,
                              env={**os.environ, "SANDBOX_URI": self.uri}, check=False)
        assert code is None or done.returncode == code, (words, done)
        return done

    def json(self, *words):
        return json.loads(self.run("--json", *words).stdout)

    def inside(self, line, *words, code=0):
        """A shell's line, inside."""
        return self.run("exec", *words, self.name, "-c", line, code=code)

    def put(self, path, to):
        self.run("cp", str(path), f"{self.name}:{to}")

    def proxies(self):
        """The processes that belong to this state directory."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            kind = line[0].rsplit(b"/", 1)[-1].decode()
            if kind.startswith("sandbox-egress-") and str(self.state).encode() in b"\0".join(line):
                found.setdefault(kind, []).append(int(name))
        return found

    def beside(self):
        """Another one in the same state directory."""
        other = copy.copy(self)
        other.name = f"w{secrets.token_hex(3)}"
        return other

    def end(self):
        """With all that belongs to the state directory."""
        self.run("delete", self.name, code=None)
        for number in self.proxies().get("sandbox-egress-proxy", []):
            os.kill(number, 15)
        await_true(lambda: not self.proxies(), "the end of the proxy and its carriers")
        shutil.rmtree(self.directory, ignore_errors=True)


def in_world(world, authority, runsc):
    directory = world.directory / secrets.token_hex(3)
    return Workspace(world.inside, directory, runsc,
                     [f"--resolver={RESOLVER}", f"--ca-file={authority.bundle}"])
