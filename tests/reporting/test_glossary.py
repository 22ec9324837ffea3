"""The glossary: a term means one thing, and every terminal has one."""

from __future__ import annotations

from scrapy_gp4c.scoring.terminals import MEANINGS
from training.reporting.glossary import DEFINITIONS, term_of


def test_every_terminal_is_explained_under_a_term_of_its_own() -> None:
    """The terminal p and the p value of a test are two things."""
    terms = {name: term_of(name) for name in MEANINGS}
    assert len(set(terms.values())) == len(terms)
    assert {DEFINITIONS[term][1] for term in terms.values()} == {f"{one}." for one in MEANINGS.values()}
    assert DEFINITIONS["p"][0] == "p value"
    assert DEFINITIONS[terms["p"]][0] == "p"


def test_terminals_are_written_as_formulas_have_them() -> None:
    """The papers' estimators in capitals, as ever; the others as one writes them."""
    names = [DEFINITIONS[term_of(name)][0] for name in ("t", "cg", "gad", "near", "rate_site")]
    assert names == ["t", "CG", "GAD", "near", "rate_site"]
