"""What parameters accept, and how they say so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.parameters import Parameter, flag, one_of, share, share_or_one_of, whole
from scrapy_gp4c.scoring import functions

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 20), st.floats(), st.text(max_size=3), st.just([1]), st.just(1j)
)
PARAMETERS = st.sampled_from(
    [whole(4, 1, 9), whole(None, 1, 9), share(0.5), flag(True), one_of("a", ("a", "b")),
     share_or_one_of("a", ("a", "b"))]
)  # fmt: skip


@given(PARAMETERS)
def test_every_default_is_accepted(parameter: Parameter) -> None:
    """Else a text that spells a default out would be refused."""
    assert parameter.accepts(parameter.default)


@given(ANYTHING)
def test_whole_numbers_are_ints_within_their_range(value: object) -> None:
    """No truth value, no float; None only where it is the default."""
    inside = type(value) is int and 1 <= value <= 9
    assert whole(4, 1, 9).accepts(value) == inside
    assert whole(None, 1, 9).accepts(value) == (inside or value is None)


@given(ANYTHING)
def test_shares_names_and_flags_keep_their_types_apart(value: object) -> None:
    """0 and 1 are shares, True is none; a list among names is no TypeError."""
    is_share = type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
    is_name = value in ("a", "b")
    assert share(0.5).accepts(value) == is_share
    assert one_of("a", ("a", "b")).accepts(value) == is_name
    assert share_or_one_of("a", ("a", "b")).accepts(value) == (is_share or is_name)
    assert flag(False).accepts(value) == (type(value) is bool)


def test_the_edges_of_a_share() -> None:
    """Both ends belong to it; what is no number does not."""
    accepts = share(0.0).accepts
    assert [accepts(value) for value in (0, 1, 0.0, 1.0)] == [True] * 4
    assert [accepts(value) for value in (-1e-9, 1 + 1e-9, math.nan, math.inf, "0.5")] == [False] * 5


def test_words_for_what_is_expected() -> None:
    """Two names with "or", more as a list; None is told where it is accepted."""
    assert one_of("a", ("a", "b")).expected == "'a' or 'b'"
    assert one_of("a", ("a", "b", "c")).expected == "one of 'a', 'b', 'c'"
    assert whole(3, 0, 5).expected == "a whole number from 0 to 5"
    assert whole(None, 0, 5).expected == "a whole number from 0 to 5, or None"
    assert share_or_one_of("a", ("a", "b")).expected == "a number from 0 to 1, or 'a' or 'b'"


@pytest.mark.parametrize("name", list(table.POLICIES))
def test_every_parameter_of_every_policy_is_guarded(name: str) -> None:
    """Its default can be spelled out; a value of no use is refused with the parameter's name and range."""
    settings = table.PolicySettings(functions.load("t"), 0)
    for key, parameter in table.POLICIES[name].parameters.items():
        text = f"{name}({key}={parameter.default!r})"
        assert table.load(text).make(settings) == table.load(name).make(settings)
        with pytest.raises(PolicyError) as refused:
            table.load(f"{name}({key}=[0])")
        assert f"takes for {key} {parameter.expected}; found [0]" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "scored", "near", "column"),
    [
        ("top_k", True, (), None),
        ("rounds", True, (), None),
        ("rounds(sample=0.1)", True, ("site",), None),
        ("rounds(sample=0.1, level='cluster')", True, ("cluster",), None),
        ("gsb(level='directory')", False, ("directory",), None),
        ("cb(phi='wha')", False, ("cluster",), "A_cycles"),
        ("lb(phi='ha')", False, ("links",), "first_cycle"),
        ("db(phi='wha', gate=True)", False, ("tree",), "last_cycle"),
        ("db", False, ("tree",), None),
        ("rr", False, (), "last_cycle"),
        ("groups", False, ("site",), "A"),
        ("groups(order='score')", True, ("site",), None),
    ],
)
def test_what_a_policy_asks_for(text: str, scored: bool, near: tuple[str, ...], column: str | None) -> None:
    """A crawl refuses at its start what it cannot group by, and reads no column for nothing."""
    choice = table.load(text)
    assert (choice.scored, choice.near) == (scored, near)
    read = table.columns_read(functions.load("n * X"), choice)
    assert ("X" in read) >= scored
    assert {"n", "X"} <= set(read) or not scored
    if column is None:
        assert set(read) == ({"n", "X"} if scored else set())
    else:
        assert column in read
    assert len(set(read)) == len(read)
