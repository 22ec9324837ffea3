"""Crawls that are killed while they read sitemaps: whole claims or none, and counts that nothing was lost
of."""

from __future__ import annotations

import random
import signal
import time
from datetime import UTC, datetime

import numpy as np

from scrapy_gp4c.page_state.claims import WHAT
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.claims import Oracle
from tests.support.growing import brought, columns
from tests.support.killing import LIST, PAGES, Recorded, Web, Worker, is_changing

GROWTH = ("brought_sum", "brought_cycles", "brought_cycle")


def test_kill_9_leaves_whole_sitemaps_and_right_counts(web: Web, worker: Worker) -> None:
    """Two sitemaps, of which one lies, in crawls that are killed at random: claims, trust and growth
    agree."""
    changed_s = time.time()

    def sitemap(is_true: bool) -> bytes:
        base = web.url.removesuffix("/list")
        dates = {path: (changed_s if is_changing(path) else 1e9) if is_true else time.time() for path in LIST}
        entries = "".join(
            f"<url><loc>{base}{path}</loc>"
            f"<lastmod>{datetime.fromtimestamp(when, UTC).isoformat()}</lastmod></url>"
            for path, when in dates.items()
            if is_true or int(path[1:]) % 3 == 0
        )
        return f"<urlset>{entries}</urlset>".encode()

    web.files = {"/a.xml": lambda: sitemap(True), "/b.xml": lambda: sitemap(False)}
    listed = {"/a.xml": PAGES, "/b.xml": len(range(0, PAGES, 3))}
    settings = {"GP4C_SCORE_FUNCTION": "hinted + 0.1 * random", "GP4C_POLICY": "top_k"}
    moments = random.Random(18)
    kills = partly = whole = 0
    while kills < 14:
        web.log.clear()
        if kills % 4 == 3:
            worker.begin(settings, kill_in_fold=moments.randrange(4))
        else:
            worker.kill_after(web, moments.randrange(PAGES // 2), moments.uniform(0.0, 0.03), settings)
        kills += worker.wait() == -signal.SIGKILL
        if not worker.store.exists():
            continue
        state = Recorded(worker.store)
        if state.open_cycle is None:
            web.version += 1
            changed_s = time.time()
        with Store(worker.store, readonly=True) as store:
            if not store.last_cycle:
                continue
            noted = store.notes()
            count = int((noted["what"] == WHAT.index("sitemap")).sum())
            expected = sum(listed[path] for path in listed if path in state.visited_paths)
            if state.open_cycle is not None:
                assert count == expected, "claims of a sitemap and its visit are committed together"
                whole += expected > 0
                partly += expected == 0
    assert worker.begin(settings)
    assert worker.wait() == 0
    assert Recorded(worker.store).open_cycle is None
    with Store(worker.store) as store:
        Oracle.of(store).agrees(store)
        assert brought(store) == columns(store, *GROWTH)
        (trust,) = store.hints.trust()
        assert trust["counts"].sum() > 0
        assert np.any([rows["kind"] == 0 for _, rows in store.hints.of_cycles()][-1])
    assert whole
