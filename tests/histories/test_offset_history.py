"""Histories of irregular visits: what the visits say is in the history, bit for bit."""

import gzip
import json
import logging
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training import evaluate
from training.histories.offset_history import RATE_BOUNDS, read_offset_history
from training.histories.reading import read_history

Visits = Sequence[tuple[float, int]]


def write(path: Path, pages: Sequence[tuple[str, str, float, float, Visits]]) -> Path:
    """Write URL, host, importance, days until the first visit and visits of every page."""
    path.mkdir(exist_ok=True)
    names = [f"{host}/{url}\t{number}\t{host}" for number, (url, host, *_) in enumerate(pages)]
    (path / "url_urlid_hostid.txt").write_text("\n".join(names) + "\n")
    importance = [f"{number}\t{page[2]:g}" for number, page in enumerate(pages)]
    (path / "urlid_imp.txt").write_text("\n".join(importance) + "\n")
    visits = [f"{number}\t{page[3]}\t{json.dumps(page[4])}" for number, page in enumerate(pages)]
    (path / "urlid_offset_history.txt").write_text("\n".join(visits) + "\n")
    return path


def crawl(seed: int, pages: int = 40, days: float = 30.0) -> list[tuple[str, str, float, float, Visits]]:
    """Pages that change at random, visited about once a day, some visits dropped, some doubled."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, str, float, float, Visits]] = []
    for number in range(pages):
        changes = np.sort(rng.random(rng.poisson(days * rng.random())) * days)
        times = np.cumsum(rng.exponential(1.0, 200)) if number % 2 else np.arange(0.3, days, 1.0)
        times = times[(times < days) & (rng.random(len(times)) < 0.8)]
        times = np.concatenate(([0.2], times[times > 0.2]))
        missed = np.diff(np.searchsorted(changes, times)) > 0
        visits = list(zip(np.diff(times).tolist(), missed.astype(int).tolist(), strict=True))
        visits = list(zip(np.diff(times).tolist(), missed.astype(int).tolist(), strict=True))
        rows.append((f"p{number}", f"h{number % 5}.org", 1.0 + number, times[0], visits))
    return rows


@given(st.integers(0, 2**32))
@settings(max_examples=12)
def test_the_history_agrees_with_every_visit(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Seen through the visits, cycles say what visits found; unchanged ones settle all cycles before."""
    rows = crawl(seed)
    history = read_history(write(tmp_path_factory.mktemp("data"), rows))
    assert history.pages == len(rows)
    assert history.site_names is not None
    assert history.page_names is not None
    for page, (url, host, importance, offset, visits) in enumerate(rows):
        assert history.page_names[page] == f"{host}/{url}"
        assert history.site_names[history.site[page]] == host
        assert history.weights[page] == importance
        cycles = [int(time) for time in np.cumsum([offset, *(days for days, _ in visits)])]
        result = {cycle for cycle, (_, changed) in zip(cycles[1:], visits, strict=True) if changed}
        bits = [False, *history.changed[:, page]]  # by cycle; that of the first copies is 0
        for before, cycle, (_, changed) in zip(cycles, cycles[1:], visits, strict=False):
            if changed and cycle:
                assert any(bits[min(before + 1, cycle) : cycle + 1])
            elif not changed:
                assert not any(bits[before + 1 : cycle])
                assert bits[cycle] == (cycle in result and cycle > 0) or before == cycle


