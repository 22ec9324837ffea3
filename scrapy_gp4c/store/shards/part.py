"""What a shard is beside a page store: part of a larger one, with what that takes to be put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord, PlanCounts, ShardCounts

Array = npt.NDArray[Any]

FINDER: Final = np.dtype([("page", "<u4"), ("shard", "<u2"), ("key", "<u8")])
"""That a page was found by one of another shard: its key, and where it is."""


class ShardOf(NamedTuple):
    """Which shard of which store this is."""

    number: int
    shards: int
    store_id: str
    """Of the whole."""


class Finder(NamedTuple):
    """A page of another shard."""

    key: int
    shard: int


class Holder(Protocol):
    """What a crawl asks of a page that it visits: of a shard, or of who keeps the visits to others' pages."""

    def page(self, page: int) -> PageRow:
        """Its columns."""

    def visited(self, page: int) -> bool:
        """Tell whether its visit is over."""

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of its copy."""

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace them."""

    def body_sum(self, page: int) -> int | None:
        """Sum of the body that its copy was made of, if it is known."""

    def set_body_sum(self, page: int, body_sum: int) -> None:
        """Replace it."""


class Shard(PageStore, Protocol):
    """A page store of the pages of one shard; ids are its own."""

    @property
    def is_folding(self) -> bool:
        """Whether a fold was interrupted."""

    @property
    def shard_of(self) -> ShardOf:
        """Which shard it is."""

    def find_elsewhere(self, page: int, finder: Finder) -> None:
        """Note who found a page: the column ``found_by`` is to be `ELSEWHERE`. At the next commit."""

    def finder_of(self, page: int) -> Finder | None:
        """Who of another shard found a page, committed or not."""

    def finders(self) -> Array:
        """All that `find_elsewhere` noted and is committed, dtype `FINDER`, by page."""

    def origins(self) -> npt.NDArray[np.uint32]:
        """Where its first pages were in the store that it was split from, ``[O]``, ascending."""

    def note_brought(self, pages: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64]) -> None:
        """Note how many pages of other shards pages have found in the open cycle; the last note counts."""

    def add_part(self, part: Array, positions: npt.NDArray[np.uint32], seen: int, about: CycleRecord) -> None:
        """Write what it has of the plan of the next round: dtype `PLAN` ``[P]``, and where in the round.

        ``seen``: visits of its own that the round was made from; ``about``: as for `PageStore.add_round`.
        """

    def positions(self, number: int) -> npt.NDArray[np.uint32]:
        """Where the pages of its plan are in a round, ``[P]``, ascending."""

    def keep_rounds(self, count: int, plan: PlanCounts | None) -> None:
        """Drop the rounds after so many; ``plan``: what the record of the cycle then says."""


def counts_of(visits: Array) -> ShardCounts:
    """What a shard's record of a cycle says of its own visits, dtype `VISIT`."""
    judged = among(visits["outcome"], JUDGED)
    return ShardCounts(
        visited=len(visits), judged=int(judged.sum()), changed=int((visits["outcome"] == CHANGED).sum())
    )


def of_whole(record: CycleRecord) -> CycleRecord:
    """The record of a finished cycle as the whole has it, of that of any shard."""
    whole = record.copy()
    whole.pop("shard", None)
    return whole


def check_together(parts: Sequence[tuple[str, ShardOf]]) -> None:
    """Raise StoreError unless these are all shards of one store; ``parts``: path of each, and what it is."""
    first = parts[0][1]
    for path, of in parts:
        if of[1:] != first[1:]:
            raise StoreError(
                f"expected shards of one store; found {parts[0][0]}, which is of {first.store_id} "
                f"({first.shards} shards), and {path}, which is of {of.store_id} ({of.shards} shards). "
                "Give those of one."
            )
    numbers = [of.number for _, of in parts]
    if numbers != sorted(set(numbers)):
        raise StoreError(f"expected each shard once, by number; found the shards {numbers}. Give each once.")


def is_a_shard(path: object, of: ShardOf) -> StoreError:
    """Return the error for a shard that is taken for a store of its own."""
    return StoreError(
        f"the store {path} is shard {of.number} of {of.shards}: open the directory that it is in, or join "
        "all of them first."
    )


def check_complete(parts: Sequence[tuple[str, ShardOf]]) -> None:
    """Raise StoreError unless all shards of a store are there."""
    check_together(parts)
    missing = set(range(parts[0][1].shards)) - {of.number for _, of in parts}
    if missing:
        raise StoreError(
            f"expected all {parts[0][1].shards} shards; of {len(missing)} there is none, the first is shard "
            f"{min(missing)}. Give all of them."
        )
