"""Claims of sites about the pages of a history: when the crawl read them, and what they say."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import CLAIM, renumbered
from scrapy_gp4c.scoring.hints import KINDS
from training.histories.history import ChangeHistory

DATED_CLAIM: Final = np.dtype([("cycle", "<i4"), *CLAIM.descr])
"""A claim, and the cycle, from 1, in which the crawl read it; it is due in cycles of the history too."""
LINE: Final = "site<TAB>page<TAB>kind<TAB>cycle[<TAB>value]"


def read_claims(path: Path, history: ChangeHistory, first_cycle: int = 1) -> npt.NDArray[Any]:
    """Claims about the pages of a history, from a file of lines `LINE`, plain or gzip: dtype `DATED_CLAIM`.

    ``kind``: a name of `scrapy_gp4c.scoring.hints.KINDS`. ``cycle``: the cycle that reads the claim; the next
    plan is the first that knows it. ``value``: the first cycle whose visit sees the change, by default the
    same cycle; of a span its cycles. Cycles become those of a replay that begins with ``first_cycle``. Claims
    about other pages are left out. Raises HistoryError, which names the line.
    """
    if history.page_names is None or history.site_names is None:
        raise HistoryError("claims need a history with names of sites and pages")
    sites = (history.site_names[site] for site in history.site.tolist())
    number = {name: page for page, name in enumerate(zip(sites, history.page_names, strict=True))}
    rows = []
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line_number, line in enumerate(text.decode().splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            site, _, remainder = line.partition("\t")
            page, *fields = remainder.split("\t")
            claim = _claim(fields)
            if claim is None:
                raise HistoryError(
                    f"{path}, line {line_number}: expected {LINE} with a kind of {', '.join(KINDS)}; "
                    f"found {line[:80]!r}"
                )
            if (site, page) in number:
                rows.append((number[site, page], *claim))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise HistoryError(f"cannot read the claims {path}: {error}") from error
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    claims = np.zeros(len(rows), DATED_CLAIM)
    claims["page"], claims["kind"], cycle, value = columns
    claims["cycle"] = cycle - first_cycle + 1
    claims["value"] = renumbered(claims["kind"], value, first_cycle - 1)
    return claims[np.argsort(claims["cycle"], kind="stable")]


def write_true_claims(path: Path, history: ChangeHistory) -> int:
    """Write what a sitemap would say of every change in its cycle, as `read_claims` reads it; their number.

    gzip if the name ends in .gz. Raises HistoryError where the file cannot be written.
    """
    assert history.page_names is not None
    assert history.site_names is not None
    sites, pages = list(history.site_names), list(history.page_names)
    rows = [
        f"{sites[history.site[page]]}\t{pages[page]}\tsitemap\t{cycle + 1}\n"
        for cycle, page in np.argwhere(history.changed).tolist()
    ]
    text = "".join(rows).encode("utf-8", "surrogateescape")
    try:
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise HistoryError(f"cannot write the claims {path}: {error}") from error
    return len(rows)


def _claim(fields: list[str]) -> tuple[int, int, int] | None:
    """Kind, cycle and value of the last fields of a line; None for other fields."""
    kind, *numbers = fields or [""]
    if kind not in KINDS or not 1 <= len(numbers) <= 2:
        return None
    try:
        return KINDS.index(kind), int(numbers[0]), int(numbers[-1])
    except ValueError:
        return None
