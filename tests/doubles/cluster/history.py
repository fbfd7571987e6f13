"""What happened, in order, for watches that begin at an older version; and who watches."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Callable

from errors import ApiError, expired

KEPT = 16_000  # changes of one kind


@dataclasses.dataclass
class Change:
    version: int
    event: str  # ADDED, MODIFIED, DELETED
    object: dict
    before: dict | None
    line: bytes = b""  # as a watch tells it, made once for all watches


class History:
    """Of one kind."""

    def __init__(self):
        self.changes: collections.deque[Change] = collections.deque()
        self.oldest = 0  # the last version that is forgotten
        self.watchers: dict[object, Callable[[Change], None]] = {}
        # Most watches are on one object: those are only asked about that one.
        self.by_name: dict[tuple[str, str], dict[object, Callable[[Change], None]]] = {}

    def add(self, change: Change) -> None:
        self.changes.append(change)
        if len(self.changes) > KEPT:
            self.oldest = self.changes.popleft().version
        for tell in list(self.watchers.values()):
            tell(change)
        metadata = change.object["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        for tell in list(self.by_name.get(key, {}).values()):
            tell(change)

    def since(self, version: int) -> list[Change]:
        if version < self.oldest:
            raise expired(version, self.oldest)
        if not self.changes or version >= self.changes[-1].version:
            return []
        # Most who ask are nearly up to date.
        found: list[Change] = []
        if len(self.changes) > 64 and self.changes[-64].version <= version:
            for change in reversed(self.changes):
                if change.version <= version:
                    break
                found.append(change)
            return found[::-1]
        all_of_them = list(self.changes)
        return all_of_them[bisect.bisect_right(all_of_them, version, key=lambda c: c.version):]

    def watch(self, key: tuple[str, str] | None, tell: Callable[[Change], None]):
        """`key`: namespace and name of the only object, or None. Returns what ends it."""
        token = object()
        place = self.watchers if key is None else self.by_name.setdefault(key, {})
        place[token] = tell

        def end() -> None:
            place.pop(token, None)
            if key is not None and not place:
                self.by_name.pop(key, None)
        return end

    def compact(self, version: int) -> None:
        self.changes.clear()
        self.oldest = version

    def before(self, namespace: str, name: str) -> dict | None:
        """What stood there one version ago: for stale reads."""
        for change in reversed(self.changes):
            metadata = change.object["metadata"]
            if metadata["name"] == name and metadata.get("namespace", "") == namespace:
                return change.before
        return None


def read_version(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ApiError(400, f'invalid resource version "{text}"')
    return int(text)
