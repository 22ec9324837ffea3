"""The highest scores in several rounds."""

from __future__ import annotations

import numpy as np

from scrapy_gp4c.policies.rounds import _in_layers


def test_layers_come_one_after_the_other_each_by_its_draws():
    """Also where the draws differ in their last bits alone, and where nobody is."""
    rng = np.random.default_rng(1)
    layer = rng.integers(0, 9, 200)
    for drawn in (
        rng.integers(0, 2**64, 200, dtype=np.uint64),
        np.uint64(2**63) + rng.integers(0, 4, 200).astype(np.uint64),
    ):
        expected = np.lexsort((drawn, layer))
        found = _in_layers(layer, drawn)
        assert layer[found].tolist() == layer[expected].tolist()
        assert drawn[found].tolist() == drawn[expected].tolist()
    assert not len(_in_layers(layer[:0], drawn[:0]))
