"""Every ``GP4C_*`` setting: defaults, conversions from text, and one clear error for a bad value."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.page_state.rules import NO_RULE, Span, rule_of
from scrapy_gp4c.policies.base import budget_pages
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import DEFAULT, NAMED, Named
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.settings.table import TABLE

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"

BAD: dict[str, list[Any]] = {
    "GP4C_STORE": [5, ["a"], True, {"path": "x"}, "nul\0"],
    "GP4C_SCORE_FUNCTION": [5, "", "t *", "t * unknown", "no.such.callable", "missing.json", "2 + 3"],
    "GP4C_BUDGET": [0, 0.0, -1, -0.1, 1.1, True, False, "many", "", math.nan, math.inf, [], "0", "0%"],
    "GP4C_SITE_SHARE": [-0.1, 1.1, True, "half", math.nan, []],
    "GP4C_DISCOVERY": [-0.1, 1.1, True, "half", math.nan, []],
    "GP4C_DISCOVERY_FUNCTION": [5, "", "brought *", "found", "no.such.callable", "missing.json"],
    "GP4C_NEW_PAGES": [-1, 1.5, True, "few", math.inf, math.nan, [], "-2"],
    "GP4C_NEW_PAGE_FUNCTION": [5, "cash *", "found", "no.such.callable", "missing.json"],
    "GP4C_POLICY": ["best", "rounds(0)", "rounds(rounds=0)", "", 3, "no_such_module.policy", "math.pi"],
    "GP4C_WARMUP_VISITS": [-1, 1001, 0.5, True, "two", math.inf, "1e400"],
    "GP4C_PANEL": [-0.1, 1.1, True, "half", math.nan, []],
    "GP4C_DISTANCE": [0, 65, 2.5, False, "near"],
    "GP4C_SKIP_UNCHANGED": ["maybe", 2, []],
    "GP4C_GONE_AFTER": [0, 256, -3, 1.5, True, "never"],
    "GP4C_BELIEVE_AFTER": [0, 256, -3, 1.5, True, "never"],
    "GP4C_FINGERPRINT": ["md5", 3, ""],
    "GP4C_FEATURES": [5, "features", "no_such_module.features", "math.no_such_name", "math.pi"],
    "GP4C_SEED": [-1, 1.5, True, "x", math.inf],
    "GP4C_TRAP_PAGES": [0, -1, 1.5, True, "many"],
    "GP4C_KEEP_CYCLES": [0, -1, 1.5, "many", True],
    "GP4C_QUERY_LOG": [5, True, ["queries.tsv"], "nul\0"],
    "GP4C_URL_PARAMS_IGNORED": [5, True, [5], math.nan],
    "GP4C_NOTIFY": [5, True, ["no address"], [{"url": "json://h", "digest": "weekly"}]],
    "GP4C_RULES": [5, True, "*", [5], [{"match": "*"}]],
    "GP4C_CHANGE_ITEMS": ["maybe", 2, []],
    "GP4C_ON_CHANGE": [5, True, "nul\0", "echo 'open"],
    "GP4C_FEED": [5, True, "nul\0", "{name}.xml"],
    "GP4C_METRICS": [5, True, "nul\0", "$HOME/x.prom"],
    "GP4C_SECRET_PARAMS": [5, True, [5], math.nan, ["a", None], b"ab"],
    "GP4C_ARCHIVE": ["maybe", 2, []],
    "GP4C_FREEZE_GC": ["maybe", 2, []],
    "GP4C_SHARED_ARGS": [5, True, [5], math.nan],
    "GP4C_STORE_MODE": [0, 5, "9", "many", 0o1000, True, 1.5],
    "GP4C_REDELIVER": [0, 1001, 1.5, "many", True],
    "GP4C_FETCHERS": [0, 1001, True, "many"],
    "GP4C_FETCHERS_INSECURE": ["maybe", 2],
    "GP4C_ITEMS_AT": ["home", 5, True],
    "GP4C_REVISION": [5, True],
    "GP4C_BACKUP": [5, True, "nul\0"],
}


def load(values: dict[str, Any]) -> Settings:
    """Load the settings of a crawl that sets these."""
    return Settings.load(ScrapySettings(values))


def test_a_scheduler_of_another_machine_needs_tls_or_a_word_that_it_does_not() -> None:
    """Whoever can talk to it runs code."""
    with pytest.raises(SettingsError, match="has no TLS"):
        load({"GP4C_FETCHERS": "tcp://10.0.0.1:8786"})
    assert load({"GP4C_FETCHERS": "tcp://10.0.0.1:8786", "GP4C_FETCHERS_INSECURE": True}).fetchers
    assert load({"GP4C_FETCHERS": "tls://10.0.0.1:8786"}).fetchers == "tls://10.0.0.1:8786"


def test_defaults_are_valid_and_fill_every_field() -> None:
    """Without any GP4C_ setting, each field has the value that the table's default stands for."""
    settings = load({})
    assert len(TABLE) == len(dataclasses.fields(Settings))
    assert settings.store is None
    assert settings.score_function.formula == parse(NAMED[DEFAULT].expression).text
    assert settings.budget == 0.05
    assert settings.discovery == 0.1
    assert settings.discovery_function.text == "brought * t"
    assert settings.new_pages is None
    assert settings.warmup_visits == 2
    assert settings.panel == 0.0
    assert settings.distance_bits == 3
    assert settings.skip_unchanged is False
    assert settings.gone_after == 3
    assert settings.features is None
    assert settings.seed == 0
    assert settings.query_log is None


