"""What the policy of a cycle has sampled, and what it has followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import CHANGED, NEIGHBOUR, SAMPLE
from scrapy_gp4c.store.records import SampledCounts


def sampled(visits: npt.NDArray[Any], seeds: int) -> SampledCounts | None:
    """Count the visits of a cycle, dtype `VISIT`; None: its policy has sampled nothing."""
    changed = visits["outcome"] == CHANGED
    samples, neighbours = visits["kind"] == SAMPLE, visits["kind"] == NEIGHBOUR
    if not samples.any() and not neighbours.any():
        return None
    return {
        "samples": int(samples.sum()),
        "samples_changed": int(np.count_nonzero(samples & changed)),
        "seeds": seeds,
        "neighbours": int(neighbours.sum()),
        "neighbours_changed": int(np.count_nonzero(neighbours & changed)),
    }
