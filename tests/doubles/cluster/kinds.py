"""Every kind that the double serves."""

from __future__ import annotations

import dataclasses
import pathlib

import yaml

SCHEMAS = pathlib.Path(__file__).with_name("schemas")

AGENTS = "agents.x-k8s.io"
EXTENSIONS = "extensions.agents.x-k8s.io"
SNAPSHOTS = "podsnapshot.gke.io"


@dataclasses.dataclass
class Kind:
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    has_status: bool = False
    custom: bool = False  # by a CustomResourceDefinition: strategic patches are refused
    columns: tuple[tuple[str, str, str], ...] = ()  # name, type, path
    schema: dict | None = None
    immutable: tuple[str, ...] = ()  # paths that may not change, nor come or go

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def condition(name: str, what: str) -> str:
    return f".status.conditions[?(@.type=='{name}')].{what}"


READY = ("Ready", "string", condition("Ready", "status"))
REASON = ("Reason", "string", condition("Ready", "reason"))
AGE = ("Age", "date", ".metadata.creationTimestamp")

BUILT_IN = [
    # group, version, plural, kind, namespaced, short, status, columns
    ("", "v1", "namespaces", "Namespace", False, ("ns",), True,
     (("Status", "string", ".status.phase"), AGE)),
    ("", "v1", "nodes", "Node", False, ("no",), True,
     (("Status", "string", condition("Ready", "status")), AGE)),
    ("", "v1", "pods", "Pod", True, ("po",), True,
     (("Ready", "string", condition("Ready", "status")), ("Status", "string", ".status.phase"),
      ("Restarts", "integer", ".status.containerStatuses[0].restartCount"), AGE)),
    ("", "v1", "configmaps", "ConfigMap", True, ("cm",), False, (AGE,)),
    ("", "v1", "secrets", "Secret", True, (), False, (("Type", "string", ".type"), AGE)),
    ("", "v1", "events", "Event", True, ("ev",), False,
     (("Type", "string", ".type"), ("Reason", "string", ".reason"),
      ("Object", "string", ".involvedObject.name"), ("Message", "string", ".message"))),
    ("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",), False, (AGE,)),
    ("", "v1", "services", "Service", True, ("svc",), True, (AGE,)),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("pvc",), True, (AGE,)),
    ("apps", "v1", "deployments", "Deployment", True, ("deploy",), True, (AGE,)),
    ("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), True, (AGE,)),
    ("coordination.k8s.io", "v1", "leases", "Lease", True, (), False, (AGE,)),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, (), False,
     (("Handler", "string", ".handler"), AGE)),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, ("netpol",), False,
     (AGE,)),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", True, (), False, (AGE,)),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, (), False, (AGE,)),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, (), False, (AGE,)),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, (),
     False, (AGE,)),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies",
     "ValidatingAdmissionPolicy", False, (), True, (AGE,)),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings",
     "ValidatingAdmissionPolicyBinding", False, (), False, (AGE,)),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False,
     ("crd", "crds"), True, (AGE,)),
]

CUSTOM = [
    (AGENTS, "v1beta1", "sandboxes", "Sandbox", True, ("sandbox",), True, (READY, REASON, AGE)),
    (EXTENSIONS, "v1beta1", "sandboxclaims", "SandboxClaim", True, ("sandboxclaim",), True,
     (READY, ("Sandbox", "string", ".status.sandbox.name"), REASON, AGE)),
    (EXTENSIONS, "v1beta1", "sandboxtemplates", "SandboxTemplate", True, ("sandboxtemplate",),
     False, (AGE,)),
    (EXTENSIONS, "v1beta1", "sandboxwarmpools", "SandboxWarmPool", True, ("swp",), True,
     (("Ready", "integer", ".status.readyReplicas"), AGE)),
    (SNAPSHOTS, "v1", "podsnapshots", "PodSnapshot", True, (), True,
     (("Status", "string", condition("Ready", "reason")), AGE)),
    (SNAPSHOTS, "v1", "podsnapshotmanualtriggers", "PodSnapshotManualTrigger", True, (), True,
     (("Triggered", "string", condition("Triggered", "reason")), AGE)),
    (SNAPSHOTS, "v1", "podsnapshotpolicies", "PodSnapshotPolicy", True, (), True, (AGE,)),
    (SNAPSHOTS, "v1", "podsnapshotstorageconfigs", "PodSnapshotStorageConfig", False, (), True,
     (AGE,)),
    ("cloud.google.com", "v1", "computeclasses", "ComputeClass", False, ("cc",), True, (AGE,)),
]

IMMUTABLE = {"sandboxes": (".spec.volumeClaimTemplates",), "podsnapshots": (".spec.policyName",),
             "podsnapshotmanualtriggers": (".spec",)}


def all_kinds() -> dict[str, Kind]:
    """By plural, which is unique among what is served here."""
    ours: dict[str, dict] = {}
    for path in sorted(SCHEMAS.glob("*.yaml")):
        ours.update(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))
    kinds = {}
    for rows, custom in ((BUILT_IN, False), (CUSTOM, True)):
        for group, version, plural, name, namespaced, short, status, columns in rows:
            kinds[plural] = Kind(group, version, plural, name, namespaced, short, status, custom,
                                 columns, ours.get(plural), IMMUTABLE.get(plural, ()))
    return kinds


def definition(kind: Kind, versions: list[str]) -> dict:
    """The CustomResourceDefinition of a custom kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced" if kind.namespaced else "Cluster",
                 "names": {"plural": kind.plural, "kind": kind.kind,
                           "singular": kind.kind.lower(), "listKind": kind.kind + "List",
                           "shortNames": list(kind.short)},
                 "versions": [{"name": version, "served": True,
                               "storage": version == kind.version} for version in versions]},
        "status": {"conditions": [{"type": "Established", "status": "True",
                                   "reason": "InitialNamesAccepted", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                   "storedVersions": [kind.version]},
    }
