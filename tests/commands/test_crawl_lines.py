"""What `scrapy gp4c workers SPIDER status` says, and that it can be watched."""

from __future__ import annotations

import pytest

from scrapy_gp4c.commands import crawl_lines, progress
from scrapy_gp4c.crawling.crawl_status import CrawlStatus, WorkerStatus


def status(**given: object) -> CrawlStatus:
    """Where a crawl of four shards by two workers is."""
    usual: dict[str, object] = {
        "ledger": "L", "shards": 4, "pages": 1234, "cycle": 7, "open": True, "complete": False,
        "next_due_s": None, "waits_for": [0, 2, 3], "homeless": [3], "parked": [], "letters": 6,
        "workers": [
            WorkerStatus("one", 20.0, False, [0, 1], [0], 5), WorkerStatus("other", -3.0, True, [2], [2], 1),
        ],
    }  # fmt: skip
    return CrawlStatus(**{**usual, **given})  # type: ignore[arg-type] # of several types


def test_whom_a_cycle_waits_for_is_named() -> None:
    """Workers with what they have not done, shards that nobody has, and the mail of each."""
    told = crawl_lines.lines(status())
    assert told[0] == "ledger L: 4 shards, 1,234 pages"
    assert told[1] == (
        "cycle 7 is open and waits for 3 of 4 shards of one (1), other (1), nobody alive (1), "
        "6 letters unread"
    )
    assert [line.split() for line in told[2:]] == [
        ["worker", "shards", "not", "done", "letters", "lease"],
        ["one", "2", "1", "5", "20", "s", "left"],
        ["other", "1", "1", "1", "dead", "for", "3", "s,", "drains"],
    ]


def test_a_crawl_at_rest_says_what_comes_next() -> None:
    """When the next cycle is due, or that shards have not ended the last one."""
    rest = status(open=False, waits_for=[], letters=0, workers=[], complete=True, next_due_s=61.7)
    assert crawl_lines.lines(rest)[1:] == ["cycle 7 is closed; the next is due in 62 s"]
    ending = status(open=False, waits_for=[], letters=0, workers=[])
    assert crawl_lines.lines(ending)[1:] == ["cycle 7 is closed, and not all shards have ended it"]


def test_watching_ends_by_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A look that fails is gone over; the last status is returned, whose exit code is that of the watch."""
    looks = [status(pages=1), None, status(pages=2, parked=[3])]
    paused = []

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        if not looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(crawl_lines.time, "sleep", sleep)
    last = crawl_lines.watch(lambda: looks.pop(0))
    assert last is not None
    assert (last.pages, len(paused)) == (2, 3)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("ledger")] == [
        "ledger L: 4 shards, 1 pages", "ledger L: 4 shards, 2 pages",
    ]  # fmt: skip
    assert out.count("shards are parked, as their holders died: 3") == 1
    assert "\033" not in out


def test_bars_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere nothing is written; on one, the line is empty in the end."""
    with progress.shown() as told:
        told("pages", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.shown() as told:
        told("pages", 1, 2)
        told("pages", 2, 2)
        told("copies", 0, 0)
    err = capsys.readouterr().err
    assert "pages    " + "█" * 15 + "·" * 15 + " 1 of 2" in err
    assert "█" * 30 + " 2 of 2" in err
    assert err.endswith(progress.ANEW)
