"""What learning shows: numbers with their intervals."""

from __future__ import annotations

import numpy as np
from scipy import stats

from training.reporting.terminal import interval


def test_interval_is_students() -> None:
    """Mean and half width of the 95% confidence interval; a single fold has none."""
    values = [0.71, 0.69, 0.72, 0.7, 0.68]
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert interval(values) == f"0.7000 ± {(high - low) / 2:.4f}"
    assert interval([0.25]) == "0.2500"
    assert interval([0.25], "+") == "+0.2500"
