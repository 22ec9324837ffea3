"""Changes found by sampling policies, scores and the oracle: `python -m benchmarks.sampling [HISTORY...]`.

    python -m benchmarks.sampling HISTORY... [--without 'ota/*'] [--seeds 5] [--budgets 0.01 ...] [-o FILE]

Writes Markdown: for every history and budget a row for each policy that the history has groups for; means
over the scored cycles of the seeds' means, with 95% intervals over the cycles, and the lead over random
visits, paired by cycle. Warm-up 2. Files of contents are clustered by what the pages say in cycle 0, and
pages weigh their popularity (0 to 10) for C^w.

Of files of contents it also varies, in cycles of 8 with 8.8% of the pages and no warm-up, what a policy is
made of: samples in flight, features, clusters, gate, clock. Targets there: cb finds 1.4 times what random
visits find; and in single cycles, with 1% and 5% of the pages, `rounds` by a score with this cycle's visits
to the cluster is 20% above `top_k` by the same without them and 8% above it by what the last cycles tell of
the cluster, with intervals above 0 and no lower freshness.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console

from benchmarks.common import exit_code, verdict
from example_project.history import history_of
from example_project.model import Web
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT
from training.clustering.clusters import CLUSTERS, FEATURES, group_pages
from training.comparing.evaluation import RANDOM
from training.comparing.trials import PolicyTrial, try_policy, written
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.histories.reading import coarsened, read_contents_or_history
from training.papers.tan import TYPICAL, weighted
from training.replaying.metrics import ORACLE, TRIO, parse_budget
from training.replaying.prepared import CrawlChoices
from training.replaying.replay import can_replay, policy_of
from training.reporting.terminal import progress

BUDGETS: Final = ("0.01", "0.05", "0.088", "0.176", "0.351")
PLAIN: Final = "t * (X + 0.5)"
SAMPLED: Final = "rounds(rounds=16, sample=0.2, level={level!r})"
NOW: Final = {"cluster": f"{PLAIN} * cluster_now", "directory": f"{PLAIN} * near"}
"""Level of samples (as of clusters) -> score function that reads this cycle's visits at that level."""
POLICIES: Final = (
    "rns",
    "rr",
    *("gsb", "gsb(level='directory')", "gsb(level='cluster')"),
    *("groups", "groups(level='directory')", "groups(level='cluster')"),
    *("lb", "db", "db(phi='wha')", "cb", "cb(phi='wha')"),
)
WEIGHTED: Final = "weighted_change_rate"
FIRST: Final = "## "
"""Beginning of the heading at which the document's generated tables begin."""
VARIED: Final = (
    *(f"{name}(in_flight={count})" for name in ("db", "cb") for count in (1, 4, 16, 64)),
    *(f"cb(phi={phi!r}, gate={gate}, in_flight=1)" for phi in ("wha", "pra") for gate in (False, True)),
    "cb(phi='wha', clock='visits', in_flight=1)",
)
"""Policies of the table of variations; with one sample in flight, `wha` counts cycles."""
FEATURE_SETS: Final = (*((name,) for name in FEATURES), FEATURES)
CLUSTER_COUNTS: Final = (20, 50, 100, 200, 400)
LEADS: Final = ((PLAIN, 1.2), (f"{PLAIN} * cluster_recent", 1.08))
"""Score function under ``top_k`` -> least ratio of the changes that `rounds` finds to those that it finds."""
CB_LEAD: Final = 1.4


class Case(NamedTuple):
    """A history to replay."""

    name: str
    history: ChangeHistory


class Row(NamedTuple):
    """Policy and score function of a replay."""

    policy: str
    score: str = RANDOM

    def __str__(self) -> str:
        if self.policy == ORACLE:
            return ORACLE
        return f"`{self.policy}`" if self.score == RANDOM else f"`{self.score}` under `{self.policy}`"


