"""In the machine's own network: npm installs a real package in a workspace whose only way out is
the registry's host, and fails with a reason where it is not allowed. Ends with 77 where there is no
registry, no npm or no gVisor."""

import ipaddress
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse

from workspace import Workspace

PACKAGE = "is-number"


def give_up(why):
    print(why)
    sys.exit(77)


def registry():
    if shutil.which("npm") is None:
        give_up("there is no npm")
    address = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True,
                             timeout=60, check=False).stdout.strip()
    url = urllib.parse.urlsplit(address)
    if url.scheme != "https" or url.port not in (None, 443):
        give_up("the registry is not reached over HTTPS on port 443")
    found = subprocess.run(["npm", "view", PACKAGE, "version"], capture_output=True, timeout=120,
                           check=False)
    if found.returncode != 0:
        give_up("the registry does not answer")
    return url.hostname


def main():
    runsc = os.environ.get("SANDBOX_RUNSC") or shutil.which("runsc")
    if runsc is None:
        give_up("there is no runsc")
    host = registry()
    address = ipaddress.ip_address(socket.gethostbyname(host))
    # A mirror in the own network is what the operator would permit.
    permits = [] if address.is_global else [f"--permit={address}/{address.max_prefixlen}"]
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-npm."))
    workspace = Workspace(None, directory, runsc, permits)
    trust = os.environ.get("NODE_EXTRA_CA_CERTS")
    words = ["-e", f"NODE_EXTRA_CA_CERTS={trust}"] if trust else []
    install = (f"mkdir -p p && cd p && npm install --no-audit --no-fund --fetch-retries=0 {PACKAGE}"
               " 2>&1")
    try:
        workspace.run("create", "--allow", "other.example", workspace.name)
        refused = workspace.inside(install, *words, code=None)
        assert refused.returncode != 0 and b"403" in refused.stdout, refused
        log = workspace.json("egress", "log", workspace.name)
        assert log and log[0]["reason"] == "host-not-allowed" and log[0]["host"] == host, log
        workspace.run("egress", "allow", workspace.name, host)
        done = workspace.inside(install, *words)
        assert b"added 1 package" in done.stdout, done
        used = workspace.inside(f"cd p && node -p 'require(\"{PACKAGE}\")(5)'")
        assert used.stdout == b"true\n", used
    finally:
        workspace.end()


main()
