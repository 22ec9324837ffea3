"""The demo's crawl that learns: it collects on a panel, learns a score function, and goes on with it.

Needs the libraries of scrapy-gp4c[train], which the rest of the demo does without.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.comparing.statistics import mean as mean_of

from .crawls import BUDGET, CONTROL, ROOT, DemoError, Series, stop

PANEL = 1.0  # half of the panel is held out to judge the challenger: the web is too small for a share
# With few cycles to learn from, a penalty on length keeps out what holds on the pages of training alone.
LEARNING = {
    "--budget": BUDGET,
    "--terminals": "related",
    "--parsimony": 0.001,
    "--population": 200,
    "--generations": 10,
    "--seeds": 3,
}
PROMOTED, KEPT_CODE = 0, 3  # exit codes of the learning
LEARNING_LIMIT_S = 600


def learn(store: Path, score_file: Path) -> bool:
    """Learn from a store by the command that a user runs; return whether the function was promoted.

    Raises:
        DemoError: nothing could be learned.
    """
    command = ["-m", "training.learn", str(store), "--promote", str(score_file)]
    command += [str(part) for item in LEARNING.items() for part in item]
    print(shlex.join(["python", *command]), flush=True)
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=LEARNING_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise DemoError(f"learning takes more than {LEARNING_LIMIT_S} s") from None
    finally:
        stop(process)
    if process.returncode not in (PROMOTED, KEPT_CODE):
        reason = errors.strip().splitlines() or [f"status {process.returncode}"]
        raise DemoError(f"learning failed: {reason[-1]}")
    print(output.strip(), flush=True)
    return process.returncode == PROMOTED


def switch(series: list[Series]) -> bool:
    """Learn, and set the learned function for the next crawls; return whether it was promoted.

    A copy of the store continues with the default function: it shows what the visits of the collection alone
    bring.
    """
    learner = series[-1]
    score_file = learner.folder / "score.json"
    learner.panel = 0.0
    if not learn(learner.store, score_file):
        return False
    series.append(learner.copy(CONTROL, {}))
    learner.compared = {"GP4C_SCORE_FUNCTION": str(score_file)}
    return True


def leads(series: Sequence[Series], ours: str, days: range) -> str:
    """Return a text of the leads of the crawl ``ours`` over each other one, paired by day, with intervals."""

    def values(one: Series, name: str) -> NDArray[np.float64]:
        return np.array([getattr(row, name) for row in one.rows if row.day in days])

    our_series = next(one for one in series if one.score == ours)
    lines = []
    for name, shown in (("ndcg", "NDCG"), ("current", "the share of current copies")):
        results = []
        for one in series:
            if one is not our_series:
                leads_of_days = values(our_series, name) - values(one, name)
                lead = mean_of(leads_of_days[np.isfinite(leads_of_days)])
                results.append(f"{one.score} {lead.mean:+.3f} ± {lead.half_width:.3f}")
        lines.append(f"{ours} ahead in {shown}: of {', '.join(results)} (means over the days, paired; 95%)")
    return "\n".join(lines)
