"""The change history in the stores of crawls."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.columns import in_panel
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from training import store_history
from training.histories import models
from training.histories.claims import with_evidence
from training.histories.from_store import merge, read_with_report
from training.histories.history import ChangeHistory
from training.histories.reading import read_history

Visits = dict[int, tuple[str, str]]
FIRST = ("first", "new")


def crawl(path: Path, cycles: list[Visits], pages: int = 4) -> None:
    """Write a store in which cycle c made the visits ``cycles[c - 1]``: page -> (outcome, kind)."""
    with Store(path) as store:
        store.add_pages((1000 + page, {"url": f"http://h{page % 2}/p{page}"}) for page in range(pages))
        for number, visits in enumerate(cycles, start=1):
            store.begin_cycle({})
            for page, (outcome, kind) in visits.items():
                store.record(NewVisit(page=page, time=float(number), outcome=outcome, kind=kind))
            store.finish_cycle({"finished": float(number)})


CODES = {"f": "first", "0": "unchanged", "1": "changed", "n": "not_modified", "e": "error", "g": "gone"}


def crawl_rows(path: Path, rows: list[str], kind: str = "other") -> None:
    """Write a store from one text per page, a character per cycle (`CODES`); a blank: not visited."""
    cycles = [
        {page: (CODES[row[cycle]], kind) for page, row in enumerate(rows) if row[cycle] != " "}
        for cycle in range(len(rows[0]))
    ]
    crawl(path, cycles, len(rows))


def texts(history: ChangeHistory) -> dict[str, str]:
    assert history.page_names is not None
    rows = ["".join("01"[bit] for bit in page) for page in history.changed.T.astype(int)]
    return {name.rpartition("/")[2]: row for name, row in zip(history.page_names, rows, strict=True)}


def test_a_store_that_visits_everything_gives_all_pages(tmp_path: Path) -> None:
    """Bit i is what store cycle i + 2 found; an error is filled in; who entered late is left out."""
    crawl_rows(tmp_path / "s", ["f1n1", "f011", "f0e1", "  f1"])
    history = read_history(tmp_path / "s")
    assert texts(history) == {"p0": "101", "p1": "011", "p2": "001"}
    assert history.site_names is not None
    assert [history.site_names[i] for i in history.site] == ["h0", "h1", "h0"]
    assert len(history.sha256) == 64
    assert history.dropped_pages == 1
    assert history.key is not None
    assert history.key.tolist() == [1000, 1001, 1002]
    assert history.take(slice(1, None)).key.tolist() == [1001, 1002]


def test_the_order_in_which_pages_were_discovered_does_not_matter(tmp_path: Path) -> None:
    """Stores that saw the same have the same history, page for page; it decides what is learned."""
    rows = ["f011", "f100", "f  1", "f111", "f 0 "]
    read: list[ChangeHistory] = []
    for name, order in (("one", [0, 1, 2, 3, 4]), ("other", [3, 2, 4, 0, 1])):
        with Store(tmp_path / name) as store:
            store.add_pages((1000 + page, {"url": f"http://h{page % 2}/p{page}"}) for page in order)
            for cycle in range(4):
                store.begin_cycle({})
                for number, page in enumerate(order):
                    if rows[page][cycle] != " ":
                        outcome = CODES[rows[page][cycle]]
                        store.record(NewVisit(page=number, time=0.0, outcome=outcome, kind="other"))
                store.finish_cycle({"finished": 0.0})
        history, _ = read_with_report(tmp_path / name, max_errors=0, partial=True)
        read.append(history)
    one, other = read
    assert np.array_equal(one.changed, other.changed)
    assert one.key is not None
    assert one.key.tolist() == [1000, 1001, 1003, 1002, 1004]  # first those seen in every cycle
    for history in read:
        assert history.key is not None
        assert history.page_names is not None
        assert [f"http://h{key % 2}/p{key - 1000}" for key in history.key] == list(history.page_names)
    assert one.sha256 == other.sha256


def test_a_history_has_the_claims_ages_and_sizes_that_the_crawl_saw(tmp_path: Path) -> None:
    """In cycles of the history, as files too, and side by side; claims after its last cycle are left out."""
    for name in ("one", "other"):
        with Store(tmp_path / name) as store:
            store.add_pages((10 - page, {"url": f"http://h/{name}{page}"}) for page in range(3))
            for cycle in range(1, 5):
                store.begin_cycle({"started": 1e6 + 100.0 * cycle})
                for page in range(3):
                    time_s = 1e6 + 100.0 * cycle + 10.0
                    outcome = "first" if cycle == 1 else "changed"
                    store.record(NewVisit(page=page, time=time_s, outcome=outcome, kind="other", bytes=900))
                    if cycle == 1:
                        store.note_many(np.array([page]), "modified", np.array([1e6 - 1_000.0 * page]))
                if cycle == 3:
                    store.note_many(np.array([2]), "sitemap", np.array([1e6 + 290.0]))
                    store.note_many(np.array([0]), "expires", np.array([250.0]))
                store.finish_cycle({"finished": 1e6 + 100.0 * cycle + 90.0})
    history = read_history(tmp_path / "one")
    assert history.claims is not None
    kinds = [KINDS.index(kind) for kind in ("expires", "sitemap")]
    during = [row for row in history.claims.tolist() if row[0] > 0]
    assert during == [(2, 0, kinds[1], 2), (2, 2, kinds[0], 2)]
    assert sorted(row[0] for row in history.claims.tolist() if row[0] <= 0) == [0, 0, 0]
    both = merge([history, read_history(tmp_path / "other")])
    assert both.claims is not None
    assert sorted(both.claims["page"].tolist()) == [0, 0, 1, 2, 2, 3, 3, 4, 5, 5]
    output, claims = str(tmp_path / "h.tsv"), str(tmp_path / "claims.tsv.gz")
    assert store_history.main([str(tmp_path / "one"), "-o", output, "--claims", claims]) == 0
    written = with_evidence(read_history(output), Path(claims), None)
    assert written.claims is not None
    assert written.claims.tolist() == history.claims.tolist()
    assert written.sizes.tolist() == history.sizes.tolist()


def test_the_history_of_a_store_with_a_panel_is_that_of_the_panel(tmp_path: Path) -> None:
    """A page that the score function picked in every cycle would bias the history: it is left out."""
    rank = {0: ("changed", "ranked"), 1: ("unchanged", "panel"), 2: ("changed", "panel")}
    crawl(tmp_path / "store", [dict.fromkeys(range(3), FIRST), rank, rank])
    assert texts(read_history(tmp_path / "store")) == {"p1": "00", "p2": "11"}


def test_errors_are_imputed_and_pages_with_too_many_left_out(tmp_path: Path) -> None:
    """At most --max-errors cycles without an outcome, whatever the reason; the report counts it all."""
    rows = [
        "f01010e1",  # changes in 3 and 5: the gap is 2, so that 7 is taken as changed
        "f01010e0",  # the visit after the error tells that nothing had changed
        "f0e1g010",  # two lost cycles: still in
        "f0e1e e1",  # four: out
        "fgggggg0",
        *["f0000000"] * 9,
    ]
    crawl_rows(tmp_path / "s", rows, "panel")
    history, report = read_with_report(tmp_path / "s")
    result = texts(history)
    assert [result[page] for page in ("p0", "p1", "p2")] == ["0101011", "0101000", "0010010"]
    assert not {"p3", "p4"} & result.keys()
    assert (report.pages, report.first_cycle, report.last_cycle) == (12, 2, 8)
    assert (report.imputed, report.known, report.erroneous, report.late) == (2, 2, 2, 0)
    assert "12 pages, 7 cycles (cycles 2 to 8 of the store); 2 outcomes lost to errors" in str(report)
    strict, report = read_with_report(tmp_path / "s", max_errors=1)
    assert "p2" not in texts(strict)
    assert report.erroneous == 3


def test_the_window_is_the_one_with_the_most_outcomes(tmp_path: Path) -> None:
    """Pages that come while most are still unknown shift the beginning; a single late one is dropped."""
    many_late = ["f01010101", *["  f010101"] * 6]
    crawl_rows(tmp_path / "many", many_late)
    history, report = read_with_report(tmp_path / "many")
    assert (report.first_cycle, report.pages, report.late) == (4, 7, 0)
    assert set(texts(history).values()) == {"010101"}
    crawl_rows(tmp_path / "one", [*["f01010101"] * 6, "  f010101"])
    _, report = read_with_report(tmp_path / "one")
    assert (report.first_cycle, report.pages, report.late) == (2, 6, 1)


def test_only_cycles_that_visited_everything_count_without_a_panel(tmp_path: Path) -> None:
    """Collection first, then top-k: pages that the ranking picked do not become a history of their own."""
    rows = ["f01011111111111", "f11101111111111", *["f0110          "] * 8]
    crawl_rows(tmp_path / "s", rows)
    history, report = read_with_report(tmp_path / "s")
    assert (report.first_cycle, report.last_cycle, report.pages) == (2, 5, 10)
    assert history.changed.shape == (4, 10)


def test_a_night_that_was_cut_short_does_not_split_the_history(tmp_path: Path) -> None:
    """Most pages lose one cycle, which is filled in like any error."""
    rows = ["f0101010", *["f011 010"] * 5]
    crawl_rows(tmp_path / "s", rows, "panel")
    _, report = read_with_report(tmp_path / "s")
    assert (report.first_cycle, report.last_cycle, report.pages) == (2, 8, 6)
    assert report.known == 5


def test_a_panel_that_was_switched_on_later_starts_the_history(tmp_path: Path) -> None:
    """Before, the ranking visited its pages now and then: those cycles are no part of the history."""
    before = [{0: ("changed", "ranked")} if c % 4 == 0 else {} for c in range(10)]
    panel = {page: ("changed" if page else "unchanged", "panel") for page in range(4)}
    crawl(tmp_path / "s", [dict.fromkeys(range(6), FIRST), *before, *[panel] * 5], 6)
    history, report = read_with_report(tmp_path / "s")
    assert (report.first_cycle, report.last_cycle, report.off_panel) == (12, 16, 2)
    assert texts(history) == {"p0": "00000", "p1": "11111", "p2": "11111", "p3": "11111"}


def test_a_store_without_a_history_is_refused(tmp_path: Path) -> None:
    """Too few cycles, no page judged, no store at all: each says what to do."""
    crawl(tmp_path / "young", [{0: FIRST}])
    with pytest.raises(HistoryError, match=r"has 1 finished cycle.*run the crawl again"):
        read_history(tmp_path / "young")
    crawl(tmp_path / "gaps", [{0: FIRST}, {0: ("error", "other")}, {0: ("error", "other")}])
    with pytest.raises(HistoryError, match=r"none of its 4 pages.*GP4C_PANEL"):
        read_history(tmp_path / "gaps")
    (tmp_path / "other").mkdir()
    with pytest.raises(HistoryError, match="no store of a crawl"):
        read_history(tmp_path / "other")


def test_partial_pages_are_admitted_and_marked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pages visited now and then: what their visits tell holds, and every report names them."""
    panel = {0: ("changed", "panel"), 1: ("unchanged", "panel")}
    second = {**panel, 2: ("unchanged", "ranked")}
    third = {**panel, 2: ("changed", "ranked")}
    crawl(tmp_path / "s", [dict.fromkeys(range(3), FIRST), panel, second, panel, panel, third])
    history, report = read_with_report(tmp_path / "s", partial=True)
    drawn = texts(history)
    assert drawn["p0"] == "11111"
    assert drawn["p2"][:2] == "00"
    assert "1" in drawn["p2"][2:]
    assert (report.partial, report.pages) == (1, 3)
    assert "1 page outside the panel, with outcomes drawn between visits (PARTIAL)" in str(report)
    assert "PARTIAL: 1 of 3 pages" in history.source
    with caplog.at_level(logging.INFO):
        assert "p2" not in texts(read_history(tmp_path / "s"))
    assert "2 pages outside the panel, and left out" in caplog.text
    repeated, _ = read_with_report(tmp_path / "s", partial=True)
    assert np.array_equal(repeated.changed, history.changed)


