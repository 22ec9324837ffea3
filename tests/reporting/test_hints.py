"""Hints in the report of a crawl: how often each site was right, by kind."""

from __future__ import annotations

from pathlib import Path

from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from training.reporting.crawl import crawl_page
from training.reporting.hints import hints_section
from training.reporting.page import render

PAGES, CYCLES = 12, 9
SITES = ("true.example", "now.example", "silent.example")


def make_store(path: Path, noted: bool = True) -> Path:
    """Three sites, one page of each changes in a cycle: they date it (but once), all pages, and none."""
    with Store(path) as store:
        for cycle in range(CYCLES):
            start = 1000.0 * cycle
            store.begin_cycle({"started": start, "score_function": "age", "formula": "t"})
            if not cycle:
                for number in range(PAGES * len(SITES)):
                    site, page = divmod(number, PAGES)
                    store.add_page(number + 1, {"url": f"http://{SITES[site]}/{page}"})
            changed = {site * PAGES + cycle % PAGES for site in range(len(SITES))}
            if noted:
                dated = [number for number in sorted(changed) if number < PAGES and cycle != 4] + [
                    *range(PAGES, 2 * PAGES)
                ]
                store.hints.note(dated, "sitemap", [start + 1.0] * len(dated))  # type: ignore[arg-type]
                store.hints.note([*range(PAGES)], "sitemap", [1.0] * PAGES)  # type: ignore[arg-type]
            for number in range(PAGES * len(SITES)):
                outcome = "first" if not cycle else "changed" if number in changed else "unchanged"
                store.record(NewVisit(number, outcome, time=start + 500.0, fingerprint=number))
            store.finish_cycle({"finished": start + 600.0})
    return path


def test_how_often_sites_were_right(store_path: Path) -> None:
    """Dates that are true hold and come first; what dates all pages is right as often as a page changes."""
    section = hints_section(make_store(store_path))
    assert section is not None
    text = render(crawl_page(store_path))
    rows = text[text.index("What sites say of their pages</h2>") :]
    assert "silent.example" not in rows[: rows.index("</section>")]
    true, now = rows.index("true.example"), rows.index("now.example")
    assert true < now
    assert rows[true:now].count(">yes<") == 1
    assert "100%" in rows[true:now]  # of the claims: one change was found without
    assert ">no<" in rows[now : rows.index("</section>")]
    assert "8.3%" in rows[now : rows.index("</section>")]
    assert 'id="d-right"' in text


def test_without_hints(store_path: Path) -> None:
    """Where no site said anything, there is no section."""
    assert hints_section(make_store(store_path, noted=False)) is None
