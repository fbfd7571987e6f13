"""Claims: a Sandbox from the pool, or a cold one, and what is told of it."""
import asyncio

import pools
from errors import ApiError
from reconcile import (POD_NAME, POOL_LABEL, SYSTEM, TEMPLATE_HASH, TEMPLATE_REF, Queue,
                       condition_of, drop_condition, is_true, key_of, name_hash, owner_of,
                       reference_to, seconds_until, set_condition)

PENDING_SECONDS = 2
AGAIN_SECONDS = 0.1
REFUSED_DOMAINS = ("kubernetes.io", "k8s.io", "agents.x-k8s.io")
EVICTION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
CLAIM_UID = SYSTEM + "claim-uid"
SANDBOX_NAME = SYSTEM + "sandbox-name"


class Refused(Exception):
    """The reason of Ready False, and its message."""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


def in_domain(key, domains):
    domain = key.split("/", 1)[0] if "/" in key else ""
    return any(domain == one or domain.endswith("." + one) for one in domains)


class Claims:
    def __init__(self, world):
        self.world, self.store = world, world.store
        self.queue = Queue(world.cluster, self.reconcile)
        self.since = {}  # uid: since when only Sandboxes that are not ready were there
        self.kept = {}  # uid: what a test has told
        self.store.subscribe("sandboxclaims", self._on_claim)
        self.store.subscribe("sandboxes", self._on_sandbox)
        for resource in ("sandboxwarmpools", "sandboxtemplates"):
            self.store.subscribe(resource, self._on_origin)

    def _on_claim(self, event, claim, _):
        if event == "DELETED":
            self.since.pop(claim["metadata"]["uid"], None)
            self.kept.pop(claim["metadata"]["uid"], None)
        else:
            if event == "ADDED":
                self.world.begin("create", claim["metadata"]["uid"])
            self.queue.add(*key_of(claim))

    def _on_sandbox(self, _, sandbox, before):
        for item in (sandbox, before):
            owner = item and owner_of(item, "SandboxClaim")
            if owner:
                self.queue.add(item["metadata"]["namespace"], owner["name"])

    def _on_origin(self, _, item, before):
        if before is not None and before.get("spec") == item.get("spec"):
            return
        for claim in self.store.list("sandboxclaims", item["metadata"]["namespace"]):
            self.queue.add(*key_of(claim))

    # ---- one pass ----

    def reconcile(self, namespace, name):
        claim = self.store.get("sandboxclaims", namespace, name)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return
        sandbox = self.sandbox_of(claim)
        if self._expire(claim, sandbox):
            return
        try:
            if sandbox is None:
                self._obey(claim)
            template = self._template(claim)
            metadata = self._metadata(claim, template)
            self._check_spec(claim, template)
            if sandbox is None:
                if (claim.get("status") or {}).get("sandbox", {}).get("name"):
                    raise Refused("SandboxMissing", "Sandbox does not exist")
                sandbox = self._bind(claim, template, metadata)
            elif sandbox["spec"]["podTemplate"].get("metadata") != metadata:
                sandbox = self.store.edit("sandboxes", namespace, sandbox["metadata"]["name"],
                                          lambda item: item["spec"]["podTemplate"].update(
                                              metadata=metadata))
        except Refused as refused:
            self._tell(claim, sandbox, refused)
            return
        self._tell(claim, sandbox, None)

    def _obey(self, claim):
        namespace, name = key_of(claim)
        uid = claim["metadata"]["uid"]
        strike = self.kept.get(uid) or self.world.behaviours.strike("claim", [name])
        if strike is None or strike.told.is_set():
            return
        if uid not in self.kept:
            self.kept[uid] = strike
            self.world.start(self._go_on_when_told(strike, namespace, name))
        if strike.how == "claim-hopeless":
            raise Refused(strike.text("reason", "EnvVarsInjectionRejected"),
                          strike.text("message", "told so by a test"))
        raise Refused("SandboxCreatePending", "Sandbox creation is pending")

    async def _go_on_when_told(self, strike, namespace, name):
        await self.world.behaviours.hold(strike)
        self.queue.add(namespace, name)

    def sandbox_of(self, claim):
        namespace, name = key_of(claim)
        for candidate in ((claim.get("status") or {}).get("sandbox", {}).get("name"),
                          (claim["metadata"].get("annotations") or {}).get(SANDBOX_NAME), name):
            found = candidate and self.store.get("sandboxes", namespace, candidate)
            if found and (owner_of(found) or {}).get("uid") == claim["metadata"]["uid"]:
                return found
        return None

    # ---- what is refused ----

    def _template(self, claim):
        namespace = claim["metadata"]["namespace"]
        wanted = claim["spec"]["warmPoolRef"]["name"]
        pool = self.store.get("sandboxwarmpools", namespace, wanted)
        if pool is None:
            raise Refused("WarmPoolNotFound", f'SandboxWarmPool "{wanted}" not found')
        template = self.world.pools.template_of(pool)
        if template is None:
            raise Refused("TemplateNotFound", "SandboxTemplate "
                          f'"{pool["spec"]["sandboxTemplateRef"]["name"]}" not found')
        return template

    def _domains(self):
        settings = self.store.get("configmaps", "agent-sandbox-system", "agent-sandbox-config")
        text = ((settings or {}).get("data") or {}).get("allowed-label-domains", "sandbox.users.io")
        return [part.strip() for part in text.split(",") if part.strip()]

    def _metadata(self, claim, template):
        """What the Sandbox's podTemplate.metadata has to be, exactly."""
        wanted = pools.pod_template(template)["metadata"]
        more = claim["spec"].get("additionalPodMetadata") or {}
        for key, value in (more.get("labels") or {}).items():
            if not in_domain(key, self._domains()) or (key, value) == ("app", "sandbox-router"):
                raise Refused("InvalidMetadata", f'label "{key}" is not in an allowed domain')
        for key in more.get("annotations") or {}:
            if in_domain(key, REFUSED_DOMAINS) and key != EVICTION:
                raise Refused("InvalidMetadata", f'annotation "{key}" is in a restricted domain')
        for part in ("labels", "annotations"):
            values = wanted.setdefault(part, {})
            for key, value in (more.get(part) or {}).items():
                if values.get(key, value) != value:
                    raise Refused("ReconcilerError", "Error seen: metadata override conflict: "
                                  f'{part[:-1]} "{key}" is "{values[key]}" in the template')
                values[key] = value
        return wanted

    @staticmethod
    def _check_spec(claim, template):
        spec = template["spec"]["podTemplate"]["spec"]
        containers = {one["name"]: one for one in spec["containers"]}
        policy = template["spec"].get("envVarsInjectionPolicy", "Disallowed")
        for variable in claim["spec"].get("env") or []:
            if policy == "Disallowed":
                raise Refused("EnvVarsInjectionRejected",
                              "environment variable injection is disallowed by the template")
            container = variable.get("containerName") or next(iter(containers))
            if container not in containers:
                raise Refused("ReconcilerError",
                              f'Error seen: target container "{container}" not found')
            present = [one["name"] for one in containers[container].get("env") or []]
            if policy == "Allowed" and variable["name"] in present:
                raise Refused("ReconcilerError",
                              "Error seen: environment variable override is not allowed: "
                              + variable["name"])
        if claim["spec"].get("volumeClaimTemplates") and \
                template["spec"].get("volumeClaimTemplatesPolicy", "Disallowed") == "Disallowed":
            raise Refused("VolumeClaimTemplatesError",
                          "volume claim templates are disallowed by the template")

    # ---- binding ----

    def _bind(self, claim, template, metadata):
        namespace, name = key_of(claim)
        pool = self.store.get("sandboxwarmpools", namespace, claim["spec"]["warmPoolRef"]["name"])
        is_cold = bool(claim["spec"].get("env") or claim["spec"].get("volumeClaimTemplates"))
        candidates = [] if is_cold else self._candidates(pool, template)
        ready = [one for one in candidates if is_true(one, "Ready")]
        if candidates and not ready:
            clock = asyncio.get_running_loop().time()
            since = self.since.setdefault(claim["metadata"]["uid"], clock)
            if clock - since < PENDING_SECONDS:
                self.queue.later(AGAIN_SECONDS, namespace, name)
                raise Refused("SandboxCreatePending", "waiting for a warm Sandbox to be ready")
        if ready:
            return self._adopt(claim, ready[0], metadata)
        return self._make_cold(claim, template, metadata)

    def _candidates(self, pool, template):
        members = self.world.pools.members(pool)
        if (pool["spec"].get("updateStrategy") or {}).get("type") == "Recreate":
            present = pools.template_hash(template)
            members = [one for one in members
                       if one["metadata"]["labels"].get(TEMPLATE_HASH) == present]
        return sorted(members, key=lambda one: (one["metadata"]["creationTimestamp"],
                                                int(one["metadata"]["resourceVersion"])))

    def _adopt(self, claim, sandbox, metadata):
        namespace, name = key_of(claim)

        def note(item):
            annotations = item["metadata"].setdefault("annotations", {})
            annotations[SANDBOX_NAME] = sandbox["metadata"]["name"]

        def take(item):
            labels = item["metadata"].setdefault("labels", {})
            for label in (POOL_LABEL, TEMPLATE_HASH, SYSTEM + "sandbox-pod-template-hash"):
                labels.pop(label, None)
            labels.update({SYSTEM + "launch-type": "warm", CLAIM_UID: claim["metadata"]["uid"]})
            created_by = (claim["metadata"].get("labels") or {}).get(SYSTEM + "created-by")
            if created_by:
                labels[SYSTEM + "created-by"] = created_by
            annotations = item["metadata"].setdefault("annotations", {})
            annotations[POD_NAME] = item["metadata"]["name"]
            annotations.pop(EVICTION, None)
            item["metadata"]["ownerReferences"] = [reference_to(claim)]
            item["spec"]["podTemplate"]["metadata"] = metadata
        self.store.edit("sandboxclaims", namespace, name, note)
        adopted = self.store.edit("sandboxes", namespace, sandbox["metadata"]["name"], take)
        self.world.cluster.event(claim, "Normal", "SandboxAdopted",
                                 f'Adopted warm Sandbox "{sandbox["metadata"]["name"]}"')
        return adopted

    def _make_cold(self, claim, template, metadata):
        namespace, name = key_of(claim)
        body = pools.pod_template(template)
        body["metadata"] = metadata
        for variable in claim["spec"].get("env") or []:
            wanted = variable.get("containerName") or body["spec"]["containers"][0]["name"]
            for container in body["spec"]["containers"]:
                if container["name"] == wanted:
                    values = [one for one in container.get("env") or []
                              if one["name"] != variable["name"]]
                    container["env"] = values + [{key: variable[key] for key in ("name", "value")}]
        try:
            made = self.store.create("sandboxes", {
                "metadata": {"name": name, "namespace": namespace,
                             "labels": {SYSTEM + "launch-type": "cold",
                                        CLAIM_UID: claim["metadata"]["uid"],
                                        TEMPLATE_REF: name_hash(template["metadata"]["name"])},
                             "annotations": {SYSTEM + "sandbox-template-ref":
                                             template["metadata"]["name"]},
                             "ownerReferences": [reference_to(claim)]},
                "spec": {"podTemplate": body, "operatingMode": "Running",
                         **({"volumeClaimTemplates": claim["spec"]["volumeClaimTemplates"]}
                            if claim["spec"].get("volumeClaimTemplates") else {})}})
        except ApiError as error:
            if error.code != 409:
                raise
            raise Refused("AdoptionConflict", str(error)) from error
        self.world.cluster.event(claim, "Normal", "SandboxProvisioned", f'Created Sandbox "{name}"')
        return made

    # ---- what is told ----

    def _tell(self, claim, sandbox, refused):
        namespace, name = key_of(claim)
        generation = claim["metadata"].get("generation", 1)

        def change(item):
            status = item.setdefault("status", {})
            if sandbox is not None:
                status["sandbox"] = {"name": sandbox["metadata"]["name"]}
                if (sandbox.get("status") or {}).get("podIPs"):
                    status["sandbox"]["podIPs"] = sandbox["status"]["podIPs"]
                finished = condition_of(sandbox, "Finished")
                if finished:
                    set_condition(item, "Finished", finished["status"], finished["reason"],
                                  finished["message"], generation)
                else:
                    drop_condition(item, "Finished")
            ready = sandbox and condition_of(sandbox, "Ready")
            if refused is not None:
                set_condition(item, "Ready", False, refused.reason, str(refused), generation)
            elif ready:
                set_condition(item, "Ready", ready["status"], ready["reason"], ready["message"],
                              generation)
            else:
                set_condition(item, "Ready", False, "SandboxNotReady", "Sandbox is not ready",
                              generation)
        after = self.store.edit("sandboxclaims", namespace, name, change, part="status")
        if after is not None and is_true(after, "Ready") and not is_true(claim, "Ready"):
            self.world.own_time("create", after["metadata"]["uid"])

    def _expire(self, claim, sandbox):
        """True: it is over."""
        namespace, name = key_of(claim)
        lifecycle = claim["spec"].get("lifecycle") or {}
        moments = []
        if lifecycle.get("shutdownTime"):
            moments.append(seconds_until(lifecycle["shutdownTime"]))
        finished = condition_of(claim, "Finished")
        if finished and lifecycle.get("ttlSecondsAfterFinished") is not None:
            moments.append(seconds_until(finished["lastTransitionTime"]) +
                           lifecycle["ttlSecondsAfterFinished"])
        if not moments:
            return False
        if min(moments) > 0:
            self.queue.later(min(moments), namespace, name)
            return False
        policy = lifecycle.get("shutdownPolicy", "Retain")
        if condition_of(claim, "Ready") is None or \
                condition_of(claim, "Ready")["reason"] != "ClaimExpired":
            self._tell(claim, sandbox, Refused("ClaimExpired",
                                               "Claim expired. Sandbox cleanup initiated."))
            self.world.cluster.event(claim, "Normal", "ClaimExpired", "Claim expired")
        if policy == "Retain":
            if sandbox is not None:
                self.store.delete("sandboxes", namespace, sandbox["metadata"]["name"])
        else:
            self.store.delete("sandboxclaims", namespace, name, propagation=(
                "Foreground" if policy == "DeleteForeground" else "Background"))
        return True
