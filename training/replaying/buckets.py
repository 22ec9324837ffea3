"""States of pages, and buckets: the pages in equal state and of one directory.

Pages are in few distinct states, each of which is kept once. Many score functions score the pages of a bucket
alike, and there are five to eight times fewer buckets than pages. So the best pages are looked for among
buckets. A visited page leaves its bucket, and enters another when the cycle is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.policies.base import Pages
from scrapy_gp4c.scoring import terminals

SLACK: Final = 4096
"""States above twice the number in use that may gather before unused ones are dropped."""
MOST_WAITING: Final = 2
"""Visits per page that may wait until the states of all pages are brought up to date."""


class PageStates(Mapping[str, Array]):
    """State columns of P pages by name, each ``[P]``, kept as N distinct states."""

    def __init__(self, state: Mapping[str, Array], number: npt.NDArray[Any]) -> None:
        """``state``: columns of the first states, ``[N]``; ``number``: state of each page, ``[P]``."""
        self.columns = dict(state)
        """Columns of `scrapy_gp4c.scoring.terminals.STATE` by state, each ``[N]``."""
        self._number = number.astype(np.int32)
        self._moved: list[tuple[npt.NDArray[Any], npt.NDArray[np.intp]]] = []
        self._waiting = 0
        self.renumbered: npt.NDArray[np.intp] | None = None
        """New number of each old state, if the last visits dropped any; 0 for dropped ones."""
        self._of_pages: dict[str, Array] = {}
        self._most = 2 * self.states + SLACK

    def __getitem__(self, name: str) -> Array:
        column = self._of_pages.get(name)
        if column is None:  # from now on it is kept up to date
            column = self._of_pages[name] = self.columns[name].take(self.number)
        return column

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def number(self) -> npt.NDArray[np.int32]:
        """``[P]``: state of each page."""
        for pages, number in self._moved:
            self._number[pages] = number
        self._moved, self._waiting = [], 0
        return self._number

    @property
    def states(self) -> int:
        return len(next(iter(self.columns.values())))

    def observe(
        self,
        pages: npt.NDArray[Any],
        changed: npt.NDArray[np.bool_],
        cycle: int,
        before: npt.NDArray[np.int32] | None = None,
    ) -> npt.NDArray[np.intp]:
        """Add a judged visit to each of some distinct pages; ``changed``: whether it had changed,
        ``[visits]``.

        ``before``: states before the visits, ``[visits]``, where the caller knows them. Returns the new
        states, which no page was in before: ``[visits]``.
        """
        self.renumbered = None
        if not len(pages):
            return np.empty(0, np.intp)
        moved = 2 * (self.number[pages] if before is None else before) + changed
        used = np.flatnonzero(np.bincount(moved))
        after = {name: values.take(used >> 1) for name, values in self.columns.items()}
        terminals.observe(after, used & 1, cycle)
        distinct, state = _merged(after)
        target = np.empty(int(used[-1]) + 1, np.intp)
        target[used] = self.states + state
        self.columns = {
            name: np.concatenate((values, after[name][distinct])) for name, values in self.columns.items()
        }
        number = target[moved]
        self._moved.append((pages, number))
        self._waiting += len(pages)
        if self._waiting > MOST_WAITING * len(self._number):
            _ = self.number
        for name, column in self._of_pages.items():
            column[pages] = self.columns[name].take(number)
        if self.states > self._most:
            self.renumbered = self._drop()
            number = self.renumbered[number]
        return np.asarray(number)

    def _drop(self) -> npt.NDArray[np.intp]:
        """Drop the states that no page is in; returns the new number of each old state."""
        used = np.flatnonzero(np.bincount(self.number, minlength=self.states))
        target = np.zeros(self.states, np.intp)
        target[used] = np.arange(len(used))
        self._number[:] = target[self._number]
        self.columns = {name: values[used] for name, values in self.columns.items()}
        self._most = 2 * len(used) + SLACK
        return target


def _merged(state: Mapping[str, Array]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows that differ, and for each row the number of the one that equals it."""
    columns = np.array([values.astype(np.float64) for values in state.values()])
    order = np.lexsort(columns)
    ordered = columns[:, order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    number = np.empty(len(order), np.intp)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number


AHEAD: Final = 4
"""Multiple of a round's pages that is looked for at once, for the rounds to come."""
FEW_MORE: Final = 1.5
"""Multiple of a round's pages up to which sorting them all is faster than narrowing."""

BucketNumbers = npt.NDArray[np.int32]


class Buckets:
    """Buckets of P pages; empty until `gather` or `restore`."""

    def __init__(self, pages: int) -> None:
        from training.replaying.kernels import bits, dense  # compile: only when they are used

        self._kernels: Any = dense
        self._fill_keys: Any = bits.fill_keys

        def memory(dtype: type, *size: int) -> npt.NDArray[Any]:
            return np.empty(size, dtype)

        self._memory = dense.BucketMemory(
            bucket_of=memory(np.int32, pages),
            shares=memory(np.int32, pages, 2),
            count=memory(np.int32, pages),
            listed=memory(np.int32, pages, 2),
            arena=memory(np.uint32, 2 * pages),
            sizes=np.zeros(dense.SIZES, np.int64),
        )
        # One more: the kernels write every row before they know whether it counts.
        self._rows = memory(np.int32, pages + 1)
        self._page_memory = tuple(memory(dtype, pages + 1) for dtype in (np.uint32, np.float64, np.int32))
        self._best_buckets = memory(np.int32, 0)
        self._departed = memory(np.int32, pages, 2)

    def gather(self, number: BucketNumbers, directory: npt.NDArray[np.intp]) -> None:
        """Put all pages into buckets by their states and directories, each ``[P]``."""
        self._memory.sizes[:] = 0
        pages = np.arange(len(number))
        self._kernels.put_in(pages, number.astype(np.intp), directory.astype(np.int32), self._memory)
        self.begin()

    def copy(self) -> Any:
        """Copy for `restore`; no page may have left its bucket yet."""
        used = dict.fromkeys(("shares", "count", "listed"), self.buckets)
        used |= dict.fromkeys(("bucket_of", "arena"), len(self._departed)) | {"sizes": self._kernels.SIZES}
        return self._memory._replace(
            **{name: getattr(self._memory, name)[:size].copy() for name, size in used.items()}
        )

    def restore(self, copied: Any) -> None:
        """Restore the buckets of a `copy`."""
        for array, other in zip(self._memory, copied, strict=True):
            array[: len(other)] = other
        self.begin()

    def begin(self) -> None:
        """Begin a cycle."""
        self._least: float | None = None
        self._visited = 0
        state, directory = self._memory.shares[: self.buckets].T
        self.state: npt.NDArray[np.intp] = state.astype(np.intp)
        """State of each bucket's pages, ``[C]``."""
        self.directory: npt.NDArray[np.intp] = directory.astype(np.intp)
        """Directory of each bucket, ``[C]``."""

    @property
    def buckets(self) -> int:
        """C: buckets, empty ones included."""
        return int(self._memory.sizes[self._kernels.BUCKETS])

    @property
    def departed_states(self) -> BucketNumbers:
        """Former states of the pages that left their buckets, in order of visit: ``[visits]``."""
        return self._departed[: self._visited, self._kernels.OWN]

    def visit(self, pages: Pages, are_best: bool) -> BucketNumbers:
        """Take pages out of their buckets; returns their directories. ``are_best``: `best` returned these."""
        buckets = self._best_buckets if are_best else self._memory.bucket_of[pages]
        shares = self._departed[self._visited : self._visited + len(pages)]
        self._kernels.take_out(pages, buckets, self._memory, shares)
        self._visited += len(pages)
        return shares[:, self._kernels.DIRECTORY]

    def observe(
        self,
        pages: npt.NDArray[np.int64],
        number: npt.NDArray[np.intp],
        renumbered: npt.NDArray[np.intp] | None,
    ) -> bool:
        """Put the pages that left into the buckets of their new states; False: no room, gather all anew.

        ``renumbered``: see `PageStates`.
        """
        if self._memory.sizes[self._kernels.TAIL] + len(pages) > len(self._memory.arena):
            return False
        if renumbered is not None:
            self._memory.shares[: self.buckets, self._kernels.OWN] = renumbered[self.state]
        directory = self._departed[: self._visited, self._kernels.DIRECTORY].copy()
        self._kernels.put_in(pages, number, directory, self._memory)
        return True

    def best(self, scores: Floats, k: int, salt: np.uint64, by_draw: bool) -> tuple[Pages, Floats, int]:
        """The k best pages, best first, their scores, and the tie number of the last one.

        A draw with the salt decides among equal scores, or the page's number. ``scores``: of each bucket,
        ``[C]``, not NaN; ``k``: at least 1, at most the pages in buckets.
        """
        rows = self._candidates(scores, k)
        pages_found = self._kernels.spread(rows, scores, self._memory, *self._page_memory)
        pages, page_scores, buckets = (one[:pages_found] for one in self._page_memory)
        keys = np.empty(pages_found, np.uint64)
        self._fill_keys(pages, salt, by_draw, keys)
        if pages_found > FEW_MORE * k:  # most of them are of the lowest score
            higher, lowest = (
                np.flatnonzero(page_scores > page_scores.min()),
                np.flatnonzero(page_scores == page_scores.min()),
            )
            wanted = k - len(higher)
            among = np.argpartition(keys[lowest], wanted - 1)[:wanted]
            chosen = np.concatenate((higher, lowest[among]))
            pages, page_scores, buckets, keys = (one[chosen] for one in (pages, page_scores, buckets, keys))
        order = self._kernels.in_order(page_scores, keys)[:k]
        self._best_buckets = buckets[order]
        return pages[order], page_scores[order], int(keys[order[-1]])

    def _candidates(self, scores: Floats, k: int) -> BucketNumbers:
        """Buckets that hold the k best pages, and few others but for ties."""
        count = self._memory.count[: self.buckets]
        reached = pages = 0
        if self._least is not None:
            reached, pages = self._kernels.reaching(scores, count, self._least, self._rows)
        if not k <= pages <= 2 * AHEAD * k:
            # Later rounds of a cycle find theirs above the same bound.
            wanted = k if self._least is None else min(AHEAD * k, len(self._departed) - self._visited)
            self._least = self._kernels.border(scores, count, wanted)
            reached, pages = self._kernels.reaching(scores, count, self._least, self._rows)
        rows = self._rows[:reached]
        if pages <= FEW_MORE * k:
            return rows
        return rows[: self._kernels.narrowed(rows, scores, count, k)]
