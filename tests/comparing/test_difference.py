"""Where two score functions differ: every visit noted, and the sums over them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ScoreError
from training.comparing.difference import CLASSES, class_names, differ, visits_of
from training.evolution.choices import Choices
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying.replay import replay

CRAWL = Choices(budget=0.1).crawl()


@settings(max_examples=20)
@given(seed=st.integers(0, 50), text=st.sampled_from(("t * X", "random", "gad", "t / (n + 1.0)")))
def test_visits_are_those_of_the_replay(seed: int, text: str) -> None:
    """Per cycle there are k visits with the replay's changes; states follow from the visits before."""
    history = generate("bursty", 120, 15, seed)
    visits = visits_of(history, text, CRAWL)
    result = replay(history, text, budget=0.1, seed=CRAWL.seed, engine="dense")
    for cycle, visited, changed in zip(result.scored_cycles, result.visited, result.changed, strict=True):
        now = visits.cycle == cycle
        assert now.sum() == visited
        assert visits.changed[now].sum() == changed
    for page in np.unique(visits.page):
        of_page = visits.page == page
        n, X, last = 2, int(history.changed[:2, page].sum()), 2
        for i in np.flatnonzero(of_page):
            assert (visits.n[i], visits.X[i], visits.t[i]) == (n, X, visits.cycle[i] - last)
            missed = history.changed[last : visits.cycle[i], page].any()
            assert visits.changed[i] == missed
            n, X, last = n + 1, X + int(missed), int(visits.cycle[i])


def test_by_hand() -> None:
    """Four pages, one visit per cycle: `t` visits in turn, `X` stays with the page that changed."""
    changed = np.zeros((4, 4), np.bool_)
    changed[:, 3] = True  # page 3 changes in every cycle
    history = ChangeHistory(
        changed=changed, site=np.array([0, 0, 1, 1], np.int32), site_names=["a.example", "b.example"]
    )
    crawl = Choices(budget=0.25, warmup=2, ties="order").crawl()
    result = differ([history], ["X"], ["t"], crawl)
    # X visits page 3 in both scored cycles; t visits pages 0 and 1.
    assert result.common == 0.0
    assert (result.alone_rate, result.other_alone_rate) == (1.0, 0.0)
    assert [(group.name, group.share, group.other_share) for group in result.by["X"]] == [
        ("0", 0.0, 1.0),
        ("2", 0.5, 0.0),
        ("3–4", 0.5, 0.0),
    ]
    sites = {group.name: (group.share, group.other_share, group.rate) for group in result.by_site}
    assert sites["b.example"] == (1.0, 0.0, 1.0)
    assert sites["a.example"][:2] == (0.0, 1.0)
    assert np.isnan(sites["a.example"][2])
    assert result.X_t.sum() == pytest.approx(0.0)


def test_a_function_does_not_differ_from_itself() -> None:
    """All visits are common, all shares equal."""
    history = generate("poisson", 200, 12, 1)
    result = differ([history, history], ["t * X"] * 2, ["t * X"] * 2, CRAWL)
    assert result.common == 1.0
    assert np.isnan(result.alone_rate)
    assert not result.X_t.any()
    for groups in result.by.values():
        assert all(group.share == group.other_share for group in groups)
        assert sum(group.share for group in groups) == pytest.approx(1.0)


def test_classes_cover_all_states() -> None:
    """Names and bounds agree, from the smallest state that a page can be in."""
    assert class_names("X") == ["0", "1", "2", "3–4", "5–8", "9+"]
    assert class_names("t")[0] == "1"
    assert {name: bounds[0] for name, bounds in CLASSES.items()} == {"n": 0, "X": 0, "t": 1}


def test_a_result_file_names_no_code() -> None:
    """A dotted path in what an experiment wrote is not imported: a file is data."""
    history = generate("bursty", 20, 8, 1)
    with pytest.raises(ScoreError, match="dotted path"):
        visits_of(history, "tests.support.policies.no_policy", CRAWL)
