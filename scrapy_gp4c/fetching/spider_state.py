"""Attributes of a crawl's spider, such as counters and tables of callbacks: the same in all processes.

The processes are fetchers, which run callbacks, and the owner, which has the store. Each reports how its
spider's attributes have changed since its last report. Numbers change by differences and containers by
entries, so that changes of several fetchers add up.
"""

import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from scrapy import Spider

Changes = dict[str, Any]
"""Attribute -> its change, as `merged` takes it."""
_OF_PROCESS: Final = frozenset(("crawler", "settings", "name"))
_ABSENT: Final = object()
LARGE_BYTES: Final = 100_000
"""Largest pickled size of an attribute whose changes in the owner are reported to fetchers."""
MAX_CHANGES: Final = 10_000
"""Most changes kept for a fetcher that does not call: after more, it is sent all attributes."""
PAUSE: Final = 20
"""Pause between two comparisons of the attributes, in durations of the last one: large tables take long."""


def packed_attributes(spider: Spider, not_compared: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield names and pickled values of a spider's attributes, but for Scrapy's own and `not_compared`."""
    for name, value in list(vars(spider).items()):
        if name not in _OF_PROCESS and name not in not_compared:
            try:
                yield name, pickle.dumps(value)
            except Exception:  # whatever objects raise
                not_compared.add(name)


class SpiderState:
    """Attributes of this process's spider: finds their changes, and applies those of other processes."""

    most_bytes = float("inf")
    """Largest pickled size of an attribute for which changes are looked for."""

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self._not_compared: set[str] = set()
        self.packed = dict(packed_attributes(spider, self._not_compared))
        self._changed: set[str] = set()
        """Names of attributes that have changed since the spider was made."""
        self._unsent: list[Changes] = []
        self._incoming: list[Changes] = []
        self._due_s = 0.0

    def changes(self, *, is_last: bool = False) -> list[Changes]:
        """Return the changes of the spider's attributes that were noticed since the last call.

        ``is_last``: look for changes now, because no other call may follow for long.
        """
        if is_last or time.perf_counter() >= self._due_s:
            self._look()
        unsent, self._unsent = self._unsent, []
        return unsent

    def apply(self, all_changes: list[Changes], *, is_last: bool = False) -> None:
        """Apply changes of other processes: if `is_last` now, else not too soon after the last time."""
        self._incoming += all_changes
        if self._incoming and (is_last or time.perf_counter() >= self._due_s):
            self._look()

    def _look(self) -> None:
        """Note how callbacks have changed the attributes, then apply the changes of other processes."""
        begun_s, changes = time.perf_counter(), {}
        for name, packed in packed_attributes(self._spider, self._not_compared):
            before = self.packed.get(name)
            if len(packed) > self.most_bytes:
                self._not_compared.add(name)
            elif packed != before:
                self.packed[name] = packed
                if (change := packed_difference(before, packed)) is not None:
                    changes[name] = change
        if changes:
            self._unsent.append(changes)
        self._changed.update(changes, *self._incoming)
        for incoming in self._incoming:
            for name, change in incoming.items():
                with suppress(Exception):  # the attribute may be of another type here
                    setattr(self._spider, name, merged(getattr(self._spider, name, _ABSENT), change))
        if self._incoming:
            self.packed.update(packed_attributes(self._spider, self._not_compared))
            self._incoming = []
        now_s = time.perf_counter()
        self._due_s = now_s + PAUSE * (now_s - begun_s)


class OwnersState(SpiderState):
    """Attributes of the owner's spider, and how far each fetcher was sent their changes."""

    most_bytes = LARGE_BYTES

    def __init__(self, spider: Spider) -> None:
        super().__init__(spider)
        self._log: list[tuple[str | None, Changes]] = []
        """Changes, each with the identity of the fetcher that reported it; None: the owner's own."""
        self._dropped = 0
        """Number of earlier changes that are no longer in `_log`."""
        self._sent: dict[str, int] = {}
        """Identity of a fetcher -> number of changes that were sent to it."""

    def take(self, identity: str, changes: list[Changes], *, is_last: bool) -> None:
        """Apply changes that a fetcher, `identity`, reports, at once if `is_last`; keep them for others."""
        self.apply(changes, is_last=is_last)
        self._log += [(identity, change) for change in changes]

    def unsent(self, identity: str) -> list[Changes]:
        """Return the changes to send to the fetcher `identity`: all since the last call but its own.

        For a new fetcher, these are the values of all attributes that have changed.
        """
        sent = self._sent.get(identity, -1)
        is_new = sent < self._dropped
        self._log += [(None, change) for change in self.changes(is_last=is_new)]
        last = self._sent[identity] = self._dropped + len(self._log)
        first = max(min(self._sent.values()), last - MAX_CHANGES)
        news = self._log[max(0, sent - self._dropped) :]
        del self._log[: first - self._dropped]
        self._dropped = first
        if is_new:
            same = vars(self._spider).keys() - self._changed
            changed = packed_attributes(self._spider, same)
            return [{name: ("put", pickle.loads(packed)) for name, packed in changed}]
        return [change for maker, change in news if maker != identity]

    def forget(self, identity: str) -> None:
        """Treat a fetcher as new from now on: it is gone, or may have missed changes."""
        self._sent.pop(identity, None)


def packed_difference(before: bytes | None, packed: bytes) -> tuple[Any, ...] | None:
    """Return how a pickled value has changed, see `difference`; ``before``: None: there was no attribute.

    It shares no objects with the spider: what a callback changes later is a later change.
    """
    if packed == before:
        return None
    return difference(_ABSENT if before is None else pickle.loads(before), pickle.loads(packed))


def difference(old: Any, new: Any) -> tuple[Any, ...] | None:
    """Return how a value has changed, as `merged` takes it; None: it has not changed."""
    if old is _ABSENT and isinstance(new, int | float | set | dict | list):
        return "new", new, difference(type(new)(), new)
    if type(old) is not type(new):
        return "put", new
    if isinstance(new, int | float) and not isinstance(new, bool):
        return None if old == new else ("add", old, new)
    if isinstance(new, set):
        return None if old == new else ("set", new - old, old - new)
    if isinstance(new, dict):
        changed = ((key, difference(old.get(key, _ABSENT), value)) for key, value in new.items())
        entries = {key: change for key, change in changed if change is not None}
        gone = old.keys() - new.keys()
        return ("dict", entries, gone) if entries or gone else None
    if isinstance(new, list) and new[: len(old)] == old:
        return None if len(old) == len(new) else ("list", new[len(old) :])
    return None if pickle.dumps(old) == pickle.dumps(new) else ("put", new)


def merged(value: Any, change: tuple[Any, ...]) -> Any:
    """Return `value` after a change reported by another process; raises where their types differ."""
    match change:
        case "put", new:
            return new
        case "new", new, later:
            return new if value is _ABSENT or later is None else merged(value, later)
        case "add", old, new:
            return new if value == old else value + new - old
        case "set", more, gone:
            value.difference_update(gone)
            value.update(more)
        case "list", more:
            value.extend(more)
        case "dict", entries, gone:
            for key, later in entries.items():
                value[key] = merged(value.get(key, _ABSENT), later)
            for key in gone:
                value.pop(key, None)
    return value
