"""Who asks, and what is denied them."""

from __future__ import annotations

import fnmatch
import secrets

from aiohttp import web

from errors import ApiError, about, forbidden

POLICY = "gke-pod-snapshot-validating-admission-policy"


class Access:
    def __init__(self):
        self.token = secrets.token_urlsafe(32)
        self.denied: list[dict[str, str]] = []

    def user_of(self, request: web.BaseRequest) -> str:
        header = request.headers.get("Authorization", "")
        if header:
            scheme, _, token = header.partition(" ")
            if scheme.lower() == "bearer" and secrets.compare_digest(token.strip(), self.token):
                return "tester"
        else:
            certificate = request.transport and request.transport.get_extra_info("peercert")
            for part in (certificate or {}).get("subject", ()):
                for name, value in part:
                    if name == "commonName":
                        return value
        raise ApiError(401, "Unauthorized")

    def deny(self, asked: dict) -> None:
        self.denied.append({field: str(asked.get(field, "*"))
                            for field in ("verb", "resource", "name", "namespace")})

    def may(self, verb: str, resource: str, part: str, namespace: str, name: str) -> bool:
        whole = f"{resource}/{part}" if part else resource
        return not any(
            rule["verb"] in ("*", verb) and rule["resource"] in ("*", whole) and
            fnmatch.fnmatchcase(name, rule["name"]) and
            fnmatch.fnmatchcase(namespace, rule["namespace"]) for rule in self.denied)

    def check(self, user: str, verb: str, kind, part: str, namespace: str, name: str) -> None:
        if self.may(verb, kind.plural, part, namespace, name):
            return
        whole = f"{kind.plural}/{part}" if part else kind.plural
        where = f' in the namespace "{namespace}"' if kind.namespaced and namespace else \
            " at the cluster scope"
        told = forbidden(kind, name, f'User "{user}" cannot {verb} resource "{whole}" in API group '
                                     f'"{kind.group}"{where}')
        raise ApiError(403, str(told).replace(kind.plural, whole, 1) if part else str(told),
                       details=about(kind, name))


def admit(verb: str, kind, name: str) -> None:
    """GKE lets nobody but its own controllers write PodSnapshots; they may be deleted."""
    if kind.plural == "podsnapshots" and verb in ("create", "update", "patch", "apply"):
        raise forbidden(kind, name, f"ValidatingAdmissionPolicy '{POLICY}' with binding "
                                    f"'{POLICY}-binding' denied request: PodSnapshot objects can "
                                    "only be created or updated by GKE")
