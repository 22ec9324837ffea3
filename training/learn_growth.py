"""``python -m training.learn --growth``: learn what ranks hubs from a history of growth."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.named import DEFAULT
from training import options
from training.evolution.checkpoint import check_writable
from training.evolution.discovery import DiscoveryChoices, learn_discovery, write_discovery
from training.evolution.workers import workers
from training.histories.growth_reading import read_growth
from training.replaying.growth import HUBS, growth_crawl
from training.reporting.terminal import show_discovery, wide_console

TERMINALS: Final = ("brought", "brought_t")
"""Those that tell of what visits bring: they join the ones given."""
OTHERS: Final = (
    "promote", "fitness", "protocol", "division", "sample_sites", "query_log", "site", "changed_only",
    "importance", "every", "selection", "front", "prefer", "ties", "forget", "checkpoint", "resume",
)  # fmt: skip
"""Options of learning what ranks pages, which are none here."""


def add_options(add: Callable[..., Any]) -> None:
    """Add the options of learning from growth."""
    add("--growth", action="store_true", help="learn a discovery function, by which hubs are ranked, instead")
    add("--discovery", type=float, default=0.1, metavar="SHARE", help="share of the budget for hubs")
    add("--score", default=DEFAULT, metavar="SCORE", help="with --growth: what ranks the other pages")


def run(given: Namespace, parser: ArgumentParser, errors: Console) -> None:
    """Learn, write the score file, and print what it is worth. Raises Gp4cError."""
    asked = [name for name in OTHERS if getattr(given, name, None) != parser.get_default(name)]
    if asked:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise LearningError(f"{named}: of what ranks pages, not hubs; leave out with --growth")
    if not 0.0 < given.discovery <= 1.0:
        raise LearningError(f"--discovery: expected a share above 0, at most 1; found {given.discovery}")
    check_writable(given.output)
    own = options.choices_of(given)
    grown = read_growth(Path(given.history))
    names = tuple(dict.fromkeys((*TERMINALS, *own.parameters.terminals)))
    start = "named" if own.parameters.start == "auto" else own.parameters.start
    crawl = growth_crawl(given.score, getattr(given, "policy", None), given.discovery, HUBS, own.crawl())
    parameters = replace(own.parameters, terminals=names, start=start)
    choices = DiscoveryChoices(crawl, own.clock, parameters, own.seeds, own.seed)

    def told(number: int, best: float) -> None:
        errors.print(f"generation {number} of {parameters.generations}: best {best:.4f}", highlight=False)

    with workers(given.jobs, given.backend, given.scheduler) as parallel:
        learned = learn_discovery(grown, choices, parallel, told)
    write_discovery(given.output, learned, choices, grown)
    show_discovery(learned, given.history, wide_console())
    setting = f'GP4C_DISCOVERY_FUNCTION = "{given.output}"'
    wide_console().print(f"\nIn settings.py:\n\n    {setting}", highlight=False, markup=False)
