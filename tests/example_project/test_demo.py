"""The demo: its numbers against the truth, its picture, and its end."""

import contextlib
import csv
import io
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats
from scrapy.settings import BaseSettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from example_project import demo as program
from example_project import learning
from example_project.crawls import CONTROL, FIRST_RANKED_DAY, LEARNED, DemoError, Row, Series
from example_project.demo import main
from example_project.learning import PANEL, leads, learn, switch
from example_project.model import Web
from example_project.tables import STEPS, curve, curves_table
from scrapy_gp4c.scoring.functions import FORMAT, load
from scrapy_gp4c.scoring.named import DEFAULT
from scrapy_gp4c.scoring.ranking import draws
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from training import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
HOSTS, COLLECT = 2, 1
SWITCH = FIRST_RANKED_DAY + COLLECT
DAYS = SWITCH
LEARNED_FORMULA = "X / (n + 1.0)"
DEFAULT_FORMULA = load(DEFAULT).formula
COMPARED = {"default": {}, "random": {"GP4C_SCORE_FUNCTION": "random", "GP4C_POLICY": "rounds(rounds=2)"}}
SMALL = {"--budget": 0.05, "--population": 30, "--generations": 3, "--seeds": 1, "--jobs": 1}


def demo(*arguments, **kwargs):
    """Start the demo."""
    command = [sys.executable, "-m", "example_project.demo", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


def accepts(port):
    """Tell whether anything listens on the directory's address."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    """Return a port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def learned(store, score_file):
    """Stand in for the learning, which has tests of its own and needs more days than these have."""
    assert (store / "data.mdb").exists()
    score_file.write_text(
        json.dumps(
            {"format": FORMAT, "expression": LEARNED_FORMULA, "terminals": ["X", "n"], "clock": "visits"}
        )
    )
    return True


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole demo of a few days and hosts: its folder, its output, and its port."""
    folder, port = tmp_path_factory.mktemp("demo"), free_port()
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(written):
        patch.setattr(program, "CRAWLS", COMPARED)
        patch.setattr(learning, "learn", learned)
        sizes = {"--days": DAYS, "--collect": COLLECT, "--hosts": HOSTS, "--port": port, "--output": folder}
        handler = signal.getsignal(signal.SIGTERM)
        try:
            assert main([str(part) for item in sizes.items() for part in item]) == 0
        finally:
            signal.signal(signal.SIGTERM, handler)
    return folder, written.getvalue(), port


@pytest.fixture(scope="module")
def rows(finished):
    """The demo's table, as dicts of text."""
    with (finished[0] / "days.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.slow
def test_every_day_of_every_score_function(rows):
    """There is one row per day and crawl; the control begins at the switch."""
    every = [(day, score) for day in range(1, DAYS + 1) for score in ("default", "random", LEARNED)]
    every += [(day, CONTROL) for day in range(SWITCH, DAYS + 1)]
    assert sorted((int(row["day"]), row["score"]) for row in rows) == sorted(every)


@pytest.mark.slow
def test_warm_up_sees_everything(rows):
    """While every page is visited, the crawl finds the model's changes, and all copies are current."""
    web = Web(1, HOSTS)
    for row in rows:
        day = int(row["day"])
        if day == 1:
            assert int(row["changed"]) == 0
            assert int(row["known"]) == int(row["visited"])
            assert int(row["known"]) >= web.alive(1).sum()
        elif day < FIRST_RANKED_DAY:
            fetched = web.alive(day) & (web.born < day)
            assert int(row["changed"]) >= web.changed(day)[fetched].sum() > 0
        if day < FIRST_RANKED_DAY:
            assert float(row["current"]) == 1.0


@pytest.mark.slow
def test_budget(rows):
    """From the first ranked day on, few pages are visited, and some copies are outdated."""
    for row in rows:
        collects = row["score"] == LEARNED and int(row["day"]) < SWITCH
        if int(row["day"]) >= FIRST_RANKED_DAY and not collects:
            assert 0 < int(row["visited"]) < 0.5 * int(row["known"])
            assert 0.3 < float(row["current"]) <= 1.0, row
    assert min(float(row["current"]) for row in rows) < 1.0


@pytest.mark.slow
def test_detection(rows):
    """Time stamps, ads, session ids and their like raised no false alarm, and no change was missed."""
    assert sum(int(row["judged"]) for row in rows) > 300
    assert sum(int(row["changed"]) for row in rows) > 10
    assert sum(int(row["missed"]) for row in rows) == 0
    assert sum(int(row["false_alarms"]) for row in rows) == 0


@pytest.mark.slow
def test_collection_and_switch(finished, rows):
    """While it collects, the learner visits its panel; then it uses its function, the control does not."""
    by_key = {(int(row["day"]), row["score"]): row for row in rows}
    collecting = by_key[SWITCH - 1, LEARNED]
    assert float(collecting["current"]) == 1.0
    assert int(collecting["visited"]) > 0.8 * int(collecting["known"])
    functions = {}
    for name in (LEARNED, CONTROL):
        with Store(finished[0] / name, readonly=True) as store:
            functions[name] = [record["formula"] for record in store.cycles()]
    assert functions[LEARNED] == [DEFAULT_FORMULA] * (SWITCH - 1) + [LEARNED_FORMULA]
    assert functions[CONTROL] == [DEFAULT_FORMULA] * DAYS


@pytest.mark.slow
def test_compared_crawls_have_their_settings(finished):
    """Each crawl ran by its row of the table, policy included, from the first ranked day on."""
    with Store(finished[0] / "random", readonly=True) as store:
        records = store.cycles()[FIRST_RANKED_DAY - 1 :]
    assert {(record["formula"], record["policy"]) for record in records} == {("random", "rounds(rounds=2)")}
    assert all(len(record["rounds"]) == 2 for record in records)


@pytest.mark.slow
def test_ndcg(rows):
    """Rankings have an NDCG from the first ranked day on, no other visits do."""
    for row in rows:
        ranked = int(row["day"]) >= (SWITCH if row["score"] == LEARNED else FIRST_RANKED_DAY)
        assert np.isfinite(float(row["ndcg"])) == ranked
        assert not ranked or 0.0 <= float(row["ndcg"]) <= 1.0


@pytest.mark.slow
def test_output(finished):
    """The output names the picture, the learned formula and every crawl; the web is stopped."""
    folder, output, port = finished
    assert str(folder / "demo.svg") in output
    assert ElementTree.parse(folder / "demo.svg").getroot().tag.endswith("svg")
    assert "current copies" in output
    for text in ("default", "random", CONTROL, f"{LEARNED}: {LEARNED_FORMULA}", "random, rounds(rounds=2)"):
        assert text in output
    assert not accepts(port)


def test_the_title_of_the_picture_is_what_came_out(tmp_path):
    """Changes that the first crawl found within the budget, by those of the oldest copies first."""
    series = [Series(name, tmp_path, np.zeros(1, np.int32), {}) for name in ("default", "age")]
    for one, changed in zip(series, (30, 12), strict=True):
        for day, count in ((FIRST_RANKED_DAY - 1, 500), (FIRST_RANKED_DAY, changed)):
            one.rows.append(Row(day, one.score, 9, 9, 9, count, 0.1, 0.1, 0.9, 0, 0))
    assert program.picture_title(series) == (
        "2.5 times the changes of visiting the oldest first, at the same budget: 5% of the pages per day"
    )
    assert program.picture_title(series[:1]) == "the default crawl, at 5% of the pages per day"


def test_leads_are_paired_by_day(tmp_path):
    """A lead is the mean difference of the same days, with Student's interval; other days do not count."""
    values = {"one": [0.1, 0.5, 0.7, 0.9], LEARNED: [0.9, 0.6, 0.9, 1.2]}
    series = [Series(name, tmp_path, np.zeros(1, np.int32)) for name in values]
    for one, ndcgs in zip(series, values.values(), strict=True):
        one.rows = [
            Row(day, one.score, 9, 9, 9, 1, 0.1, x, 0.5, 0, 0) for day, x in enumerate(ndcgs, start=4)
        ]
    first, second = leads(series, LEARNED, range(5, 8)).splitlines()
    half = 0.1 * stats.t.ppf(0.975, 2) / np.sqrt(3)  # of 0.1, 0.2, 0.3
    assert f"ahead in NDCG: of one +0.200 ± {half:.3f} (" in first
    assert "current copies: of one +0.000 ± 0.000" in second


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """The store of a crawl that visited every page of a web for 14 days; made without HTTP."""
    folder, web, last = tmp_path_factory.mktemp("collected"), Web(1, 6), 17
    pages = np.flatnonzero(web.steady)
    changed = np.array([web.changed(day)[pages] for day in range(2, last + 1)])
    one = Series(LEARNED, folder, np.zeros(web.pages, np.int32), panel=PANEL)
    keys = draws(np.arange(pages.size, dtype=np.uint64), 1, 1)
    texts = texts_of(changed, np.random.default_rng(1))
    crawl_store(one.store, texts, Settings.load(BaseSettings(one.settings())), keys)
    return one


@pytest.mark.slow
def test_learn_and_switch(collected, monkeypatch, capsys):
    """What is learned from a store is promoted or not, as the file tells; the copy keeps the old function."""
    monkeypatch.setattr(learning, "LEARNING", SMALL)
    series = [collected]
    promoted = switch(series)
    output = capsys.readouterr().out
    score_file = collected.folder / "score.json"
    assert collected.panel == 0.0
    assert "python -m training.learn" in output
    assert ("PROMOTED" in output) == score_file.exists() == (len(series) == 2) == promoted
    assert collected.loaded().score_function.formula == (
        json.loads(score_file.read_text())["expression"] if promoted else DEFAULT_FORMULA
    )


@pytest.mark.slow
def test_learning_that_cannot_be(tmp_path):
    """Too few cycles are one clear error that carries the reason of the command."""
    web = Series(LEARNED, tmp_path, np.zeros(1, np.int32), panel=PANEL)
    keys = np.arange(400, dtype=np.uint64)
    changed = np.arange(800).reshape(2, 400) % 3 == 0
    settings = Settings.load(BaseSettings(web.settings()))
    crawl_store(web.store, texts_of(changed, np.random.default_rng(1)), settings, keys)
    with pytest.raises(DemoError, match=r"learning failed: .*cycles"):
        learn(web.store, tmp_path / "score.json")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path, number):
    """Ctrl-C and SIGTERM end the demo, its crawls and its web, with one message."""
    port = free_port()
    process = demo("--hosts", HOSTS, "--output", tmp_path, "--port", port, start_new_session=True)
    for _ in range(600):
        if (tmp_path / "default.log").exists() and accepts(port):
            break
        time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "example_project.demo: interrupted"
    assert not accepts(port)


@pytest.mark.slow
def test_port_taken(tmp_path):
    """A port in use is one clear message."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = demo("--hosts", HOSTS, "--output", tmp_path, "--port", port)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(errors.strip().splitlines()) == 1
    assert str(port) in errors
    assert "choose another --port" in errors


def test_it_needs_no_library_of_an_extra():
    """The demo needs Scrapy and the add-on alone; a crawl that learns says at once what it lacks."""
    block = "import sys; sys.modules |= dict.fromkeys(sys.argv[1:], None); "
    run = "from example_project.demo import main; sys.exit(main(['--days', '5', '--collect', '1']))"
    done = subprocess.run(
        [sys.executable, "-c", block + run, *EXTRAS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "example_project.demo: scipy is not installed: pip install 'scrapy-gp4c[train]'\n"


@pytest.mark.parametrize(("option", "value"), [("--days", "0"), ("--days", "401"), ("--collect", "-1")])
def test_bad_numbers(capsys, option, value):
    """A number of days that the model does not have is refused."""
    with pytest.raises(SystemExit) as stopped:
        main([option, value])
    assert stopped.value.code == 2
    assert f"found {value}" in capsys.readouterr().err


@pytest.mark.slow
def test_the_first_curves_are_on_the_screen_after_the_first_ranked_day(finished):
    """Those of all crawls, and again at the end."""
    lines = finished[1].splitlines()
    drawn = [number for number, line in enumerate(lines) if set(line) & set(STEPS)]
    of_day = [number for number, line in enumerate(lines) if line.startswith(f"day {FIRST_RANKED_DAY},")]
    assert of_day[-1] < drawn[0] < of_day[-1] + 5
    crawls = len(COMPARED) + 1  # with the one that learns, and from its switch on with its control
    assert len(drawn) == crawls + crawls + 1
    last = next(line for line in reversed(lines) if "default" in line and set(line) & set(STEPS))
    assert [len(curve) for curve in last.split()[1:]] == [DAYS - 1, DAYS - 1]


def test_curves_are_drawn_to_one_scale():
    """The highest value of all crawls is the highest step; days without a crawl are blank."""
    assert curve(np.array([0.0, 0.5, 1.0, np.nan, -3.0]), 0.0, 1.0) == "▁▅█ ▁"
    assert curve(np.array([0.4, 0.4]), 0.4, 0.4) == "▁▁"
    series = []
    for score, rates in (("a", (0.1, 0.4, 0.8)), ("b", (0.1, 0.2))):
        one = Series(score, Path(), np.zeros(1, np.int32))
        for day, rate in enumerate(rates, 1):
            one.rows.append(Row(day, score, 9, 5, 5, 1, rate, 0.5, 1.0 - rate, 0, 0))
        series.append(one)
    text = curves_table(series, 3)
    assert "change rate, 0.0% to 80.0%" in text
    assert "current, 20.0% to 80.0%" in text
    a, b = (line.split()[1] for line in text.splitlines() if line.startswith(("a ", "b ")))
    assert (a, b) == ("▅█", "▃")
