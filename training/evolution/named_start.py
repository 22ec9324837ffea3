"""Named functions, and the first generation that is made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import NAMED, PURPOSES
from scrapy_gp4c.scoring.sizes import UNSIZED
from training.evolution.simplification import canonical


def uses_related_pages(names: Collection[str]) -> bool:
    """Whether one of these terminals describes related pages."""
    related_columns = set(terminals.ROUND) - {"draw", "spent"}
    return not related_columns.isdisjoint(terminals.columns_of(names))


def named_functions(names: Collection[str]) -> dict[str, str]:
    """The named functions of these terminals: name -> canonical text."""
    forms = {name: _form(name, names) for name in NAMED}
    return {name: form.text for name, form in forms.items() if {*form.terminals} <= {*names}}


def named_candidates(names: Collection[str]) -> tuple[str, ...]:
    """Names of the functions that compete with evolved ones: those with a purpose, and those of `names`."""
    return tuple(dict.fromkeys((*PURPOSES, *named_functions(names))))


def expression_of(text: str) -> Expression:
    """Expression of a named function, or of another text; a replay leaves out what its history lacks."""
    return parse(NAMED[text].expression if text in NAMED else text)


def _form(name: str, names: Collection[str]) -> Expression:
    """Canonical expression of a named function where these terminals are known."""
    has_claims, has_sizes = (not {*names}.isdisjoint(known) for known in (terminals.CLAIMED, UNSIZED))
    expression = load(name).for_pages(has_claims=has_claims, has_sizes=has_sizes).expression
    assert expression is not None
    return canonical(expression)


FLOORS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Rates added to that of a page."""
NEIGHBOURHOODS: Final = ("near", "sqrt(near)", "near * sqrt(surprise_site)", "near_site", "near_dir")
SIZE_POWERS: Final = (0.5, 0.25)
SPENT_WEIGHTS: Final = (0.1, 0.3, 3.0, 10.0)
"""Factors of the default's floor, which rises with the share of the budget that is spent."""


def polished_functions(names: Collection[str]) -> list[str]:
    """The form of the default and its kin with other constants, which are tuned before structure evolves.

    ``names``: known terminals; the forms read claims and sizes where these are among them.
    """
    rate = "hint_rate" if "hint_rate" in names else "rate"
    lifts = [f" * size_lift ** {power}" for power in SIZE_POWERS] if "size_lift" in names else [""]
    floors = [
        f"t * ({rate} + {floor}) * {near}{lift}"
        for floor in FLOORS
        for near in NEIGHBOURHOODS
        for lift in lifts[-1:]
    ]
    rising = [
        f"t * ({rate} + {weight} * spent ** 2) * near * sqrt(surprise_site){lift}"
        for weight in SPENT_WEIGHTS
        for lift in lifts
    ]
    return [*floors, *rising]


def start_functions(names: Collection[str]) -> list[Expression]:
    """The named functions of these terminals, their polished kin, then ``t`` times each; all different."""
    products = [f"t * {name}" for name in names if "t" in names]
    forms = [canonical(parse(text)) for text in polished_functions(names)]
    polished = [form.text for form in forms if {*form.terminals} <= {*names}]
    texts = [*named_functions(names).values(), *polished, *products]
    return list(dict.fromkeys(canonical(parse(text)) for text in texts))
