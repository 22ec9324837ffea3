"""Growth in the text that `scrapy gp4c export` writes."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, ImportFileError
from scrapy_gp4c.store.claims_text import joined
from scrapy_gp4c.store.history_text import (
    CHANGED_BIT,
    NOT_JUDGED,
    PageLine,
    check_pages,
    is_header,
    read_header,
    read_page,
)
from scrapy_gp4c.store.records import StoredRequest
from training.histories.growth import GrowthHistory
from training.histories.growth_visits import Visited, growth_of

GZIP = b"\x1f\x8b"


def is_export(path: Path) -> bool:
    """Tell whether a file begins as an export does; raises HistoryError for one that cannot be read."""
    try:
        with _open(path) as file:
            return is_header(file.readline(1_000))
    except (OSError, EOFError, UnicodeDecodeError):
        return False


def read_export_growth(path: Path) -> GrowthHistory:
    """Growth in an export, as `growth_of`; its pages have no keys, so that ties fall by their order.

    Raises HistoryError, which names the line, for what is no export, and for pages that were visited now and
    then.
    """
    try:
        with _open(path) as file:
            cycles = len(read_header(str(path), file.readline()))
            pages = [
                read_page(str(path), number, line.rstrip("\n"), partial(_numbered, number))
                for number, line in enumerate(file, 2)
                if not line.startswith("#")
            ]
        check_pages(str(path), pages, cycles, lambda key: False)
    except ImportFileError as error:
        raise HistoryError(str(error)) from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise HistoryError(f"cannot read the export {path}: {error}") from error
    return growth_of(_visited(path, pages, cycles))


def _numbered(number: int, stored: StoredRequest) -> tuple[int, StoredRequest]:
    """A page by its line: its key would take the spider's settings."""
    return number, stored


def _visited(path: Path, pages: list[PageLine], cycles: int) -> Visited:
    bits = np.full((cycles + 1, len(pages)), NOT_JUDGED, np.uint8)
    for number, page in enumerate(pages):
        bits[2:, number] = np.frombuffer(page.bits, np.uint8)
    claims = joined([page.claims for page in pages])

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.array([getattr(page, name) for page in pages], np.int64)

    return Visited(
        str(path),
        bits != NOT_JUDGED,
        bits == CHANGED_BIT,
        column("entered"),
        column("first_cycle"),
        column("found_by"),
        lambda chosen: [pages[page].request["url"] for page in chosen.tolist()],
        None,
        np.array([page.weight for page in pages]),
        claims[np.argsort(claims["cycle"], kind="stable")],
    )


def _open(path: Path) -> IO[str]:
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path, "rt", encoding="utf-8") if packed else open(path, encoding="utf-8")
