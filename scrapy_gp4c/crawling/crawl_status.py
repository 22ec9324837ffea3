"""Where a crawl by several workers is, as the command that tells it prints it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerStatus:
    """One worker."""

    name: str
    left_s: float
    """Of its lease; below 0: it is dead."""
    draining: bool
    shards: list[int]
    """That it holds."""
    waits_for: list[int]
    """Of these, those that are not done with the open cycle."""
    letters: int
    """For its shards, unread."""


@dataclass(frozen=True)
class CrawlStatus:
    """Where the crawl of a ledger is."""

    ledger: str
    shards: int
    pages: int
    """Known, by what holders told last."""
    cycle: int
    """The last one; 0: there was none."""
    open: bool
    complete: bool
    """Whether every shard has ended it, and has a copy."""
    next_due_s: float | None
    """None: a cycle is open, or not complete."""
    waits_for: list[int]
    """Shards that are not done with the open cycle."""
    homeless: list[int]
    parked: list[int]
    letters: int
    """That nobody has read yet."""
    workers: list[WorkerStatus]

    @property
    def problem(self) -> str | None:
        """What is wrong; None: nothing."""
        if self.parked:
            return f"shards are parked, as their holders died: {', '.join(map(str, self.parked))}"
        if self.open and self.homeless:
            return f"cycle {self.cycle} is open, and nobody alive holds {len(self.homeless)} shards"
        return None
