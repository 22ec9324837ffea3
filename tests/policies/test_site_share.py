"""The share of restless and swelling sites of a cycle's budget, against a plain reading of the rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings, Round, Selection
from scrapy_gp4c.policies.site_share import COLUMNS, shared
from scrapy_gp4c.scoring import functions
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.replaying.dense import ReplayEvidence
from training.replaying.growth import GrowthReplay, growth_crawl
from training.replaying.prepared import CrawlChoices, prepare

WARMUP = 8


def plain(ranking: list[int], site: list[int], k: int, most: int, restless: set[int]) -> list[int]:
    """Pages in their order; a restless site that is full comes again when no other has a page left."""
    chosen: list[int] = []
    for page in ranking:
        full = site[page] in restless and [site[one] for one in chosen].count(site[page]) >= most
        if len(chosen) < k and not full:
            chosen.append(page)
    return chosen + [page for page in ranking if page not in chosen][: k - len(chosen)]


def evidence_after_warmup(changed: np.ndarray, site: list[int]) -> ReplayEvidence:
    """Evidence of the first ranked cycle; ``changed``: ``[cycles, pages]``."""
    prepared = prepare(ChangeHistory(changed, np.array(site)), budget=1, warmup=WARMUP)
    evidence = ReplayEvidence(prepared, ("G", "last_cycle", *COLUMNS))
    evidence.begin(WARMUP + 1, prepared.salts[0])
    return evidence


def choices(evidence: ReplayEvidence, text: str, k: int, share: float) -> tuple[Selection, Selection]:
    """The order of all pages, and the choice of k of them under a share, as in a replay and as in a crawl."""
    choice = table.load(text).make(PolicySettings(functions.load("gad_rate"), 0))
    everything = choice.plan(Round(WARMUP + 1, 0, evidence.pages), evidence)
    chosen = shared(choice, share).plan(Round(WARMUP + 1, 0, k), evidence)
    site = evidence.grouping("site").number
    in_a_crawl = shared(choice, share, lambda pages: site[pages]).plan(Round(WARMUP + 1, 0, k), evidence)
    assert in_a_crawl.pages.tolist() == chosen.pages.tolist()
    assert in_a_crawl.site_cuts == chosen.site_cuts
    return everything, chosen


@given(st.data(), st.sampled_from(["top_k", "rounds(rounds=1)"]))
def test_no_restless_site_gets_more_while_others_have_candidates(data: st.DataObject, text: str) -> None:
    """Which pages are chosen, and that every page that is not comes behind the cut of its site."""
    site = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=30), "site")
    pages = len(site)
    rates = np.array(data.draw(st.permutations(range(pages)), "order"))
    share, k = data.draw(st.floats(0.0, 1.0), "share"), data.draw(st.integers(1, pages), "k")
    restless = data.draw(st.sets(st.integers(0, 3)), "restless")
    # Each page has a pattern of its own in the warm-up, but for those that change always.
    changed = np.array([(rates >> bit) & 1 for bit in range(WARMUP)] + [rates * 0], bool)
    changed[:, np.isin(site, list(restless))] = True
    evidence = evidence_after_warmup(changed, site)
    everything, chosen = choices(evidence, text, k, share)
    most = max(1, int(max(share, 1 / len(set(site))) * k + 1e-9))
    expected = plain(everything.pages.tolist(), site, k, most, restless)
    assert sorted(chosen.pages.tolist()) == sorted(expected)
    assert chosen.cut is not None
    numbers, ties = (
        evidence.grouping("site").number,
        evidence.rows(everything.pages).ties_of(np.arange(pages)),
    )
    for page, score, tie in zip(everything.pages.tolist(), everything.scores, ties, strict=True):
        cut = chosen.site_cuts.get(int(numbers[page]), chosen.cut)
        assert (score > cut.score or (score == cut.score and tie <= cut.tie)) == (page in chosen.pages)


@pytest.mark.parametrize("last", [2, 9])
def test_a_restless_site_does_not_get_what_another_has_left(last: int) -> None:
    """A site behind the first one, which is full, has the same share; numbers without pages have none."""
    site = np.array([0] * 20 + [1] * 3 + [last] * 6)
    changed = np.ones((WARMUP + 1, len(site)), bool)
    changed[::2, site == last] = False
    _, chosen = choices(evidence_after_warmup(changed, site.tolist()), "top_k", 6, 0.0)
    assert np.bincount(site[chosen.pages])[[0, 1, last]].tolist() == [2, 2, 2]


@pytest.mark.slow
def test_a_site_is_limited_whose_part_of_many_pages_a_sample_shows() -> None:
    """A crawl first looks at every second one of 20,000 chosen pages."""
    site = np.repeat([0, 1], [15_000, 15_000])
    changed = np.ones((WARMUP + 1, len(site)), bool)
    changed[::2, site == 1] = False
    _, chosen = choices(evidence_after_warmup(changed, site.tolist()), "top_k", 20_000, 0.5)
    assert np.bincount(site[chosen.pages]).tolist() == [10_000, 10_000]


@pytest.mark.parametrize(("still", "most"), [(0, 10), (1, 10), (2, 20)])
def test_a_site_whose_pages_were_once_found_unchanged_has_no_limit(still: int, most: int) -> None:
    """One page in a hundred that keeps still once does not free the others; three do."""
    site = [0] * 100 + [1] * 100
    changed = np.ones((WARMUP + 1, 200), bool)
    changed[0, : 1 + still] = changed[:, 0] = changed[:, 100:] = False
    evidence = evidence_after_warmup(changed, site)
    _, chosen = choices(evidence, "top_k", 20, 0.1)
    assert (chosen.pages < 100).sum() == most


@pytest.mark.parametrize(
    ("cycles_of_birth", "is_capped", "is_limited"),
    [((2, 3, 4, 5, 6), False, True), ((1,), False, False), ((1,), True, False)],
)
def test_a_site_that_brings_ever_more_pages_has_a_limit(
    cycles_of_birth: tuple[int, ...], is_capped: bool, is_limited: bool
) -> None:
    """Six new pages a cycle against ten visits have it, all of them in the site's first cycle have not.

    Nor have those that a cap lets in over many cycles.
    """
    born = np.repeat(cycles_of_birth, 30 // len(cycles_of_birth))
    pages = len(born) + 40
    history = ChangeHistory(np.zeros((8, pages), bool), np.repeat([0, 1], [len(born), 40]))
    grown = GrowthHistory(history, np.append(born, np.zeros(40, int)), np.full(pages, NO_FINDER))
    crawl = growth_crawl("found_t", "top_k", 0.0, "t", CrawlChoices(10, warmup=0, site_share=0.1))
    web = GrowthReplay(grown, crawl)
    for cycle in range(1, 7):
        web.cycle(cycle)
    if is_capped:
        web.state["first_cycle"][: len(born)] = np.repeat([2, 3, 4, 5, 6], 6)
    web.state["found_cycle"][: len(born)] = -9
    web.cycle(7)
    assert (web.planned().pages < len(born)).sum() == (5 if is_limited else 10)


@pytest.mark.parametrize("text", ["gsb", "db(d=1)"])
def test_policies_that_sample_go_their_own_way(text: str) -> None:
    """They are not asked again without some sites."""
    policy = table.load(text).make(PolicySettings(functions.load("t"), 0))
    assert shared(policy, 0.1) is policy
