"""The share of a site of a cycle's budget, against a plain reading of the rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings, Round
from scrapy_gp4c.policies.site_share import shared
from scrapy_gp4c.scoring import functions
from training.histories.history import ChangeHistory
from training.replaying.evidence import ReplayEvidence
from training.replaying.prepared import prepare

WARMUP = 8


def plain(score: list[float], site: list[int], k: int, share: float) -> list[int]:
    """Pages in order of score; a site that is full comes again when no other has a page left."""
    most, chosen = max(1, int(share * k + 1e-9)), []
    ranking = sorted(range(len(score)), key=lambda page: -score[page])
    for page in ranking:
        if len(chosen) < k and [site[one] for one in chosen].count(site[page]) < most:
            chosen.append(page)
    return chosen + [page for page in ranking if page not in chosen][: k - len(chosen)]


@given(st.data(), st.sampled_from(["top_k", "rounds(rounds=1)"]))
def test_no_site_gets_more_while_others_have_candidates(data: st.DataObject, text: str) -> None:
    """Which pages are chosen, and that every page that is not scores less than the cut of its site."""
    site = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=30), "site")
    pages = len(site)
    rates = np.array(data.draw(st.permutations(range(pages)), "order"))
    share, k = data.draw(st.floats(0.0, 1.0), "share"), data.draw(st.integers(1, pages), "k")
    # Each page has a pattern of its own in the warm-up, so that no scores are equal.
    changed = np.array([(rates >> bit) & 1 for bit in range(WARMUP)] + [rates * 0], bool)
    history = ChangeHistory(changed, np.array(site))
    prepared = prepare(history, budget=k, warmup=WARMUP)
    evidence = ReplayEvidence(prepared, ("n", "X", "A", "G", "last_cycle"))
    evidence.begin(WARMUP + 1, prepared.salts[0])
    function = functions.load("gad_rate")
    choice = table.load(text).make(PolicySettings(function, 0))
    everything = choice.plan(Round(WARMUP + 1, 0, pages), evidence)
    score = dict(zip(everything.pages.tolist(), everything.scores.tolist(), strict=True))
    chosen = shared(choice, share).plan(Round(WARMUP + 1, 0, k), evidence)
    scores = [score[page] for page in range(pages)]
    assert sorted(chosen.pages.tolist()) == sorted(plain(scores, site, k, share))
    assert chosen.cut is not None
    numbers = evidence.grouping("site").number
    for page in range(pages):
        cut = chosen.site_cuts.get(int(numbers[page]), chosen.cut)
        assert (scores[page] >= cut.score) == (page in chosen.pages)


@pytest.mark.parametrize("text", ["gsb", "db(d=1)"])
def test_policies_that_sample_go_their_own_way(text: str) -> None:
    """They are not asked again without some sites."""
    policy = table.load(text).make(PolicySettings(functions.load("t"), 0))
    assert shared(policy, 0.5) is policy
