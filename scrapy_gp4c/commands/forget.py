"""``scrapy gp4c forget``: remove pages, their visits included, from a spider's store."""

import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.commands.action import JSON, Action, option, print_json, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import ForgetError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.columns import stages
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.opening import ARCHIVE, Store, forget

SHOWN: Final = 10
WITH_VISITS: Final = ("page with its visits", "pages with their visits")


@dataclass(frozen=True)
class Forgotten:
    """Counts of the pages that were removed, or with ``--dry-run`` would be."""

    store: str
    pages: int
    """Pages known before."""
    forgotten: int
    """Pages removed, or to be removed."""
    hosts: dict[str, int]
    """Host -> number of these pages, most first."""
    examples: list[str]
    """URLs of the first of these pages."""
    dry_run: bool


def _run(project: Project, options: Namespace) -> None:
    """Remove the pages, after asking, and print how many; raises ForgetError."""
    if options.pattern is None and not options.gone:
        raise ForgetError(
            "expected a PATTERN or --gone; found none. To begin anew, move the directory "
            f"{project.store_path} away."
        )
    if options.json and not (options.yes or options.dry_run):
        raise ForgetError("--json does not ask: give --dry-run, or --yes to take the pages out.")
    with project.open_store() as store:
        forgotten = _forgotten(project, store, _chosen(project, store, options), options.dry_run)
    if not options.json:
        for line in _lines(forgotten):
            say(line)
    if forgotten.forgotten and not options.dry_run:
        if not options.yes:
            _ask(forgotten)
        count = forget(
            project.store_path,
            project.sizes,
            lambda store: _choose_and_clear_archive(project, store, options),
        )
        forgotten = replace(forgotten, forgotten=count)
        if not options.json:
            say(f"forgot {counted(count, *WITH_VISITS)}")
    if options.json:
        print_json(forgotten)


def _chosen(project: Project, store: Store, options: Namespace) -> npt.NDArray[np.bool_]:
    """Mask ``[P]`` of the pages that fit all options."""
    settings, shown = project.settings, project.credentials.url
    matches = url_pattern("*" if options.pattern is None else options.pattern).fullmatch
    chosen = [np.empty(0, np.bool_)]
    for first, block in store.blocks():
        gone = stages(block, settings.warmup_visits, settings.gone_after).gone
        rows = np.flatnonzero(gone | (not options.gone))
        of_block = np.zeros(len(gone), np.bool_)
        of_block[rows] = [
            matches(shown(request["url"])) is not None for request in store.each_request(rows + first)
        ]
        chosen.append(of_block)
    return np.concatenate(chosen)


def url_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of whole URLs, in which ``*`` stands for any text and all else for itself."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _choose_and_clear_archive(project: Project, store: Store, options: Namespace) -> npt.NDArray[np.bool_]:
    """Remove the texts of pages that fit all options from the archive, if any; returns their mask ``[P]``."""
    chosen = _chosen(project, store, options)
    if (store.path / ARCHIVE).exists():
        keys = (
            key
            for first, block in store.blocks()
            for key in block["key"][chosen[first : first + len(block["key"])]].tolist()
        )
        with Texts(store.path / ARCHIVE) as texts:
            texts.remove(keys)
    return chosen


def _forgotten(project: Project, store: Store, chosen: npt.NDArray[np.bool_], dry_run: bool) -> Forgotten:
    hosts: Counter[str] = Counter()
    examples: list[str] = []
    for request in store.each_request(np.flatnonzero(chosen)):
        url = request["url"]
        hosts[place_of_url(url).site] += 1
        if len(examples) < SHOWN:
            examples.append(project.credentials.url(url))
    by_host = dict(hosts.most_common())
    return Forgotten(str(store.path), store.pages, int(chosen.sum()), by_host, examples, dry_run)


def _lines(forgotten: Forgotten) -> Iterator[str]:
    verb = "is" if forgotten.forgotten == 1 else "are"
    yield f"{forgotten.forgotten:,} of {counted(forgotten.pages, 'page')} of {forgotten.store} {verb} to go"
    if not forgotten.forgotten:
        yield "no page fits all options: see the URLs by `scrapy gp4c pages`, or `scrapy gp4c export`"
    for host, pages in list(forgotten.hosts.items())[:SHOWN]:
        yield f"  {pages:,} of {host}"
    if len(forgotten.hosts) > SHOWN:
        yield f"  and those of {counted(len(forgotten.hosts) - SHOWN, 'more host')}"
    for url in forgotten.examples:
        yield f"  {url}"
    if forgotten.forgotten > len(forgotten.examples):
        yield f"  and {forgotten.forgotten - len(forgotten.examples):,} more"


def _ask(forgotten: Forgotten) -> None:
    print(f"Forget {counted(forgotten.forgotten, *WITH_VISITS)} for good? [y/N] ", end="", flush=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        if not answer:
            print()
        raise ForgetError("nothing is forgotten. Answer y, or give --yes, to take the pages out.")


FORGET = Action(
    "take pages out of a spider's store, with their visits",
    _run,
    [
        option(
            "pattern",
            metavar="PATTERN",
            nargs="?",
            help="those with this URL, in which * stands for any text: 'https://example.com/tag/*'",
        ),
        option("--gone", action="store_true", help="those that the site says are gone (404, 410)"),
        option("--dry-run", action="store_true", help="show which pages these are, and forget none"),
        option("--yes", action="store_true", help="do not ask"),
        JSON,
    ],
    Forgotten,
)
"""Action ``forget``; it removes the pages that fit all options."""
