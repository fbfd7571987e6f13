"""The controllers together, what exists from the start, and what a test may tell them."""
import asyncio
import fnmatch
import pathlib
import time

import yaml

import bodies
from behaviours import Behaviours
from claims import Claims
from pods import Pods
from pools import Pools
from reconcile import complain, owner_of
from sandboxes import Sandboxes
from snapshots import Snapshots

CONTENT = pathlib.Path(__file__).with_name("content.yaml")
END_SECONDS = 20
KEPT_TIMES = 20000


class World:
    """What every controller needs of the others."""

    def __init__(self, cluster):
        self.cluster, self.store = cluster, cluster.store
        self.behaviours = Behaviours()
        self.tasks, self.begun, self.times = set(), {}, {}
        self.runner = make_runner(cluster)
        self.pools, self.claims, self.sandboxes = Pools(self), Claims(self), Sandboxes(self)
        self.pods, self.snapshots = Pods(self), Snapshots(self)

    def start(self, work):
        task = asyncio.ensure_future(self._carefully(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _carefully(self, work):
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except Exception:  # pylint: disable=broad-except
            complain(self.cluster)
            self.claims.queue.errors += 1

    # ---- names that a test may know something by ----

    def names_of_sandbox(self, sandbox):
        owner = owner_of(sandbox, "SandboxClaim")
        return [sandbox["metadata"]["name"], owner["name"] if owner else ""]

    def names_of_pod(self, pod):
        owner = owner_of(pod, "Sandbox")
        sandbox = owner and self.store.get("sandboxes", pod["metadata"]["namespace"], owner["name"])
        return [pod["metadata"]["name"], *(self.names_of_sandbox(sandbox) if sandbox else [])]

    def names_of(self, namespace, pod_name):
        pod = self.store.get("pods", namespace, pod_name)
        return self.names_of_pod(pod) if pod else [pod_name]

    # ---- the double's own time ----

    def begin(self, what, uid):
        self.begun[what, uid] = time.monotonic()

    def own_time(self, what, uid):
        begun = self.begun.pop((what, uid), None)
        times = self.times.setdefault(what, [])
        if begun is not None and len(times) < KEPT_TIMES:
            times.append(round(time.monotonic() - begun, 4))


def make_runner(cluster):
    if cluster.options.pods == "gvisor":
        from gvisor import GvisorRunner as Runner  # pylint: disable=import-outside-toplevel
    elif cluster.options.pods == "process":
        from process import ProcessRunner as Runner  # pylint: disable=import-outside-toplevel
    else:
        Runner = bodies.Runner
    return Runner(cluster)


class Controllers:
    """What the rest of the program sees."""

    def __init__(self, cluster):
        self.cluster, self.world = cluster, World(cluster)
        cluster.runner = self.world.pods
        cluster.admin.commands["behave"] = self.behave
        cluster.admin.more_state.append(self.state)
        cluster.admin.more_clear.append(self.world.behaviours.clear)
        self._fill()

    def _fill(self):
        """What exists from the start."""
        for item in yaml.safe_load_all(CONTENT.read_text(encoding="utf-8")):
            resource = item.pop("resource")
            item["metadata"]["namespace"] = self.cluster.namespace
            self.cluster.store.create(resource, item)

    # ---- the admin socket ----

    def behave(self, request):
        """What it answers, or a ValueError."""
        how = request.get("how")
        if how == "go":
            self.world.behaviours.go(request.get("id"))
            return {}
        act = {"evict": self._evict, "kill": self._kill, "restart": self._restart,
               "replace": self._replace, "lose-snapshot": self._lose}.get(how)
        if act is None:
            return {"id": self.world.behaviours.add(request)}
        return {"hits": act(request.get("object") or "*")}

    def _workers(self, pattern):
        return [worker for worker in list(self.world.pods.workers.values())
                if worker.current() is not None and
                any(fnmatch.fnmatchcase(name, pattern) for name in worker.names() if name)]

    def _evict(self, pattern):
        found = self._workers(pattern)
        for worker in found:
            worker.over("Failed", "Evicted", "The node was low on resource: memory.")
        return len(found)

    def _kill(self, pattern):
        found = [worker for worker in self._workers(pattern) if worker.body is not None]
        for worker in found:
            self.world.start(worker.lose_body())
        return len(found)

    def _restart(self, pattern):
        found = [worker for worker in self._workers(pattern) if worker.body is not None]
        for worker in found:
            self.world.start(worker.restart())
        return len(found)

    def _replace(self, pattern):
        found = self._workers(pattern)
        for worker in found:
            worker.replace()
        return len(found)

    def _lose(self, pattern):
        found = 0
        for image in list(self.world.snapshots.images.values()):
            names = self.world.snapshots.names(image)
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                self.world.snapshots.lose(image)
                found += 1
        return found

    def state(self):
        world = self.world
        queues = (world.pools.queue, world.claims.queue, world.sandboxes.queue)
        return {"own_seconds": world.times, "behaviours": world.behaviours.state(),
                "controller_errors": sum(queue.errors for queue in queues),
                "images": len(world.snapshots.images),
                "frozen": sum(1 for image in world.snapshots.images.values()
                              if image.body is not None and image.body.holder is None),
                "running": sum(1 for worker in world.pods.workers.values()
                               if worker.body is not None and not worker.body.ended.done())}

    async def stop(self):
        """Nothing that was started here outlives this."""
        world = self.world
        bodies_left = [worker.body for worker in world.pods.workers.values() if worker.body]
        bodies_left += [image.body for image in world.snapshots.images.values() if image.body]
        tasks = list(world.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if bodies_left:
            await asyncio.wait([asyncio.ensure_future(body.stop()) for body in set(bodies_left)],
                               timeout=END_SECONDS)


RUNNING: list[Controllers] = []


def start(cluster):
    RUNNING.append(Controllers(cluster))


async def stop():
    while RUNNING:
        await RUNNING.pop().stop()
