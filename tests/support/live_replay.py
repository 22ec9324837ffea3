"""A crawl and a replay of one web by the same policy, whose plans tests compare."""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import Evidence, Policy, PolicySettings, Round, Selection
from scrapy_gp4c.policies.table import PolicyChoice
from scrapy_gp4c.scoring import discovery, functions, hints, measured, terminals
from scrapy_gp4c.scoring.ranking import GOLDEN
from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.prepared import CrawlChoices, prepare_for

SITES, DIRECTORIES, PAGES_OF_DIRECTORY = 3, 3, 6
PAGES = SITES * DIRECTORIES * PAGES_OF_DIRECTORY
KEYS: npt.NDArray[np.uint64] = np.arange(PAGES, dtype=np.uint64)
"""Keys of the pages: their numbers, so that a crawl and a replay draw alike."""
SITE: npt.NDArray[np.int32] = np.arange(PAGES, dtype=np.int32) // (DIRECTORIES * PAGES_OF_DIRECTORY)
NAMES = [f"d{page // PAGES_OF_DIRECTORY % DIRECTORIES}/{page}.html" for page in range(PAGES)]
URLS = [f"http://h{site}.example/{name}" for site, name in zip(SITE.tolist(), NAMES, strict=True)]
SIZE_BYTES: npt.NDArray[np.int64] = np.array([0, 90, 700, 2_000, 2_100])[np.arange(PAGES) * 7 % 5]
"""Sizes of the pages in cycle 1; 0: unknown."""
LATENCY_MS: npt.NDArray[np.int64] = 30 + np.arange(PAGES) * 13 % 400
WARMUP = 2
OF_CHANGES = (
    *(name for name in terminals.ALWAYS_KNOWN if name not in {*discovery.TERMINALS, *hints.TERMINALS}),
    *measured.TERMINALS,
)
"""Terminals that a replay computes from changes, sizes, download times and fingerprint bits."""
CYCLE_STEP = 0xD1342543DE82EF95
"""Factor of the cycle in `scrapy_gp4c.scoring.ranking.draw_salt`."""


def related_changes(seed: int, cycles: int) -> npt.NDArray[np.bool_]:
    """Random changes of the pages, some of whole directories and sites together: bool ``[cycles, PAGES]``."""
    rng = np.random.default_rng(seed)
    alone = rng.random((cycles, PAGES)) < rng.beta(0.4, 2.0, PAGES)
    directory = np.arange(PAGES) // PAGES_OF_DIRECTORY
    of_directory = rng.random((cycles, directory.max() + 1)) < 0.15
    of_site = rng.random((cycles, SITES)) < 0.1
    takes_part = rng.random((cycles, PAGES)) < 0.7
    return np.asarray(alone | takes_part & (of_directory[:, directory] | of_site[:, SITE]))


class Plan(NamedTuple):
    """Pages chosen in a round with their scores, and terminals of every candidate; floats as bytes."""

    pages: list[int]
    scores: bytes
    candidates: list[int]
    terminals: dict[str, bytes]


class NotingPolicy:
    """Policy that plans as `policy` does, and appends every plan to `plans`.

    ``names``: terminals of all candidates to note.
    """

    def __init__(self, policy: Policy, plans: list[Plan], names: Collection[str]) -> None:
        self.policy, self.name, self.rounds = policy, policy.name, policy.rounds
        self.plans, self.names = plans, names

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        chosen = self.policy.plan(round, evidence)
        candidates: list[int] = []
        values: dict[str, list[bytes]] = {}
        for block in evidence.candidates() if self.names else ():
            candidates += block.pages.tolist()
            for clock in terminals.CLOCKS:
                terminals_of = terminals.compute(self.names, block.state, round.cycle, clock)
                for name, column in terminals_of.items():
                    column = column.astype(np.float64)
                    values.setdefault(f"{name} by {clock}", []).append(column.tobytes())
        columns = {name: b"".join(parts) for name, parts in values.items()}
        self.plans.append(Plan(chosen.pages.tolist(), chosen.scores.tobytes(), candidates, columns))
        return chosen


def noting(text: str, plans: list[Plan], names: Collection[str] = ()) -> PolicyChoice:
    """Choice of a `NotingPolicy`; with ``names`` it has a dotted path, so that it may read all columns."""
    choice = table.load(text)

    def make(settings: PolicySettings) -> NotingPolicy:
        return NotingPolicy(choice.make(settings), plans, names)

    return PolicyChoice("tests.support.live_replay.noting" if names else text, make)


def settings_of(settings: dict[str, Any]) -> Settings:
    """Settings of a crawl without a panel."""
    return Settings.load(ScrapySettings({"GP4C_WARMUP_VISITS": WARMUP, **settings}))


def fingerprints(changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Fingerprints of all pages in cycles 1, 2, ... of a crawl."""
    return texts_of(changed, np.random.default_rng(0))


def crawled(
    path: Path, changed: npt.NDArray[np.bool_], settings: dict[str, Any], names: Collection[str] = ()
) -> list[Plan]:
    """Crawl into the store at `path`; return the plans of rounds that had pages to choose from."""
    plans: list[Plan] = []
    loaded = settings_of(settings)
    texts = fingerprints(changed)
    loaded = dataclasses.replace(loaded, policy=noting(loaded.policy.text, plans, names))
    crawl_store(path, texts, loaded, KEYS, URLS, size_bytes=SIZE_BYTES, latency_ms=LATENCY_MS)
    return [plan for plan in plans if plan.pages or plan.candidates]


def replayed(history: ChangeHistory, settings: dict[str, Any], names: Collection[str] = ()) -> list[Plan]:
    """Plans of a replay with the draws of `crawled`, whose cycle numbers are 1 higher."""
    plans: list[Plan] = []
    loaded = settings_of(settings)
    seed = (loaded.seed + CYCLE_STEP * pow(GOLDEN, -1, 2**64)) % 2**64
    crawl = CrawlChoices(loaded.budget, WARMUP, seed=seed, site_share=loaded.site_share)
    prepared = prepare_for(history, crawl)
    function = functions.load(loaded.score_function.text)
    replay_dense(prepared, function, (), policy=noting(loaded.policy.text, plans, names))
    return plans


def weigh(path: Path, weight: npt.NDArray[np.float64]) -> None:
    """Make a store of all pages with weights."""
    with Store(path) as store:
        store.add_pages((int(key), {"url": url}) for key, url in zip(KEYS, URLS, strict=True))
        store.put_weights(np.arange(PAGES), weight)


def truth(changed: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64] | None = None) -> ChangeHistory:
    """The web that `crawled` visits, as a history."""
    texts = fingerprints(changed)
    return ChangeHistory(
        changed,
        SITE,
        weight,
        page_names=NAMES,
        size=size_class(SIZE_BYTES),
        latency_ms=LATENCY_MS.astype(np.uint16),
        flipped=(texts[1:] ^ texts[:-1]).T[changed.T],
    )
