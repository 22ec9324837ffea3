"""Refresh values of replays of contents, and importance by links."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError, ScoreError
from scrapy_gp4c.search.gains import Refreshes, impacts
from scrapy_gp4c.search.measuring import Postings
from scrapy_gp4c.search.queries import parse_query_log
from scrapy_gp4c.words.tokens import tokens
from tests.support.contents import contents_of, random_pages
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.replaying.refresh_value import (
    QualityMeasure,
    estimator_of,
    link_importance,
    read_importance,
    with_refresh_values,
)
from training.replaying.replay import replay
from training.replaying.search import count


def test_only_the_first_cycle_counts() -> None:
    """Importance is known before the crawl begins."""
    history = ChangeHistory(np.array([[True, False]]), np.zeros(2, int), page_names=["a", "b"])
    version = np.array([[0, 2], [1, 2]], np.int32)
    later = ContentHistory(history, version, np.array([0, 2, 3], np.int32), ["", "[x](b)", ""])
    assert link_importance(later).tolist() == [1.0, 1.0]
    assert link_importance(replace(later, version=version[::-1].copy())).tolist() == [1.0, 2.0]


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


@pytest.fixture
def history(tmp_path: Path) -> ChangeHistory:
    return with_refresh_values(contents_of(tmp_path, random_pages(7)), QualityMeasure(LOG))


def test_every_pair_is_what_the_estimator_makes_of_the_two_texts(tmp_path: Path) -> None:
    """Told from the texts, term by term; a page that is gone has none."""
    contents = contents_of(tmp_path, random_pages(7))
    impact = with_refresh_values(contents, QualityMeasure(LOG)).impact
    estimator = estimator_of(count(contents).of(LOG), QualityMeasure(LOG))
    page = contents.history.pages - 1
    texts = contents.texts[contents.first_version[page] : contents.first_version[page + 1]]
    for old in range(len(texts)):
        for new in range(old + 1, len(texts)):
            sides = [tokens(texts[side] or "") for side in (old, new)]
            terms = np.array([i for i, term in enumerate(LOG.terms) if any(term in words for words in sides)])
            before, after = (
                Postings(
                    terms,
                    np.array([words.count(LOG.terms[term]) for term in terms]),
                    np.full(len(terms), len(words)),
                )
                for words in sides
            )
            wanted = impacts(estimator, Refreshes(np.zeros(len(terms), int), before, after), 1)[0]
            result = impact.between(np.array([old]), np.array([new]), np.array([page]))[0]
            assert result == pytest.approx(wanted, rel=1e-6)
    assert impact.gain.max() > 0


def test_a_replay_measures_its_own_visits(history: ChangeHistory) -> None:
    """The terminals against a plain walk through a page's visits; quality is 1 where all are visited."""
    impact = history.impact
    everything = replay(history, "t", budget=1.0, warmup=1, metrics=("impact", "quality"))
    assert everything.quality.tolist() == everything.impact.tolist() == [1.0] * 5
    x = []
    for cycle in range(1, history.cycles):
        x.append(impact.between(impact.version[cycle - 1], impact.version[cycle]))
    mean = np.mean(x, axis=0)
    fade = 0.5 ** (np.arange(len(x))[::-1] / 4)
    decayed = fade @ np.array(x) / fade.sum()
    # In the last cycle the budget is one page: that of the highest value.
    for terminal, values in (("dq_rate", mean), ("dq_last", x[-1]), ("dq_decay", decayed)):
        one = replay(history, terminal, budget=1, warmup=5, ties="order", metrics=("impact", "change_rate"))
        best = int(np.argmax(values))
        last = impact.version[5].copy()
        last[best] = impact.version[6, best]
        lost = impact.between(last, impact.version[6]).sum() / impact.unrefreshed(5).mean()
        assert one.impact[-1] == pytest.approx(1 - lost, abs=1e-9), terminal


def test_parts_of_a_history_keep_what_their_refreshes_are_worth(history: ChangeHistory) -> None:
    """Quality is of all pages and the last cycles alone."""
    pages = np.array([5, 7])
    part = history.take(pages, slice(2, 6))
    assert part.impact.version.tolist() == history.impact.version[2:7, pages].tolist()
    both = part.impact.version[0], part.impact.version[-1]
    assert part.impact.between(*both).tolist() == history.impact.between(*both, pages).tolist()
    assert part.impact.quality is None
    assert history.take(cycles=slice(0, 4)).impact.quality is None
    assert history.take(cycles=slice(2, 6)).impact.quality is not None


def test_without_contents_nothing_is_measured() -> None:
    """The message names what is missing."""
    history = ChangeHistory(np.eye(4, dtype=bool), np.zeros(4, int))
    with pytest.raises(ScoreError, match=r"dq_rate.* need contents and a log of queries"):
        replay(history, "user-centric", budget=1)
    with pytest.raises(HistoryError, match="need contents and a log of queries"):
        replay(history, "t", budget=1, metrics=("impact",))


def test_importance_is_read(tmp_path: Path) -> None:
    """A number above 0 for every page."""
    contents = contents_of(tmp_path, [{0: "x", 1: "y"}, {0: "z"}])
    path = tmp_path / "importance.tsv"
    path.write_text("docs\tpage1\t2.5\nelsewhere\tpage1\t9\ndocs\tpage0\t1\n")
    assert read_importance(path, contents.history).tolist() == [1.0, 2.5]
    path.write_text("docs\tpage1\t2.5\n")
    with pytest.raises(HistoryError, match="none for 'page0' of 'docs'"):
        read_importance(path, contents.history)
    path.write_text("docs\tpage1\t0\n")
    with pytest.raises(HistoryError, match="line 1: expected site<TAB>page<TAB>number above 0"):
        read_importance(path, contents.history)
