"""Clients, workspaces, ports, and what is asked of neither."""

import _libsandbox

from . import _wait
from ._errors import Closed
from ._files import Events, Files, Stream
from ._process import Process, what
from ._wait import Clock, Handle, how


def version():
    """The library's version, 'MAJOR.MINOR.PATCH'."""
    return _libsandbox.version()


def doctor(uri=None, *, save=None, from_=None, timeout=None, cancel=None):
    """Look at a platform without opening it: a list of Finding, each with its remedy.

    A finding of severity 'problem' says that no workspace can be made until it is mended.

    save: write what was read of the platform to this file, so that others can look at it; 'gke:'
        only. from_: look at such a file, or at what `kubectl get … -o json` printed, and ask nobody.
    """
    return _libsandbox.doctor({"uri": uri, "save": save, "from_": from_}, how(timeout, cancel))


def render_manifests(uri, *, image=None, agent_image=None, bucket=None, path=None, egress=None,
                     machine_family=None, service_account=None, replicas=None, memory_mib=None,
                     cpu_millis=None, own_nodes=None):
    """What a cluster needs before workspaces can be made there: a list of Manifest. Asks nobody.

    uri: 'gke://CONTEXT/NAMESPACE?pool=NAME'. image: NAME@sha256:…, of the workspaces.
    agent_image, bucket: needed; where the agent is, and where snapshots lie.
    path: within the bucket. egress: ADDRESS:PORT of the egress proxy. own_nodes: use nodes that are
    there. The defaults are those of `sandbox manifests`.
    """
    return _libsandbox.render_manifests(uri, {
        "image": image, "agent_image": agent_image, "bucket": bucket, "path": path,
        "egress": egress, "machine_family": machine_family, "service_account": service_account,
        "replicas": replicas, "memory_mib": memory_mib, "cpu_millis": cpu_millis,
        "own_nodes": own_nodes})


def apply_manifests(uri, *, image=None, agent_image=None, bucket=None, path=None, egress=None,
                    machine_family=None, service_account=None, replicas=None, memory_mib=None,
                    cpu_millis=None, own_nodes=None, force=None, timeout=None, cancel=None):
    """The same as `render_manifests`, and apply them one after the other.

    After a failure the ones before it have been applied. force: take over fields that somebody
    else has set.
    """
    return _libsandbox.apply_manifests(uri, {
        "image": image, "agent_image": agent_image, "bucket": bucket, "path": path,
        "egress": egress, "machine_family": machine_family, "service_account": service_account,
        "replicas": replicas, "memory_mib": memory_mib, "cpu_millis": cpu_millis,
        "own_nodes": own_nodes, "force": force}, how(timeout, cancel))


class Opencode:
    """The built-in check for a server of opencode's, for `checks` of a suspend.

    It asks whether an agent's turn is under way or a terminal runs a job. A server that does not
    listen is not active.
    """

    __slots__ = ("_options",)

    def __init__(self, port=None, *, user=None, password=None):
        self._options = {"port": port, "user": user, "password": password}

    def __repr__(self):
        return f"<libsandbox.Opencode port={self._options['port'] or 4096}>"


def _questions(checks):
    """As the extension takes them: functions of a handle, and dicts."""
    if checks is None:
        return None
    return [check._options if isinstance(check, Opencode) else _question(check)
            for check in checks]


def _question(check):
    if not callable(check):
        raise TypeError("a check must be a function or an Opencode")

    def ask(handle):
        return check(Workspace(handle))
    return ask


def _egress(given):
    """As the extension takes it: transformations are JSON there."""
    if given is None:
        return None
    import json  # rarely needed, and slow to load
    return {name: json.dumps(value) if name.endswith("transformations") and
            isinstance(value, (list, tuple)) else value for name, value in given.items()}


