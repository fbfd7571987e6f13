"""Pods that run in gVisor: a snapshot is a checkpoint of runsc and a copy of the volumes.

The runsc of 2022 ends a sandbox by its checkpoint, so what goes on after one is restored from it at
once, or when somebody asks for it. Its pipes are never read to their end (the sandbox inherits
them), and no exec session is open while a checkpoint is made: they are ended first.
"""
import asyncio
import json
import os
import re
import signal
import subprocess

import bodies
from errors import ApiError

PRELOADED_BEFORE = 20260101  # a runsc that old needs the library that is preloaded
SYSTRAP_RIPE = 20230501
COMPRESSED_BEFORE = 20260101
SESSION_SECONDS = 2
THAW_SECONDS = 0.3
START_SECONDS = 60
GUARDIAN = 'cat >/dev/null; for file in "$1"/*/pid; do kill -KILL "$(cat "$file")"; done'


class GvisorBody(bodies.Body):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.number, self.name, self.pid = 0, None, None
        self.lock = asyncio.Lock()
        self.sessions = {}
        self.frozen = None  # the image that it goes on from
        self.thawing = None
        self.errors = os.path.join(self.directory, "errors")

    # ---- starting ----

    async def start(self):
        if not os.path.isdir(self.volumes):
            bodies.make_volumes(self.volumes, self.pod)
        await self._begin(["run", "--detach"])

    async def restore(self, image):
        await bodies.copy_tree(os.path.join(image.directory, "volumes"), self.volumes)
        await self._begin(["restore", "--detach", "--image-path", image.directory + "/image"])

    async def _begin(self, words):
        """Goes on when the caller is cancelled: what it starts has to be found and ended."""
        async def begin():
            async with self.lock:
                await self._launch(words)
        await asyncio.shield(asyncio.ensure_future(begin()))

    async def _launch(self, words):
        self.number += 1
        self.name = f"{self.runner.prefix}-{os.path.basename(self.directory)}-{self.number}"
        bundle = os.path.join(self.directory, "bundle")
        os.makedirs(bundle, exist_ok=True)
        with open(bundle + "/config.json", "w", encoding="utf-8") as file:
            json.dump(self._configuration(), file)
        pid_file = os.path.join(self.directory, "pid")
        code = await self._runsc(words + ["--bundle", bundle, "--pid-file", pid_file, self.name])
        if code != 0:
            raise bodies.StartFailed(self._last_words())
        with open(pid_file, encoding="ascii") as file:
            self.pid = int(file.read())
        self._watch(self.pid)

    def _watch(self, pid):
        loop = asyncio.get_running_loop()
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            self.finish(137)
            return

        def over():
            loop.remove_reader(watched)
            os.close(watched)
            if self.pid == pid:
                os.unlink(os.path.join(self.directory, "pid"))
                self.pid = None
                self.finish(137)  # runsc does not know the code of a sandbox that has ended
        loop.add_reader(watched, over)

    def _configuration(self):
        user, group = bodies.ids_of(self.pod, self.container)
        fs_group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup")
        plain, shared = ["nosuid", "nodev"], ["nosuid", "nodev", "mode=1777"]
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc", "options": plain},
                  {"destination": "/sys", "type": "sysfs", "source": "sysfs",
                   "options": ["ro"] + plain},
                  {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs",
                   "options": shared},
                  {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": shared}]
        for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if os.path.isdir("/" + name) and not os.path.islink("/" + name):
                mounts.append({"destination": "/" + name, "type": "bind", "source": "/" + name,
                               "options": ["rbind", "ro", "nodev"]})
        for path, volume, fixed in bodies.mounts_of(self.pod, self.container):
            mounts.append({"destination": path, "type": "bind", "source": self.source(path, volume),
                           "options": ["rbind", "ro" if fixed else "rw"] + plain})
        context = self.container.get("securityContext") or {}
        environment = bodies.environment_of(self.pod, self.container)
        return {
            "ociVersion": "1.0.2", "hostname": self.pod["metadata"]["name"],
            "root": {"path": self.runner.root,
                     "readonly": bool(context.get("readOnlyRootFilesystem"))},
            "process": {"terminal": False, "noNewPrivileges": True,
                        "user": {"uid": user, "gid": group,
                                 "additionalGids": [fs_group] if fs_group is not None else []},
                        "args": bodies.argv_of(self.container) or ["/bin/sh"],
                        "env": [f"{key}={value}" for key, value in environment.items()],
                        "cwd": self.container.get("workingDir") or "/",
                        "capabilities": {}, "rlimits": [
                            {"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 65536}]},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in
                                     ("pid", "ipc", "uts", "mount", "network")]}}

    # ---- runsc ----

    async def _runsc(self, words, seconds=START_SECONDS):
        with open(self.errors, "wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *self.runner.words, *words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        try:
            return await asyncio.wait_for(process.wait(), seconds)
        except asyncio.TimeoutError:
            process.kill()
            return await process.wait()

    def _last_words(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1] if lines else "runsc left no message"

    # ---- exec ----

    async def exec(self, argv, stdin=True, tty=False):
        async with self.lock:
            await self._thaw()
            if self.pid is None:
                raise ApiError(500, "container is not running")
            user, group = bodies.ids_of(self.pod, self.container)
            words = self.runner.words + ["exec", f"--user={user}:{group}",
                                         "--cwd=" + (self.container.get("workingDir") or "/")]
            for key, value in bodies.environment_of(self.pod, self.container).items():
                words.append(f"--env={key}={value}")
            number = len(self.sessions) and max(self.sessions) + 1
            inside = os.path.join(self.directory, f"exec-{number}")
            process = await asyncio.create_subprocess_exec(
                *words, "--internal-pid-file", inside, self.name, *argv,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.sessions[number] = process
        asyncio.ensure_future(self._session_over(number, process, inside))
        return process

    async def _session_over(self, number, process, inside):
        await bodies.ended(process)
        self.sessions.pop(number, None)
        if os.path.exists(inside):
            os.unlink(inside)

    async def _end_sessions(self):
        """What is attached would make the image useless."""
        open_ones = list(self.sessions.items())
        for _, process in open_ones:
            if process.stdin is not None and not process.stdin.is_closing():
                process.stdin.close()
        waits = [asyncio.ensure_future(process.wait()) for _, process in open_ones]
        if waits:
            await asyncio.wait(waits, timeout=SESSION_SECONDS)
        for number, process in open_ones:
            if process.returncode is None:
                inside = os.path.join(self.directory, f"exec-{number}")
                if os.path.exists(inside):
                    with open(inside, encoding="ascii") as file:
                        await self._runsc(["kill", "-pid", file.read().strip(), self.name, "KILL"])
        for wait in waits:
            await wait

    # ---- checkpoint ----

    async def checkpoint(self, image):
        """Ends it for a moment; `frozen` until somebody or the clock lets it go on."""
        async with self.lock:
            await self._thaw()
            if self.pid is None:
                raise bodies.StartFailed("container is not running")
            await self._end_sessions()
            os.unlink(os.path.join(self.directory, "pid"))
            self.pid = None  # its end is no event now
            words = ["checkpoint", "--image-path", image.directory + "/image"]
            if not self.runner.is_compressed:
                words.append("--compression=none")
            if await self._runsc(words + [self.name], seconds=600) != 0:
                text = self._last_words()
                self.finish(128)
                raise bodies.StartFailed(text)
            await bodies.copy_tree(self.volumes, image.directory + "/volumes")
            self.frozen = image.directory + "/image"
            self.thawing = asyncio.ensure_future(self._thaw_later(self.frozen))

    async def _thaw_later(self, image):
        await asyncio.sleep(THAW_SECONDS)
        async with self.lock:
            if self.frozen == image:
                await self._thaw()

    async def _thaw(self):
        if self.frozen is None:
            return
        image, self.frozen = self.frozen, None
        try:
            await self._launch(["restore", "--detach", "--image-path", image])
        except bodies.StartFailed:
            self.finish(128)

    # ---- the end ----

    async def stop(self, seconds=0):
        async with self.lock:
            self.frozen = None
            if self.pid is None:
                self.finish(137)
                return
            if seconds:
                await self._runsc(["kill", self.name, "TERM"])
                await asyncio.wait([self.ended], timeout=seconds)
            if self.pid is not None:
                try:
                    os.kill(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        await self.ended


class GvisorRunner(bodies.Runner):
    body = GvisorBody
    can_exec = True

    def __init__(self, cluster):
        super().__init__(cluster)
        runsc = self.options.runsc or "runsc"
        version = subprocess.run([runsc, "--version"], capture_output=True, text=True,
                                 check=True).stdout
        found = re.search(r"20[12]\d{5}", version)
        date = int(found.group()) if found else 99999999
        platform = os.environ.get("SANDBOX_RUNSC_PLATFORM") or \
            ("ptrace" if date < SYSTRAP_RIPE else "systrap")
        self.is_compressed = date < COMPRESSED_BEFORE
        self.prefix = f"double-{os.getpid()}"
        self.tools = os.path.join(cluster.directory, "tools")
        self.root = os.path.join(cluster.directory, "root")
        needs_shim = date < PRELOADED_BEFORE and bool(self.options.shim)
        bodies.make_tools(self.tools, self.options.agent, self.options.shim if needs_shim else None)
        bodies.make_root(self.root, needs_shim, ["/sandbox/agent", "/sandbox/seal", "/sandbox/run"])
        # Sandboxes do not end with us by themselves: this does it where we are killed.
        self.guardian = subprocess.Popen(
            ["/bin/sh", "-c", GUARDIAN, "guardian", self.directory], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.words = [runsc, "--root=" + os.path.join(cluster.directory, "runsc"),
                      "--log=" + os.path.join(cluster.directory, "runsc.log"), "--log-format=json",
                      "--platform=" + platform, "--network=none", "--ignore-cgroups",
                      "--overlay2=root:memory"]
