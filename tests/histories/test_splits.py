"""Parts of a history made of whole sites; those of single pages are in test_history."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training.histories.history import ChangeHistory
from training.histories.splits import protocol_splits, sampled_sites, site_folds

SITES = st.lists(st.integers(0, 12), min_size=1, max_size=80).map(lambda sites: np.array(sites, np.int32))


def history_of(sizes: list[int], cycles: int = 30) -> ChangeHistory:
    """A history of sites of these sizes, each page named by its number."""
    site = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    changed = np.random.default_rng(1).random((cycles, len(site))) < 0.2
    return ChangeHistory(changed, site, page_names=[str(page) for page in range(len(site))])


@given(SITES, st.integers(1, 6), st.integers(0, 3))
def test_site_folds_are_of_whole_sites_complete_and_balanced(site, k, seed):
    """A site is in one fold; folds are as balanced as blocks of sites of like size are; the seed decides."""
    count = len(set(site.tolist()))
    if k > count:
        with pytest.raises(HistoryError, match=f"divide {count} sites? into {k} parts.*--divide pages"):
            site_folds(site, k, seed)
        return
    folds = site_folds(site, k, seed)
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(site)))
    of_sites = [set(site[fold].tolist()) for fold in folds]
    assert sum(map(len, of_sites)) == count
    assert max(map(len, of_sites)) - min(map(len, of_sites)) <= 1
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= max(Counter(site.tolist()).values())
    assert all(np.array_equal(a, b) for a, b in zip(folds, site_folds(site, k, seed), strict=True))


def test_another_seed_draws_other_sites():
    """Sites are drawn, not cut."""
    site = np.arange(40, dtype=np.int32)
    assert not np.array_equal(site_folds(site, 2, 0)[0], site_folds(site, 2, 1)[0])


@given(SITES, st.floats(0.01, 1.0), st.integers(0, 5))
def test_a_sample_is_of_whole_sites_and_never_empty(site, share, seed):
    """All pages of a site or none; about `share` of the sites; the share 1 is everything."""
    pages = sampled_sites(site, share, (seed,))
    drawn = set(site[pages].tolist())
    assert pages.tolist() == [page for page, of_site in enumerate(site.tolist()) if of_site in drawn]
    wanted = share * len(set(site.tolist()))
    assert max(1, wanted - 1) <= len(drawn) <= max(1, wanted + 1)
    assert len(sampled_sites(site, 1.0, (seed,))) == len(site)


def test_every_site_has_the_same_chance_and_the_share_of_pages_hardly_varies():
    """Over many draws a quarter of the time each, whatever its size; large and small in proportion."""
    sizes = [2**number for number in range(8)] * 5
    site = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    drawn = [sampled_sites(site, 0.25, (seed,)) for seed in range(2000)]
    chances = np.bincount(np.concatenate([np.unique(site[pages]) for pages in drawn])) / len(drawn)
    assert chances == pytest.approx(0.25, abs=0.05)
    shares = np.array([len(pages) for pages in drawn]) / len(site)
    assert shares.mean() == pytest.approx(0.25, abs=0.02)
    alone = np.array([sum(rng.choice(sizes, 10, False)) for rng in map(np.random.default_rng, range(2000))])
    assert shares.std() < 0.7 * (alone / len(site)).std(), "less than of sites drawn without regard to size"


@pytest.mark.parametrize("protocol", ["simple", "journal", "thesis"])
def test_no_site_is_torn_apart(protocol):
    """Whatever the protocol, the parts of whole sites have no site in common, and the cycles are the same."""
    history = history_of([9, 1, 1, 4, 6, 3, 2, 8])
    by_page = protocol_splits(history, protocol, seed=2)
    by_site = protocol_splits(history, protocol, seed=2, division="sites")
    assert len(by_page) == len(by_site)
    for split, other in zip(by_site, by_page, strict=True):
        sites = [set(part.site.tolist()) for part in split]
        assert sum(map(len, sites)) == len(set.union(*sites)) == 8
        assert [part.cycles for part in split] == [part.cycles for part in other]
