"""What the controllers are told to do wrong, late or never.

{"do":"behave","object":"NAME*","how":"cold","times":1,"after":0,…}: NAME is of the object itself,
of its Pod, its Sandbox or its claim, whichever is known. What is held goes on with {"how":"go"}.
"""
import asyncio
import fnmatch

# word: what it concerns
WORDS = {
    "claim-never": "claim", "claim-hopeless": "claim",
    "sandbox-late": "sandbox", "stale-suspended": "sandbox",
    "pod-slow-end": "end", "pod-slow-start": "start", "pod-not-ready": "start",
    "trigger-never": "trigger", "trigger-late": "trigger", "trigger-failed": "trigger",
    "storage-unavailable": "trigger",
    "snapshot-never": "upload", "snapshot-late": "upload", "snapshot-failed": "upload",
    "snapshot-slow-delete": "remove",
    "cold": "restore", "cold-event": "restore", "cold-lying": "restore", "node-new": "restore",
    "other-snapshot": "restore", "foreign-snapshot": "restore", "crash": "restore",
    "condition-absent": "condition", "condition-late": "condition", "condition-false": "condition",
    "condition-other": "condition",
    "replaced": "ready", "restarted": "ready",
}


class Behaviour:
    def __init__(self, number, how, request):
        self.number, self.how, self.request = number, how, request
        self.pattern = request.get("object") or "*"
        self.left = int(request.get("times", 1))
        self.is_endless = self.left == 0
        self.after = int(request.get("after", 0))
        self.hits, self.told = 0, asyncio.Event()

    def is_of(self, names):
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in names if name)

    def text(self, name, default):
        return str(self.request.get(name) or default)


class Behaviours:
    def __init__(self):
        self.number, self.all, self.held = 0, [], {}

    def add(self, request):
        how = request.get("how")
        if how not in WORDS:
            raise ValueError(f"no such behaviour: {how!r}; known: {', '.join(sorted(WORDS))}, go")
        self.number += 1
        self.all.append(Behaviour(self.number, how, request))
        return self.number

    def strike(self, what, names):
        """The behaviour that concerns this now, if there is one."""
        for behaviour in self.all:
            is_over = behaviour.left <= 0 and not behaviour.is_endless
            if WORDS[behaviour.how] != what or is_over or not behaviour.is_of(names):
                continue
            if behaviour.after > 0:
                behaviour.after -= 1
                continue
            behaviour.left -= 1
            behaviour.hits += 1
            return behaviour
        return None

    async def hold(self, behaviour):
        """Until it is told to go on, or all is cleared."""
        self.held[behaviour.number] = self.held.get(behaviour.number, 0) + 1
        try:
            await behaviour.told.wait()
        finally:
            self.held[behaviour.number] -= 1

    def go(self, number=None):
        for behaviour in self.all:
            if number is None or behaviour.number == number:
                behaviour.told.set()
                behaviour.left, behaviour.is_endless = 0, False

    def clear(self):
        self.go()
        self.all = [one for one in self.all if self.held.get(one.number)]

    def state(self):
        return {"hits": {str(one.number): one.hits for one in self.all},
                "held": sum(self.held.values())}
