"""What a cycle asks of who plans its rounds: one planner, or those of several shards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.store.records import CycleRecord


class Rounds(Protocol):
    """What plans the rounds of a cycle."""

    @property
    def planned_rounds(self) -> int:
        """Rounds whose plan is committed."""

    @property
    def policy_name(self) -> str:
        """What the policy is called."""

    @property
    def rounds(self) -> int | None:
        """Rounds that the policy has in a cycle; None: as many as it takes."""

    @property
    def is_over(self) -> bool:
        """Tell whether no round is left to plan."""

    def stop(self) -> None:
        """Plan no further round."""

    def plan(self, record: CycleRecord, planned: Planned, awaited: bool = False) -> bool:
        """Plan the next round, see `Planner.steps`."""

    def seeds(self, visits: npt.NDArray[Any], planned: Planned) -> int:
        """How many samples the policy has followed in the open cycle; 0 of one that follows none."""
