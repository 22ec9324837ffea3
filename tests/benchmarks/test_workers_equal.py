"""Workers leave behind what one process does, on the demo's web; and what the comparison would tell."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.left_behind import Left, compare, in_records, told
from benchmarks.workers_equal import DELAY_S, WORKERS_NET, crowded, main
from tests.support.postgres import NEEDS_POSTGRES


@NEEDS_POSTGRES
def test_two_workers_leave_what_one_process_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    """Three days of a small web."""
    assert main(["--days", "3", "--workers", "2", "--hosts", "3", "--again", "1"]) == 0, (
        capsys.readouterr().out
    )
    assert capsys.readouterr().out.count("holds") == 2


def test_what_differs_is_counted_by_field() -> None:
    """Times are left out; a page that only one has counts as one."""
    one = Left({"a": {"bits": "01", "seen_min": 1}, "b": {}}, [{"visited": 2, "started": 1.0}])
    other = Left({"a": {"bits": "00", "seen_min": 2}}, [{"visited": 3, "started": 2.0}])
    found = compare(one, other)
    assert found.pages == Counter(page=1, bits=1)
    assert found.records == Counter(visited=1)
    assert compare(one, one).beyond(found) == []
    assert found.beyond(compare(one, one)) == ["bits", "page", "visited"]
    assert told(found.pages) == "bits 1, page 1"
    assert list(in_records(one, other)) == ["cycle 1, visited: 2 | 3"]
    assert found.and_also(compare(one, one)) == compare(one, one).and_also(found) == found


def test_two_workers_at_one_host_are_counted(tmp_path: Path) -> None:
    """Within its delay; one worker may ask as often as it likes, and another host is another one."""
    one, other = f"{WORKERS_NET}1", f"{WORKERS_NET}2"
    asked = [
        (0.0, "h", one), (DELAY_S / 2, "h", one), (0.9 * DELAY_S, "h", other),
        (DELAY_S, "g", one), (5 * DELAY_S, "h", one),
    ]  # fmt: skip
    log = tmp_path / "asked"
    log.write_text("".join(json.dumps(one) + "\n" for one in asked))
    assert crowded(log) == 1


def test_workers_that_cannot_be_told_apart_are_no_good_sign(tmp_path: Path) -> None:
    """All would seem to be one."""
    log = tmp_path / "asked"
    log.write_text(json.dumps((0.0, "h", "127.0.0.1")) + "\n")
    with pytest.raises(RuntimeError, match=r"found 127\.0\.0\.1: this Scrapy does not know DOWNLOAD_BIND"):
        crowded(log)
