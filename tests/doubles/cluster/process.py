"""Pods that run as plain processes, where there is no gVisor.

As root each has namespaces and a root directory of its own, so that all paths are those of a real
Pod. Without root the words of its command are led to its directories instead.

A snapshot is the processes themselves, stopped. So it can be restored once, and it is spent when
the Pod that it was taken of goes on: after its checkpoint a Pod stands still until somebody execs
into it. As long as its agent is still sealed with the same seal nothing has changed in it, and it
goes back to its snapshot when the Pod ends.
"""
import asyncio
import os
import shutil
import signal
import subprocess

import bodies
import health
from errors import ApiError

STOP_ROUNDS = 200
STOP_PAUSE = 0.002
LAUNCH_SECONDS = 10

LAUNCH = r"""set -e
base=$1 root=$2 volumes=$3 tools=$4 user=$5 group=$6 fsgroup=$7 place=$8 mounts=$9
shift 9
mount --bind "$base" "$root"
mount -o remount,bind,ro "$root"
for name in usr bin sbin lib lib32 lib64 libx32; do
    [ -d "/$name" ] && [ ! -L "/$name" ] || continue
    mount --bind "/$name" "$root/$name"
    mount -o remount,bind,ro "$root/$name"
done
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
for name in tmp run var/tmp; do mount -t tmpfs -o nosuid,nodev,mode=1777 none "$root/$name"; done
mount -t tmpfs -o nosuid,mode=755 none "$root/dev"
for name in null zero full random urandom tty; do
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 none "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
for mount in $mounts; do
    path=${mount%%=*} source=${mount#*=}
    mount --bind "$source" "$root$path"
done
mount -o remount,bind,ro "$root/sandbox/agent"
ip link set lo up
cd "$root"
exec chroot "$root" /usr/bin/setpriv --reuid "$user" --regid "$group" --groups "$fsgroup" \
    --bounding-set -all --inh-caps -all --no-new-privs \
    /bin/sh -c 'cd "$0" && exec "$@"' "$place" "$@"
"""