def test_every_setting_has_bad_values_to_test() -> None:
    """No setting escapes the test of its errors."""
    assert BAD.keys() == TABLE.keys()


def test_bad_value_is_one_error_that_names_setting_and_value() -> None:
    """A wrong type or range raises SettingsError with the setting's name and what was found."""
    for name, value in ((name, value) for name, values in BAD.items() for value in values):
        with pytest.raises(SettingsError) as caught:
            load({name: value})
        message = str(caught.value)
        assert message.startswith(name)
        # What reads these texts has remedies of its own.
        if not name.endswith(("_FUNCTION", "_POLICY", "_NOTIFY", "_RULES")):
            assert repr(value) in message
            assert "default" in message


@pytest.mark.parametrize(
    ("name", "field", "text", "value"),
    [
        ("GP4C_STORE", "store", "", None),
        ("GP4C_STORE", "store", "a/b", "a/b"),
        ("GP4C_BUDGET", "budget", "0.25", 0.25),
        ("GP4C_BUDGET", "budget", "1.0", 1.0),
        ("GP4C_BUDGET", "budget", "1", 1),
        ("GP4C_BUDGET", "budget", " 500 ", 500),
        ("GP4C_NEW_PAGES", "new_pages", "None", None),
        ("GP4C_NEW_PAGES", "new_pages", "", None),
        ("GP4C_NEW_PAGES", "new_pages", "0", 0),
        ("GP4C_WARMUP_VISITS", "warmup_visits", "0", 0),
        ("GP4C_PANEL", "panel", "0.5", 0.5),
        ("GP4C_DISTANCE", "distance_bits", "64", 64),
        ("GP4C_SKIP_UNCHANGED", "skip_unchanged", "True", True),
        ("GP4C_SKIP_UNCHANGED", "skip_unchanged", "0", False),
        ("GP4C_GONE_AFTER", "gone_after", "255", 255),
        ("GP4C_SEED", "seed", "9007199254740993", 2**53 + 1),
        ("GP4C_KEEP_CYCLES", "keep_cycles", "52", 52),
        ("GP4C_KEEP_CYCLES", "keep_cycles", "None", None),
        ("GP4C_SECRET_PARAMS", "secret_params", "pin, sid", ("pin", "sid")),
        ("GP4C_SECRET_PARAMS", "secret_params", "", ()),
        ("GP4C_URL_PARAMS_IGNORED", "url_params_ignored", "utm_*, ref", ("utm_*", "ref")),
        ("GP4C_ARCHIVE", "archive", "1", True),
        ("GP4C_ON_CHANGE", "on_change", "  ", None),
        ("GP4C_FREEZE_GC", "freeze_gc", "1", True),
        ("GP4C_REDELIVER", "redeliver", "5", 5),
        ("GP4C_SHARED_ARGS", "shared_args", "level, limit", ("level", "limit")),
        ("GP4C_STORE_MODE", "store_mode", "0o770", 0o770),
        ("GP4C_FEATURES", "features", "os.path.join", __import__("os").path.join),
    ],
)
def test_text_from_the_command_line_is_converted(name: str, field: str, text: str, value: Any) -> None:
    """``-s GP4C_X=text`` means the same as the Python value in a settings module, to the last digit."""
    result = getattr(load({name: text}), field)
    assert result == value
    assert type(result) is type(value)