class Client(Handle):
    """A connection to one platform where workspaces live. Any thread may use it at any time.

    uri: 'gvisor:[/STATE/DIRECTORY][?runsc=PATH&platform=NAME]' (the default), or
        'gke://CONTEXT/NAMESPACE?pool=NAME', or 'memory:[/SOCKET/PATH]'.
    timeout: seconds or a timedelta, by default 30 s. cancel: a Cancel.

    Closing it, as its context manager does, deletes nothing: workspaces live on. A client does not
    survive os.fork(): in the child its calls raise Invalid.
    """

    __slots__ = ()

    def __init__(self, uri=None, *, timeout=None, cancel=None):
        super().__init__(_libsandbox.open_client({"uri": uri}, how(timeout, cancel)))

    @property
    def uri(self):
        """Where workspaces live."""
        return self._handle.uri()

    @property
    def driver(self):
        """The driver's name: 'gvisor', 'gke', 'memory'."""
        return self._handle.driver()

    def __repr__(self):
        return "<libsandbox.Client closed>" if self.closed else f"<libsandbox.Client {self.uri!r}>"

    def can(self, ability):
        """Whether this platform, here, enforces or offers something.

        ability: 'limit-memory', 'limit-cpu', 'limit-processes', 'limit-disk', 'use-images',
            'keep-files' (also when an instance is lost), 'keep-memory' (over a suspend) or
            'reach-out' (`egress`).
        """
        return self._handle.can(ability)

    def create_workspace(self, name=None, *, image=None, user=None, env=None, labels=None,
                         memory_mib=None, cpu_millis=None, process_limit=None, disk_mib=None,
                         expires_after=None, retain=None, suspend_after_idle=None, checks=None,
                         egress=None, temporary=False, timeout=None, cancel=None):
        """Make a workspace and wait until it can run commands.

        name: 1 to 63 of a-z, 0-9 and '-'; a taken one raises Exists. Default: a fresh one.
        image: the driver's term for a root file system. user: 'sandbox' (default) or 'root'.
        env: for every command, a dict or a list of 'NAME=value'. labels: likewise; not secret.
        memory_mib, cpu_millis, process_limit, disk_mib: limits. Default: 2,048 MiB, none, 4,096,
            none. One that cannot be enforced here raises Unsupported.
        expires_after: delete it that long from now, unless renewed. Default: never.
        retain: how many snapshots to keep, 1 to 16. Default: 3.
        suspend_after_idle: what `suspend_idle` goes by. Default: 15 minutes.
        checks: what to ask before a suspend: a list of 'opencode:PORT'.
        egress: what it may reach: a dict of what `Workspace.set_egress` takes. Default: nothing.
        temporary: `with` deletes it at the end of its block; else it only closes the handle.
        """
        return Workspace(self._handle.create_workspace(
            {"name": name, "image": image, "user": user, "env": env, "labels": labels,
             "memory_mib": memory_mib, "cpu_millis": cpu_millis, "process_limit": process_limit,
             "disk_mib": disk_mib, "expires_after": expires_after, "retain": retain,
             "suspend_after_idle": suspend_after_idle, "checks": checks,
             "egress": _egress(egress)},
            how(timeout, cancel)), temporary)

    def open_workspace(self, name, *, from_=None, image=None, user=None, env=None, labels=None,
                       memory_mib=None, cpu_millis=None, process_limit=None, disk_mib=None,
                       expires_after=None, retain=None, suspend_after_idle=None, checks=None,
                       egress=None, temporary=False, timeout=None, cancel=None):
        """A handle on a running workspace of that name.

        Finds it, waits for or takes over another's operation, resumes a suspended one, goes on
        with an interrupted one where `from_` says so, and makes one if there is none; then the
        other options count, as of `create_workspace`. `egress` counts in any case.

        from_: of an interrupted one, 'nothing' raises Interrupted (default), 'live-files' starts
            a fresh instance over the files as they were left, 'snapshot' goes back to the
            recovery point and keeps the files as they were left as a snapshot.
        """
        return Workspace(self._handle.open_workspace(
            {"name": name, "from_": from_, "image": image, "user": user, "env": env,
             "labels": labels, "memory_mib": memory_mib, "cpu_millis": cpu_millis,
             "process_limit": process_limit, "disk_mib": disk_mib, "expires_after": expires_after,
             "retain": retain, "suspend_after_idle": suspend_after_idle, "checks": checks,
             "egress": _egress(egress)},
            how(timeout, cancel)), temporary)

    def find_workspace(self, name, *, timeout=None, cancel=None):
        """A handle on a workspace that exists, whatever its state, by its name or its id."""
        return Workspace(self._handle.find_workspace(name, how(timeout, cancel)))

    def list_workspaces(self, *, labels=None, timeout=None, cancel=None):
        """All workspaces of the platform, by name: a list of WorkspaceInfo, as recorded.

        labels: only those that carry all of these, a dict or a list of 'key=value'.
        """
        return self._handle.list_workspaces({"labels": labels}, how(timeout, cancel))

    def sweep(self, *, timeout=None, cancel=None):
        """Delete the workspaces whose time has run out; gives how many."""
        return self._handle.sweep(how(timeout, cancel))

    def recover(self, *, timeout=None, cancel=None):
        """Finish or roll back every operation whose owner has died; gives how many."""
        return self._handle.recover(how(timeout, cancel))

    def suspend_idle(self, *, idle=None, max_busy=None, labels=None, parallel=None, keep=None,
                     checks=None, timeout=None, cancel=None):
        """Suspend the running workspaces where nobody works: gives an IdleResult.

        idle: for how long. Default: what each one's record says, else 15 minutes.
        max_busy: suspend by force what says for longer that it is busy. Default: never.
        parallel: at once. Default 4, at most 64; with functions in `checks` always 1.
        keep, checks: as of `Workspace.suspend`.
        """
        questions = _questions(checks)
        # A function is called on a thread of Python's only, so on none that the library starts.
        if questions and any(callable(question) for question in questions):
            parallel = 1
        handle = self._handle
        options = {"idle": idle, "max_busy": max_busy, "labels": labels, "parallel": parallel,
                   "keep": keep, "checks": questions}
        return _wait.apart(lambda own: handle.suspend_idle(options, how(timeout, own)), cancel)

    def watch(self):
        """A Watch: what this client does to workspaces and sees of them, from now on."""
        return Watch(self._handle.watch())


