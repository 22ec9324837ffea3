"""Functions learned on the first half of a history's cycles, judged on the second half.

    python -m benchmarks.second_halves HISTORY... [--population 300 --generations 50 --runs 5] [--bits]

What `python -m training.learn` writes with its defaults is replayed on the second half as a crawl would use
it, beside `default` and `changes`. Rows are means over the budgets and seeds. The end counts where the
learned function has a higher NDCG than `changes` and no lower freshness. Sizes and ages come from
NAME.first_sight.tsv.gz beside a history, unless ``--bits``.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import BUDGETS, exit_code, machine, metric_means, printed, verdict
from training import learn
from training.comparing.statistics import half_width
from training.histories.claims import first_sight_beside, with_evidence
from training.histories.formats import WRITERS
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.options import WITHOUT

METRICS = ("ndcg", "freshness")
NAMED = ("default", "changes")
TIE = 0.001
"""Half a digit of the docs' figures: means that differ by less are equal."""


def learned(path: Path, first: ChangeHistory, arguments: list[str], folder: Path) -> Path | None:
    """Learn on the first half by `training.learn`; return the score file, None if it wrote none."""
    half, output = folder / "half.tsv", folder / "score.json"
    WRITERS[".tsv"](str(half), first)
    output.unlink(missing_ok=True)
    first_sight = first_sight_beside(path)
    if first_sight is not None and "--first-sight" not in arguments:
        arguments = [*arguments, "--first-sight", str(first_sight)]
    code = learn.main([str(half), "-o", str(output), *arguments])
    assert code in (0, 1), f"{path}: learning ended with exit code {code}"
    return output if code == 0 else None


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns 1 if the learned functions are behind the default in the mean."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("histories", nargs="+", type=Path, metavar="HISTORY")
    parser.add_argument("--population", default="300")
    parser.add_argument("--generations", default="50")
    parser.add_argument("--runs", default="5")
    parser.add_argument("--bits", action="store_true", help="without sizes and ages")
    parser.add_argument("--seeds", type=int, default=3, help="of the replays on the second half")
    options = parser.parse_args(arguments)
    search = ["--population", options.population, "--generations", options.generations]
    search += ["--seeds", options.runs]
    search += ["--first-sight", str(WITHOUT)] if options.bits else []
    leads = []
    ahead_of_changes = 0
    print(machine(("numpy", "numba", "deap")))
    with tempfile.TemporaryDirectory() as name:
        for path in options.histories:
            begin = time.monotonic()
            history = read_history(path)
            middle = history.cycles // 2
            score = learned(path, history.take(cycles=slice(middle)), search, Path(name))
            took = time.monotonic() - begin
            text = NAMED[0] if score is None else str(score)
            second = with_evidence(history, None, None if options.bits else first_sight_beside(path))
            second = second.take(cycles=slice(middle, None))
            table = {
                one: metric_means(second, one, METRICS, BUDGETS, range(options.seeds)).mean(axis=1)
                for one in (text, *NAMED)
            }
            leads.append(table[text] - table[NAMED[0]])
            ndcg_lead, freshness_lead = (table[text] - table["changes"]).mean(axis=0)
            ahead_of_changes += bool(ndcg_lead > 0.0 and freshness_lead >= 0.0)
            content = {} if score is None else json.loads(score.read_text())
            print(
                f"\n{path.name}, {took:.0f} s: {content.get('name') or content.get('expression', 'nothing')}"
            )
            print(f"  policy {content.get('policy', 'top_k')}")
            for one, of_budgets in table.items():
                cells = "  ".join(f"{ndcg:.3f} {fresh:.3f}" for ndcg, fresh in of_budgets)
                print(f"  {'learned' if one == text and score else one:8s} {cells}", flush=True)
    rows = np.mean(leads, axis=1)
    print(f"\nahead of changes in NDCG at no less freshness: {ahead_of_changes} of {len(leads)}")
    holds = []
    for metric, column in zip(METRICS, rows.T, strict=True):
        lead = printed(column.mean(), ".4f")
        print(f"\n{metric}: lead over default {lead:+.4f} ± {half_width(column):.4f}")
        holds.append(verdict(f"lead in {metric}", lead, -TIE, at_least=True))
    return exit_code(*holds)


if __name__ == "__main__":
    sys.exit(main())
