"""Reading a policy from its text: accepted texts and parameters, and one clear error for the rest."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings
from scrapy_gp4c.policies.sampling import Follow, FollowParameters, Greedy
from scrapy_gp4c.policies.table import Parameter
from scrapy_gp4c.policies.top_k import Rounds, TopK
from scrapy_gp4c.scoring import functions
from tests.support.policies import ChangedHosts

SETTINGS = PolicySettings(functions.load("t"), 0)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("top_k", TopK(SETTINGS)),
        (" top_k() ", TopK(SETTINGS)),
        ("rounds", Rounds(SETTINGS)),
        ("rounds( rounds = 8 )", Rounds(SETTINGS, 8)),
        ("rounds(sample=0.5, level='directory')", Rounds(SETTINGS, 4, 0.5, "directory")),
        ("gsb(sample=None)", Greedy(SETTINGS)),
        ("db(d=-2, phi='wha')", Follow(SETTINGS, FollowParameters("db", "tree", -2, "wha"))),
    ],
)
def test_policies_of_the_table(text: str, made: object) -> None:
    """A name alone takes the defaults; the text stays as it was given, but for spaces around it."""
    choice = table.load(text)
    assert choice.make(SETTINGS) == made
    assert choice.text == text.strip()


def test_the_name_of_a_policy_makes_it_again() -> None:
    """What a log line calls it can be pasted into the settings."""
    for text in table.POLICIES:
        policy = table.load(text).make(SETTINGS)
        assert table.load(policy.name).make(SETTINGS) == policy


def test_a_dotted_path_makes_a_policy_of_the_users_own() -> None:
    """From settings and command lines; never from what a store has recorded."""
    path = "tests.support.policies.changed_hosts"
    assert isinstance(table.load(path).make(SETTINGS), ChangedHosts)
    with pytest.raises(PolicyError, match="only settings may name"):
        table.load(path, trusted=False)
    with pytest.raises(PolicyError, match="must return a policy"):
        table.load("tests.support.policies.no_policy").make(SETTINGS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a policy is one of top_k, rounds"),
        (None, "a policy is one of top_k, rounds"),
        ("best", "found 'best'"),
        ("topk", "did you mean top_k"),
        ("rounds(4)", "a policy is one of"),
        ("rounds(rounds=0)", "whole number from 1 to 1000; found 0"),
        ("rounds(rounds=True)", "found True"),
        ("rounds(rounds=2.5)", "found 2.5"),
        ("rounds(rounds='4')", "found '4'"),
        ("rounds(size=4)", "has no parameter 'size'; rounds has rounds"),
        ("top_k(k=4)", "top_k has no parameters"),
        ("rounds(rounds=4, rounds=4)", "a policy is one of"),
        ("rounds(**{'rounds': 4})", "a policy is one of"),
        ("rounds(rounds=__import__('os').getpid())", "a policy is one of"),
        ("(lambda: 1)()", "a policy is one of"),
        ("rounds(" * 200, "a policy is one of"),
        ("rounds(rounds=" + "9" * 5000 + ")", "a policy is one of"),
        ("gsb(level='host')", "takes for level one of 'site', 'directory', 'cluster'; found 'host'"),
        ("gsb(sample=0)", "a whole number from 1 to 1000000000, or None; found 0"),
        ("db(phi=1.5)", "a number from 0 to 1, or one of 'change', 'ha', 'wha', 'pra'; found 1.5"),
        ("db(phi=1e999)", "found inf"),
        ("db(d=101)", "a whole number from -100 to 100; found 101"),
        ("db(gate=1)", "takes for gate True or False; found 1"),
        ("groups(order='best')", "takes for order one of 'score', 'n', 'X'"),
        ("rounds(sample=-0.1)", "a number from 0 to 1; found -0.1"),
        ("no_such_module.policy", "no_such_module.policy"),
        ("tests.support.policies.HOST_PAGES", "not callable"),
    ],
)
def test_what_is_no_policy(text: str, message: str) -> None:
    """One error that says what was found and what is accepted; nothing is executed."""
    with pytest.raises(PolicyError, match=message.replace("(", r"\(").replace(")", r"\)")):
        table.load(text)


@given(st.text(max_size=40))
def test_any_text_is_a_policy_or_an_error(text: str) -> None:
    """Never another exception."""
    with suppress(PolicyError):
        table.load(text)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 20), st.floats(), st.text(max_size=3), st.just([1]), st.just(1j)
)
SHARE, NAME = Parameter(0.5, (0.0, 1.0)), Parameter("a", names=("a", "b"))
EITHER = Parameter("a", (0.0, 1.0), ("a", "b"))


@given(ANYTHING)
def test_whole_numbers_are_ints_within_their_range(value: object) -> None:
    """No truth value, no float; None only where it is the default."""
    inside = type(value) is int and 1 <= value <= 9
    assert Parameter(4, (1, 9)).accepts(value) == inside
    assert Parameter(None, (1, 9)).accepts(value) == (inside or value is None)


@given(ANYTHING)
def test_shares_names_and_flags_keep_their_types_apart(value: object) -> None:
    """0 and 1 are shares, True is none; a list among names is no TypeError."""
    is_share = type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
    is_name = value in ("a", "b")
    assert SHARE.accepts(value) == is_share
    assert NAME.accepts(value) == is_name
    assert EITHER.accepts(value) == (is_share or is_name)
    assert Parameter(False).accepts(value) == (type(value) is bool)


def test_the_edges_of_a_share() -> None:
    """Both ends belong to it; what is no number does not."""
    accepts = SHARE.accepts
    assert [accepts(value) for value in (0, 1, 0.0, 1.0)] == [True] * 4
    assert [accepts(value) for value in (-1e-9, 1 + 1e-9, math.nan, math.inf, "0.5")] == [False] * 5


def test_words_for_what_is_expected() -> None:
    """Two names with "or", more as a list; None is told where it is accepted."""
    assert NAME.expected == "'a' or 'b'"
    assert Parameter("a", names=("a", "b", "c")).expected == "one of 'a', 'b', 'c'"
    assert Parameter(3, (0, 5)).expected == "a whole number from 0 to 5"
    assert Parameter(None, (0, 5)).expected == "a whole number from 0 to 5, or None"
    assert EITHER.expected == "a number from 0 to 1, or 'a' or 'b'"


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