class Watch(Events):
    """An iterator of Event. At most 1,024 wait; of more the number that was lost is told."""

    __slots__ = ()


class Workspace(Handle):
    """An isolated place where commands run and files are kept. Made by a Client.

    It lives until it is deleted or its time runs out; this is only a handle, and closing it deletes
    nothing. Any thread may use it at any time. `files` and `ports` are what their names say.
    """

    __slots__ = ("_temporary",)

    def __init__(self, handle, temporary=False):
        super().__init__(handle)
        self._temporary = temporary

    @property
    def name(self):
        """Its name, unique on its platform while it lives."""
        return self._handle.name()

    @property
    def id(self):
        """32 hexadecimal digits, never used again."""
        return self._handle.id()

    @property
    def files(self):
        """Its Files."""
        return Files(self)

    @property
    def ports(self):
        """Its Ports."""
        return Ports(self)

    def __repr__(self):
        if self.closed:
            return "<libsandbox.Workspace closed>"
        return f"<libsandbox.Workspace {self.name!r}>"

    def __exit__(self, *_):
        if self._temporary and not self.closed:
            self.delete()
        self.close()

    def run(self, command, *, input=None, text=False, encoding=None, errors=None, check=False,
            env=None, directory=None, user=None, id=None, login_shell=None, terminal=None,
            terminal_type=None, rows=None, columns=None, role=None, deadline=None,
            output_limit=None, leave_running=None, timeout=None, cancel=None):
        """Run a command to its end, as subprocess.run does. Gives a Completed.

        command: a str is a line for the shell, a list a program with its arguments, no shell.
        input: what it reads, bytes or, with text, str. Default: nothing, its end at once.
        text, encoding, errors: decode both streams, from UTF-8 and with 'replace' by default.
        check: raise CommandFailed on any code but 0.
        timeout: kill it and all its descendants after that time and raise CommandTimedOut.
            Ctrl-C and `cancel` kill it too.
        deadline: kill it likewise, and say so in the result. leave_running: do not kill it.
        output_limit: bytes kept of each stream; the rest is counted. Default: 16 MiB.
        The others are as of `start`.
        """
        from ._run import run

        options = {"env": env, "directory": directory, "user": user, "id": id,
                   "login_shell": login_shell, "terminal": terminal,
                   "terminal_type": terminal_type, "rows": rows, "columns": columns, "role": role,
                   "deadline": deadline}
        return run(self._handle, command, options, input=input, text=text, encoding=encoding,
                   errors=errors, check=check, output_limit=output_limit,
                   leave_running=leave_running, timeout=timeout, cancel=cancel)

    def start(self, command, *, env=None, directory=None, user=None, id=None, login_shell=None,
              terminal=None, terminal_type=None, rows=None, columns=None, role=None,
              when_full=None, input=None, deadline=None, buffer_bytes=None, timeout=None,
              cancel=None):
        """Start a command. Gives a Process once it runs, or raises if it does not.

        command: a str is a line for the shell, a list a program with its arguments, no shell.
        env: over the workspace's, a dict or a list of 'NAME=value'.
        directory: default /workspace; relative ones count from there.
        user: 'sandbox', 'root' or 'UID:GID'. Default: the workspace's.
        id: 32 hexadecimal digits; a start with the same one attaches to the first. Default: fresh.
        login_shell: read the profile files first.
        terminal, terminal_type, rows, columns: give it a terminal, by default xterm-256color of 24
            by 80; stderr then comes with stdout.
        role: 'task' (default), or 'service': the workspace counts as idle although it runs.
        when_full: 'block' (default) or 'drop-oldest', once `buffer_bytes` (default 1 MiB per
            stream) were not read.
        input: 'pipe' to `write` to it. Default: 'none', its end at once.
        deadline: kill it and all its descendants after that time. Default: never.
        """
        return Process(self._handle.start(what(command, {
            "env": env, "directory": directory, "user": user, "id": id,
            "login_shell": login_shell, "terminal": terminal, "terminal_type": terminal_type,
            "rows": rows, "columns": columns, "role": role, "when_full": when_full,
            "input": input, "deadline": deadline, "buffer_bytes": buffer_bytes}),
            how(timeout, cancel)))

    def find_process(self, id, *, timeout=None, cancel=None):
        """A Process that was started before, by anybody. Reads from its first kept byte."""
        return Process(self._handle.find_process(id, how(timeout, cancel)))

    def list_processes(self, *, timeout=None, cancel=None):
        """All that were started through the library and are still known: ProcessInfo objects."""
        return self._handle.list_processes(how(timeout, cancel))

    def suspend(self, *, keep=None, force=None, interruptible=None, quiet=None, finish=None,
                checks=None, spare=None, timeout=None, cancel=None):
        """Suspend it. When this returns, its snapshot is verified, and nothing of it runs.

        keep: 'memory' (files and processes), 'files', or 'best' (default): memory if that can be.
        force: even if somebody works in it, which else raises Busy with reason 'active'.
        interruptible: a request that comes in time ends the suspend with Busy.
        quiet: bytes through a port or terminal so recently are activity. Default: 30 s; infinite:
            never look. finish: how long calls in progress may take. Default: 10 s.
        checks: functions that are asked, on this thread, whether somebody works: each is given a
            Workspace that is good for the question alone and answers a falsy value, or who it is.
            What it raises ends the suspend. Or Opencode.
        spare: a snapshot that the retention leaves alone.
        Gives a SuspendResult.
        """
        return self._handle.suspend(
            {"keep": keep, "force": force, "interruptible": interruptible, "quiet": quiet,
             "finish": finish, "checks": _questions(checks), "spare": spare},
            how(timeout, cancel))

    def resume(self, *, accept=None, from_=None, snapshot=None, env=None, egress=None,
               timeout=None, cancel=None):
        """Bring it back. Returns once another instance has proven that it holds what was kept.

        What could not be proven raises NotRestored: the workspace is blocked, its snapshot kept.

        accept: 'proven' (default), or where memory cannot be restored also 'files', a fresh
            instance over the snapshot's proven files, or 'cold', one over the files that are there.
        from_: for an interrupted one, see `Client.open_workspace`.
        snapshot: which one. Default: the recovery point. env: replaces what was there.
        egress: credentials again, which a suspend forgets: a dict as of `set_egress`.
        Gives a ResumeResult.
        """
        return self._handle.resume({"accept": accept, "from_": from_, "snapshot": snapshot,
                                    "env": env, "egress": _egress(egress)},
                                   how(timeout, cancel))

    def checkpoint(self, *, keep=None, finish=None, spare=None, timeout=None, cancel=None):
        """Make a snapshot of it while it goes on running. Gives a SuspendResult."""
        return self._handle.checkpoint({"keep": keep, "finish": finish, "spare": spare},
                                       how(timeout, cancel))

    def restore(self, snapshot, *, force=None, accept=None, timeout=None, cancel=None):
        """Go back to an older snapshot. The way it is now is kept as a snapshot first.

        force: also if somebody works in it. Gives a ResumeResult.
        """
        clock = Clock(timeout)
        state = self.inspect(timeout=clock.left(), cancel=cancel).state
        if state not in ("interrupted", "blocked"):
            self.suspend(force=force, spare=snapshot, timeout=clock.left(), cancel=cancel)
        return self.resume(snapshot=snapshot, accept=accept,
                           from_="snapshot" if state == "interrupted" else None,
                           timeout=clock.left(), cancel=cancel)

    def set_egress(self, *, mode=None, ech=None, allow=None, http=None, add_allow=None,
                   add_http=None, remove=None, transformations=None, add_transformations=None,
                   close_denied=None, timeout=None, cancel=None):
        """Set or change what it may reach. In force for new connections when it returns.

        allow, http: lists of hosts, over TLS and over plain HTTP, in place of those that were
            there: 'api.example.com', or '*.example.com' for all below. add_allow, add_http: beside
            them. remove: from both.
        mode: 'custom' (what the lists name), 'allow-all' or 'deny-all'. ech: 'deny' (default) or
            'allow-grease'.
        transformations, add_transformations: credentials that are put in on the way out, a list of
            dicts as doc/egress.md describes them, or that as JSON. They are never inside, and a
            suspend forgets them.
        close_denied: close what is open to hosts that are not allowed any more.
        """
        self._handle.set_egress(_egress({
            "mode": mode, "ech": ech, "allow": allow, "http": http, "add_allow": add_allow,
            "add_http": add_http, "remove": remove, "transformations": transformations,
            "add_transformations": add_transformations, "close_denied": close_denied}),
            how(timeout, cancel))

    def inspect_egress(self, *, timeout=None, cancel=None):
        """What it may reach, and whether that is in force: an EgressInfo."""
        return self._handle.inspect_egress(how(timeout, cancel))[0]

    def read_egress_log(self, *, timeout=None, cancel=None):
        """What was refused since it runs, oldest first: a list of EgressRefusal."""
        return self._handle.read_egress_log(how(timeout, cancel))

    def list_snapshots(self, *, timeout=None, cancel=None):
        """Its snapshots, newest first: a list of SnapshotInfo."""
        return self._handle.list_snapshots(how(timeout, cancel))

    def verify(self, snapshot=None, *, timeout=None, cancel=None):
        """Look at every byte of a snapshot, by default the recovery point. Changes nothing.

        Gives a Verification with a verdict: 'intact', 'damaged', 'missing' or 'cannot-tell'.
        """
        return self._handle.verify_snapshot(snapshot, how(timeout, cancel))

    def delete_snapshot(self, snapshot, *, timeout=None, cancel=None):
        """Delete one that is not the recovery point."""
        self._handle.delete_snapshot(snapshot, how(timeout, cancel))

    def inspect(self, *, timeout=None, cancel=None):
        """How it stands now: a WorkspaceInfo."""
        return self._handle.inspect(how(timeout, cancel))[0]

    def measure(self, *, timeout=None, cancel=None):
        """What its agent measures: WorkspaceStats."""
        return self._handle.measure(how(timeout, cancel))

    def activity(self, *, timeout=None, cancel=None):
        """Whether anybody works in it, as the agent sees it: an Activity."""
        return self._handle.activity(how(timeout, cancel))

    def renew(self, expires_after, *, timeout=None, cancel=None):
        """Let it live that much longer from now; None: for ever."""
        self._handle.renew(0 if expires_after is None else expires_after, how(timeout, cancel))

    def delete(self, *, timeout=None, cancel=None):
        """Delete it and wait until nothing of it is left. What is gone already is no failure."""
        self._handle.delete(how(timeout, cancel))


