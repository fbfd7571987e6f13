"""Errors as a Kubernetes API server tells them: a Status with a reason, a code and details."""

from __future__ import annotations

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound",
           405: "MethodNotAllowed", 406: "NotAcceptable", 409: "Conflict", 410: "Expired",
           413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
           429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
           504: "Timeout"}


class ApiError(Exception):
    """`retry_after`: seconds, told as the header of that name, too."""

    def __init__(self, code: int, message: str, reason: str | None = None,
                 details: dict[str, object] | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "Unknown") if reason is None else reason
        self.details = dict(details or {})
        self.retry_after = retry_after
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def status(self) -> dict[str, object]:
        status: dict[str, object] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": str(self), "reason": self.reason, "code": self.code}
        if self.details:
            status["details"] = self.details
        return status


def qualified(kind) -> str:
    """`sandboxes.agents.x-k8s.io`, `pods`."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def about(kind, name: str, **more: object) -> dict[str, object]:
    details = {"name": name, "group": kind.group, "kind": kind.plural, **more}
    return {key: value for key, value in details.items() if value not in ("", None)}


def not_found(kind, name: str) -> ApiError:
    return ApiError(404, f'{qualified(kind)} "{name}" not found', details=about(kind, name))


def already_exists(kind, name: str) -> ApiError:
    return ApiError(409, f'{qualified(kind)} "{name}" already exists', "AlreadyExists",
                    about(kind, name))


def changed(kind, name: str) -> ApiError:
    return ApiError(409, f'Operation cannot be fulfilled on {qualified(kind)} "{name}": the object '
                         "has been modified; please apply your changes to the latest version and "
                         "try again", details=about(kind, name))


def precondition(kind, name: str, what: str, wanted: str, present: str) -> ApiError:
    return ApiError(409, f'Operation cannot be fulfilled on {qualified(kind)} "{name}": '
                         f"Precondition failed: {what} in precondition: {wanted}, {what} in object "
                         f"meta: {present}", details=about(kind, name))


def forbidden(kind, name: str, why: str) -> ApiError:
    told = f'{qualified(kind)} "{name}" is forbidden: {why}' if name else \
        f"{qualified(kind)} is forbidden: {why}"
    return ApiError(403, told, details=about(kind, name))


def invalid(kind, name: str, problems: list[tuple[str, str, str]]) -> ApiError:
    """`problems`: field, reason as `FieldValueRequired`, and the text after the field's name."""
    causes = [{"reason": reason, "message": text, "field": field}
              for field, reason, text in problems]
    told = ", ".join(f"{field}: {text}" for field, _, text in problems)
    if len(problems) > 1:
        told = f"[{told}]"
    whole = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return ApiError(422, f'{whole} "{name}" is invalid: {told}',
                    details={**about(kind, name), "kind": kind.kind, "causes": causes})


def expired(wanted: object, oldest: object) -> ApiError:
    return ApiError(410, f"too old resource version: {wanted} ({oldest})")


def no_such_path() -> ApiError:
    """Real servers answer these words as plain text; a client must get along with both."""
    return ApiError(404, "the server could not find the requested resource")
