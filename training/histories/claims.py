"""Claims of sites about their pages (that one changed, or when), for the pages of a history."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import DATED_CLAIM, renumbered
from scrapy_gp4c.scoring.hints import CLAIMED, KINDS
from scrapy_gp4c.scoring.sizes import size_class
from training.histories.formats import created, opened
from training.histories.history import ChangeHistory, known_or_none
from training.histories.names import UNDECODED

LINE: Final = "site<TAB>page<TAB>kind<TAB>cycle[<TAB>value]"
FIRST_SIGHT: Final = "site<TAB>page<TAB>age[<TAB>bytes]"


def read_claims(path: Path, history: ChangeHistory, first_cycle: int = 1) -> npt.NDArray[Any]:
    """Read claims about the pages of `history` from a file, plain or gzip: dtype `DATED_CLAIM`.

    Lines are ``site<TAB>page<TAB>kind<TAB>cycle[<TAB>value]``. ``kind``: a name of
    `scrapy_gp4c.scoring.hints.KINDS`. ``cycle``: when the crawl reads the claim; the next plan knows it.
    ``value``: the claimed duration in cycles, or else the first cycle in which a visit sees the change, by
    default ``cycle``. Cycles are renumbered so that ``first_cycle`` is 1. Claims about other pages are left
    out. Raises HistoryError, which names the line.
    """
    rows = []
    for line_number, line, page, fields in lines_about(path, history):
        claim = _claim(fields)
        if claim is None:
            raise HistoryError(
                f"{path}, line {line_number}: expected {LINE} with a kind of {', '.join(KINDS)}; "
                f"found {line[:80]!r}"
            )
        rows.append((page, *claim))
    return _dated(rows, first_cycle)


class FirstSight(NamedTuple):
    """Ages and sizes that a crawl learned of a history's pages with their first responses, before cycle 1."""

    claims: npt.NDArray[Any]
    """Ages as claims that are read before cycle 1: dtype `DATED_CLAIM`."""
    size: npt.NDArray[np.uint8]
    """Classes of sizes, ``[P]``, see `scrapy_gp4c.scoring.sizes`; 0: unknown."""


def read_first_sight(path: Path, history: ChangeHistory, first_cycle: int = 1) -> FirstSight:
    """Read ages and sizes of pages at their first response: lines ``site<TAB>page<TAB>age[<TAB>bytes]``.

    ``age``: cycles, at cycle 1, since the change that the first response dates, by ``Last-Modified``, say.
    ``bytes``: length of the body. Either may be empty if unknown. As for `read_claims` otherwise.
    """
    rows, size_bytes = [], np.zeros(history.pages, np.int64)
    for line_number, line, page, fields in lines_about(path, history):
        age, length, *_ = [*(fields or ["missing"]), ""]
        try:
            if age and page >= 0:
                rows.append((page, KINDS.index("modified"), 0, -math.floor(float(age)) - 1))
            if length and page >= 0:
                size_bytes[page] = int(float(length))
        except (ValueError, OverflowError):
            raise HistoryError(
                f"{path}, line {line_number}: expected {FIRST_SIGHT}; found {line[:80]!r}"
            ) from None
    return FirstSight(_dated(rows, first_cycle), size_class(size_bytes))


def first_sight_beside(path: Path) -> Path | None:
    """File NAME.first_sight.tsv.gz, or .tsv, beside a history NAME.*; None: there is none."""
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    paths = (path.with_name(f"{name}.first_sight.tsv{end}") for end in (".gz", ""))
    return next((one for one in paths if name and path.is_file() and one.is_file()), None)


def with_evidence(
    history: ChangeHistory, claims: Path | None, first_sight: Path | None, first_cycle: int = 1
) -> ChangeHistory:
    """Copy of `history` with claims, ages and sizes of its pages, read from files."""
    parts = [] if history.claims is None else [history.claims]
    if first_sight is not None:
        seen = read_first_sight(first_sight, history, first_cycle)
        parts.append(seen.claims)
        history = replace(history, size=known_or_none(np.where(seen.size, seen.size, history.sizes)))
    if claims is not None:
        parts.append(read_claims(claims, history, first_cycle))
    known = np.concatenate([np.empty(0, DATED_CLAIM), *parts])
    return replace(history, claims=known) if len(known) else history