class Ports:
    """The ports of a workspace: `workspace.ports`. They are reached through its agent."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace):
        self._workspace = workspace

    def list(self, *, timeout=None, cancel=None):
        """What listens inside: a list of PortInfo."""
        return self._workspace._handle.list_ports(how(timeout, cancel))

    def dial(self, port, *, timeout=None, cancel=None):
        """A Connection to 127.0.0.1:port inside.

        If nothing listens, NotFound with reason 'connection-refused' is raised.
        """
        return Connection(self._workspace._handle.dial(port, how(timeout, cancel)))

    def forward(self, port, *, host_port=None, host_address=None, max_connections=None,
                timeout=None, cancel=None):
        """A Forward: a listener on this machine that leads into the workspace, until it is closed.

        host_port: default any free one. host_address: default 127.0.0.1; anything else is open to
        others. max_connections: at once, default 256.
        """
        return Forward(self._workspace._handle.forward(
            {"port": port, "host_port": host_port, "host_address": host_address,
             "max_connections": max_connections}, how(timeout, cancel)))


class Connection(Stream):
    """One connection to a port inside. Iterate over it for what comes, until its end."""

    __slots__ = ()

    def fileno(self):
        """A descriptor that poll() finds readable while `read` would not wait. Never read it."""
        return self._handle.descriptor()

    def read(self, *, timeout=None, cancel=None):
        """Wait for bytes, by default for ever; b"" is the end."""
        return self._take(lambda handle, call: handle.read(call), timeout, cancel)

    def write(self, data, *, timeout=None, cancel=None):
        """Send bytes, or any other buffer; waits while the other side does not read."""
        self._handle.write(data, how(timeout, cancel))

    def end_output(self, *, timeout=None, cancel=None):
        """No more will be sent; reading goes on."""
        self._handle.end_output(how(timeout, cancel))

    def __iter__(self):
        return self

    def __next__(self):
        try:
            data = self.read()
        except Closed:
            data = b""
        if not data:
            raise StopIteration
        return data


class Forward(Handle):
    """A listener on this machine that leads into a workspace. Closed, nothing reaches the guest."""

    __slots__ = ()

    @property
    def host_port(self):
        """The port on this machine."""
        return self._handle.host_port()
