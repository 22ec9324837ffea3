"""The command `python -m training.learn`: from a history file to a score file; kills and bad input too."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import BASELINES, NAMED
from scrapy_gp4c.settings import Settings
from tests.support.dask_cluster import Cluster, certificates
from training.evolution.evolve import readable
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.learn import main

COMMAND = [sys.executable, "-m", "training.learn"]
FAST = ["--population", "12", "--seeds", "2", "--budget", "0.1", "--jobs", "1"]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "history.npz"
    write_npz(path, generate("poisson", 300, 24, 1))
    return path


def content(path: Path) -> dict[str, object]:
    """A score file without the time it was written."""
    read = json.loads(path.read_text())
    read.pop("created")
    return dict(read)


def test_from_history_to_settings(history, tmp_path, capsys):
    """The score file loads as live crawls load it; the terminal shows formula, values and settings line."""
    output = tmp_path / "score.json"
    assert (
        main([str(history), *FAST, "--generations", "3", "--terminals", "n,X,t,cg", "-o", str(output)]) == 0
    )
    out, err = capsys.readouterr()
    loaded = functions.load(str(output))
    written = content(output)
    assert loaded.expression is not None
    assert loaded.formula == written["expression"]
    assert set(loaded.terminals) <= {"n", "X", "t", "cg"}
    for part in ("training", "validation", "test"):
        assert {"ndcg", "change_rate", "freshness"} <= set(written[part])
    assert written["history"]["pages"] == 300
    assert written["parameters"]["population"] == 12
    assert f"score = {readable(loaded.formula)}" in out
    assert f'GP4C_SCORE_FUNCTION = "{output}"' in out
    for name in ("learned", *BASELINES, "oracle"):
        assert re.search(rf"^. {re.escape(name)} +. +0\.\d{{4}}|^. {re.escape(name)} +. +1\.0000", out, re.M)
    assert f"{written['test']['ndcg']:.4f}" in out
    assert "generation 3/3: best ndcg 0." in err
    assert not (tmp_path / "score.json.checkpoint").exists(), "a finished run leaves no checkpoint"


def test_journal_protocol_shows_means_and_intervals(history, tmp_path, capsys):
    """Five functions, and 95% confidence intervals over the folds."""
    output = tmp_path / "score.json"
    arguments = [str(history), *FAST, "--generations", "2", "--protocol", "journal", "-o", str(output)]
    assert main([*arguments, "--fitness", "freshness", "--selection", "avg"]) == 0
    out = capsys.readouterr().out
    assert [line[:7] for line in out.splitlines() if line.startswith("fold ")] == [
        f"fold {i}:" for i in range(1, 6)
    ]
    assert re.search(r"learned +.( +0\.\d{4} ± 0\.\d{4} .){3}", out)


def killed_after_two_generations(arguments, output):
    """Learn in a process of its own until the third generation or so, and kill it; generations done."""
    checkpoint = output.with_name(f"{output.name}.checkpoint") / "checkpoint.json"
    run = subprocess.Popen(
        [*COMMAND, *arguments, "-o", str(output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    done = 0
    for _ in range(6000):
        if checkpoint.exists():
            done = json.loads(checkpoint.read_text())["states"][0]["generation"]
        if done >= 2 or run.poll() is not None:
            break
        time.sleep(0.01)
    run.kill()
    run.wait()
    return done


@pytest.mark.slow
def test_ctrl_c_writes_what_it_has(history, tmp_path):
    """SIGINT to the whole process group, workers included: exit 130, a usable score file, and the way on."""
    output = tmp_path / "score.json"
    checkpoint = tmp_path / "c" / "checkpoint.json"
    arguments = [
        str(history),
        *FAST,
        "--generations",
        "500",
        "--jobs",
        "2",
        "--checkpoint",
        str(tmp_path / "c"),
    ]
    run = subprocess.Popen(
        [*COMMAND, *arguments, "-o", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(6000):
        if checkpoint.exists() or run.poll() is not None:
            break
        time.sleep(0.01)
    time.sleep(0.2)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "Traceback" not in err
    result = re.search(r"Stopped after generation (\d+) of 500", err)
    assert result
    assert "--resume" in err
    assert functions.load(str(output)).expression is not None
    assert content(output)["parameters"]["generations_done"] == int(result[1])
    assert json.loads(checkpoint.read_text())["states"][0]["generation"] == int(result[1])
    assert "GP4C_SCORE_FUNCTION" in out


def refused(capsys, *arguments: str) -> str:
    """Run the command, expect exit code 2, give the error."""
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--terminals", "n,size"], "there is no terminal 'size'"),
        (["--fitness", "speed"], "there is no fitness 'speed'"),
        (["--budget", "301"], "the budget of 301 visits per cycle is above the 300 pages"),
        (["--budget", "0.0"], "a budget is a share"),
        (["--population", "1"], "population must be at least 2"),
        (["--warmup", "8"], "needs at least 5 pages and 27 cycles"),
        (["--output", "/missing/score.json"], "cannot write '/missing/score.json'"),
        (["--backend", "dask"], "needs the address of a scheduler"),
        (["--front", "--fitness", "freshness"], "a front is of two objectives, freshness and another"),
        (["--policy", "rounds(rounds=0)"], "takes for rounds a whole number from 1"),
    ],
)
def test_bad_arguments(history, tmp_path, capsys, arguments, words):
    """Before any long work: exit code 2, one message, and nothing written."""
    where = ["--output", str(tmp_path / "score.json")]
    assert words in refused(capsys, str(history), *FAST, *where, *arguments)
    assert not (tmp_path / "score.json").exists()


def test_bad_histories(tmp_path, capsys):
    """A file that is not there, one page, and pages that never change."""
    output = ["-o", str(tmp_path / "score.json")]
    assert "missing.npz" in refused(capsys, str(tmp_path / "missing.npz"), *output)
    for name, changed, words in (
        ("one.npz", np.ones((30, 1), np.bool_), "has 1 page and"),
        ("still.npz", np.zeros((30, 40), np.bool_), "no page changes in the training part"),
        ("short.npz", np.eye(6, 40, dtype=np.bool_), "40 pages and 6 cycles"),
    ):
        path = tmp_path / name
        write_npz(path, ChangeHistory(changed=changed, site=np.zeros(changed.shape[1], np.int32)))
        assert words in refused(capsys, str(path), "--budget", "0.2", *output)


def test_readable_formula():
    """Constants are rounded for the eye; the formula stays one that can be used."""
    assert readable("t * 0.3333333333333333 + 1000.0") == "t * 0.3333 + 1000.0"
    assert parse(readable("X / 2.718281828459045")).terminals == ("X",)


FRONT = ["--front", "--terminals", "n,X,t,cg"]


def front_content(directory: Path) -> dict[str, object]:
    files = {path.name: content(path) for path in directory.glob("*.json")}
    return {**files, "table": (directory / "front.csv").read_text()}


def test_a_front_is_a_directory_of_score_files(history, tmp_path, capsys):
    """All load as crawls load them; the preferred one is the score file, and one of them."""
    output = tmp_path / "score.json"
    arguments = [str(history), *FAST, *FRONT, "--generations", "3", "-o", str(output)]
    results = {}
    for prefer in ("changes", "freshness", "balanced"):
        assert main([*arguments, "--prefer", prefer]) == 0
        out = capsys.readouterr().out
        assert f"the front of ndcg and freshness; taken: {prefer}" in out
        assert "GP4C_POLICY" not in out
        files = sorted((tmp_path / "score.json.front").glob("*.json"))
        assert [path.stem for path in files] == [f"{position:02}" for position in range(1, len(files) + 1)]
        texts = [functions.load(str(path)).formula for path in files]
        results[prefer] = content(output)
        assert results[prefer]["expression"] in texts
        assert results[prefer]["parameters"]["prefer"] == prefer
        assert results[prefer]["parameters"]["front"] is True
        ndcg = [content(path)["test"]["ndcg"] for path in files]
        assert len(ndcg) == len(files)
    assert (tmp_path / "score.json.front" / "front.png").read_bytes()[1:4] == b"PNG"
    least = [results["changes"]["training"], results["balanced"]["training"]]
    assert results["freshness"]["training"]["freshness"] >= max(one["freshness"] for one in least) - 0.01


def test_the_policy_is_recorded_and_comes_with_its_setting(history, tmp_path, capsys):
    """A function learned under a policy is for crawls under it: the file brings it along."""
    output = tmp_path / "score.json"
    arguments = [str(history), *FAST, "--generations", "1", "--policy", "rounds(rounds=2)"]
    arguments += ["--protected-division", "large"]
    assert main([*arguments, "-o", str(output)]) == 0
    assert "The policy rounds(rounds=2) is in the file, too." in capsys.readouterr().out
    assert (
        Settings.load(ScrapySettings({"GP4C_SCORE_FUNCTION": str(output)})).policy.text == "rounds(rounds=2)"
    )
    both = {"GP4C_SCORE_FUNCTION": str(output), "GP4C_POLICY": "top_k"}
    assert Settings.load(ScrapySettings(both)).policy.text == "top_k"
    assert content(output)["parameters"]["policy"] == "rounds(rounds=2)"
    assert content(output)["parameters"]["protected_division"] == "large"
    assert main([str(history), *FAST, "--generations", "1", "-o", str(output)]) == 0
    assert not {"policy", "division", "front", "start"} & set(content(output)["parameters"])


@pytest.mark.slow
def test_related_terminals_divide_whole_sites(tmp_path, capsys):
    """The set by its name; of a history of one site, the directories, unless sites are asked for."""
    history = generate("brdc12-like", 900, 24, 1)
    names = [f"/{page // 7}/{page}" for page in range(900)]
    write_npz(tmp_path / "h.npz", dataclasses.replace(history, page_names=names))
    one = dataclasses.replace(history, site=np.zeros(900, np.int32), page_names=names)
    write_npz(tmp_path / "one.npz", one)
    output = tmp_path / "score.json"
    arguments = [*FAST, "--generations", "2", "--terminals", "related", "-o", str(output)]
    assert main([str(tmp_path / "h.npz"), *arguments]) == 0
    assert "near" in content(output)["parameters"]["terminals"]
    capsys.readouterr()
    error = refused(capsys, str(tmp_path / "one.npz"), *arguments, "--divide", "sites")
    assert "cannot divide 1 site into 5 parts" in error
    assert main([str(tmp_path / "one.npz"), *arguments]) == 0


@pytest.fixture(scope="module")
def named_history(tmp_path_factory):
    """A small history with names of pages in directories, of 15 sites."""
    path = tmp_path_factory.mktemp("named") / "history.npz"
    model = generate("poisson", 300, 24, 1)
    names = [f"/{page % 3}/{page}" for page in range(300)]
    write_npz(path, dataclasses.replace(model, site=np.arange(300, dtype=np.int32) % 15, page_names=names))
    return path


def test_what_stays_is_a_named_function_by_its_name_with_its_policy(named_history, tmp_path, capsys):
    """Not shortened: its file has name, expression and policy, and the end says to keep what one has."""
    output = tmp_path / "score.json"
    assert main([str(named_history), *FAST, "--generations", "1", "-o", str(output)]) == 0
    written, out = content(output), capsys.readouterr().out
    row = NAMED[written["name"]]
    assert parse(written["expression"]) == parse(row.expression)
    assert written.get("policy", "top_k") == (row.policy or "top_k")
    assert f"score = {written['name']}" in out
    assert "Keep what you have" in out
    rows = [line.split()[1] for line in out.splitlines() if line.startswith("│ ")]
    assert rows[:4] == ["learned", "default", "changes", "freshness"]


def test_the_function_in_use_is_the_one_to_beat(named_history, tmp_path, capsys):
    """It is the first of the table, and the end says by how much the learned one is ahead of it."""
    output = tmp_path / "score.json"
    arguments = [str(named_history), *FAST, "--generations", "1", "-o", str(output), "--in-use", "0.0 - t"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Use the learned function: its lead over 0.0 - t in the test is +0." in out
    assert out.index(" 0.0 - t ") < out.index(" default ") < out.index(" changes ")
    assert output.exists()


def test_where_all_are_equal_nothing_is_written(named_history, tmp_path, capsys):
    """Exit code 1 and one line: every page is visited in every cycle, whatever the function."""
    output = tmp_path / "score.json"
    options = ["--generations", "1", "--fitness", "change_rate", "--budget", "1.0", "-o", str(output)]
    assert main([str(named_history), *FAST, *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if "generation" not in line] == [
        line for line in err.splitlines() if line.startswith("nothing was learned: all ")
    ]
    assert "nothing was learned" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], FRONT])
def test_a_killed_run_resumes_to_the_same_files(more, history, tmp_path):
    """kill -9 in the middle, then --resume: score file and front are those of a run that was left alone."""
    arguments = [str(history), *FAST, *more, "--generations", "40"]
    assert main([*arguments, "-o", str(tmp_path / "whole.json")]) == 0
    output = tmp_path / "killed.json"
    assert 2 <= killed_after_two_generations(arguments, output) < 40
    assert not output.exists()
    assert main([*arguments, "-o", str(output)]) == 2, "an unfinished run is not overwritten"
    assert main([*arguments, "-o", str(output), "--resume"]) == 0
    assert content(output) == content(tmp_path / "whole.json")
    if more:
        one, other = (front_content(tmp_path / f"{name}.json.front") for name in ("killed", "whole"))
        assert one == other
    assert not (tmp_path / "killed.json.checkpoint" / "checkpoint.json").exists()


LEARN = [sys.executable, "-m", "training.learn"]
SEARCH = ["--population", "40", "--generations", "30", "--seeds", "2", "--budget", "0.1"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two workers that talk by TLS alone."""
    started = Cluster(tmp_path, 2, certificates(tmp_path))
    yield started
    started.stop()