def rows(history: ChangeHistory) -> list[Row]:
    """Policies and score functions that the history has groups of pages for."""
    default = load(DEFAULT)
    scored = [Row("top_k", PLAIN)]
    scored += [Row(policy_of(default), DEFAULT)] if can_replay(history, default) else []
    scored += [Row(SAMPLED.format(level=level), score) for level, score in NOW.items()]
    rows = [Row(ORACLE), *scored, *(Row(policy) for policy in POLICIES)]
    knows = history.neighbours.knows
    return [row for row in rows if row.policy == ORACLE or all(map(knows, load_policy(row.policy).near))]


def cases(path: str, without: str | None) -> Iterator[tuple[Case, ContentHistory | None]]:
    """Read a history with its groups; yield it, and once more without the sites ``without``, if any."""
    recorded = read_contents_or_history(path)
    contents = recorded if isinstance(recorded, ContentHistory) else None
    history = recorded.history if isinstance(recorded, ContentHistory) else recorded
    if contents is not None:
        history.neighbours.groups_by_content = group_pages(contents, min(CLUSTERS, history.pages // 10))
    name = Path(path).name.partition(".tsv")[0].partition(".jsonl")[0]
    yield Case(name, history), contents
    if without and history.site_names:
        is_taken = np.array([not fnmatchcase(one, without) for one in history.site_names])[history.site]
        if 0 < is_taken.sum() < len(is_taken):
            sample = history.take(is_taken)
            if (groups := history.neighbours.groups_by_content) is not None:
                sample.neighbours.groups_by_content = groups.of_pages(np.flatnonzero(is_taken))
            yield Case(f"{name} without `{without}`", sample), None


def tried(case: Case, row: Row, crawl: CrawlChoices, seeds: int) -> PolicyTrial:
    """Replay a row on a case; popularity weighs pages for C^w alone, not for freshness."""
    trial = try_policy(case.history, row.policy, crawl, seeds, TRIO, row.score)
    heavy = weighted(case.history, case.history)
    if heavy is case.history:
        return trial
    more = try_policy(heavy, row.policy, crawl, seeds, (WEIGHTED,), row.score)
    return trial._replace(per_cycle=trial.per_cycle | more.per_cycle)


def table(case: Case, budget: str, seeds: int, advance: Callable[[], object]) -> Iterator[str]:
    """Lines of the table for one history and budget."""
    crawl = CrawlChoices(parse_budget(budget), seed=1)
    trials = {}
    for row in rows(case.history):
        trials[row] = tried(case, row, crawl, seeds)
        advance()
    random = trials[Row("rns")]
    metrics = [name for name in ("change_rate", WEIGHTED, "ndcg", "freshness") if name in random.per_cycle]
    heads = {"change_rate": "C", WEIGHTED: "C^w", "ndcg": "NDCG", "freshness": "freshness"}
    yield f"### {case.name}, {float(budget):.1%} of {case.history.pages:,} pages\n"
    yield f"| | {' | '.join(heads[name] for name in metrics)} | C over `rns`, paired |"
    yield "|---" * (len(metrics) + 2) + "|"
    for row, trial in trials.items():
        cells = " | ".join(written(trial.mean(name)) for name in metrics)
        ahead = "" if trial is random else written(trial.ahead(random, "change_rate"), sign="+")
        yield f"| {row} | {cells} | {ahead} |"
    yield ""


def variations(name: str, contents: ContentHistory, seeds: int) -> tuple[list[str], bool]:
    """Lines of the table of variations, and whether policy ``cb`` meets its target."""
    crawl = CrawlChoices(TYPICAL.budget, warmup=0, seed=1)
    plain = coarsened(contents, TYPICAL.weeks)

    def grouped(clusters: int, features: Sequence[str], seed: int = 0) -> ChangeHistory:
        history = replace(plain)
        clusters = min(clusters, history.pages // 2)
        history.neighbours.groups_by_content = group_pages(contents, clusters, features, seed)
        return history

    usual = replace(plain)
    usual.neighbours.groups_by_content = contents.history.neighbours.groups_by_content
    random = try_policy(usual, "rns", crawl, seeds)
    cluster = "cb(in_flight=1)"
    trials = {f"`{policy}`": try_policy(usual, policy, crawl, seeds) for policy in VARIED}
    for features in FEATURE_SETS:
        said = f"`{cluster}`, `--features {','.join(features)}`"
        trials[said] = try_policy(grouped(CLUSTERS, features), cluster, crawl, seeds)
    for clusters in CLUSTER_COUNTS:
        said = f"`{cluster}`, `--clusters {clusters}`"
        trials[said] = try_policy(grouped(clusters, FEATURES), cluster, crawl, seeds)
    lines = [
        f"### {name}, varied: cycles of {TYPICAL.weeks}, {TYPICAL.budget:.1%} of the pages, no warm-up\n"
    ]
    lines += ["| | C | NDCG | freshness | C over `rns`, paired |", "|---" * 5 + "|"]
    for said, trial in {"`rns`": random, **trials}.items():
        cells = " | ".join(written(trial.mean(metric)) for metric in TRIO)
        ahead = "" if trial is random else written(trial.ahead(random, "change_rate"), sign="+")
        lines.append(f"| {said} | {cells} | {ahead} |")
    share = trials[f"`{cluster}`"].mean("change_rate").mean / random.mean("change_rate").mean
    return [*lines, ""], verdict(f"{name}: C of {cluster} / rns", share, CB_LEAD, at_least=True)


def union(name: str, history: ChangeHistory, seeds: int) -> bool:
    """Print the lead of `rounds` over each score of `LEADS`; return whether all are large enough."""
    holds = True
    for budget in (0.01, 0.05):
        crawl = CrawlChoices(budget, seed=1)
        ours = try_policy(history, SAMPLED.format(level="cluster"), crawl, seeds, score=NOW["cluster"])
        for score, least in LEADS:
            other = try_policy(history, "top_k", crawl, seeds, score=score)
            share = ours.mean("change_rate").mean / other.mean("change_rate").mean
            said = f"{name}, {budget:.0%}: C of rounds by {NOW['cluster']} / top_k by {score}"
            holds &= verdict(said, share, least, at_least=True)
            ahead, fresher = (ours.ahead(other, metric) for metric in ("change_rate", "freshness"))
            print(f"  lead {written(ahead, sign='+')}, in freshness {written(fresher, sign='+')}")
            low = ahead.mean - ahead.half_width
            holds &= verdict("  lower end of the lead's interval", low, 0.0, at_least=True)
            holds &= verdict("  lead in freshness", fresher.mean, 0.0, at_least=True)
    return holds


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, print or write the tables; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sampling", description=__doc__.split("\n\n")[0]
    )
    add = parser.add_argument
    add("histories", nargs="*", metavar="HISTORY", help="histories (default: the demo's web, seed 1)")
    add("--without", metavar="SITES", help="each history a second time, without the sites of this pattern")
    add("--budgets", nargs="+", default=list(BUDGETS))
    add("--seeds", type=int, default=5)
    add("-o", "--output", type=Path, help="Markdown file whose tables are replaced (default: print them)")
    options = parser.parse_args(arguments)
    todo = [case for path in options.histories for case in cases(path, options.without)]
    todo = todo or [(Case("demo", history_of(Web(1))), None)]
    lines, holds = [f"{FIRST}The tables\n"], True
    with progress(
        Console(stderr=True), len(options.budgets) * sum(len(rows(case.history)) for case, _ in todo)
    ) as bar:
        for case, contents in todo:
            for budget in options.budgets:
                lines += table(case, budget, options.seeds, bar)
            if contents is not None:
                more, enough = variations(case.name, contents, options.seeds)
                lines += more
                holds &= enough & union(case.name, case.history, options.seeds)
    text = "\n".join(lines)
    if options.output:
        before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        options.output.write_text(before.partition(FIRST)[0] + text, encoding="utf-8")
    else:
        print(text)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