def lines_about(path: Path, history: ChangeHistory) -> Iterator[tuple[int, str, int, list[str]]]:
    """Yield each line's number and text, its page's position (-1: not in the history), its other fields."""
    if history.page_names is None or history.site_names is None:
        raise HistoryError(
            f"{path} names sites and pages, and the history does not: give a history with names"
        )
    sites = (history.site_names[site] for site in history.site.tolist())
    number = {name: page for page, name in enumerate(zip(sites, history.page_names, strict=True))}
    with opened(path) as file:
        text = file.read().decode("utf-8", UNDECODED)
    for line_number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            site, _, fields_text = line.partition("\t")
            page, *fields = fields_text.split("\t")
            yield line_number, line, number.get((site, page), -1), fields


def coarsened(claims: npt.NDArray[Any], every: int) -> npt.NDArray[Any]:
    """Claims (dtype `DATED_CLAIM`) renumbered for cycles ``every`` times as long."""
    longer = claims.copy()
    is_dated = claims["kind"] < len(CLAIMED)
    longer["cycle"] = -(-claims["cycle"] // every)
    longer["value"] = np.where(is_dated, -(-claims["value"] // every), claims["value"] // every)
    return longer


def _dated(rows: Sequence[tuple[int, int, int, int]], first_cycle: int) -> npt.NDArray[Any]:
    """Claims of rows (page, kind, cycle, value), renumbered so that ``first_cycle`` is 1, in order of cycles.

    Rows about no page of the history (-1) are left out."""
    columns = np.array([row for row in rows if row[0] >= 0], np.int64).reshape(-1, 4).T
    claims = np.zeros(columns.shape[1], DATED_CLAIM)
    claims["page"], claims["kind"], cycle, value = columns
    claims["cycle"] = cycle - first_cycle + 1
    claims["value"] = renumbered(claims["kind"], value, first_cycle - 1)
    return claims[np.argsort(claims["cycle"], kind="stable")]


def of_crawl(claims: npt.NDArray[Any], position: npt.NDArray[Any], before: int) -> npt.NDArray[Any]:
    """Convert a crawl's claims to pages and cycles of a history: dtype `DATED_CLAIM`, by cycle and page.

    ``claims``: with the same fields, in the crawl's cycles; ``position``: of each of the crawl's pages in the
    history, -1: not in it; ``before``: the crawl's cycles before cycle 1 of the history.
    """
    dated = np.zeros(len(claims), DATED_CLAIM)
    dated["page"], dated["kind"] = position[claims["page"]], claims["kind"]
    dated["cycle"] = claims["cycle"] - before
    dated["value"] = renumbered(claims["kind"], claims["value"], before)
    dated = dated[position[claims["page"]] >= 0]
    return np.asarray(dated[np.lexsort((dated["page"], dated["cycle"]))])


def true_claims(history: ChangeHistory) -> npt.NDArray[Any]:
    """Claims of an ideal sitemap, which names every change of `history` in its cycle: dtype `DATED_CLAIM`."""
    cycle, page = np.nonzero(history.changed)
    claims = np.zeros(len(page), DATED_CLAIM)
    claims["page"], claims["cycle"], claims["value"] = page, cycle + 1, cycle + 1
    return claims


def write_claims(path: Path, history: ChangeHistory, claims: npt.NDArray[Any]) -> int:
    """Write claims about the pages of a history, for `read_claims`; returns their number.

    gzip if the name ends in .gz. Raises HistoryError where the file cannot be written.
    """
    assert history.page_names is not None
    assert history.site_names is not None
    sites, pages = list(history.site_names), list(history.page_names)
    rows = [
        f"{sites[history.site[page]]}\t{pages[page]}\t{KINDS[kind]}\t{cycle}\t{value}\n"
        for cycle, page, kind, value in claims.tolist()
    ]
    with created(path, "claims") as file:
        file.write("".join(rows).encode("utf-8", UNDECODED))
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