def test_a_store_without_panel_has_at_least_a_partial_history(tmp_path: Path) -> None:
    """Of a page that happened to be visited in every cycle, nothing has to be drawn."""
    rows = ["f" + "10" * 5, *["f" + " " * i + "1" + " " * (9 - i) for i in range(9)]]
    crawl_rows(tmp_path / "s", rows, "ranked")
    with pytest.raises(HistoryError, match="none of its 10 pages"):
        read_with_report(tmp_path / "s")
    _, report = read_with_report(tmp_path / "s", partial=True)
    assert (report.pages, report.partial, report.first_cycle) == (10, 9, 2)


def test_several_stores_merge_over_their_newest_common_cycles(tmp_path: Path) -> None:
    """Pages side by side; equal hosts are one site; older cycles of the longer store are left out."""
    crawl_rows(tmp_path / "a", ["f01011", "f11100"])
    crawl_rows(tmp_path / "b", ["f110"])
    merged = merge([read_history(tmp_path / name) for name in "ab"])
    assert merged.changed.T.astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert merged.site.tolist() == [0, 1, 0]
    assert merged.site_names is not None
    assert list(merged.site_names) == ["h0", "h1"]
    assert merged.weight is None
    with Store(tmp_path / "b") as store:
        store.put_weights(np.array([0]), np.array([2.5]))
    assert sorted(merge([read_history(tmp_path / name) for name in "ab"]).weights.tolist()) == [1.0, 1.0, 2.5]
    assert merged.key is not None
    assert merged.key.tolist() == [1000, 1001, 1000]
    assert merged.source == f"{tmp_path / 'a'} + {tmp_path / 'b'}"


