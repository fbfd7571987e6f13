"""Warm pools: Sandboxes that wait for a claim."""
import json

from reconcile import (POOL_LABEL, SYSTEM, TEMPLATE_HASH, TEMPLATE_REF, Queue, is_true,
                       key_of, name_hash, owner_of, reference_to)


# In from the router, out to the internet but not to what is private.
DEFAULT_RULES = {
    "ingress": [{"from": [{
        "namespaceSelector": {"matchLabels": {
            "kubernetes.io/metadata.name": "agent-sandbox-system"}},
        "podSelector": {"matchLabels": {"app": "sandbox-router"}}}]}],
    "egress": [{"to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [
            "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]}},
        {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}}]}]}


def template_hash(template):
    return name_hash(json.dumps(template["spec"]["podTemplate"], sort_keys=True))


def pod_template(template):
    """Of a Sandbox by this template: its own metadata and the labels of the system."""
    made = json.loads(json.dumps(template["spec"]["podTemplate"]))
    labels = made.setdefault("metadata", {}).setdefault("labels", {})
    labels[TEMPLATE_REF] = name_hash(template["metadata"]["name"])
    spec = made["spec"]
    spec.setdefault("automountServiceAccountToken", False)
    return made


class Pools:
    def __init__(self, world):
        self.world, self.store = world, world.store
        self.queue = Queue(world.cluster, self.reconcile)
        self.store.subscribe("sandboxwarmpools", lambda _, item, __: self.queue.add(*key_of(item)))
        self.store.subscribe("sandboxtemplates", self._on_template)
        self.store.subscribe("sandboxes", self._on_sandbox)

    def _on_template(self, event, template, _):
        if event != "DELETED":
            self._guard(template)
        for pool in self.store.list("sandboxwarmpools", template["metadata"]["namespace"]):
            self.queue.add(*key_of(pool))

    def _guard(self, template):
        """The NetworkPolicy of a template, unless it has none of ours."""
        namespace, name = key_of(template)
        own = template["spec"].get("networkPolicy")
        spec = {"podSelector": {"matchLabels": {TEMPLATE_REF: name_hash(name)}},
                "policyTypes": ["Ingress", "Egress"],
                **({"ingress": own.get("ingress") or [], "egress": own.get("egress") or []}
                   if own is not None else DEFAULT_RULES)}
        policy = name + "-network-policy"
        present = self.store.get("networkpolicies", namespace, policy)
        if template["spec"].get("networkPolicyManagement", "Managed") == "Unmanaged":
            if present is not None:
                self.store.delete("networkpolicies", namespace, policy)
        elif present is None:
            self.store.create("networkpolicies", {
                "metadata": {"name": policy, "namespace": namespace,
                             "ownerReferences": [reference_to(template)]}, "spec": spec})
        else:
            self.store.edit("networkpolicies", namespace, policy,
                            lambda item: item.update(spec=spec))

    def _on_sandbox(self, _, sandbox, before):
        for item in (sandbox, before):
            owner = item and owner_of(item, "SandboxWarmPool")
            if owner:
                self.queue.add(item["metadata"]["namespace"], owner["name"])

    def members(self, pool):
        return [item for resource, item in self.store.owned(pool["metadata"]["uid"])
                if resource == "sandboxes" and not item["metadata"].get("deletionTimestamp")]

    def template_of(self, pool):
        return self.store.get("sandboxtemplates", pool["metadata"]["namespace"],
                              pool["spec"]["sandboxTemplateRef"]["name"])

    def reconcile(self, namespace, name):
        pool = self.store.get("sandboxwarmpools", namespace, name)
        if pool is None or pool["metadata"].get("deletionTimestamp"):
            return
        template = self.template_of(pool)
        members = self.members(pool)
        wanted = pool["spec"].get("replicas", 1)
        if template is not None:
            strategy = (pool["spec"].get("updateStrategy") or {}).get("type", "OnReplenish")
            present = template_hash(template)
            if strategy == "Recreate":
                for member in members:
                    if member["metadata"]["labels"].get(TEMPLATE_HASH) != present:
                        self.store.delete("sandboxes", namespace, member["metadata"]["name"])
                members = self.members(pool)
            for _ in range(wanted - len(members)):
                members.append(self._make(pool, template, present))
        members.sort(key=lambda item: is_true(item, "Ready"))
        surplus = members[:max(0, len(members) - wanted)]
        for member in surplus:
            self.store.delete("sandboxes", namespace, member["metadata"]["name"])
        left = [member for member in members if member not in surplus]

        def change(item):
            item["status"] = {
                "replicas": len(left), "selector": f"{POOL_LABEL}={name_hash(name)}",
                "readyReplicas": sum(is_true(member, "Ready") for member in left),
                "observedGeneration": item["metadata"].get("generation", 1)}
        self.store.edit("sandboxwarmpools", namespace, name, change, part="status")

    def _make(self, pool, template, present):
        name = pool["metadata"]["name"]
        return self.store.create("sandboxes", {
            "metadata": {
                "generateName": name + "-", "namespace": pool["metadata"]["namespace"],
                "labels": {POOL_LABEL: name_hash(name), TEMPLATE_HASH: present,
                           TEMPLATE_REF: name_hash(template["metadata"]["name"])},
                "annotations": {SYSTEM + "sandbox-template-ref": template["metadata"]["name"]},
                "ownerReferences": [reference_to(pool)]},
            "spec": {"podTemplate": pod_template(template), "operatingMode": "Running"}})


