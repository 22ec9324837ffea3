"""What an exported history says of what visits gained a search: by which log, and of each page when."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Final, NamedTuple, TypedDict

import numpy as np

from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.store.page_store import PageStore

MEASURED: Final = "measured"


class GainState(TypedDict, total=False):
    """Field of a line's JSON; absent where nothing was measured."""

    dq: list[tuple[int, float]]
    """Cycle of each measured visit, and what it gained, in ppm."""


class Measured(NamedTuple):
    """By what a history's gains were measured."""

    log: str
    since: int
    """The first cycle."""


def measured_by(store: PageStore) -> Measured | None:
    """By what a store measures; None: nothing was ever measured."""
    log = store.gains.log
    return None if log is None else Measured(log, store.gains.since)


def gains_of(store: PageStore, first: int, stop: int) -> dict[int, list[tuple[int, float]]]:
    """Cycles and gains of the pages first..stop-1, as far as they are measured by the log in use."""
    found: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for cycle, gains in store.gains.of_cycles(store.gains.since) if store.gains.log is not None else ():
        own = gains[(gains["page"] >= first) & (gains["page"] < stop)]
        for page, ppm in zip(own["page"].tolist(), own["ppm"], strict=True):
            found[page].append((cycle, float(str(ppm))))  # as many digits as a float32 has
    return found


def read_measured(name: str, header: str) -> Measured | None:
    """By what the gains of a history were measured; raises ImportFileError, which names the file."""
    given = json.loads(header[1:]).get(MEASURED)
    if given is None:
        return None
    if not isinstance(given, list) or list(map(type, given)) != [str, int] or given[1] < 1:
        raise ImportFileError(
            f"{name}, line 1: expected a log's digest and a cycle as {MEASURED}; found {str(given)[:80]}. "
            "Export it anew."
        )
    return Measured(*given)


def read_gains(state: GainState) -> tuple[tuple[int, float], ...]:
    """Gains of a line, by cycle; raises ValueError."""
    given = state.get("dq", [])
    cycles = [one[0] for one in given if isinstance(one, list) and len(one) == 2]
    sound = isinstance(given, list) and len(cycles) == len(given)
    if not sound or not all(type(cycle) is int and cycle > 0 and _is_gain(ppm) for cycle, ppm in given):
        raise ValueError(f"expected pairs of a cycle and a number as dq; found {str(given)[:80]}")
    if cycles != sorted(set(cycles)):
        raise ValueError(f"expected each cycle once, in order, as dq; found {str(cycles)[:80]}")
    return tuple((cycle, float(ppm)) for cycle, ppm in given)


def _is_gain(value: object) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(value) and abs(value) <= float(np.finfo(np.float32).max)  # type: ignore[arg-type]
