"""What a worker's exponentials, logarithms and powers come to in their last bits.

NumPy computes them by what the processor has, and libm by its version, so that two workers may differ in the
last bit. Scores and columns follow from them: a shard that moves from one to the other within a cycle would
get another plan than the one that was told.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np


class Arithmetic(NamedTuple):
    """Of one process."""

    bits: str = ""
    """Digest of many results: equal where they are, bit by bit."""
    features: tuple[str, ...] = ()
    """What NumPy makes use of, by the names of ``NPY_DISABLE_CPU_FEATURES``; others may give equal bits."""

    def remedy(self, theirs: Arithmetic) -> str:
        """What lets a worker of this arithmetic compute as one of theirs."""
        if found := sorted({*self.features} - {*theirs.features}):
            return f'set NPY_DISABLE_CPU_FEATURES="{" ".join(found)}" in the environment of this worker'
        if found := sorted({*theirs.features} - {*self.features}):
            return f'set NPY_DISABLE_CPU_FEATURES="{" ".join(found)}" in the environment of the others'
        return "let all have the same version of NumPy and of the C library"


def of_this_process() -> Arithmetic:
    """Compute some 35,000 values as scores do, in less than a millisecond."""
    share = (np.arange(4096) + 0.5) / 4096  # exact, hence the same everywhere
    results = [
        *(np.exp(scale * (share - 0.5)) for scale in (2.0, 60.0)),
        *(np.log(scale * share) for scale in (2.0, 1e6)),
        np.exp2(-20.0 * share),
        np.expm1(-4.0 * share),
        *(np.power(share, np.full_like(share, exponent)) for exponent in (2.0, 1.7)),
        np.sqrt(share),
    ]
    digest = hashlib.blake2b(b"".join(one.tobytes() for one in results), digest_size=8)
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", ())
    return Arithmetic(digest.hexdigest(), tuple(sorted(found)))
