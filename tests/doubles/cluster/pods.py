"""Nodes' work: Pods that are started, restored, probed, watched, restarted and ended."""
import asyncio

import addresses
import bodies
import restores
from errors import ApiError
from reconcile import key_of, now, set_condition

PROBE_SECONDS = 0.02
PROBE_MAX_SECONDS = 60
RESTARTS = 3  # at once; then it is backed off for ever
NODE = "node-1"


async def first_of(*futures):
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    return done.pop().result()


class PodWorker:
    """One Pod, from its creation until it is gone."""

    def __init__(self, world, pod):
        self.world, self.store, self.pod = world, world.store, pod
        self.key, self.uid = key_of(pod), pod["metadata"]["uid"]
        self.body, self.restarts, self.last = None, 0, None
        self.address = None  # that can be connected to
        self.deleting, self.gone, self.finished = (asyncio.Event() for _ in range(3))
        self.left = None  # set where its processes go back to their snapshot, alive
        self.volumes = None  # of the container that ended last
        self.is_forced = False  # started again whatever its policy is
        self.is_over = False  # evicted or completed: nothing is restarted
        self.has_agent = True  # of snapshots, on its node
        self.main = world.start(self.run())
        world.start(self.finish())

    def current(self):
        pod = self.store.get("pods", *self.key)
        return pod if pod is not None and pod["metadata"]["uid"] == self.uid else None

    def names(self):
        return self.world.names_of_pod(self.pod)

    async def held(self, strike):
        """False: deleted meanwhile."""
        if strike is None:
            return not self.deleting.is_set()
        wait = asyncio.ensure_future(self.world.behaviours.hold(strike))
        await self.either(wait)
        wait.cancel()
        return not self.deleting.is_set()

    async def either(self, future):
        """Until it is done or the Pod is to go."""
        deleted = asyncio.ensure_future(self.deleting.wait())
        try:
            await asyncio.wait([future, deleted], return_when=asyncio.FIRST_COMPLETED)
        finally:
            deleted.cancel()

    # ---- its life ----

    async def run(self):
        self.edit(lambda item: item["spec"].update(nodeName=NODE), part="")
        self.tell_waiting("ContainerCreating", "")
        strike = self.world.behaviours.strike("start", self.names())
        if strike and strike.how == "pod-slow-start" and not await self.held(strike):
            return
        pod = self.current()
        if pod is None or self.deleting.is_set():
            return
        self.pod = pod
        choice = restores.choose(self.world, pod)
        self.has_agent = choice.how != "node-new"
        if not await self.begin(choice):
            return
        if strike and strike.how == "pod-not-ready" and not await self.held(strike):
            return
        await self.live(choice)

    async def begin(self, choice):
        """The container's first start. False: there will be none."""
        went_cold = None
        try:
            if choice.how == "crash":
                raise bodies.StartFailed("starting container: starting root container: restoring: "
                                         "failed to load kernel: told so by a test")
            if choice.image is not None:
                self.body = await self.world.snapshots.bring_back(choice.image, self.pod)
                went_cold = None if self.body else \
                    "the processes of the snapshot have gone on since"
        except (bodies.StartFailed, OSError) as error:
            self.crash("OCI runtime restore failed: " + str(error))
            return False
        if self.body is None and not await self.start_fresh():
            return False
        self.body.holder = self
        if self.body.has_network:
            self.address = addresses.Address(lambda: self.body)
            await self.address.open(addresses.port_of(bodies.container_of(self.pod)))
            await self.open_way()
        self.tell_running(False)
        self.world.start(restores.tell(self.world, self.pod, choice, went_cold))
        await asyncio.sleep(0)
        return True

    async def open_way(self):
        place = self.world.cluster.options.egress
        if self.address is None or not place:
            return
        try:
            await self.address.open_way(place)
        except OSError:
            pass  # it has just ended

    async def start_fresh(self, volumes=None):
        self.body = self.world.runner.make(self.pod, volumes)
        self.body.holder = self
        try:
            await self.body.start()
        except (bodies.StartFailed, OSError) as error:
            self.crash("OCI runtime create failed: " + str(error))
            return False
        return True

    async def live(self, choice):
        """Probes, and starts again what ends."""
        is_first = True
        while not self.deleting.is_set():
            self.left = asyncio.get_running_loop().create_future()
            ended = asyncio.ensure_future(first_of(self.body.ended, self.left))
            probe = asyncio.ensure_future(self.probe(self.body))
            both = asyncio.ensure_future(first_of(probe, ended))
            await self.either(both)
            if probe.done() and probe.result() and not ended.done():
                self.tell_running(True)
                if is_first and choice.told is not None:
                    self.world.start(self.after_ready())
                is_first = False
                await self.either(ended)
            is_ended = ended.done()
            for task in (both, probe, ended):
                task.cancel()
            if self.deleting.is_set() or self.is_over:
                return
            if is_ended and not await self.start_again(ended.result()):
                return

    async def probe(self, body):
        """True once the container's readiness probe has succeeded."""
        container = bodies.container_of(self.pod)
        command = ((container.get("readinessProbe") or {}).get("exec") or {}).get("command")
        if not command or not self.world.runner.can_exec:
            return True
        for _ in range(int(PROBE_MAX_SECONDS / PROBE_SECONDS)):
            try:
                if await self.probe_once(body, command):
                    return True
            except (ApiError, OSError):
                pass
            await asyncio.sleep(PROBE_SECONDS)
        return False

    @staticmethod
    async def probe_once(body, command):
        process = await body.exec(command, stdin=False)
        try:
            await process.communicate()
        except asyncio.CancelledError:
            if process.returncode is None:
                process.kill()
                await process.communicate()
            raise
        return process.returncode == 0

    async def after_ready(self):
        strike = self.world.behaviours.strike("ready", self.names())
        if strike is None:
            return
        await asyncio.sleep(float(strike.request.get("ms", 0)) / 1000)
        if strike.how == "replaced":
            self.replace()
        else:
            await self.restart()

    def replace(self):
        """As an eviction with another Pod in its place."""
        if self.current() is not None:
            self.store.delete("pods", *self.key, uid=self.uid, grace=0)

    async def restart(self):
        """In place: its volumes stay, its memory does not."""
        if self.body is not None and not self.deleting.is_set():
            self.is_forced = True
            await self.lose_body()

    async def lose_body(self):
        """As if killed; but what a snapshot needs of it goes back there."""
        body, self.body = self.body, None
        if body is None:
            return
        self.volumes = body.volumes
        if body.can_freeze and await body.go_back():
            self.volumes = body.directory + "-volumes"
            await bodies.copy_tree(body.volumes, self.volumes)
            body.holder = None
        else:
            await body.stop()
        if self.left is not None and not self.left.done():
            self.left.set_result(137)

    async def start_again(self, code):
        """False: it stays down."""
        if self.body is not None:
            self.volumes, self.body = self.body.volumes, None
        self.last = {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                     "startedAt": now(), "finishedAt": now()}
        policy = self.pod["spec"].get("restartPolicy", "Always")
        is_forced, self.is_forced = self.is_forced, False
        if not is_forced and (policy == "Never" or (policy == "OnFailure" and code == 0)):
            self.tell_ended("Succeeded" if code == 0 else "Failed")
            return False
        if self.restarts >= RESTARTS:
            self.tell_waiting("CrashLoopBackOff", "back-off 40s restarting failed container",
                              "Running")
            return False
        self.restarts += 1
        if not await self.start_fresh(self.volumes):
            return False
        await self.open_way()
        self.tell_running(False)
        return True

    def over(self, phase, reason, message):
        """Evicted, or told to stop after a checkpoint."""
        self.is_over = True
        self.tell_ended(phase, reason, message)
        self.world.start(self.lose_body())

    async def finish(self):
        await self.deleting.wait()
        await asyncio.wait([self.main])
        if self.address is not None:
            self.address.close()
        strike = self.world.behaviours.strike("end", self.names())
        pod = self.current()
        if strike is not None and pod is not None:
            told = asyncio.ensure_future(self.world.behaviours.hold(strike))
            gone = asyncio.ensure_future(self.gone.wait())
            await asyncio.wait([told, gone], return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            gone.cancel()
        if self.body is not None:
            seconds = pod["metadata"].get("deletionGracePeriodSeconds", 0) if pod else 0
            await self.end_body(seconds)
        self.finished.set()
        self.world.pods.workers.pop(self.uid, None)
        if self.current() is not None:
            try:
                self.store.delete("pods", *self.key, uid=self.uid, grace=0)
            except ApiError:
                pass  # it has just gone

    async def end_body(self, seconds):
        body = self.body
        if body.can_freeze and await body.go_back():
            body.holder = None
            return
        await body.stop(seconds)
        body.remove()

    # ---- what is told ----

    def edit(self, change, part="status"):
        def careful(item):
            if item["metadata"]["uid"] == self.uid:
                change(item)
        self.store.edit("pods", *self.key, careful, part=part)

    def tell(self, phase, state, is_ready, reason="", message=""):
        container = bodies.container_of(self.pod)
        number = int(self.uid[:4], 16)

        def change(item):
            status = item.setdefault("status", {})
            status.update(phase=phase, hostIP="10.128.0.2", qosClass="Burstable")
            status.setdefault("startTime", now())
            if phase != "Pending":
                status["podIP"] = self.address.text if self.address else \
                    f"10.64.{number >> 8}.{number & 255}"
                status["podIPs"] = [{"ip": status["podIP"]}]
            if reason:
                status.update(reason=reason, message=message)
            running = "running" in state
            status["containerStatuses"] = [{
                "name": container["name"], "image": container.get("image", ""),
                "imageID": container.get("image", ""), "ready": is_ready, "started": running,
                "restartCount": self.restarts, "state": state,
                "lastState": {"terminated": self.last} if self.last else {}}]
            set_condition(item, "PodScheduled", True, "Scheduled")
            set_condition(item, "Initialized", True, "Initialized")
            for kind in ("ContainersReady", "Ready"):
                set_condition(item, kind, is_ready, "Ready" if is_ready else "ContainersNotReady",
                              "" if is_ready else
                              f"containers with unready status: [{container['name']}]")
        self.edit(change)

    def tell_waiting(self, reason, message, phase="Pending"):
        self.tell(phase, {"waiting": {"reason": reason, "message": message}}, False)

    def tell_running(self, is_ready):
        self.tell("Running", {"running": {"startedAt": now()}}, is_ready)

    def tell_ended(self, phase, reason="", message=""):
        state = self.last or {"exitCode": 0 if phase == "Succeeded" else 137, "finishedAt": now(),
                              "reason": "Completed" if phase == "Succeeded" else "Error"}
        self.tell(phase, {"terminated": state}, False, reason, message)

    def crash(self, text):
        """A container that cannot be started: kubelet tries again and again, in vain."""
        name = bodies.container_of(self.pod)["name"]
        self.restarts = 1
        self.last = {"exitCode": 128, "reason": "StartError", "message": text, "startedAt": now(),
                     "finishedAt": now()}
        self.tell_waiting("RunContainerError", text, "Running")
        self.world.cluster.event(self.pod, "Warning", "Failed",
                                 f"Error: failed to start containerd task \"{name}\": {text}")
        self.restarts = 2
        self.tell_waiting("CrashLoopBackOff",
                          f"back-off 10s restarting failed container={name} "
                          f"pod={self.key[1]}_{self.key[0]}({self.uid}): {text}", "Running")
        self.world.cluster.event(self.pod, "Warning", "BackOff",
                                 f"Back-off restarting failed container {name}")


class Pods:
    def __init__(self, world):
        self.world, self.workers = world, {}
        world.store.subscribe("pods", self._on_pod)

    def _on_pod(self, event, pod, _):
        uid = pod["metadata"]["uid"]
        if event == "ADDED" and uid not in self.workers:
            self.workers[uid] = PodWorker(self.world, pod)
        worker = self.workers.get(uid)
        if worker is None:
            return
        if event != "DELETED":
            worker.pod = pod
        if event == "DELETED":
            worker.gone.set()
        if event == "DELETED" or pod["metadata"].get("deletionTimestamp"):
            worker.deleting.set()

    def of(self, pod):
        return self.workers.get(pod["metadata"]["uid"])

    async def exec(self, pod, container, argv, stdin=True, tty=False):
        worker = self.of(pod)
        bodies.container_of(pod, container)
        if worker is None or worker.body is None or worker.body.ended.done():
            raise ApiError(500, f"container not found (\"{container}\")")
        return await worker.body.exec(argv, stdin, tty)
