"""The options of `python -m training.learn`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scrapy_gp4c.scoring.terminals import PAPERS, RELATED
from training import learn_growth, options, search_options
from training.evolution.choices import DIVISIONS, Choices
from training.evolution.evolve import STARTS, Parameters
from training.evolution.front import PREFERENCES
from training.evolution.selection import GUARDED, RULES
from training.evolution.variation import RATES
from training.replaying.metrics import IMPACT, MEASURES

FORGET: Final = 0.05
"""Recommended; the papers forget nothing (docs/learning.md compares)."""


BEYOND: Final = ", ".join(name for name in RELATED if name not in PAPERS)
SETS_HELP: Final = f"A set of --terminals besides basic and all is related: all, and {BEYOND}."


def parser() -> argparse.ArgumentParser:
    """The command line."""
    choices, parameters = Choices(), Parameters()
    command = argparse.ArgumentParser(
        prog="python -m training.learn",
        description="Learn a score function from a recorded change history by genetic programming.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = command.add_argument
    options.history(add)
    options.output(add, "score file to write", Path("score.json"))
    promote_help = (
        "score file in use: replace it only if what is learned is significantly better "
        "(docs/closing-the-loop.md); exit code 0 promoted, 3 kept"
    )
    add("--promote", type=Path, metavar="PATH", help=promote_help)
    learn_growth.add_options(add)
    add = command.add_argument_group("what to learn", SETS_HELP).add_argument
    add("--fitness", default=choices.fitness, help=f"{', '.join((*MEASURES, IMPACT))}, or a dotted path")
    options.terminal_names(add)
    options.protocol(add, choices.protocol)
    _parts(add, choices)
    search_options.search(add)
    add("--selection", choices=RULES, default=GUARDED, help="which of the best is taken")
    _front(add, choices)
    add = command.add_argument_group("the crawl that is replayed").add_argument
    options.budget(add, choices.budget)
    options.warmup(add, choices.warmup)
    options.clock(add, choices.clock)
    options.ties(add, choices.ties)
    # Without a default here: with --promote, what is not given is as the crawl has it.
    policy_help = (
        f"what chooses by the scores, as rounds(rounds=4) (default: {choices.policy}; with --promote the "
        "crawl's)"
    )
    add("--policy", metavar="TEXT", default=argparse.SUPPRESS, help=policy_help)
    add = command.add_argument_group("genetic programming").add_argument
    options.process(add)
    add("--operators", choices=tuple(RATES), default=parameters.operators, help="mutations of which paper")
    start_help = "of the first generation; named: named functions and t * terminal; auto: as --divide"
    add("--start", choices=STARTS, default=parameters.start, help=start_help)
    price_help = "price of a node, taken off the fitness"
    add("--parsimony", type=float, default=parameters.parsimony, help=price_help)
    add("--forget", type=float, default=FORGET, help="share of training changes taken out at random")
    add = command.add_argument_group("running").add_argument
    options.jobs(add)
    add("--backend", default="loky", help="of joblib: loky, dask")
    add("--scheduler", help="address of a Dask scheduler, such as tcp://127.0.0.1:8786")
    add("--checkpoint", type=Path, help="directory for the state of the run (default: OUTPUT.checkpoint)")
    add("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    return command


def _parts(add: options.Add, choices: Choices) -> None:
    """What parts are drawn of, and how much of the training part there is."""
    divide_help = (
        "draw the parts of single pages or of whole sites; halves: learn on half of the sites, test on the "
        "others; auto: sites for terminals of a page's siblings"
    )
    add("--divide", choices=DIVISIONS, default=choices.division, dest="division", help=divide_help)
    sample_help = "train on this share of the sites, whole ones drawn at random"
    add("--sample-sites", type=float, metavar="SHARE", default=choices.sample_sites, help=sample_help)


def _front(add: options.Add, choices: Choices) -> None:
    """Two objectives, and what is taken of their front."""
    front_help = (
        "two objectives, --fitness and freshness: OUTPUT.front/ gets all that is between them, OUTPUT the "
        "preferred one"
    )
    add("--front", action="store_true", help=front_help)
    prefer_help = (
        "which one of --front is taken: the most changes, the freshest, or (balanced) the most changes "
        "among those at least as fresh as visiting the oldest copies first"
    )
    add("--prefer", choices=PREFERENCES, default=choices.prefer, help=prefer_help)
