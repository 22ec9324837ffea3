"""Learn a score function: `python -m training.learn HISTORY`.

docs/learning.md and docs/lab/learning.md explain every option.
"""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scrapy_gp4c.errors import Gp4cError, LearningError, UndecidedError
from scrapy_gp4c.scoring import first_visits
from scrapy_gp4c.scoring.named import DEFAULT
from scrapy_gp4c.scoring.terminals import EVERY, PAPERS
from training import options
from training.comparing.promotion import budget_of_crawl, in_use, policy_of_crawl, promote
from training.evolution.checkpoint import check_writable
from training.evolution.choices import DIVISIONS, Choices
from training.evolution.discovery import (
    SETTINGS,
    DiscoveryChoices,
    Target,
    learn_discovery,
    learn_jointly,
    write_discovery,
)
from training.evolution.evolve import STARTS, Parameters
from training.evolution.front import PREFERENCES
from training.evolution.score_file import front_of, learn_to_file
from training.evolution.selection import GUARDED, RULES
from training.evolution.workers import workers
from training.histories.growth import GrowthHistory
from training.histories.reading import read_history
from training.replaying.growth import HUBS, GrowthCrawl, growth_crawl
from training.replaying.metrics import COST, IMPACT, MEASURES
from training.reporting.terminal import (
    bars,
    progress,
    report,
    show_discovery,
    show_front,
    stopped,
    wide_console,
)

TERMINALS: Final[dict[Target, tuple[str, ...]]] = {
    "hub_function": ("brought", "brought_t"),
    "new_page_function": (*first_visits.REPLAYED, "near", "near_dir", "w"),
    "score_function": (),
}
"""Function that is learned for a growing crawl -> terminals that it has besides the chosen ones."""
OTHERS: Final = (
    "promote", "fitness", "cost", "protocol", "division", "importance", "every", "claims",
    "first_sight", "selection", "front", "prefer", "ties", "forget", "checkpoint", "resume",
)  # fmt: skip
"""Options that ``--growth`` refuses: they are for functions that rank pages."""


def _add_growth_options(add: Callable[..., Any]) -> None:
    add(
        "--growth",
        action="store_true",
        help="learn a function that ranks hubs, instead of one that ranks pages",
    )
    add("--discovery", type=float, default=0.1, metavar="SHARE", help="share of the budget for hubs")
    options.new_pages(add, "; learn what ranks them (GP4C_NEW_PAGE_FUNCTION)")
    add(
        "--score",
        default=DEFAULT,
        metavar="SCORE",
        help="with --growth: score function of pages that are no hubs",
    )
    jointly_help = (
        "with --growth: learn what ranks hubs, pages, and (--new-pages) first visits, by turns; OUTPUT gets "
        "the score function, files beside it the others"
    )
    add("--jointly", action="store_true", help=jointly_help)


def _learn_growth(args: Namespace, parser: ArgumentParser, errors: Console) -> None:
    refused = [name for name in OTHERS if getattr(args, name, None) != parser.get_default(name)]
    if refused:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        raise LearningError(f"{named}: of what ranks pages, not hubs; leave out with --growth")
    if not 0.0 < args.discovery <= 1.0:
        raise LearningError(f"--discovery: expected a share above 0, at most 1; found {args.discovery}")
    grown = options.growth_of(args)
    page_choices = options.choices_of(args).fitting(grown.history)
    crawl = growth_crawl(
        args.score, getattr(args, "policy", None), args.discovery, HUBS, page_choices.crawl(),
        new_pages=args.new_pages, from_start=args.from_start,
    )  # fmt: skip
    targets: list[Target] = ["hub_function"] if args.new_pages is None else ["new_page_function"]
    if args.jointly:
        targets = list(dict.fromkeys(("hub_function", *targets, "score_function")))
    choices = [_growth_choices(page_choices, crawl, target, grown) for target in targets]
    outputs = dict.fromkeys(targets, args.output)
    if args.jointly:
        stem: str = args.output.stem
        for target in targets[:-1]:
            outputs[target] = args.output.with_stem(f"{stem}-{target.removesuffix('_function')}")
    for path in outputs.values():
        check_writable(path)

    def show_generation(number: int, best: float) -> None:
        errors.print(
            f"generation {number} of {page_choices.parameters.generations}: best {best:.4f}", highlight=False
        )

    with workers(args.jobs, args.backend, args.scheduler) as parallel:
        if args.jointly:
            learned = learn_jointly(grown, choices, parallel, show_generation)
        else:
            learned = [(choices[0], learn_discovery(grown, choices[0], parallel, show_generation))]
    console = wide_console()
    for one, result in learned:
        write_discovery(outputs[one.target], result, one, grown)
        show_discovery(result, f"{args.history}, {SETTINGS[one.target]}", console)
    console.print("\nIn settings.py:\n")
    for target, path in outputs.items():
        console.out(f'    {SETTINGS[target]} = "{path}"', highlight=False)


