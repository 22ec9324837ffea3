"""Named functions, and the first generation that is made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT, NAMED, PURPOSES
from training.evolution.simplification import canonical

FIRST: Final = (DEFAULT, *(name for name in PURPOSES if name != DEFAULT))
"""Functions that a crawl may have without learning, the default first."""


def uses_related_pages(names: Collection[str]) -> bool:
    """Whether one of these terminals describes related pages."""
    related_columns = set(terminals.ROUND) - {"draw", "spent"}
    return not related_columns.isdisjoint(terminals.columns_of(names))


def named_functions(names: Collection[str]) -> dict[str, str]:
    """The named functions of these terminals: name -> canonical text."""
    forms = {name: _form(name) for name in NAMED}
    return {name: form.text for name, form in forms.items() if {*form.terminals} <= {*names}}


def named_candidates(names: Collection[str]) -> tuple[str, ...]:
    """Names of the functions that compete with evolved ones: those with a purpose, and those of `names`.

    Of names with equal expression and policy the first is taken, those with a purpose first.
    """
    of_names = named_functions(names)
    first: dict[tuple[str, str | None], str] = {}
    for name in (*FIRST, *of_names):
        row = NAMED[name]
        first.setdefault((canonical(parse(row.expression)).text, row.policy), name)
    return tuple(first.values())


def expression_of(text: str) -> Expression:
    """Expression of a named function as histories replay it, without claims, or of another text."""
    return _form(text) if text in NAMED else parse(text)


def _form(name: str) -> Expression:
    expression = load(name).without_claims().expression
    assert expression is not None
    return canonical(expression)


def start_functions(names: Collection[str]) -> list[Expression]:
    """The named functions of these terminals, then ``t`` times each terminal, all different."""
    products = [f"t * {name}" for name in names if "t" in names]
    texts = [*named_functions(names).values(), *products]
    return list(dict.fromkeys(canonical(parse(text)) for text in texts))
