"""``scrapy gp4c hint``: pages that something else says have changed: a webhook, a CMS, a partner's list."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scrapy_gp4c.commands.import_file import content_lines
from scrapy_gp4c.commands.output import add_json, print_json, say
from scrapy_gp4c.errors import ImportFileError

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "note that the pages of a list have changed"


@dataclass(frozen=True)
class Hinted:
    """Counts of the listed pages."""

    hinted: int
    """Known pages: the next cycle takes them for changed, as far as such hints have been right so far."""
    unknown: int
    """URLs of no page of the store, of which nothing is kept."""


DOCUMENT = Hinted
"""Output of ``--json``."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "file", metavar="FILE", help="URLs of pages that have changed, one per line; - for standard input"
    )
    add_json(parser.add_argument)


def run(project: Project, options: Namespace) -> None:
    """Note the claims; raises ImportFileError with the number of the line that is no URL."""
    keys: list[int] = []
    for number, line in content_lines(options.file):
        try:
            keys.append(project.page({"url": line})[0])
        except ValueError as error:
            raise ImportFileError(
                f"{options.file}, line {number}: {error}. Correct the line; nothing was noted."
            ) from None
    project.open_store().close()  # there must be one
    with project.open_store(readonly=False) as store:
        pages = np.unique(store.hints.find(np.array(keys, np.uint64)))
        known = pages[pages >= 0]
        if len(known):
            store.hints.tell(known, time.time())
    result = Hinted(len(known), len(set(keys)) - len(known))
    say(f"{result.hinted:,} pages hinted, {result.unknown:,} URLs not known", file=sys.stderr)
    if options.json:
        print_json(result)
