"""Learning and replay give recorded numbers, bit for bit: `tests/numbers.json` has them.

To record anew, after a change that means to move numbers: ``python -m tests.test_numbers``.
"""

import contextlib
import importlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).with_name("numbers.json")
VOLATILE = {"created", "started", "finished", "versions", "parameters", "total_s", "wall_s", "replay_s"}
"""Keys that tell when, how fast and with what a document was made."""

SIZE = ["--pages", "300", "--cycles", "24", "--seed", "5"]
LEARN = [
    "--divide",
    "pages",
    "--population",
    "24",
    "--seeds",
    "1",
    "--jobs",
    "1",
    "--seed",
    "3",
    "--budget",
    "0.1",
]
SCORES = ["nad", "t * (X + 0.5)", "age", "random", "oracle", "n / t + log(n)", "surprise_site * t + X"]
NEAR = ["near * t + X", "near_dir * rate", "t * (rate + spent ** 2) * near", "default", "changes"]
ROUNDS = "rounds(rounds=4)"

HISTORIES = {
    "weekly.tsv": ["weekly", *SIZE],
    "bursty.tsv": ["bursty", *SIZE],
    "poisson.npz": ["poisson", *SIZE],
    "long.tsv": ["bursty", "--pages", "200", "--cycles", "57", "--seed", "9"],
    "brdc.tsv": ["brdc12-like", "--pages", "500", "--cycles", "30", "--seed", "2"],
}

EVALUATIONS = {
    "weekly": ["weekly.tsv", "--score", *SCORES],
    "clock of cycles": ["bursty.tsv", "--clock", "cycles", "--ties", "order", "--score", *SCORES],
    "four rounds": ["brdc.tsv", "--policy", ROUNDS, "--budget", "0.1", "--score", *SCORES],
    "named pages": ["named.tsv", "--budget", "0.1", "--score", *NEAR],
    "two rounds of a count": [
        "weekly.tsv", "--policy", "rounds(rounds=2)", "--budget", "17", "--score", *SCORES,
    ],
    "part": ["poisson.npz", "--cycles", "4:20", "--budget", "7", "--warmup", "1", "--score", *SCORES],
    "sampling": [
        "named.tsv", "--seed", "4",
        "--policy", "db(d=1)", "rns", "gsb", "rounds(rounds=2, sample=0.2)", "groups",
    ],
    "two seeds": ["bursty.tsv", "--score", "t * X", "age", "--policy", ROUNDS, "top_k", "--seeds", "2"],
}  # fmt: skip

LEARNED = {
    "basic terminals": ["brdc.tsv", *LEARN, "--generations", "4", "--terminals", "basic"],
    "papers": [
        "weekly.tsv", *LEARN, "--generations", "4", "--operators", "thesis", "--forget", "0",
        "--clock", "cycles", "--fitness", "change_rate", "--parsimony", "0.001", "--terminals", "n,X,t,nad",
    ],
    "freshness": ["long.tsv", *LEARN, "--generations", "3", "--selection", "avg", "--fitness", "freshness"],
    "related terminals in rounds": [
        "named.tsv", *LEARN, "--generations", "3", "--terminals", "related", "--policy", ROUNDS,
    ],
    "front": ["weekly.tsv", *LEARN, "--generations", "3", "--front", "--policy", ROUNDS],
}  # fmt: skip


def run(command: str, *words: str) -> None:
    """Run ``python -m training.COMMAND`` in this process; its exit code is 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = importlib.import_module(f"training.{command}").main(list(words))
    assert code == 0, out.getvalue()


def numbers(content: Any) -> Any:
    """A JSON document without what differs from run to run."""
    if isinstance(content, dict):
        return {key: numbers(value) for key, value in content.items() if key not in VOLATILE}
    return [numbers(value) for value in content] if isinstance(content, list) else content


def written(path: str) -> Any:
    """What a command wrote as JSON, without what differs from run to run."""
    return numbers(json.loads(Path(path).read_text()))


def evaluation(words: list[str]) -> Any:
    """Replays of several functions: the mean of every metric, and the sum over the cycles."""
    run("evaluate", *words, "--json", "evaluated.json")
    return written("evaluated.json")


def learned(words: list[str]) -> Any:
    """A learned function: expression, fitness and metrics of its score file."""
    run("learn", *words, "-o", "learned.json")
    return written("learned.json")


def name_pages(source: Path, target: Path) -> None:
    """Give the pages of a history paths in seven directories a site."""
    lines = (line.split("\t") for line in source.read_text().splitlines())
    named = (f"site{site}\td{int(page) % 7}/{page}\t{bits}\n" for site, page, bits in lines)
    target.write_text("".join(named))


@contextlib.contextmanager
def histories() -> Iterator[None]:
    """A working directory with the synthetic histories."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        for name, words in HISTORIES.items():
            run("synthetic", *words, "-o", name)
        name_pages(Path("bursty.tsv"), Path("named.tsv"))
        yield


@pytest.fixture(scope="module", autouse=True)
def directory() -> Iterator[None]:
    """All tests of this module share the histories."""
    with histories():
        yield


@pytest.mark.parametrize("name", EVALUATIONS)
def test_replays_give_the_recorded_numbers(name: str) -> None:
    """Every metric of every function and cycle is as recorded, to the last bit."""
    measured, recorded = evaluation(EVALUATIONS[name]), json.loads(RECORDED.read_text())["evaluations"][name]
    for values in (measured, recorded):
        values["history"].pop("sha256")  # that of an npz depends on the version of zlib
    assert measured == recorded


@pytest.mark.parametrize(
    "name",
    [
        "basic terminals",
        "papers",
        *(pytest.param(name, marks=pytest.mark.slow) for name in [*LEARNED][2:]),
    ],
)
def test_learning_gives_the_recorded_function(name: str) -> None:
    """The learned function, its fitness and its metrics are as recorded, to the last bit."""
    assert learned(LEARNED[name]) == json.loads(RECORDED.read_text())["learned"][name]


def record() -> None:
    os.environ.setdefault("COLUMNS", "100")
    with histories():
        document = {
            "evaluations": {name: evaluation(words) for name, words in EVALUATIONS.items()},
            "learned": {name: learned(words) for name, words in LEARNED.items()},
        }
    RECORDED.write_text(json.dumps(document, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
