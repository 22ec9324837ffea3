"""The demo with workers: kills, what is told of them, and the picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_project.crew import WORKERS, Day, Part, Worker
from example_project.workers import compared, main, row
from scrapy_gp4c.store.opening import open_store
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES


def test_every_planned_page_has_one_outcome_although_one_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two days on few hosts: who was killed, who took over, the comparison, the picture, one store."""
    assert main(["--days", "2", "--hosts", "5", "--port", "0", "--output", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    kills = told.count(" after ")
    assert kills >= 1  # who has less than ten visits on a day is not killed
    assert f"{kills} kills; every planned page has one outcome: yes" in told
    assert (tmp_path / "out" / "workers.png").read_bytes().startswith(b"\x89PNG")
    found = list(compared(tmp_path / "out" / "all"))
    with open_store(tmp_path / "out" / "all", readonly=True) as store:
        assert found[0].new + found[1].new == store.pages
    assert found[1].planned == found[1].outcomes > 0


def test_a_day_is_a_line() -> None:
    """Visits, shards taken over, and the kill; without one, nobody."""
    visits = dict(zip(WORKERS, (1_234, 20, 3), strict=True))
    taken = dict(zip(WORKERS, ([1, 2], [], []), strict=True))
    day = Day(7, visits, WORKERS[1], 20, taken, dict.fromkeys(WORKERS, 0), 4.25)
    assert row(day).split() == (f"7 1,234 +2 shards 20 3 {WORKERS[1]} after 20 visits 4.2 s".split())
    assert "nobody" in row(day._replace(killed=None))


def test_a_worker_that_never_began_is_not_crawling(tmp_path: Path) -> None:
    """And ending it is no error."""
    one = Worker("ada", tmp_path, {}, 1)
    assert not one.goes_on()
    one.stop()
    assert Part(1, 2) < Part(1, 3)
