"""``python -m training.experiment --protocol tan``: the experiment of Tan et al. 2007 on samples."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from rich.console import Console

from training.clustering.clusters import CLUSTERS, group_pages
from training.evolution.checkpoint import check_writable
from training.evolution.choices import Choices
from training.histories.contents import ContentHistory
from training.histories.reading import read_contents_or_history
from training.papers.tan import QUICK_DEPTHS, Plans, planned, run_all
from training.papers.tan_report import claims_table, write_all
from training.reporting.terminal import progress

PROTOCOL: Final = "tan"
LEARNING: Final = ("budget", "warmup", "clock", "population", "generations", "jobs")
"""Options of the other protocols."""
QUICK_SEEDS: Final = 2
LEAST_CLUSTER: Final = 10
"""Pages that a mean cluster has at least."""


def check(given: Namespace, parser: ArgumentParser) -> None:
    """Refuse options that mean nothing to this protocol."""
    for name in LEARNING:
        if getattr(given, name) != parser.get_default(name):
            parser.error(
                f"--protocol {PROTOCOL} has budgets and warm-up of its own and learns nothing: "
                f"leave out --{name}"
            )
    Choices(seeds=given.seeds, seed=given.seed)


def run(given: Namespace, console: Console) -> None:
    """Replay, and write everything; raises Gp4cError or OSError."""
    whole = read_contents_or_history(given.history)
    history = whole.history if isinstance(whole, ContentHistory) else whole
    given.output.mkdir(parents=True, exist_ok=True)
    check_writable(given.output / "results.json")
    if isinstance(whole, ContentHistory):
        clusters = min(CLUSTERS, max(1, history.pages // LEAST_CLUSTER))
        with console.status("clustering the pages by what they say in week 0"):
            history.neighbours.groups_by_content = group_pages(whole, clusters, seed=given.seed)
    plans = Plans(seeds=given.seeds, seed=given.seed)
    if given.quick:
        plans = plans._replace(depths=QUICK_DEPTHS, seeds=QUICK_SEEDS)
    with progress(console, len(planned(history, plans))) as advance:
        results = run_all(whole, plans, advance)
    results.write(given.output)
    write_all(results, given.output)
    print(claims_table(results), end="")
    print(f"Seed {given.seed}. Tables, figures and results.json: {given.output}")