def test_command_writes_brdc_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Collection mode's last step: one line of 0 and 1 per page, and the report on the terminal."""
    crawl_rows(tmp_path / "a", ["f011", "f100"])
    output = tmp_path / "h.txt"
    assert store_history.main([str(tmp_path / "a"), "-o", str(output)]) == 0
    assert output.read_text() == "011\n100\n"
    assert "2 pages, 3 cycles" in capsys.readouterr().out
    assert read_history(output).changed.tolist() == read_history(tmp_path / "a").changed.tolist()
    assert store_history.main([str(tmp_path / "a"), "-o", str(tmp_path / "h.pdf")]) == 2
    assert store_history.main([str(tmp_path / "none"), "-o", str(output)]) == 2
    assert store_history.main([str(tmp_path / "a"), "--partial", "-o", str(output)]) == 2
    partial = tmp_path / "h-partial.npz"
    assert store_history.main([str(tmp_path / "a"), "--partial", "-o", str(partial)]) == 0
    assert "partial" in read_history(partial).source
    assert "error: " in capsys.readouterr().err


WRITER = """
import sys
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
with Store(sys.argv[1]) as store:
    store.add_pages((page + 1, {"url": f"http://h/p{page}"}) for page in range(300))
    for cycle in range(1, 61):
        store.begin_cycle({})
        for page in range(store.pages):
            changed = "changed" if (cycle + page) % 2 else "unchanged"
            store.record(NewVisit(page=page, time=0.0, outcome="first" if cycle == 1 else changed))
        new = store.add_page(10_000 + cycle, {"url": f"http://h/new{cycle}"})
        store.record(NewVisit(page=new, time=0.0, outcome="first"))
        store.finish_cycle({})
        print(cycle, flush=True)
"""


