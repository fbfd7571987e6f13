"""What runs under a Pod: the root file system, the volumes, and what is asked of any runner.

A body is the running side of one Pod's container. `gvisor.py` and `process.py` have the two real
ones; the one here is of Pods that are only objects.
"""
import asyncio
import glob
import os
import shutil
import stat

from errors import ApiError

AGENT = "/sandbox/agent"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = 1000

# Of the host's /etc; nothing here may hold a secret.
COPIED = ["alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf", "ld.so.cache",
          "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "mime.types", "terminfo",
          "protocols", "services", "os-release", "debian_version", "shells", "inputrc", "magic",
          "python3*", "perl"]
DIRECTORIES = {"etc": 0o755, "usr": 0o755, "var": 0o755, "var/tmp": 0o1777, "var/lib": 0o755,
               "var/cache": 0o755, "var/log": 0o755, "home": 0o755, "home/sandbox": 0o755,
               "root": 0o700, "run": 0o755, "tmp": 0o1777, "opt": 0o755, "mnt": 0o755, "srv": 0o755,
               "proc": 0o555, "sys": 0o555, "dev": 0o755, "workspace": 0o755, "sandbox": 0o755}


class StartFailed(Exception):
    """A container that could not be started; the text is the runtime's."""


def container_of(pod, name=""):
    containers = pod["spec"].get("containers") or []
    for container in containers:
        if container["name"] == name or not name:
            return container
    raise ApiError(400,
                   f"container {name} is not valid for pod {pod['metadata']['name']}")


def argv_of(container):
    return list(container.get("command") or []) + list(container.get("args") or [])


def environment_of(pod, container):
    values = {"PATH": PATH, "HOSTNAME": pod["metadata"]["name"], "HOME": "/"}
    for variable in container.get("env") or []:
        values[variable["name"]] = variable.get("value") or ""
    return values


def ids_of(pod, container):
    """The user and group that a container runs as."""
    context = dict(pod["spec"].get("securityContext") or {})
    context.update(container.get("securityContext") or {})
    user = context.get("runAsUser", 0)
    return user, context.get("runAsGroup", user if user else 0)


def mounts_of(pod, container):
    """[(path, volume's name, read-only)], outer ones first."""
    mounts = [(mount["mountPath"].rstrip("/"), mount["name"], bool(mount.get("readOnly")))
              for mount in container.get("volumeMounts") or []]
    return sorted(mounts)


def make_root(root, with_shim, mount_points=()):
    """A root file system around the host's programs: /usr is mounted, /etc is made."""
    for path, mode in DIRECTORIES.items():
        os.makedirs(os.path.join(root, path), exist_ok=True)
        os.chmod(os.path.join(root, path), mode)
    for path in mount_points:
        os.makedirs(root + path, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name).lstrip("/"), os.path.join(root, name))
        elif os.path.isdir("/" + name):
            os.makedirs(os.path.join(root, name))
    for pattern in COPIED:
        for source in glob.glob("/etc/" + pattern):
            _copy(source, os.path.join(root, source[1:]))
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    texts = {
        "passwd": f"root:x:0:0:root:/root:{shell}\n"
                  f"sandbox:x:{USER}:{USER}:sandbox:/home/sandbox:{shell}\n"
                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\nsandbox:x:{USER}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n", "hostname": "sandbox\n",
        "resolv.conf": "", "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "profile": f"export PATH={PATH}\numask 022\n"}
    if with_shim:
        texts["ld.so.preload"] = AGENT + "/sandbox-shim.so\n"
    for name, text in texts.items():
        with open(os.path.join(root, "etc", name), "w", encoding="ascii") as file:
            file.write(text)


def _copy(source, target):
    try:
        facts = os.lstat(source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if stat.S_ISLNK(facts.st_mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISDIR(facts.st_mode) and facts.st_mode & 0o5 == 0o5:
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                _copy(os.path.join(source, name), os.path.join(target, name))
        elif stat.S_ISREG(facts.st_mode) and facts.st_mode & 0o4:
            shutil.copy2(source, target)
    except OSError:
        pass  # it is not for everybody, or it vanished


def make_tools(directory, agent, shim):
    """What the init container of a pool's Pods would put into their volume."""
    os.makedirs(directory, exist_ok=True)
    for source, name in ((agent, "sandbox-agent"), (shim, "sandbox-shim.so")):
        if source:
            shutil.copy(source, os.path.join(directory, name))
            os.chmod(os.path.join(directory, name), 0o755)


def make_volumes(directory, pod):
    """An empty directory for each volume, as kubelet makes it."""
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    for volume in pod["spec"].get("volumes") or []:
        path = os.path.join(directory, volume["name"])
        os.makedirs(path, exist_ok=True)
        if os.geteuid() == 0 and group is not None:
            os.chown(path, 0, group)
        os.chmod(path, 0o2777 if group is not None else 0o777)


async def copy_tree(source, target):
    process = await asyncio.create_subprocess_exec(
        "cp", "-a", "--reflink=auto", "--", source, target, stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise StartFailed(errors.decode(errors="replace").strip())


async def ended(process):
    """Waits for a process. That its input broke is nobody's concern then."""
    await process.wait()
    if process.stdin is not None:
        process.stdin.close()
        try:
            await process.stdin.wait_closed()
        except OSError:
            pass


class Body:
    """Of a Pod that is only an object; and what the real ones have in common."""

    has_network = False  # that can be reached from outside
    can_freeze = False  # its processes themselves are the snapshot

    def __init__(self, runner, pod, container, directory):
        self.runner, self.pod, self.container, self.directory = runner, pod, container, directory
        self.volumes = os.path.join(directory, "volumes")
        self.ended = asyncio.get_running_loop().create_future()  # the exit code
        self.holder = None  # the Pod that it runs in

    def source(self, path, volume):
        """Of a mount: what our init container would have filled is ready made."""
        return self.runner.tools if path == AGENT else os.path.join(self.volumes, volume)

    async def start(self):
        pass

    async def exec(self, argv, stdin=True, tty=False):
        raise ApiError(500, "the double runs with --pods none: nothing is in this Pod")

    async def checkpoint(self, image):
        pass

    async def restore(self, image):
        pass

    async def stop(self, seconds=0):
        """Ends it: asked first, where there are seconds left for it."""
        self.finish(137)

    def finish(self, code):
        if not self.ended.done():
            self.ended.set_result(code)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


class Runner:
    """Makes bodies."""

    body = Body
    can_exec = False

    def __init__(self, cluster):
        self.options, self.count = cluster.options, 0
        self.directory = os.path.join(cluster.directory, "bodies")
        os.makedirs(self.directory, exist_ok=True)
        os.chmod(self.directory, 0o755)

    def make(self, pod, volumes=None):
        """Volumes: of a body that goes on in this Pod after its container has ended."""
        self.count += 1
        directory = os.path.join(self.directory, str(self.count))
        os.makedirs(directory)
        body = self.body(self, pod, container_of(pod), directory)
        if volumes and os.path.isdir(volumes):
            os.rename(volumes, body.volumes)
        return body
