"""Rules in replays: the visits of a plain simulation, and what they cost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.rules import read_rules
from scrapy_gp4c.policies.promises import HORIZON
from scrapy_gp4c.policies.table import load as load_policy
from tests.policies.test_promises import latest
from training import budget as budget_command
from training import evaluate as evaluate_command
from training.histories.formats import write_tsv
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.prepared import CrawlChoices, prepare_for
from training.replaying.promises import RulesFile
from training.replaying.replay import load, run

PAGES, CYCLES = 60, 30
KINDS = ("terms", "slow", "never", "other")
RULES = [
    {"match": "*/terms/*", "max_age": "2d"},
    {"match": "*/slow/*", "min_interval": 4},
    {"match": "*/never/*", "never": True},
]


def history() -> ChangeHistory:
    """Pages of four kinds that change now and then."""
    rng = np.random.default_rng(1)
    names = [f"/{KINDS[page % 4]}/{page}" for page in range(PAGES)]
    changed = rng.random((CYCLES, PAGES)) < rng.random(PAGES)
    return ChangeHistory(
        changed, np.zeros(PAGES, int), page_names=names, site_names=["example.org"], source="made"
    )


@st.composite
def a_rule(draw: st.DrawFn) -> dict[str, Any]:
    """Promises of one rule, as drawn for a test."""
    max_age = draw(st.none() | st.integers(1, 8))
    rule = {"max_age": max_age, "min_interval": draw(st.none() | st.integers(1, max_age or 8))}
    said = {name: cycles for name, cycles in rule.items() if cycles is not None}
    return said or draw(st.sampled_from([{"never": True}, {"weight": 2.0}]))


@given(
    st.lists(a_rule(), min_size=4, max_size=4),
    st.integers(1, PAGES),
    st.sampled_from(["top_k", "rounds(rounds=3)", "gsb", "rns", "db"]),
)
def test_replays_keep_the_rules_under_every_policy(
    said: list[dict[str, Any]], budget: int, policy: str
) -> None:
    """No page is late if visits by earliest deadline could keep it, none early; the budget holds."""
    rules = [{"match": f"*/{kind}/*", **rule} for kind, rule in zip(KINDS, said, strict=True)]
    choices = CrawlChoices(budget, warmup=1, rules=RulesFile(read_rules(rules)))
    prepared = prepare_for(history(), choices)
    rule_of = [said[page % len(KINDS)] for page in range(PAGES)]
    never = np.array(["never" in rule for rule in rule_of])
    most, least = (np.array([rule.get(name, 0) for rule in rule_of]) for name in ("max_age", "min_interval"))
    last, late = np.ones(PAGES, int), []

    def watch(cycle: int, pages: np.ndarray, changed: np.ndarray) -> None:
        assert len(pages) == len(set(pages.tolist())) <= budget
        assert (cycle - last[pages] >= least[pages]).all()
        assert not never[pages].any()
        last[pages] = cycle
        late.extend(np.flatnonzero((most > 0) & (cycle - last >= most)))
        assert changed.dtype == np.bool_

    function = load("changes" if load_policy(policy).scored else "random")
    replay_dense(prepared, function, set(), watch, load_policy(policy))
    promised = [(int(age), int(max(1, gap)), 1) for age, gap in zip(most, least, strict=True) if age]
    assert not late or latest(promised, budget, all_of_it=True, cycles=CYCLES + HORIZON)[0] > 0


def test_rules_that_match_nothing_change_nothing() -> None:
    """Bit for bit, in the engine for page by page."""
    free = prepare_for(history(), CrawlChoices(0.3))
    ruled = prepare_for(
        history(), CrawlChoices(0.3, rules=RulesFile(read_rules([{"match": "/none/", "never": True}])))
    )
    for score in ("changes", "t * (X + 0.5)", "oracle"):
        one, other = (run(prepared, score, engine="dense") for prepared in (free, ruled))
        assert (one.changed == other.changed).all()


def test_commands_tell_what_promises_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In points of the change rate; a rule without a page is told, and a wrong file is one error."""
    path, rules = tmp_path / "history.tsv", tmp_path / "rules.json"
    write_tsv(path, history())
    rules.write_text(json.dumps([*RULES, {"match": "*/none/*", "max_age": 1}]))
    words = [str(path), "--score", "changes", "age", "--rules", str(rules)]
    assert evaluate_command.main([*words, "--budget", "0.2", "--cycles-a-day", "1"]) == 0
    printed = capsys.readouterr().out
    assert "promises about 15 pages need 8 visits a cycle, the budget is 12" in printed
    assert "no page of the history matches rule 4 ('*/none/*')" in printed
    assert "with the rules" in printed
    figure = ["--figure", str(tmp_path / "figure.png"), "--budgets", "10%,30%"]
    assert budget_command.main([*words, *figure]) == 0
    printed = capsys.readouterr().out
    assert "the budget is 6, 18: some pages are late" in printed
    assert "18 visits: changes: change rate" in printed
    for command in (evaluate_command, budget_command):  # with 0 each time was one cycle
        with pytest.raises(SystemExit):
            command.main([*words, "--cycles-a-day", "0"])
        assert "--cycles-a-day: expected a number above 0" in capsys.readouterr().err
    rules.write_text("[{")
    assert evaluate_command.main(words) == 2
    assert f"--rules {rules}" in capsys.readouterr().err


def test_a_history_without_names_is_refused() -> None:
    """Rules go by names of pages."""
    nameless = ChangeHistory(np.ones((4, 3), bool), np.zeros(3, int))
    with pytest.raises(HistoryError, match="--rules needs"):
        prepare_for(nameless, CrawlChoices(1.0, rules=RulesFile(read_rules(RULES))))
