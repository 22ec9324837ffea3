"""Synthetic change histories: their statistics, and that the seed decides them."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training import synthetic
from training.histories import models
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.histories.splits import page_folds
from training.replaying.replay import replay


@given(
    model=st.sampled_from(sorted(models.MODELS)),
    pages=st.integers(1, 400),
    cycles=st.integers(1, 70),
    seed=st.integers(0, 10),
)
def test_seed_decides(model: str, pages: int, cycles: int, seed: int) -> None:
    """The same arguments give the same history, of the size that was asked for."""
    one, other = (models.generate(model, pages, cycles, seed) for _ in range(2))
    assert (one.pages, one.cycles) == (pages, cycles)
    assert np.array_equal(one.changed, other.changed)
    assert np.array_equal(one.site, other.site)


def test_seeds_differ() -> None:
    """Different seeds give different histories."""
    one, other = (models.generate("poisson", 500, 30, seed) for seed in (1, 2))
    assert not np.array_equal(one.changed, other.changed)


def test_sites_have_the_published_sizes() -> None:
    """Site sizes are those of thesis Table 4.1: 417,048 pages, mean 58.16, between 1 and 2,336."""
    site = models.sites(np.random.default_rng(1), 417_048)
    sizes = np.bincount(site)
    assert sizes.sum() == 417_048
    assert sizes.min() >= 1
    assert sizes.max() <= 2_336
    assert sizes.mean() == pytest.approx(58.16, abs=0.05)
    assert np.median(sizes) < 0.6 * sizes.mean()  # log-normal: few large sites hold most pages


def test_bursty_changes_follow_changes() -> None:
    """In the bursty model a page that changed is far likelier to change again."""
    changed = models.generate("bursty", 5_000, 60, 1).changed
    after_change = changed[1:][changed[:-1]].mean()
    after_quiet = changed[1:][~changed[:-1]].mean()
    assert after_change > 5 * after_quiet


def test_weekly_pages_have_their_day() -> None:
    """In the weekly model a third of the pages change on one day of seven, the same for a whole site."""
    history = models.generate("weekly", 6_000, 70, 1)
    by_day = history.changed.reshape(10, 7, -1).mean(0)
    regular = by_day.max(0) > 0.8
    assert regular.mean() == pytest.approx(1 / 3, abs=0.03)
    days = by_day.argmax(0)
    for site in range(5):
        assert len(set(days[regular & (history.site == site)])) <= 1


def test_poisson_pages_are_mostly_quiet() -> None:
    """In the Poisson model most pages hardly change, and a few change most of the days."""
    rates = models.generate("poisson", 20_000, 57, 1).changed.mean(0)
    assert np.median(rates) < 0.02
    assert (rates > 0.5).mean() > 0.01


PUBLISHED = {"random": 0.186, "age": 0.213, "nad": 0.689, "sad": 0.517} | {
    "aad": 0.634,
    "gad": 0.602,
    "cg": 0.644,
}
"""Santos et al. 2013, Table 4.3: mean change rate of each baseline."""


@cache
def collection(seed: int) -> ChangeHistory:
    """A fifth of a brdc12-like collection."""
    return models.generate("brdc12-like", 83_409, 57, seed)


@pytest.mark.parametrize("policy", PUBLISHED)
def test_brdc12_like_replays_as_published(policy: str) -> None:
    """On the cycle clock a brdc12-like collection gives the published change rates (a fifth as large)."""
    rates = []
    for seed in (1, 2, 3):
        history = collection(seed)
        for fold in page_folds(history.pages, 5, 0)[:2]:
            result = replay(
                history.take(pages=fold), policy, budget=0.05, warmup=2, clock="cycles", seed=1, ties="random"
            )
            rates.append(result.change_rate.mean())
    assert np.mean(rates) == pytest.approx(PUBLISHED[policy], abs=0.015)


@pytest.mark.parametrize("name", ["h.txt", "h.txt.gz", "h.tsv", "h.tsv.gz", "h.npz"])
def test_command_line(tmp_path: Path, name: str) -> None:
    """The command writes every format, and reading it back gives the generated history."""
    path = tmp_path / name
    assert synthetic.main(["bursty", "--pages", "50", "--cycles", "9", "--seed", "4", "-o", str(path)]) == 0
    assert np.array_equal(read_history(path).changed, models.generate("bursty", 50, 9, 4).changed)


def test_command_line_names_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A format that does not exist and a size of nothing are one line on stderr and exit code 2."""
    assert synthetic.main(["bursty", "-o", str(tmp_path / "h.csv")]) == 2
    assert "*.tsv.gz" in capsys.readouterr().err
    assert synthetic.main(["bursty", "--pages", "0", "-o", str(tmp_path / "h.npz")]) == 2
    assert "at least 1 page" in capsys.readouterr().err


def test_unknown_model() -> None:
    """An unknown model is an error that lists those that exist."""
    with pytest.raises(HistoryError, match="poisson"):
        models.generate("nonsense", 10, 10, 1)
