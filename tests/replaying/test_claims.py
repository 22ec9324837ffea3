"""Claims in replays of histories: the same crawl as a replay of growth in which nothing grows."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.sizes import size_class
from training.histories.claims import read_claims, read_first_sight, with_evidence
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.replaying.claims import ReplayedPageClaims
from training.replaying.growth import growth_crawl, replay_growth
from training.replaying.prepared import CrawlChoices, prepare
from training.replaying.replay import replay

PAGES, CYCLES = 60, 24


def web(seed: int, *, truthful: float) -> ChangeHistory:
    """Pages of three sites; a share of them is claimed to change when it does, others at random."""
    random = np.random.default_rng(seed)
    changed = random.random((CYCLES, PAGES)) < random.choice([0.02, 0.1, 0.4], PAGES)
    site = np.arange(PAGES) % 3
    claimed = changed.copy()
    noise = random.random(PAGES) >= truthful
    claimed[:, noise] = random.random((CYCLES, int(noise.sum()))) < 0.1
    cycle, page = np.nonzero(claimed)
    claims = np.zeros(len(page), DATED_CLAIM)
    claims["page"], claims["cycle"], claims["value"] = page, cycle + 1, cycle + 1
    claims["kind"] = random.choice([0, 1], len(page))
    names = [f"/{number % 5}/{number}" for number in range(PAGES)]
    sites = ["http://a", "http://b", "http://c"]
    return ChangeHistory(changed, site.astype(np.int32), site_names=sites, page_names=names, claims=claims)


@pytest.mark.parametrize("score", ["hinted * t", "hint_age + t", "default", "t * hint_rate"])
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_with_claims_is_the_replay_of_a_web_that_does_not_grow(score: str, seed: int) -> None:
    """Visits and changes of every cycle, under the policy of the name."""
    history = web(seed, truthful=0.5)
    assert history.claims is not None
    still = GrowthHistory(
        history, np.zeros(PAGES, np.int32), np.full(PAGES, NO_FINDER, np.int32), history.claims
    )
    crawl = growth_crawl(score, None, 0.0, "brought", CrawlChoices(0.1, seed=seed))
    grown = replay_growth(still, crawl)
    mine = replay(history, score, budget=0.1, seed=seed)
    assert mine.changed.tolist() == grown.changed.tolist()
    assert mine.visited.tolist() == grown.visited.tolist()


def test_true_claims_find_more_and_noise_costs_nothing() -> None:
    """The default with the claims of its history, and without."""
    for truthful, least in ((1.0, 1.3), (0.0, 0.97)):
        ratios = []
        for seed in range(4):
            history = web(seed, truthful=truthful)
            bare = replace(history, claims=None)
            with_claims, without = (replay(one, "default", budget=0.1, seed=1) for one in (history, bare))
            ratios.append(with_claims.changed.sum() / without.changed.sum())
        assert np.mean(ratios) > least


def test_an_answer_is_known_from_the_next_visit_on() -> None:
    """Last-Modified and Expires of an answer that a replay did not ask for come with its next visit."""
    claims = np.zeros(3, DATED_CLAIM)
    claims["page"], claims["cycle"], claims["value"] = (0, 1, 1), (2, 2, 3), (2, 9, 3)
    claims["kind"] = [KINDS.index(kind) for kind in ("modified", "expires", "sitemap")]
    site = np.zeros(2, np.int32)
    history = ChangeHistory(np.ones((5, 2), bool), site, page_names=["a", "b"], claims=claims)
    known = ReplayedPageClaims(prepare(history, budget=1, warmup=1))
    states = []
    for cycle, visited in ((2, []), (3, [1]), (4, [0]), (5, [0, 1])):
        known.observe(np.array(visited, int), np.ones(len(visited), bool), cycle)
        states.append([known.columns[name].tolist() for name in ("claims", "fresh", "claimed_cycle")])
    sitemap = KINDS.index("sitemap")
    modified = 1 << KINDS.index("modified")
    assert states == [
        [[0, 0], [0, 0], [0, 0]],
        [[0, 1 << sitemap], [0, 10], [0, 3]],
        [[modified, 1 << sitemap], [0, 10], [2, 3]],
        [[modified, 1 << sitemap], [0, 10], [2, 3]],
    ]


def test_claims_are_read_from_lines(tmp_path: Path) -> None:
    """Plain or gzip, with the cycles of the replay; claims about other pages are left out."""
    history = web(0, truthful=1.0)
    lines = (
        "http://a\t/0/0\tsitemap\t5\nhttp://b\t/1/1\tfeed\t7\t6\n# no claim\n"
        "http://a\t/none\ttold\t3\nhttp://a\t/0/0\texpires\t4\t9\n"
    )
    path = tmp_path / "claims.tsv.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    claims = read_claims(path, history, first_cycle=3)
    assert [tuple(row) for row in claims.tolist()] == [
        (2, 0, KINDS.index("expires"), 9),
        (3, 0, KINDS.index("sitemap"), 3),
        (5, 1, KINDS.index("feed"), 4),
    ]
    path = tmp_path / "claims.tsv"
    line = "http://a\t/0/0\t"
    for wrong in (f"{line}guess\t5", f"{line}feed\tsoon", "http://a", f"{line}feed\t1\t2\t3"):
        path.write_text(f"{lines}{wrong}\n", encoding="utf-8")
        with pytest.raises(
            HistoryError, match=r"claims.tsv, line 6: expected site<TAB>page.*kind of sitemap"
        ):
            read_claims(path, history)
    with pytest.raises(HistoryError, match=r"cannot read .*none"):
        read_claims(tmp_path / "none", history)


def test_ages_and_sizes_at_first_sight_are_read_from_lines(tmp_path: Path) -> None:
    """As claims before cycle 1, renumbered with the cycles; unknown ages and other pages are left out."""
    history = web(0, truthful=1.0)
    lines = "# ages\nhttp://a\t/0/0\t41.6\t2048\nhttp://b\t/1/1\t\t7.0\nhttp://a\t/none\t3\n"
    path = tmp_path / "first_sight.tsv.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    modified = KINDS.index("modified")
    seen = read_first_sight(path, history)
    assert seen.claims.tolist() == [(0, 0, modified, -42)]
    assert read_first_sight(path, history, first_cycle=3).claims.tolist() == [(-2, 0, modified, -44)]
    assert seen.size[seen.size > 0].tolist() == size_class([2048, 7]).tolist()
    for wrong in ("http://a\t/0/0", "http://a\t/0/0\told", "http://a\t/0/0\tinf", "http://a\t/0/0\t1\tbig"):
        path.write_bytes(gzip.compress(f"{lines}{wrong}\n".encode()))
        with pytest.raises(HistoryError, match=r"line 5: expected site<TAB>page<TAB>age"):
            read_first_sight(path, history)


def test_sizes_find_more_and_none_change_no_bit(tmp_path: Path) -> None:
    """Of pages whose rates follow from their sizes; where none is known nothing changes."""
    gains = []
    path = tmp_path / "sizes.tsv"
    for seed in range(4):
        random = np.random.default_rng(seed)
        is_large = random.random(300) < 0.2
        changed = random.random((CYCLES, 300)) < np.where(is_large, 0.3, 0.003)
        names = [f"/{number}" for number in range(300)]
        history = ChangeHistory(changed, np.zeros(300, np.int32), site_names=["s"], page_names=names)
        results = []
        for lengths in (np.where(is_large, 9_000, 500), np.full(300, "")):
            lines = (f"s\t{name}\t\t{length}\n" for name, length in zip(names, lengths, strict=True))
            path.write_text("".join(lines))
            results.append(replay(with_evidence(history, None, path), "default", budget=0.02, seed=1))
        without = replay(history, "default", budget=0.02, seed=1)
        assert results[1].ndcg is not None
        assert without.ndcg is not None
        assert results[1].ndcg.tobytes() == without.ndcg.tobytes()
        gains.append(results[0].changed.sum() - without.changed.sum())
    assert np.mean(gains) > 0


def test_true_ages_find_more(tmp_path: Path) -> None:
    """Of pages whose ages follow from their rates, at a budget that sees few of them again."""
    gains = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        rate = random.choice([0.003, 0.3], 300, p=[0.8, 0.2])
        changed = random.random((CYCLES, 300)) < rate
        names = [f"/{number}" for number in range(300)]
        history = ChangeHistory(changed, np.zeros(300, np.int32), site_names=["s"], page_names=names)
        ages = random.geometric(rate)
        path = tmp_path / "ages.tsv"
        path.write_text("".join(f"s\t{name}\t{age}\n" for name, age in zip(names, ages, strict=True)))
        evidence = with_evidence(history, None, path)
        with_ages, without = (replay(one, "default", budget=0.02, seed=1) for one in (evidence, history))
        gains.append(with_ages.changed.sum() - without.changed.sum())
    assert np.mean(gains) > 0
