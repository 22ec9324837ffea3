"""SBR and EBR as policies of a replay: the same refreshes as in the experiment, and nothing a crawl takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.errors import PolicyError, SettingsError
from scrapy_gp4c.index.queries import parse_query_log
from scrapy_gp4c.settings import Settings
from tests.support.contents import contents_of, random_pages
from training.histories.history import ChangeHistory
from training.papers.user_centric import Judged, points, prepared
from training.replaying import foreseen
from training.replaying.arranged import prepare
from training.replaying.corpus import count
from training.replaying.metrics import CONTENTS
from training.replaying.replay import run
from training.replaying.worths import Measuring, measured

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


@pytest.mark.parametrize("name", ["sbr", "ebr"])
def test_a_replay_refreshes_what_the_experiment_does(name: str, tmp_path: Path) -> None:
    """Without a warm-up, the same quality and impact to the last bits of their fixed point."""
    contents = contents_of(tmp_path, random_pages(11, pages=10, cycles=10))
    trial = prepared("small", count(contents).of(LOG), Measuring(LOG), seed=5)
    history = measured(contents, Measuring(LOG))
    for tau in (0.0, 0.3, 1.0):
        expected = next(one for one in points(trial, (0.3,), (tau,)) if one.policy == name.upper())
        arranged = prepare(history, budget=expected.refreshes, warmup=0, seed=5)
        peer = foreseen.load(f"{name}(tau={tau})")
        assert peer is not None
        found = run(arranged, peer, metrics=tuple(CONTENTS))
        judged = Judged(*(float(getattr(found, metric).mean()) for metric in Judged._fields))
        assert judged == pytest.approx((expected.quality, expected.impact), abs=1e-6)
        assert found.visited.tolist() == [expected.refreshes] * 10


@given(
    planned=st.lists(st.integers(0, 9), unique=True, max_size=6),
    last=st.lists(st.integers(0, 5), min_size=10, max_size=10),
    budget=st.integers(6, 10),
)
def test_what_is_left_over_goes_by_age(planned: list[int], last: list[int], budget: int) -> None:
    """The planned pages first; then those that have waited longest, none twice."""
    found = foreseen.with_oldest(np.array(planned, np.int64), np.array(last), budget).tolist()
    assert found[: len(planned)] == planned
    rest = found[len(planned) :]
    assert rest == sorted(set(range(10)) - set(planned), key=lambda page: (last[page], page))[: len(rest)]
    assert len(set(found)) == len(found) == budget


def test_the_warm_up_is_no_part_of_the_timetable(tmp_path: Path) -> None:
    """Every page is visited then; the timetable has the scored cycles."""
    history = measured(contents_of(tmp_path, random_pages(2, pages=8, cycles=9)), Measuring(LOG))
    peer = foreseen.load(" sbr( tau = .5 ) ")
    assert peer is not None
    found = run(prepare(history, budget=3, warmup=4), peer, metrics=("quality",))
    assert found.visited.tolist() == [3] * 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sbr(tau=1.5)", "takes for tau .*; found 1.5"),
        ("ebr(x=1)", "has no parameter 'x'; ebr has tau"),
        ("sbr(0.5)", r"sbr\(tau=0.0\) or ebr\(tau=0.0\)"),
        ("sbr(", r"sbr\(tau=0.0\) or ebr\(tau=0.0\)"),
    ],
)
def test_what_cannot_be_read_is_one_error(text: str, said: str) -> None:
    """With what would be."""
    with pytest.raises(PolicyError, match=said):
        foreseen.load(text)


def test_other_texts_are_left_to_the_table_of_policies() -> None:
    """Those of crawls."""
    assert [foreseen.load(text) for text in ("top_k", "rounds(rounds=3)", "sbrx", "")] == [None] * 4


@pytest.mark.parametrize("known", [False, True])
def test_a_history_of_changes_alone_is_refused(known: bool, tmp_path: Path) -> None:
    """As are some of the pages of a search: it takes all of them, and a log of queries."""
    history = ChangeHistory(np.zeros((5, 4), bool), np.zeros(4, int))
    if known:
        history = measured(contents_of(tmp_path, random_pages(2, pages=8, cycles=9)), Measuring(LOG))
        history = history.take(pages=np.arange(4))
    peer = foreseen.load("ebr")
    assert peer is not None
    with pytest.raises(PolicyError, match=r"'ebr' needs all pages .*--query-log"):
        run(prepare(replace(history), budget=2, warmup=1), peer)


def test_a_crawl_has_no_such_policy() -> None:
    """It knows no update beforehand."""
    with pytest.raises(SettingsError, match=r"GP4C_POLICY: a policy is one of top_k"):
        Settings.load(ScrapySettings({"GP4C_POLICY": "sbr(tau=.3)"}))
