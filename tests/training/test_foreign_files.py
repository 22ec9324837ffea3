"""Files that training reads: whatever is in them, they are read, or one error says what is wrong."""

import contextlib
import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given

from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.expression import parse
from tests.support.example_results import results
from tests.support.foreign import fuzzed, mutated, mutated_json
from training.evolution.checkpoint import NAME, Checkpoint
from training.evolution.evolve import Evolution, Parameters
from training.histories.reading import read_history
from training.papers.journal import read_results
from training.replaying.replay import replay


def npz() -> bytes:
    content = io.BytesIO()
    np.savez(content, changed=np.eye(4, 5, dtype=bool), site=np.arange(5))
    return content.getvalue()


HISTORIES = [
    b"0101\n1100\n0000\n",
    b"a\thttp://a/1\t0101\nb\thttp://b/1\t1.10\t{}\n",
    b"# comment\na\tp\t01\n",
    gzip.compress(b"0101\n1100\n", mtime=0),
    npz(),
]


@fuzzed
@given(mutated(HISTORIES))
def test_foreign_histories(content: bytes) -> None:
    """Text, TSV, gzip and npz: a history that can be replayed, or an error of ours."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        try:
            history = read_history(file.name)
            replay(history, "t * X", budget=1, warmup=1)
        except Gp4cError:
            return
    assert history.pages > 0


SCORE_FILES: list[Any] = [
    {
        "format": "gp4c-score/1", "expression": "t * (X + 0.5)", "terminals": ["t", "X"], "clock": "visits",
        "fitness": "ndcg", "training": {"ndcg": 0.5}, "seed": 1, "history": {"source": "a", "pages": 3},
    }
]  # fmt: skip


@fuzzed
@given(mutated_json(SCORE_FILES) | mutated([json.dumps(SCORE_FILES[0]).encode()]))
def test_foreign_score_files(content: Any) -> None:
    """A function that scores, or an error of ours: nothing is imported."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        packed = (
            content if isinstance(content, bytes) else json.dumps(content).encode("utf-8", "surrogatepass")
        )
        Path(file.name).write_bytes(packed)
        try:
            function = functions.load(file.name)
        except Gp4cError:
            return
    assert function.formula


TEXTS = [b"rounds(rounds=4)", b"top_k", b"t * (X + 0.5) / exp(n) - min(cg, 2.0e3)", b"log(abs(nad)) ** -1"]


@fuzzed
@given(mutated(TEXTS))
def test_foreign_policies_and_formulas(content: bytes) -> None:
    """Texts of records: parsed, or an error of ours; never imported, never executed."""
    text = content.decode("utf-8", "surrogateescape")
    for read in (
        lambda: table.load(text, trusted=False),
        lambda: functions.recorded(text),
        lambda: parse(text),
    ):
        with contextlib.suppress(Gp4cError):
            read()


STATE: Any = {
    "generation": 1, "population": [["t * X", 0.5]], "best": [0.5],
    "best_individuals": [["t * X", 0.5, 0.5, "ab", 1]],
}  # fmt: skip
CHECKPOINT: Any = {"format": "gp4c-checkpoint/1", "run": {"seed": 1}, "states": [STATE]}


@fuzzed
@given(mutated_json([CHECKPOINT]))
def test_foreign_checkpoints(content: Any) -> None:
    """States to go on from, or an error of ours."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / NAME).write_bytes(json.dumps(content).encode("utf-8", "surrogatepass"))
        with contextlib.suppress(Gp4cError):
            states = Checkpoint(Path(directory), {"seed": 1}).open(resume=True)
            for state in states or ():
                Evolution(Parameters(population=4, generations=2), 1).restore(state)


def thin(content: Any) -> Any:
    """JSON with one or two of each thing of which there were more, which is what takes time."""
    if isinstance(content, dict):
        return {name: thin(value) for name, value in content.items()}
    return [thin(one) for one in content[:2]] if isinstance(content, list) else content


def few_results() -> Any:
    """Results of an experiment with two functions, two cycles and one budget more."""
    content = results().to_json()
    shorter = {name: thin(content[name]) for name in ("learned", "changed_pages", "test_pages")}
    return (
        content
        | shorter
        | {
            "series": dict(list(thin(content["series"]).items())[:2]),
            "smaller_budgets": {name: {} for name in list(content["smaller_budgets"])[:1]},
        }
    )


RESULTS: Any = few_results()


def test_thin_results_are_results() -> None:
    """What is changed below could be read before."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "results.json").write_text(json.dumps(RESULTS))
        assert read_results(Path(directory)).to_json() == RESULTS


@fuzzed
@given(mutated_json([RESULTS]))
def test_foreign_results(content: Any) -> None:
    """Results of an experiment: read, or an error of ours."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "results.json").write_text(
            json.dumps(content), encoding="utf-8", errors="surrogatepass"
        )
        with contextlib.suppress(Gp4cError):
            read_results(Path(directory))