def test_reading_while_a_crawl_writes(tmp_path: Path) -> None:
    """Every reading is one consistent state: whole cycles, with what the writer wrote in each."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            while int(writer.stdout.readline()) < 3:
                pass
            readings = 0
            while writer.poll() is None or not readings:
                history, report = read_with_report(tmp_path / "s")
                readings += 1
                bits = history.changed[:, :300]
                cycles = np.arange(report.first_cycle, report.last_cycle + 1)
                assert report.first_cycle == 2
                assert np.array_equal(bits, (cycles[:, None] + np.arange(300)) % 2 == 1)
        finally:
            writer.kill()
    assert readings > 3


def test_the_panel_of_a_live_crawl_is_its_true_history(tmp_path: Path) -> None:
    """Planned, judged and recorded by the live classes: outcome for outcome what happened to panel pages."""
    truth = models.generate("poisson", 300, 12, 1)
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 300, dtype=np.uint64)
    settings = Settings.load(ScrapySettings({"GP4C_PANEL": 0.4, "GP4C_BUDGET": 0.5}))
    crawl_store(tmp_path / "s", texts_of(truth.changed, rng), settings, keys)
    history = read_history(tmp_path / "s")
    mine = np.flatnonzero(in_panel(keys, 0.4))
    mine = mine[np.argsort(keys[mine])]
    assert np.array_equal(history.changed, truth.changed[:, mine])
    assert list(history.page_names or ()) == [f"http://h{key % 10}/{key}" for key in keys[mine].tolist()]