def state_of(pid):
    """(letter, parent), or None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        return fields[0].decode(), int(fields[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None


class ProcessBody(bodies.Body):
    can_freeze = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.lock = asyncio.Lock()
        self.process, self.first = None, None
        self.stopped = []  # by us
        self.sessions = set()
        self.images = []  # the snapshots whose memory this is
        self.seal = None  # what the agent said when they were taken
        self.has_network = bool(self.runner.is_root)

    async def start(self):
        """Goes on when the caller is cancelled: what it starts has to be found and ended."""
        async def begin():
            async with self.lock:
                await self._launch()
        await asyncio.shield(asyncio.ensure_future(begin()))

    async def _launch(self):
        if not os.path.isdir(self.volumes):
            bodies.make_volumes(self.volumes, self.pod)
        words = self._launch_words() if self.runner.is_root else self._plain(
            bodies.argv_of(self.container))
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd="/" if self.runner.is_root else self._plain([self._place()])[0],
                env=self._environment())
        asyncio.ensure_future(self._watch(self.process))
        self.first = await self._find_first()

    def _place(self):
        return self.container.get("workingDir") or "/"

    def _environment(self):
        values = bodies.environment_of(self.pod, self.container)
        if not self.runner.is_root:
            values = {key: self._plain([value])[0] for key, value in values.items()}
        return values

    def _launch_words(self):
        user, group = bodies.ids_of(self.pod, self.container)
        fs_group = (self.pod["spec"].get("securityContext") or {}).get("fsGroup", group)
        root = os.path.join(self.directory, "root")
        os.makedirs(root, exist_ok=True)
        mounts = []
        for path, volume, _ in bodies.mounts_of(self.pod, self.container):
            mounts.append(f"{path}={self.source(path, volume)}")
        return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--ipc",
                "--uts", "--fork", "--kill-child=KILL", "--propagation", "private",
                "/bin/sh", "-c", LAUNCH, "launch",
                self.runner.root, root, self.volumes, self.runner.tools, str(user), str(group),
                str(fs_group), self._place(), " ".join(mounts), *bodies.argv_of(self.container)]

    def _plain(self, words):
        """Without namespaces: paths of volumes lead into ours, names of sockets are ours too."""
        pairs = [(path, self.source(path, volume))
                 for path, volume, _ in bodies.mounts_of(self.pod, self.container)]
        found = []
        for word in words:
            for path, source in reversed(pairs):
                if word == path or word.startswith(path + "/"):
                    word = source + word[len(path):]
                    break
            if word.startswith("@"):
                word += "-" + os.path.basename(self.directory) + "-" + str(os.getpid())
            found.append(word)
        return found

    async def _find_first(self):
        """The first process inside, once it is what was asked for."""
        if not self.runner.is_root:
            return self.process.pid
        for _ in range(int(LAUNCH_SECONDS / STOP_PAUSE)):
            if self.process.returncode is not None:
                break
            for pid in self._children(self.process.pid):
                try:
                    inside = os.readlink(f"/proc/{pid}/root").startswith(self.directory)
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        words = file.read().split(b"\0")
                except OSError:
                    continue
                if inside and words[0] not in (b"/usr/bin/setpriv", b"chroot") and \
                        words[1:3] != [b"-c", b'cd "$0" && exec "$@"']:
                    return pid
            await asyncio.sleep(STOP_PAUSE)
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
        raise bodies.StartFailed(lines[-1] if lines else "the process did not start")

    @staticmethod
    def _children(pid):
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return [int(word) for word in file.read().split()]
        except OSError:
            return []

    async def _watch(self, process):
        code = await process.wait()
        self.finish(code if code >= 0 else 128 - code)

    # ---- stopping and going on ----

    def _members(self):
        """All processes of the Pod: of its namespace, or without one of its descent."""
        names = filter(str.isdigit, os.listdir("/proc"))
        if not self.runner.is_root:
            return self._descent([int(name) for name in names])
        found = []
        try:
            space = os.stat(f"/proc/{self.first}/ns/pid").st_ino
        except OSError:
            return []
        for name in names:
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == space:
                    found.append(int(name))
            except OSError:
                continue
        return found

    def _descent(self, pids):
        parents = {pid: (state_of(pid) or ("X", 0))[1] for pid in pids}
        found, waiting = [], [self.first]
        while waiting:
            found.append(waiting.pop())
            waiting += [pid for pid, parent in parents.items() if parent == found[-1]]
        return found

    async def _freeze(self):
        for _ in range(STOP_ROUNDS):
            running = [pid for pid in self._members() if (state_of(pid) or "X")[0] not in "TtZX"]
            if not running:
                return
            for pid in running:
                self._signal(pid, signal.SIGSTOP)
                if pid not in self.stopped:
                    self.stopped.append(pid)
            await asyncio.sleep(STOP_PAUSE)
        raise bodies.StartFailed("the processes of the Pod do not stop")

    def _thaw(self):
        for pid in reversed(self.stopped):
            self._signal(pid, signal.SIGCONT)
        self.stopped = []

    @staticmethod
    def _signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    # ---- exec ----

    async def exec(self, argv, stdin=True, tty=False):
        async with self.lock:
            if self.ended.done():
                raise ApiError(500, "container is not running")
            self._thaw()
            return await self._exec(argv, stdin)

    async def _exec(self, argv, stdin=True):
        user, group = bodies.ids_of(self.pod, self.container)
        if self.runner.is_root:
            words = ["nsenter", f"--target={self.first}", "--mount", "--pid", "--net", "--ipc",
                     "--uts", "--root", "--wd", "/usr/bin/setpriv", "--reuid", str(user),
                     "--regid", str(group), "--clear-groups", "--bounding-set", "-all",
                     "--inh-caps", "-all", "--no-new-privs", *argv]
        else:
            words = self._plain(argv)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env=self._environment(),
            cwd=None if self.runner.is_root else self._plain([self._place()])[0])
        self.sessions.add(process)
        asyncio.ensure_future(self._session_over(process))
        return process

    async def _session_over(self, process):
        await bodies.ended(process)
        self.sessions.discard(process)

    async def _end_sessions(self):
        for process in list(self.sessions):
            if process.stdin is not None and not process.stdin.is_closing():
                process.stdin.close()
        waits = [asyncio.ensure_future(process.wait()) for process in self.sessions]
        if waits:
            await asyncio.wait(waits, timeout=2)
        for process in list(self.sessions):
            self._kill_group(process)
        for wait in waits:
            await wait

    @staticmethod
    def _kill_group(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def _ask_agent(self):
        """(gate, epoch) of an agent that is sealed; None of any other, and of what is none."""
        words = bodies.argv_of(self.container)
        if "--socket" not in words:
            return None
        socket = words[words.index("--socket") + 1]
        process = await self._exec([bodies.AGENT + "/sandbox-agent", "relay", socket])
        try:
            said = await asyncio.wait_for(health.ask(process.stdout, process.stdin), 3)
        except (asyncio.TimeoutError, OSError, EOFError, asyncio.IncompleteReadError):
            said = None
        self._kill_group(process)
        await process.communicate()
        return said if said and said[0] == health.SEALED else None

    # ---- snapshots ----

    async def checkpoint(self, image):
        async with self.lock:
            if self.ended.done():
                raise bodies.StartFailed("container is not running")
            self._thaw()
            seal = await self._ask_agent()
            await self._end_sessions()
            if not (seal and seal == self.seal):
                self._lose_images()
            await self._freeze()
            self.seal, image.body = seal, self
            self.images.append(image)

    def _lose_images(self):
        """These processes have gone on since the snapshots were taken, or end now."""
        for image in self.images:
            if image.body is self:
                image.body = None
        self.images = []

    async def go_back(self):
        """Into its snapshots, if it is still what they hold. The Pod goes without it then."""
        async with self.lock:
            self.images = [image for image in self.images if image.body is self]
            if self.ended.done() or not self.images:
                return False
            if not self.stopped:
                seal = await self._ask_agent()
                await self._end_sessions()
                if not seal or seal != self.seal:
                    self._lose_images()
                    return False
                await self._freeze()
            return True

    async def continue_as(self, pod):
        """Its processes go on as those of another Pod."""
        async with self.lock:
            self.pod = pod
            self._thaw()

    async def stop(self, seconds=0):
        async with self.lock:
            if self.ended.done() or self.process is None:
                return
            for process in list(self.sessions):
                self._kill_group(process)
            if seconds and not self.stopped and self.first is not None:
                self._signal(self.first, signal.SIGTERM)
                await asyncio.wait([self.ended], timeout=seconds)
            if not self.ended.done():
                for pid in self._members():
                    self._signal(pid, signal.SIGKILL)
                self._kill_group(self.process)
            self._lose_images()
        await self.ended


class ProcessRunner(bodies.Runner):
    body = ProcessBody
    can_exec = True

    def __init__(self, cluster):
        super().__init__(cluster)
        self.is_root = os.geteuid() == 0 and shutil.which("unshare") and shutil.which("setpriv")
        self.tools = os.path.join(cluster.directory, "tools")
        self.root = os.path.join(cluster.directory, "root")
        bodies.make_tools(self.tools, self.options.agent, None)
        bodies.make_root(self.root, False, ["/sandbox/agent", "/sandbox/seal", "/sandbox/run"])
