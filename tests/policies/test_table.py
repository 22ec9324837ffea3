"""Reading a policy from its text: what is accepted, and one clear error for the rest."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.by_groups import Greedy
from scrapy_gp4c.policies.follow import Follow, Following
from scrapy_gp4c.policies.policy import PolicySettings
from scrapy_gp4c.policies.rounds import Rounds
from scrapy_gp4c.policies.top_k import TopK
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
        ("db(d=-2, phi='wha')", Follow(SETTINGS, Following("db", "tree", -2, "wha"))),
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