def _growth_choices(
    pages: Choices, crawl: GrowthCrawl, target: Target, grown: GrowthHistory
) -> DiscoveryChoices:
    chosen = pages.parameters.terminals
    if target == "new_page_function":
        linked = first_visits.COUNTED if grown.links["anchor"].any() else first_visits.COUNTED[:-1]
        chosen = linked if len(grown.links) else ()
    start = "named" if pages.parameters.start == "auto" else pages.parameters.start
    names = tuple(dict.fromkeys((*TERMINALS[target], *chosen)))
    parameters = replace(pages.parameters, terminals=names, start=start)
    return DiscoveryChoices(crawl, pages.clock, parameters, pages.seeds, pages.seed, target)


FORGET: Final = 0.05
"""Recommended value of ``--forget``; the papers forget nothing (docs/lab/learning.md compares)."""


BEYOND: Final = ", ".join(name for name in EVERY if name not in PAPERS)
SETS_HELP: Final = (
    f"The sets of --terminals: basic (n, X, t), papers, and all, which adds {BEYOND}, as far as the history "
    "has what they read."
)


def _parser() -> argparse.ArgumentParser:
    choices, parameters = Choices(), Parameters()
    command = argparse.ArgumentParser(
        **options.usage("learn"),
        description="Learn a score function from a recorded change history by genetic programming.",
        formatter_class=options.HelpWithDefaults,
    )
    add = command.add_argument
    options.shared(add, "history")
    score_file = Path("score.json")
    options.shared(add, "--output", required=False, default=score_file, help="score file to write")
    promote_help = (
        "score file in use: replace it only if what is learned is significantly better "
        "(docs/lab/closing-the-loop.md); exit code 0 promoted, 3 kept"
    )
    add("--promote", type=Path, metavar="PATH", help=promote_help)
    _add_growth_options(add)
    add = command.add_argument_group("what to learn", SETS_HELP).add_argument
    add("--fitness", default=choices.fitness, help=f"{', '.join((*MEASURES, IMPACT))}, or a dotted path")
    options.shared(add, "--cost", help=f"time: learn changes per second of download, {COST}, not per visit")
    options.shared(add, "--terminals")
    options.shared(add, "--protocol", default=choices.protocol)
    divide_help = (
        "draw the parts of single pages, whole sites or directories; auto: sites for terminals of related "
        "pages, else directories, else pages"
    )
    add("--divide", choices=DIVISIONS, default=choices.division, dest="division", help=divide_help)
    in_use_help = "function in use: name, expression or score file; the end says whether to keep it"
    add("--in-use", default=choices.in_use, metavar="SCORE", help=in_use_help)
    options.search(add)
    options.evidence(add)
    add("--selection", choices=RULES, default=GUARDED, help="rule that selects one of the best")
    _front(add, choices)
    add = command.add_argument_group("the crawl that is replayed").add_argument
    # Budget and policy have no default here: with --promote they are the crawl's, unless given.
    budget_help = (
        f"visits per cycle: share (0.05) or count (500) (default: {choices.budget}; with --promote that of "
        "the crawl's newest cycle)"
    )
    add("--budget", type=options.budget, default=argparse.SUPPRESS, help=budget_help)
    options.shared(add, "--warmup", default=choices.warmup)
    options.shared(add, "--clock", default=choices.clock)
    options.shared(add, "--ties", default=choices.ties)
    policy_help = (
        f"what chooses by the scores, as rounds(rounds=4) (default: {choices.policy}, for named functions "
        "their own; with --promote the crawl's)"
    )
    add("--policy", metavar="TEXT", default=argparse.SUPPRESS, help=policy_help)
    add = command.add_argument_group("genetic programming").add_argument
    options.shared(add, *options.PROCESS)
    start_help = "of the first generation; named: named functions and t * terminal; auto: as --divide"
    add("--start", choices=STARTS, default=parameters.start, help=start_help)
    price_help = "price of a node, taken off the fitness"
    add("--parsimony", type=float, default=parameters.parsimony, help=price_help)
    add("--forget", type=float, default=FORGET, help="share of training changes taken out at random")
    add = command.add_argument_group("running").add_argument
    options.shared(add, "--jobs")
    add("--backend", default="processes", help="processes of this machine, or dask")
    add("--scheduler", help="address of a Dask scheduler, such as tcp://127.0.0.1:8786")
    add("--checkpoint", type=Path, help="directory for the state of the run (default: OUTPUT.checkpoint)")
    add("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    return command


def _front(add: options.Add, choices: Choices) -> None:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 (all candidates equal), 2 (bad input), 3 (see --promote), 130 (Ctrl-C)."""
    parser = _parser()
    args = parser.parse_args(arguments)
    errors = Console(stderr=True)
    try:
        if args.cost == "time":
            if args.fitness not in (parser.get_default("fitness"), COST):
                raise LearningError(f"--cost time learns for {COST}: leave out --fitness {args.fitness}")
            args.fitness = COST
        if args.growth:
            _learn_growth(args, parser, errors)
            return 0
        if args.promote is not None:
            return _promote(args, errors)
        return _learn(args, sys.argv[1:] if arguments is None else arguments, errors)
    except UndecidedError as error:
        errors.out(str(error), highlight=False)
        return 1
    except Gp4cError as error:
        errors.out(f"error: {error}", style="red", highlight=False)
        return 2
    except KeyboardInterrupt:
        errors.print("stopped before anything was learned", style="yellow")
        return 130


def _promote(args: argparse.Namespace, errors: Console) -> int:
    choices, source, console = options.choices_of(args), Path(args.history), Console()
    if not hasattr(args, "budget"):
        choices = replace(choices, budget=budget_of_crawl(source, choices.budget, console))
    if not hasattr(args, "policy"):
        choices = replace(choices, policy=policy_of_crawl(source, console))
    choices = replace(choices, named_policies=False)  # --promote changes the function, not the crawl's policy
    check_writable(args.promote)
    champion = in_use(args.promote, source)
    history = options.with_evidence(args, read_history(source))
    with (
        workers(args.jobs, args.backend, args.scheduler) as parallel,
        bars(errors, choices, 1, 0) as watch,
    ):
        return promote(history, args.promote, champion, choices, parallel, console, watch)


def _learn(args: argparse.Namespace, words: Sequence[str], errors: Console) -> int:
    choices, output = options.choices_of(args), args.output
    choices = replace(choices, named_policies=not hasattr(args, "policy"))
    check_writable(output)
    history = options.with_evidence(args, options.history_of(args, partial(progress, errors)))
    choices = choices.fitting(history)
    learned = learn_to_file(
        history,
        choices,
        output,
        args.checkpoint or output.with_name(output.name + ".checkpoint"),
        resume=args.resume,
        working=partial(workers, args.jobs, args.backend, args.scheduler),
        shown=partial(bars, errors),
    )
    if choices.front:
        show_front(learned, choices, front_of(output), wide_console())
    report(learned, choices, output, wide_console())
    if not learned.complete:
        stopped(learned, choices, words, errors)
    return 0 if learned.complete else 130


if __name__ == "__main__":
    sys.exit(main())
