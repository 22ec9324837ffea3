"""A crawl and a replay of one web visit the same pages, round for round: they drive the same policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.policy import Chosen, Evidence, Policy, PolicySettings, Round
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.store.opening import open_store
from tests.support.loopback import Site, crawl, html
from training.histories.history import ChangeHistory
from training.replaying.arranged import prepare
from training.replaying.dense import replay_dense

PAGES, WARMUP, CYCLES, BUDGET = 30, 5, 9, 8
SCORE = "gad_rate"
"""Pages with different histories have different scores: no ties, which a crawl draws by other keys."""


class Listed(Spider):
    name = "listed"


def web() -> np.ndarray:
    """What changes, bool ``[CYCLES, PAGES]``: in the warm-up every page has a pattern of its own."""
    changed = np.random.default_rng(5).random((CYCLES, PAGES)) < 0.4
    changed[:WARMUP] = (np.arange(1, PAGES + 1)[None, :] >> np.arange(WARMUP)[:, None]) & 1
    return changed


def replayed(text: str, changed: np.ndarray) -> list[list[set[int]]]:
    """Pages that a replay visits: by scored cycle and round."""
    rounds: list[list[set[int]]] = []

    class Noting:
        def __init__(self, policy: Policy) -> None:
            self.policy, self.name, self.rounds = policy, policy.name, policy.rounds

        def plan(self, round: Round, evidence: Evidence) -> Chosen:
            chosen = self.policy.plan(round, evidence)
            assert len(np.unique(chosen.scores)) == len(chosen.scores), "the test wants scores without ties"
            if not round.number:
                rounds.append([])
            rounds[-1].append(set(chosen.pages.tolist()))
            return chosen

    choice = table.load(text)

    def make(settings: PolicySettings) -> Policy:
        return Noting(choice.make(settings))

    history = prepare(ChangeHistory(changed, np.zeros(PAGES, int)), budget=BUDGET, warmup=WARMUP)
    replay_dense(history, functions.load(SCORE), (), policy=choice._replace(make=make))
    return rounds


@pytest.mark.parametrize(
    "text",
    ["top_k", "rounds(rounds=3)", "tests.support.policies.changed_hosts", "tests.support.policies.siblings"],
)
@pytest_twisted.ensureDeferred
async def test_crawl_and_replay_visit_the_same_pages_in_every_round(
    text: str, site: Site, store_path: Path
) -> None:
    """A real crawl, one request at a time, so that a round is over before the next is planned."""
    changed = web()
    versions = np.concatenate((np.zeros((1, PAGES), int), np.cumsum(changed, axis=0)))
    Listed.start_urls = [site.url(f"/{page}") for page in range(PAGES)]
    Listed.parse = lambda self, response: None  # type: ignore[method-assign, assignment]
    settings = {
        "GP4C_POLICY": text,
        "GP4C_SCORE_FUNCTION": SCORE,
        "GP4C_BUDGET": BUDGET,
        "GP4C_WARMUP_VISITS": WARMUP,
        "CONCURRENT_REQUESTS": 1,
    }
    for cycle in range(CYCLES + 1):
        site.pages = {
            f"/{page}": html(
                f"page {page} in version {versions[cycle, page]}: {'text ' * versions[cycle, page]}"
            )
            for page in range(PAGES)
        }
        await crawl(Listed, store_path, settings)
    crawled = []
    with open_store(store_path, readonly=True) as store:
        assert [store.find(0), store.pages] == [None, PAGES]
        for record in store.cycles()[WARMUP + 1 :]:
            visits = np.concatenate([rows for _, rows in store.visits(record["cycle"], record["cycle"])])
            assert (visits["kind"] == KINDS.index("ranked")).all()
            ends = np.cumsum([one["planned"] for one in record["rounds"]])[:-1]
            crawled.append([set(pages.tolist()) for pages in np.split(visits["page"], ends)])
    assert crawled == replayed(text, changed)