def test_what_a_visit_settles_and_what_is_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Known outcomes are exact, the log counts them, and late and hardly visited pages are left out."""
    rows = [
        ("settled", "a", 7.0, 0.5, [(3.0, 0), (1.0, 1), (1.0, 0)]),  # 0 0 0 1 0
        ("twice a day", "a", 1.0, 0.1, [(1.0, 0), (0.5, 1), (4.0, 0)]),  # 1 0 0 0 0
        ("open", "b", 1.0, 0.9, [(2.0, 1), (3.0, 0)]),  # a change on day 1 or 2
        ("late", "b", 1.0, 4.0, [(1.2, 1)]),
        ("once", "b", 1.0, 0.0, []),
    ]
    path = write(tmp_path / "data", rows)
    with open(path / "urlid_imp.txt", "a") as file:
        file.write("98\t1.0\n99\t1.0\n")
    with caplog.at_level(logging.WARNING):
        history = read_history(path)
    assert history.changed[:, 0].tolist() == [False, False, False, True, False]
    assert history.changed[:, 1].tolist() == [True, False, False, False, False]
    assert history.changed[:2, 2].any()
    assert not history.changed[2:, 2].any()
    assert history.dropped_pages == 2
    assert "3 pages of 2 hosts, 5 cycles of 1 days; 93.3% of the outcomes are known" in caplog.text
    assert "left out 1 page visited fewer than twice" in caplog.text
    assert "left out 1 page first visited after cycle 1" in caplog.text
    assert (
        "left out at least 2 lines of urlid_imp.txt about URLs that url_urlid_hostid.txt lacks" in caplog.text
    )


def test_change_rates_are_those_of_the_paper(tmp_path: Path) -> None:
    """Equation 10, with a changed and an unchanged interval of half a day more; complete ones as given.

    A page that never changed has the least rate that can be estimated: policies divide by rates.
    """
    path = write(tmp_path / "data", [("a", "h", 1.0, 0.0, [(1.0, 1), (2.5, 0), (1.5, 1)]),
                                     ("b", "h", 1.0, 0.0, [(1.0, 0), (4.0, 1)])])  # fmt: skip
    (path / "urlid_chrate_compl_obs_hist.txt").write_text("1\t0.25\n")
    data = read_offset_history(path)
    rate = data.change_rate[0]
    assert sum(days / np.expm1(rate * days) for days in (1.0, 1.5, 0.5)) == pytest.approx(2.5 + 0.5)
    assert data.change_rate[1] == 0.25
    assert data.complete.tolist() == [False, True]
    (path / "urlid_chrate_compl_obs_hist.txt").write_text("1\t0\n")
    assert read_offset_history(path).change_rate[1] == RATE_BOUNDS[0]


def test_whole_hosts_are_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As many pages as asked for at most, all pages of each host, and the log says what to raise."""
    path = write(tmp_path / "data", crawl(1))
    history = read_offset_history(path, max_pages=20).history
    assert history.site_names is not None
    assert sorted(np.bincount(history.site)) == [8, 8]
    assert "left out 24 pages of hosts that were not drawn: raise --max-pages, now 20" in caplog.text
    with pytest.raises(HistoryError, match="raise --max-pages"):
        read_offset_history(path, max_pages=3)


def test_memory_is_of_the_pages_that_are_drawn(tmp_path: Path) -> None:
    """Of a set 12 times as large, as many pages take hardly more: its lines pass by one by one."""
    few = crawl(1)
    many = [(url, f"{copy}.{host}", *rest) for copy in range(12) for url, host, *rest in few]
    sets = [write(tmp_path / name, rows) for name, rows in (("few", few), ("many", many))]  # type: ignore[arg-type]

    def peak_bytes(path: Path, max_pages: int) -> int:
        tracemalloc.start()
        history = read_offset_history(path, max_pages=max_pages).history
        assert 0 < history.pages <= max_pages
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    read_offset_history(sets[0])  # imports
    small, drawn, everything = peak_bytes(sets[0], 40), peak_bytes(sets[1], 40), peak_bytes(sets[1], 480)
    assert drawn < 2 * small
    assert everything > 3 * drawn


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        *(
            ("urlid_offset_history.txt", line, "")
            for line in ("0\t0.5\t[[1.0, 2]]", "0\t0.5\t[[1.0", "0\tx\t[[1.0, 1]]", "0", "0\t0\t[[1e9, 0]]")
        ),
        ("url_urlid_hostid.txt", "other.org/\t3\th1.org", " every number of a URL once; found '3'"),
        ("urlid_imp.txt", "3\t7", " every number of a URL once; found '3'"),
        ("urlid_offset_history.txt", "3\t0.5\t[[1.0, 1]]", " every number of a URL once; found '3'"),
    ],
)
def test_a_broken_or_second_line_is_named(name: str, line: str, message: str, tmp_path: Path) -> None:
    """With its file and number; a second line would be a further page, or a weight that nobody chose."""
    path = write(tmp_path / "data", crawl(1))
    with open(path / name, "a") as file:
        file.write(line + "\n")
    with pytest.raises(HistoryError, match=rf"{name}, line 41: expected{message}"):
        read_history(path)


@pytest.mark.parametrize("name", ["url_urlid_hostid.txt", "urlid_offset_history.txt"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    """Importance and known rates may be missing, URLs and visits not."""
    path = write(tmp_path / "data", crawl(1))
    (path / name).unlink()
    with pytest.raises(HistoryError, match=rf"expected the file {name} or {name}\.gz; there is none"):
        read_offset_history(path)


def test_evaluate_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In cycles of any length, of gzip files too; other histories have the cycles that they have."""
    path = write(tmp_path / "data", crawl(2))
    file = path / "urlid_offset_history.txt"
    (path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert evaluate.main([str(path), "--cycle", "12h", "--score", "default", "--budget", "0.2"]) == 0
    assert "40 pages, scored cycles 3 to 59" in capsys.readouterr().out
    assert evaluate.main([str(path), "--preset", "lambdacrawl"]) == 0
    shown = capsys.readouterr().out
    assert "k = 8 visits per cycle" in shown
    assert "lambda-crawl" in shown
    assert "harmonic staleness" in shown
    (tmp_path / "plain.txt").write_text("0101\n1100\n")
    assert evaluate.main([str(tmp_path / "plain.txt"), "--cycle", "1d"]) == 2
    assert "--cycle and --max-pages go with directories" in capsys.readouterr().err
