"""What a client asks first: versions, groups, resources, and which queries a kind knows."""

from __future__ import annotations

from errors import no_such_path
from kinds import Kind

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.4-gke.1247000",
           "gitCommit": "0000000000000000000000000000000000000000", "gitTreeState": "clean",
           "buildDate": "2026-06-01T00:00:00Z", "goVersion": "go1.25.0", "compiler": "gc",
           "platform": "linux/amd64"}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Kinds of which there are no objects, only questions.
QUESTIONS = {"authorization.k8s.io": ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
             "authentication.k8s.io": ("selfsubjectreviews", "SelfSubjectReview")}


class Discovery:
    def __init__(self, kinds: dict[str, Kind]):
        self.kinds = kinds
        self.versions: dict[str, list[str]] = {}
        for kind in kinds.values():
            if kind.group:
                self.versions.setdefault(kind.group, [kind.version])
        for group in QUESTIONS:
            self.versions[group] = ["v1"]

    def serve(self, group: str, versions: list[str]) -> None:
        if group not in self.versions:
            raise ValueError(f"no such group: '{group}'")
        self.versions[group] = versions

    def kind_of(self, group: str, version: str, plural: str) -> Kind | None:
        kind = self.kinds.get(plural)
        if kind is None or kind.group != group or kind.version != version:
            return None
        return kind if not group or version in self.versions[group] else None

    def answer(self, path: str) -> dict:
        parts = [part for part in path.split("/") if part]
        if parts == ["version"]:
            return VERSION
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"],
                    "serverAddressByClientCIDRs": []}
        if parts == ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1",
                    "groups": [self.group(name) for name, found in self.versions.items() if found]}
        if len(parts) == 2 and parts[0] == "apis" and self.versions.get(parts[1]):
            return {"kind": "APIGroup", "apiVersion": "v1", **self.group(parts[1])}
        if parts == ["api", "v1"]:
            return self.resources("", "v1")
        if len(parts) == 3 and parts[0] == "apis" and parts[2] in self.versions.get(parts[1], []):
            return self.resources(parts[1], parts[2])
        if parts[:2] == ["openapi", "v3"]:
            return self.open_api(parts[2:])
        raise no_such_path()

    def group(self, name: str) -> dict:
        versions = [{"groupVersion": f"{name}/{version}", "version": version}
                    for version in self.versions[name]]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def resources(self, group: str, version: str) -> dict:
        rows: list[dict] = []
        for kind in self.kinds.values():
            if kind.group != group:
                continue
            row = {"name": kind.plural, "singularName": kind.kind.lower(),
                   "namespaced": kind.namespaced, "kind": kind.kind, "verbs": VERBS}
            rows.append({**row, "shortNames": list(kind.short)} if kind.short else row)
            if kind.has_status:
                rows.append({**row, "name": f"{kind.plural}/status", "singularName": "",
                             "verbs": ["get", "patch", "update"]})
            if kind.plural == "pods":
                rows.append({**row, "name": "pods/exec", "singularName": "",
                             "kind": "PodExecOptions", "verbs": ["create", "get"]})
        if group in QUESTIONS:
            plural, name = QUESTIONS[group]
            rows.append({"name": plural, "singularName": name.lower(), "namespaced": False,
                         "kind": name, "verbs": ["create"]})
        return {"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": f"{group}/{version}" if group else version, "resources": rows}

    def open_api(self, parts: list[str]) -> dict:
        """Only what kubectl needs in order to let the server check the fields."""
        served = ["api/v1"] + [f"apis/{group}/{version}" for group, versions in
                               self.versions.items() for version in versions]
        if not parts:
            return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=1"}
                              for path in served}}
        if "/".join(parts) not in served:
            raise no_such_path()
        group = "" if parts[0] == "api" else parts[1]
        paths = {}
        for kind in self.kinds.values():
            if kind.group == group:
                space = "/namespaces/{namespace}" if kind.namespaced else ""
                paths[f"/{'/'.join(parts)}{space}/{kind.plural}/{{name}}"] = {
                    "patch": patch_operation(kind)}
        return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.4"},
                "paths": paths, "components": {"schemas": {}}}


def patch_operation(kind: Kind) -> dict:
    return {"operationId": f"patch{kind.kind}", "responses": {"200": {"description": "OK"}},
            "parameters": [{"name": name, "in": "query",
                            "schema": {"type": "string", "uniqueItems": True}}
                           for name in ("dryRun", "fieldManager", "fieldValidation", "force")],
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version,
                                                "kind": kind.kind}}
