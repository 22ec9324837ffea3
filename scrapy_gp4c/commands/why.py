"""``scrapy gp4c why``: why a page is visited, or not."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from scrapy_gp4c.commands.explanation import Compared, Known, RuleOfPage, Why, explain
from scrapy_gp4c.commands.output import add_json, print_json, print_table, say
from scrapy_gp4c.crawling.messages import NO_TEXT
from scrapy_gp4c.errors import UnknownPageError
from scrapy_gp4c.scoring.functions import score_argument
from scrapy_gp4c.scoring.terminals import TERMINALS

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project
    from scrapy_gp4c.store.protocols import PageReader

HELP = "why a page is visited, or not"
DOCUMENT = Why
"""Output of ``--json``."""
NEAREST: Final = 5
_WHOLE: Final = re.compile(r"(?<![\w.])(\d+)\.0(?![\de])")


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("url", metavar="URL", help="of the page, as the spider requests it")
    parser.add_argument("--budget", metavar="B", help="with this budget: a share such as 0.05, or a count")
    parser.add_argument("--score", metavar="F", type=score_argument, help="with this score function")
    parser.add_argument("--all", action="store_true", help="all terminals, not those of the score alone")
    add_json(parser.add_argument)


def run(project: Project, options: Namespace) -> None:
    """Explain. Raises UnknownPageError, which names the nearest known URLs."""
    with project.open_store() as store:
        page = find_page(project, store, options.url)
        why = explain(project, store, page)
    if options.json:
        print_json(why)
    else:
        _show(why, all_terminals=options.all)


def find_page(project: Project, store: PageReader, url: str) -> int:
    """Number of the page with a URL; raises UnknownPageError, which names the nearest known URLs."""
    try:
        key, _ = project.page({"url": url})
    except ValueError as error:
        raise UnknownPageError(str(error)) from None
    page = store.find(key)
    if page is None:
        near = nearest(project, store, url)
        suggestion = "the nearest are:\n  " + "\n  ".join(near) if near else "the store has no pages yet"
        raise UnknownPageError(f"no page of the store has the URL {url}; {suggestion}")
    if page >= store.merged_pages:
        raise UnknownPageError(
            f"{url} was found in cycle {store.last_cycle + 1}, under way: ask again when that is over"
        )
    return page


def nearest(project: Project, store: PageReader, url: str) -> list[str]:
    """Known URLs that have most in common with one: first of all from the left, then from the right."""
    best: list[tuple[int, int, str]] = []
    for first, block in store.blocks():
        ids = np.arange(first, first + len(block["key"]))
        known = [project.credentials.url(request["url"]) for request in store.requests(ids)]
        best += [(-_in_common(one, url), -_in_common(one[::-1], url[::-1]), one) for one in known]
        best = sorted(best)[:NEAREST]
    return [one for _, _, one in best]


def _in_common(one: str, other: str) -> int:
    """Characters that two texts begin with alike."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _show(why: Why, *, all_terminals: bool) -> None:
    """Print the answer first, then its reasons."""
    say(why.url)
    say(f"  next visit: {_next_visit(why)}")
    for line in (*_different(why), *_about(why.known)):
        say(f"  {line}")
    say()
    named = set(re.findall(r"\w+", why.score.formula))
    shown = {name: value for name, value in why.terminals.items() if all_terminals or name in named}
    meanings = TERMINALS["cycles" if why.score.clock == "cycles" else "visits"]
    # Minus zero is zero to people.
    rows = [(name, f"{value + 0.0:.6g}", meanings[name].meaning) for name, value in shown.items()]
    print_table([("terminal", "value", "meaning"), *rows], text_column_count=1)
    say()
    score = why.score
    parts = [score.formula, *([] if score.filled is None else [whole_numbers(score.filled)])]
    value = f"{score.value + 0.0:.6g}"
    say("score       " + " = ".join([*parts, *([] if parts[-1] == value else [value])]))
    if score.rank is not None:
        cut = "" if score.cut_off is None else f", down to a score of {score.cut_off:.6g}"
        say(
            f"rank        {score.rank:,} of {score.candidates:,}; the first round of cycle {why.cycle} "
            + (f"visits the first {score.chosen:,}{cut}" if score.chosen else "visits none of them")
        )
    if why.past:
        say()
        rows = [(str(one.cycle), one.outcome or "not visited", one.why) for one in why.past]
        print_table([("cycle", "outcome", "why"), *rows], text_column_count=1)


def _about(known: Known) -> Iterator[str]:
    words = {
        "gone": f"gone (GP4C_GONE_AFTER): looked at again from cycle {known.next_attempt:,} on, or in "
        "the cycle after a link, a sitemap's claim, a hint or an import",
        "unfetched": "never fetched: its first visit is outside the budget (GP4C_NEW_PAGES)",
        "warming": "in warm-up: visited in every cycle, outside the budget (GP4C_WARMUP_VISITS)",
        "settled": "ranked by the score function",
    }
    yield "of the panel: visited in every cycle (GP4C_PANEL)" if known.panel else words[known.stage]
    if known.rule is not None:
        yield _about_rule(known.rule)
    if known.last_outcome is not None:
        yield f"last visited in cycle {known.last_visit}: {known.last_outcome}"
    if known.compared is not None:
        yield _about_copy(known.compared)
    if known.no_text:
        yield f"its copy has {NO_TEXT}"
    yield f"{known.n} judged visits found {known.X} changes"
    if not known.awake:
        yield f"resting until cycle {known.next_attempt:,}, as its last visits failed"


def _about_rule(rule: RuleOfPage) -> str:
    pieces = [
        f"at least every {rule.max_age}" if rule.max_age else "",
        f"at most every {rule.min_interval}" if rule.min_interval else "",
        "never" if rule.never else "",
    ]
    visited = ", ".join(filter(None, pieces))
    note = "" if rule.is_allowed or rule.never else "; the next cycle is too early"
    return f"{rule.name} is for it" + (f": visited {visited}{note}" if visited else "")


def _about_copy(compared: Compared) -> str:
    pieces = [f"{compared.words:,} words are compared ({compared.kind})", f"{compared.masked:,} masked"]
    if compared.left_out:
        pieces.append(f"{compared.left_out_words:,} left out: {', '.join(compared.left_out)}")
    if compared.clock:
        pieces.append(f"{compared.clock} blocks that change at each visit do not count")
    if compared.is_cut:
        pieces.append("only the head of the long page counts")
    return "; ".join(pieces)


def _next_visit(why: Why) -> str:
    coming = why.next_visit
    if coming.cycle == why.cycle:
        return f"cycle {coming.cycle}, the next one, round {coming.round}"
    if coming.cycle is not None:
        return f"cycle {coming.cycle} at the latest, if every page is found unchanged until then"
    if coming.never:
        return "never, as long as nothing changes"
    return f"not up to cycle {coming.looked_until}, if every page is found unchanged until then"


def _different(why: Why) -> Iterator[str]:
    different, cut = why.different, why.score.cut_off
    if different.budget is not None:
        yield f"in cycle {why.cycle} already with a budget of {different.budget:,} pages (GP4C_BUDGET)"
    if cut is not None and why.score.rank is not None and why.score.rank > why.score.chosen:
        yield f"{'or' if different.budget else 'sooner'} with a score above {cut:.6g}" + (
            "" if different.cycle is None else f", which it has by waiting until cycle {different.cycle}"
        )


def whole_numbers(formula: str) -> str:
    """A formula with ``3`` for ``3.0``: the same numbers, easier to read."""
    return _WHOLE.sub(r"\1", formula)
