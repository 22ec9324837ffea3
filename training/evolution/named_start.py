"""Named functions, and the first generation that is made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT, NAMED
from training.evolution.simplification import canonical


def uses_related_pages(names: Collection[str]) -> bool:
    """Whether one of these terminals describes related pages."""
    related_columns = set(terminals.ROUND) - {"draw", "spent"}
    return not related_columns.isdisjoint(terminals.columns_of(names))


def named_functions(names: Collection[str]) -> dict[str, str]:
    """The named functions of these terminals: name -> canonical text."""
    forms = {name: _form(name) for name in NAMED}
    return {name: form.text for name, form in forms.items() if {*form.terminals} <= {*names}}


RECOMMENDED: Final = {
    "ndcg": "neighbours",
    "change_rate": "neighbours",
    "changes": "changes",
    "freshness": "freshness",
}
"""Fitness or preference -> named function that leads in it (docs/leaderboard.md, docs/choosing.md).

The default leads in all others."""


def recommended(wanted: str) -> str:
    """Canonical text of the function that the leaderboard recommends for a fitness or a preference."""
    return _form(RECOMMENDED.get(wanted, DEFAULT)).text


def _form(name: str) -> Expression:
    """A named function as learning sees it: histories have no claims."""
    expression = load(name).without_claims().expression
    assert expression is not None
    return canonical(expression)


def start_functions(names: Collection[str]) -> list[Expression]:
    """The named functions of these terminals, then ``t`` times each terminal, all different."""
    products = [f"t * {name}" for name in names if "t" in names]
    texts = [*named_functions(names).values(), *products]
    return list(dict.fromkeys(canonical(parse(text)) for text in texts))
