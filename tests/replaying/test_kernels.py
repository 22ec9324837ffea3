"""The compiled loops of the grouped engine, where `test_replay` does not reach them by itself."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.histories.history import ChangeHistory
from training.replaying.kernels import drop_stale_code, ranks
from training.replaying.metrics import METRICS
from training.replaying.replay import replay
from training.replaying.workspace import _new_work


@settings(deadline=None)  # the first call compiles
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=300, unique=True),
    shared_bits=st.integers(0, 64),
)
def test_gains_of_crowded_keys_are_those_of_sorted_keys(keys, shared_bits):
    """Keys that agree in so many of their highest bits meet on one bit of the field, and are still ranked."""
    crowded = sorted({key >> shared_bits for key in keys}, key=lambda key: hash((key, shared_bits)))
    work = _new_work(len(crowded), len(crowded), 2, 0)
    gains = np.arange(1, len(crowded) + 1) ** 2
    expected = sum(int(gains[rank]) for rank, key in enumerate(sorted(crowded)) if key & 1)
    assert ranks.gain(np.array(crowded, np.uint64), 64, gains, work) == expected


@pytest.mark.parametrize("ties", ["random", "order"])
@pytest.mark.parametrize("text", ["-n", "min(n, 4) - X", "0 * t", "-min(n, 3)"])
def test_a_tracked_class_may_shrink_to_nothing(text, ties):
    """A class of ties is picked from page by page, then by its lists, then taken whole; pages join it."""
    generator = np.random.default_rng(5)
    changed = generator.random((60, 600)) < generator.beta(0.3, 3, 600)
    history = ChangeHistory(changed, np.zeros(600, np.int32))
    one, other = (replay(history, text, budget=30, ties=ties, engine=e) for e in ("grouped", "dense"))
    for name in ("changed", "pending", *METRICS):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_stale_compiled_code_is_dropped(tmp_path):
    """Compiled code stays as long as no source changes: its own module, one beside it, or one elsewhere."""
    folder, other = tmp_path / "kernels", tmp_path / "score.py"
    (folder / "__pycache__").mkdir(parents=True)
    sources = [folder / "a.py", folder / "b.py", other]
    for source in sources:
        source.write_text("pass")
    compiled = folder / "__pycache__" / "a.f-1.py311.nbi"
    for changed in (*sources, None):
        if changed is not None:
            os.utime(changed, ns=(0, changed.stat().st_mtime_ns + 1))
        compiled.touch()
        drop_stale_code(folder, other)
        assert compiled.exists() == (changed is None)


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path):
    """An installation that belongs to somebody else has no such cache."""
    (tmp_path / "a.py").write_text("pass")
    drop_stale_code(tmp_path)
    assert not (tmp_path / "__pycache__").exists()