def test_unknown_gp4c_setting_is_an_error_that_lists_the_known_ones() -> None:
    """A misspelt setting is not silently ignored."""
    with pytest.raises(SettingsError, match=r"GP4C_BUGDET.*GP4C_BUDGET"):
        load({"GP4C_BUGDET": 0.1})


@given(st.floats(0.0, 1.0, exclude_min=True), st.integers(0, 10**8))
def test_budget_share_is_a_floor_that_rounding_does_not_lower(share: float, known: int) -> None:
    """K = floor(share * known), and a product that is whole up to rounding counts as whole; at least 1."""
    k = budget_pages(load({"GP4C_BUDGET": share}).budget, known)
    assert min(1, known) <= k <= known
    assert k <= max(1, share * known + 1e-6)
    assert k > share * known - 1 - 1e-6


def test_budget_share_of_a_decimal_fraction_is_exact() -> None:
    """29% of 100 pages are 29 pages, though 0.29 * 100 is 28.999999999999996."""
    assert budget_pages(load({"GP4C_BUDGET": 0.29}).budget, 100) == 29


@given(st.integers(1, 10**9), st.integers(0, 10**8))
def test_budget_count_is_capped_by_what_is_known(count: int, known: int) -> None:
    """A count of pages is the budget, as long as there are so many pages."""
    assert budget_pages(load({"GP4C_BUDGET": count}).budget, known) == min(count, known)


def test_store_path_is_per_spider_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two spiders of a project do not share a store by default; GP4C_STORE is used as it is."""
    (tmp_path / "scrapy.cfg").touch()
    monkeypatch.chdir(tmp_path)
    assert load({}).store_path("quotes").parts[-3:] == (".scrapy", "gp4c", "quotes")
    assert load({"GP4C_STORE": "/data/x"}).store_path("quotes") == Path("/data/x")


def test_docs_list_every_setting_with_its_default() -> None:
    """docs/settings.md has a table row for each setting, and its default there or, if it is long, below."""
    text = DOCS.read_text()
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `GP4C_")}
    words = " ".join(text.split())
    for name, setting in TABLE.items():
        default = setting.default if isinstance(setting.default, str) else repr(setting.default)
        shown = words if "[below]" in rows[name] else rows[name]
        assert setting.default is None or default in shown, (
            f"docs/settings.md does not list {name} with its default {setting.default!r}"
        )


def test_a_named_function_brings_its_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting is all that a purpose needs; a policy of one's own goes first."""
    monkeypatch.setitem(NAMED, "mine", Named("t * X", "tests", "for this test", "rounds(rounds=3)"))
    assert load({}).policy.text == NAMED[DEFAULT].policy == "rounds(rounds=4)"
    assert load({"GP4C_SCORE_FUNCTION": "t * X"}).policy.text == "top_k"
    assert load({"GP4C_SCORE_FUNCTION": "age"}).policy.text == "top_k"
    assert load({"GP4C_SCORE_FUNCTION": "mine"}).policy.text == "rounds(rounds=3)"
    assert load({"GP4C_SCORE_FUNCTION": "mine", "GP4C_POLICY": "top_k"}).policy.text == "top_k"


