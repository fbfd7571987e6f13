"""The HTTP side: every request of the Kubernetes API, and how it is answered."""

from __future__ import annotations

import asyncio
import base64
import binascii
import collections
import json

from aiohttp import web

import access
import errors
import execution
import questions
import selecting
import table
import watching
from apply import Managers
from calls import Call, object_of, patch_form, read_body, read_call
from discovery import Discovery
from errors import ApiError
from faults import Fault, Faults, break_off, error_of
from patch import apply_operations, merge, strategic

LOGGED = 20_000
PAGES_KEPT = 64
LATE = ("late", "never")


class Server:
    def __init__(self, store, directory: str):
        self.store, self.directory = store, directory
        self.discovery = Discovery(store.kinds)
        self.access, self.faults, self.managers = access.Access(), Faults(), Managers()
        self.watches: set[watching.Watch] = set()
        self.execs = 0
        self.runner = None
        self.counts: collections.Counter[str] = collections.Counter()
        self.log: collections.deque[dict] = collections.deque(maxlen=LOGGED)
        self.pages: collections.OrderedDict[str, list[dict]] = collections.OrderedDict()
        self.actions = {"get": self.get, "list": self.list, "create": self.create,
                        "update": self.update, "patch": self.patch, "apply": self.apply,
                        "delete": self.delete, "deletecollection": self.delete_many}

    # ---- every request ----

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        row = {"verb": request.method.lower(), "resource": request.path, "name": "", "part": "",
               "code": 0, "agent": request.headers.get("User-Agent", ""),
               "query": request.query_string}
        self.log.append(row)
        try:
            response = await self.answer(request, row)
        except ApiError as problem:
            response = self.told(problem)
        except asyncio.CancelledError:
            raise
        except ConnectionError:
            response = web.Response(status=499)
        row["code"] = response.status
        return response

    async def answer(self, request: web.BaseRequest, row: dict) -> web.StreamResponse:
        user = self.access.user_of(request)
        if request.path.startswith("/apis/auth") and request.method == "POST":
            self.counts["create questions"] += 1
            return self.json(await questions.answer(request, self.access, user), 201)
        try:
            call = read_call(request, self.discovery.kind_of)
        except ApiError as problem:
            if problem.code != 404 or request.method not in ("GET", "HEAD"):
                raise
            return await self.discover(request)
        call.user = user
        row.update(verb=call.verb, resource=call.kind.plural, name=call.name, part=call.part)
        self.counts[f"{call.verb} {call.kind.plural}" + (f"/{call.part}" if call.part else "")] += 1
        for verb in ("get", "create") if call.verb == "exec" else \
                ("patch",) if call.verb == "apply" else (call.verb,):
            self.access.check(user, verb, call.kind, call.part, call.namespace, call.name)
        # A field selector by name is as good as a name, for who orders a fault.
        name = call.name or selecting.fields(call.query.get("fieldSelector"),
                                             call.kind.plural)[1] or ""
        fault = self.faults.hit(call.verb, call.kind.plural, call.part, name)
        return await self.with_fault(call, fault) if fault else await self.plainly(call)

    async def plainly(self, call: Call, fault: Fault | None = None) -> web.StreamResponse:
        if call.verb == "watch":
            return await watching.Watch(self, call, fault).run()
        if call.verb == "exec":
            return await execution.run(self, call, fault)
        if call.part not in ("", "status") or call.part and not call.kind.has_status:
            raise errors.no_such_path()
        action = self.actions[call.verb]
        body = await read_body(call.request) if call.request.method != "GET" else None
        return action(call, body) if body is not None else action(call, {})

    async def with_fault(self, call: Call, fault: Fault) -> web.StreamResponse:
        what = fault.what
        if what in LATE:
            await self.faults.hold(fault)
            return self.cut(call) if what == "never" else await self.plainly(call)
        if what == "reset":
            return self.cut(call)
        if what == "body":
            return web.Response(text=str(fault.options.get("body", "")),
                                content_type="application/json")
        if what == "stale" and call.verb in ("get", "list"):
            return self.stale(call)
        if what.startswith(("watch-", "exec-")):
            return await self.plainly(call, fault)
        if what not in ("reset-after", "late-after") and not what.startswith("status-after"):
            raise error_of(fault)
        response = await self.plainly(call)
        if what == "late-after":
            await self.faults.hold(fault)
            return response
        if what == "reset-after":
            return self.cut(call)
        raise error_of(fault)

    @staticmethod
    def cut(call: Call) -> web.Response:
        break_off(call.request)
        return web.Response(status=499)

    def told(self, problem: ApiError) -> web.Response:
        headers = {}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        if problem.code == 404 and not problem.details:
            return web.Response(status=404, text="404 page not found\n", headers=headers)
        return web.json_response(problem.status(), status=problem.code, headers=headers)

    @staticmethod
    def json(object: dict, code: int = 200, warnings: list[str] | None = None) -> web.Response:
        response = web.Response(body=json.dumps(object, separators=(",", ":")).encode(),
                                status=code, content_type="application/json")
        for warning in warnings or []:
            escaped = warning.replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{escaped}"')
        return response

    async def discover(self, request: web.BaseRequest) -> web.Response:
        self.counts["get discovery"] += 1
        fault = self.faults.hit("get", "discovery", "", request.path)
        if fault is not None and fault.what in LATE:
            await self.faults.hold(fault)
        elif fault is not None and fault.what == "reset":
            break_off(request)
        elif fault is not None:
            raise error_of(fault)
        if request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        return self.json(self.discovery.answer(request.path))

    # ---- the verbs ----

    def shaped(self, call: Call, object: dict, code: int = 200,
               warnings: list[str] | None = None) -> web.Response:
        form = table.wanted_form(call.request.headers.get("Accept", ""))
        if form == "Table":
            object = table.table(call.kind, [object], {
                "resourceVersion": object["metadata"].get("resourceVersion", "")})
        elif form == "Partial":
            object = table.partial(object)
        return self.json(object, code, warnings)

    def get(self, call: Call, _: object) -> web.Response:
        return self.shaped(call, self.store.need(call.kind.plural, call.namespace, call.name))

    def list(self, call: Call, _: object, stale: bool = False) -> web.Response:
        limit, token = call.number("limit", 0), call.query.get("continue", "")
        version = str(self.store.version)
        if token:
            version, start, found = self.page_of(token)
        else:
            start, found = 0, self.selected(call)
            if stale:
                found = self.one_change_ago(call, found)
        metadata: dict[str, object] = {"resourceVersion": version}
        shown = found[start:start + limit] if limit else found[start:]
        if start + len(shown) < len(found):
            metadata["continue"] = self.keep_page(version, start + len(shown), found)
            if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(found) - start - len(shown)
        form = table.wanted_form(call.request.headers.get("Accept", ""))
        if form == "Table":
            return self.json(table.table(call.kind, shown, metadata))
        name = "PartialObjectMetadata" if form == "Partial" else call.kind.kind
        version = "meta.k8s.io/v1" if form == "Partial" else call.kind.api_version
        if form == "Partial":
            shown = [table.partial(one) for one in shown]
        elif not call.kind.custom:
            # The typed kinds leave these out in lists; custom ones do not.
            shown = [{key: value for key, value in one.items()
                      if key not in ("kind", "apiVersion")} for one in shown]
        return self.json({"kind": f"{name}List", "apiVersion": version, "metadata": metadata,
                          "items": shown})

    def selected(self, call: Call) -> list[dict]:
        match, only = selecting.fields(call.query.get("fieldSelector"), call.kind.plural)
        if only is not None and call.namespace:
            one = self.store.get(call.kind.plural, call.namespace, only)
            found = [one] if one is not None and \
                selecting.labels(call.query.get("labelSelector"))(one) else []
        else:
            found = self.store.list(call.kind.plural, call.namespace or None,
                                    call.query.get("labelSelector", ""))
        return found if match is selecting.everything else [one for one in found if match(one)]

    def keep_page(self, version: str, start: int, found: list[dict]) -> str:
        token = base64.urlsafe_b64encode(json.dumps([version, start, id(found)]).encode()).decode()
        self.pages[token] = found
        while len(self.pages) > PAGES_KEPT:
            self.pages.popitem(last=False)
        return token

    def page_of(self, token: str) -> tuple[str, int, list[dict]]:
        try:
            version, start, _ = json.loads(base64.urlsafe_b64decode(token))
        except (ValueError, binascii.Error):
            raise ApiError(400, "continue key is not valid") from None
        if token not in self.pages:
            raise ApiError(410, "The provided continue parameter is too old to display a consistent "
                                "list result. You can start a new list without the continue "
                                "parameter.")
        return version, start, self.pages[token]

    def create(self, call: Call, body: object) -> web.Response:
        object = object_of(call, body)
        access.admit("create", call.kind, object["metadata"].get("name", ""))
        if call.part:
            raise errors.no_such_path()
        warnings: list[str] = []
        made = self.store.create(call.kind.plural, object, self.strictness(call), call.dry,
                                 warnings)
        if not call.dry:
            self.managers.wrote(call.manager, None, made)
        return self.shaped(call, made, 201, self.heard(call, warnings))

    @staticmethod
    def strictness(call: Call) -> str:
        asked = call.query.get("fieldValidation", "Warn")
        if asked not in ("Ignore", "Warn", "Strict", ""):
            raise ApiError(422, f'fieldValidation: Unsupported value: "{asked}"')
        return asked or "Warn"

    def heard(self, call: Call, warnings: list[str]) -> list[str]:
        return warnings if self.strictness(call) == "Warn" else []

    def update(self, call: Call, body: object) -> web.Response:
        object = object_of(call, body)
        access.admit("update", call.kind, call.name)
        return self.write(call, object)

    def write(self, call: Call, object: dict) -> web.Response:
        warnings: list[str] = []
        before = self.store.get(call.kind.plural, call.namespace, call.name)
        after = self.store.update(call.kind.plural, object, call.part, self.strictness(call),
                                  call.dry, warnings)
        if not call.dry and after is not before and not call.part:
            self.managers.wrote(call.manager, before, after)
        return self.shaped(call, after, 200, self.heard(call, warnings))

    def patch(self, call: Call, body: object) -> web.Response:
        access.admit("patch", call.kind, call.name)
        form = patch_form(call.request)
        if form == "strategic" and call.kind.custom:
            raise ApiError(415, "the body of the request was in an unknown format - accepted media "
                                "types include: application/json-patch+json, "
                                "application/merge-patch+json, application/apply-patch+yaml")
        before = self.store.need(call.kind.plural, call.namespace, call.name)
        if form == "json":
            after = apply_operations(before, body)
        elif not isinstance(body, dict):
            raise ApiError(400, "error decoding patch: it is no object")
        else:
            after = (merge if form == "merge" else strategic)(before, body)
        return self.write(call, object_of(call, after))

    def apply(self, call: Call, body: object) -> web.Response:
        access.admit("apply", call.kind, call.name)
        if not call.query.get("fieldManager"):
            raise ApiError(422, "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required "
                                "value: is required for apply patch", "Invalid")
        given = object_of(call, body)
        if "kind" not in given or "apiVersion" not in given:
            raise ApiError(400, "invalid object type: /, Kind=")
        if given["metadata"].pop("managedFields", None):
            raise ApiError(400, "metadata.managedFields must be nil")
        plural, manager = call.kind.plural, call.query["fieldManager"]
        before = self.store.get(plural, call.namespace, call.name)
        wanted = self.managers.apply(call.kind, manager, call.is_set("force"), before, given)
        warnings: list[str] = []
        if before is None:
            after = self.store.create(plural, wanted, self.strictness(call), call.dry, warnings)
        else:
            after = self.store.update(plural, wanted, call.part, self.strictness(call), call.dry,
                                      warnings)
        if not call.dry:
            self.managers.applied(manager, before, given, after)
        return self.shaped(call, after, 201 if before is None else 200,
                           self.heard(call, warnings))

    def delete(self, call: Call, body: object) -> web.Response:
        if call.part:
            raise errors.no_such_path()
        options = body if isinstance(body, dict) else {}
        conditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        last, gone = self.store.delete(
            call.kind.plural, call.namespace, call.name, conditions.get("uid"),
            conditions.get("resourceVersion"),
            options.get("propagationPolicy") or call.query.get("propagationPolicy"),
            None if grace is None else int(grace),
            call.dry or options.get("dryRun") == ["All"])
        if not gone or call.kind.plural == "pods":
            return self.json(last)
        self.managers.forget(last["metadata"]["uid"])
        return self.json({"kind": "Status", "apiVersion": "v1", "metadata": {},
                          "status": "Success",
                          "details": errors.about(call.kind, call.name,
                                                  uid=last["metadata"]["uid"])})

    def delete_many(self, call: Call, body: object) -> web.Response:
        options = body if isinstance(body, dict) else {}
        found = self.selected(call)
        for one in found:
            self.store.delete(call.kind.plural, one["metadata"].get("namespace"),
                              one["metadata"]["name"],
                              propagation=options.get("propagationPolicy"),
                              grace=options.get("gracePeriodSeconds"), dry=call.dry)
        return self.json({"kind": f"{call.kind.kind}List", "apiVersion": call.kind.api_version,
                          "metadata": {"resourceVersion": str(self.store.version)},
                          "items": found})

    # ---- as it was ----

    def stale(self, call: Call) -> web.Response:
        if call.verb == "list":
            return self.list(call, {}, stale=True)
        history = self.store.histories[call.kind.plural]
        before = history.before(call.namespace, call.name)
        if before is None:
            raise errors.not_found(call.kind, call.name)
        return self.shaped(call, before)

    def one_change_ago(self, call: Call, found: list[dict]) -> list[dict]:
        changes = self.store.histories[call.kind.plural].changes
        if not changes:
            return found
        last = changes[-1]
        uid = last.object["metadata"]["uid"]
        older = [one for one in found if one["metadata"]["uid"] != uid]
        if last.before is not None and any(
                last.before["metadata"].get("namespace", "") == space
                for space in (call.namespace, "" if call.namespace else
                              last.before["metadata"].get("namespace", ""))):
            older.append(last.before)
        return older