def file_content(path: Path) -> dict[str, object]:
    """A score file without the time it was written."""
    read: dict[str, object] = json.loads(path.read_text())
    read.pop("created")
    return read


def on(cluster: Cluster) -> list[str]:
    return ["--backend", "dask", "--scheduler", cluster.address]


def generations(output: Path) -> int:
    """Generations that the first search of a run has behind it."""
    checkpoint = output.with_name(f"{output.name}.checkpoint") / "checkpoint.json"
    if not checkpoint.exists():
        return 0
    done: int = json.loads(checkpoint.read_text())["states"][0]["generation"]
    return done


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """kill -9 of one of two workers in the middle: the score file is that of a run on one process."""
    history, output, alone = (tmp_path / name for name in ("history.npz", "dask.json", "alone.json"))
    write_npz(history, generate("poisson", 300, 24, 1))
    assert cluster.address.startswith("tls://")
    run = subprocess.Popen(
        [*LEARN, str(history), *SEARCH, "-o", str(output), *on(cluster)],
        env=cluster.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while generations(output) < 2 and run.poll() is None:
        time.sleep(0.01)
    assert run.poll() is None, "it is to be killed in the middle"
    cluster.workers[0].kill()
    _, errors = run.communicate()
    assert run.returncode == 0, errors
    subprocess.run(
        [*LEARN, str(history), *SEARCH, "-o", str(alone), "--jobs", "1"], check=True, capture_output=True
    )
    assert file_content(output) == file_content(alone)


@pytest.mark.slow
def test_a_cluster_that_wants_certificates(cluster: Cluster, tmp_path: Path) -> None:
    """Without them nothing is learned, and one line says so."""
    history = tmp_path / "history.npz"
    write_npz(history, generate("poisson", 300, 24, 1))
    run = subprocess.run(
        [*LEARN, str(history), *SEARCH, "-o", str(tmp_path / "out.json"), *on(cluster)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert f"no Dask scheduler answers at '{cluster.address}'" in run.stderr
    assert "its certificates in Dask's configuration" in run.stderr