def test_docs_list_every_named_function_with_its_policy() -> None:
    """docs/code/terminals.md has a table row for each name: expression, policy, meaning, source."""
    text = (DOCS.parent / "code" / "terminals.md").read_text(encoding="utf-8")
    for name, row in NAMED.items():
        policy = "" if row.policy is None else f"`{row.policy}`"
        cells = f"| `{name}` | `{row.expression}` | {policy} | {row.meaning} | {row.source} |"
        assert re.sub(r" +", " ", cells) in text


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("GP4C_SCORE_FUNCTION", "user-centric"),
        ("GP4C_SCORE_FUNCTION", "t * dq_decay"),
        ("GP4C_DISCOVERY_FUNCTION", "brought * dq_last"),
        ("GP4C_POLICY", "groups(order='dq_rate')"),
    ],
)
def test_what_searches_gain_takes_a_log_of_queries(name: str, formula: str) -> None:
    """The terminals of search quality are refused without one, and load with it."""
    with pytest.raises(SettingsError, match=rf"{name} reads .*dq_rate.*set GP4C_QUERY_LOG"):
        load({name: formula})
    assert load({name: formula, "GP4C_QUERY_LOG": "queries.tsv"}).query_log == "queries.tsv"


def test_a_spider_of_any_name_has_one_directory_of_its_own() -> None:
    """Names are quoted as path segments: none leads elsewhere, and no two are one."""
    names = ["a/b", "a%2Fb", "a", "..", ".", "../a", "n\x00l", "nl", "/etc", "a\nb", "a,b=c"]
    settings = Settings.load(ScrapySettings({"GP4C_STORE": "stores/{spider}"}))
    paths = [settings.store_path(name) for name in names]
    assert {path.parent.as_posix() for path in paths} == {"stores"}
    assert len({path.name for path in paths} - {"", ".", ".."}) == len(names)
    assert not any("\0" in path.name or "\n" in path.name for path in paths)


def test_a_wrong_rule_is_one_error_that_names_it_and_the_remedy() -> None:
    """Unknown keys, values that cannot be read, contradictions, and what needs another setting."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_age": "1d"}, "rule 2: 'match' must be a glob of URLs such as"),
        ({"match": "*", "max_ago": "1d"}, "rule 2: there is no key 'max_ago'; the keys are match, max_age"),
        ({"match": "*", "max_age": "5"}, "rule 2: 'max_age': expected a time with its unit"),
        ({"match": "*", "max_age": 0}, "rule 2: 'max_age': expected a time such as '6h'"),
        ({"match": {"tags": "a"}, "never": True}, "found {'tags': 'a'}"),
        ({"match": "*", "min_interval": "1d", "max_age": "6h"}, "must not be longer than max_age (6h)"),
        ({"match": "*", "min_interval": "9d", "max_age": 2}, "give both as times, or both in cycles"),
        ({"match": "*", "watch": "p[["}, "rule 2 ('*'): 'p[[' is neither a CSS selector nor an XPath"),
        ({"match": "*", "ignore": "//p[@"}, "rule 2 ('*'): '//p[@' is neither"),
        ({"match": "*", "distance": "words:some"}, "expected 'any', 'words:3' or 'share:1%'"),
        ({"match": "*", "distance": "words:3"}, "set GP4C_ARCHIVE = True"),
        ({"match": "*", "weight": -1}, "rule 2: 'weight': expected a number from 0"),
    ]
    for rule, words in wrong:
        with pytest.raises(SettingsError) as caught:
            load({"GP4C_RULES": [{"match": "/a/", "never": True}, rule]})
        assert str(caught.value).startswith("GP4C_RULES: ")
        assert words in str(caught.value)


def test_rules_from_a_command_line_are_json() -> None:
    """Times in all their forms; the first match counts, also on decoded URLs and by tags."""
    rules = load(
        {
            "GP4C_RULES": '[{"match": "*/caf\\u00e9/*", "max_age": "1.5h"},'
            ' {"match": {"tag": "x"}, "max_age": 2},'
            ' {"match": "/a/", "min_interval": "3 cycles"}]'
        }
    ).rules
    assert rule_of(rules, "http://h/caf%C3%A9/a/", {"gp4c_tag": "x"}).max_age == Span(seconds=5400.0)
    assert rule_of(rules, "http://h/a/", {"gp4c_tag": "x"}).max_age == Span(cycles=2)
    assert rule_of(rules, "http://h/a/", {}).min_interval == Span(cycles=3)
    assert rule_of(rules, "http://h/b/", {}) == NO_RULE
    assert rule_of(rules, "http://h/a/", {"gp4c_max_age": "1d"}).max_age == Span(seconds=86_400.0)
