"""How popular pages are, on the scale from 0 to 10 that Tan et al. 2007, section 6.2, took from Google."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def of_values(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """round(10 ln(v / min) / ln(max / min)) of importances ``[P]``; 0 for zeros, or if all are equal."""
    out = np.zeros(len(values), np.uint8)
    some = values > 0
    if some.any():
        logs = np.log(values[some])
        span = logs.max() - logs.min()
        if span > 0:
            out[some] = np.rint(10.0 * (logs - logs.min()) / span)
    return out
