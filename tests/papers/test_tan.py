"""The experiment of Tan et al. 2007: what is replayed is what the paper says, and says it of our data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from tests.support.linked import write_linked
from training.clustering.clusters import group_pages
from training.comparing.trials import PolicyTrial
from training.histories.contents import ContentHistory, read_contents
from training.histories.history import ChangeHistory
from training.histories.reading import coarsened
from training.papers.tan import (
    ADAPTIVE,
    BEST_D,
    COMPARED,
    DEPTHS,
    MEASURED,
    QUICK_DEPTHS,
    SETTINGS,
    TYPICAL,
    CrawlSetting,
    TanPlan,
    TanResults,
    claims,
    domains,
    planned,
    run_experiment,
    sampling_policy,
    table_rows,
)
from training.replaying.prepared import prepare
from training.replaying.replay import replay, run

QUICK = TanPlan(QUICK_DEPTHS, seeds=2)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> ContentHistory:
    result = read_contents(write_linked(tmp_path_factory.mktemp("tan") / "contents.jsonl"))
    result.history.neighbours.groups_by_content = group_pages(result, clusters=4)
    return result


@pytest.fixture(scope="module")
def results(contents: ContentHistory) -> TanResults:
    return run_experiment(contents, QUICK)


def test_all_of_the_paper_is_replayed_once() -> None:
    """Nine settings; d from -6 to 8, of clusters and popularity not below 0; one sample in flight."""
    todo = table_rows(DEPTHS)
    assert len(set(todo)) == len(todo)
    of_typical = {policy for policy, setting in todo if setting == TYPICAL}
    assert {f"lb(d={d}, in_flight=1)" for d in range(-6, 9)} <= of_typical
    assert {policy for policy in of_typical if policy.startswith("cb")} == {
        f"cb(d={d}, in_flight=1)" for d in range(9)
    }
    for setting in SETTINGS:
        assert {policy for policy, one in todo if one == setting} >= {
            *COMPARED,
            *(sampling_policy("db", d) for d in DEPTHS),
        }
    of_adaptive = {policy for policy, setting in todo if setting == ADAPTIVE}
    assert {f"db(d={d}, phi='pra', in_flight=1)" for d in range(9)} <= of_adaptive
    assert {f"db(d=1, phi={phi!r}, in_flight=1)" for phi in ("ha", "wha")} <= of_adaptive
    assert {(weeks, budget) for weeks, budget in SETTINGS} == {
        (weeks, budget) for weeks in (2, 4, 8) for budget in (0.088, 0.176, 0.351)
    }
    assert BEST_D == {"lb": 3, "db": 1, "cb": 0}


def test_trials_are_replays_without_warm_up(contents: ContentHistory, results: TanResults) -> None:
    """In cycles of the setting's weeks, means of the seeds; C^w weighs pages by their popularity, 0 to 10."""
    groups = contents.history.neighbours.groups_by_content
    assert groups is not None
    popular = groups.popularity()
    assert popular.max() == 10
    for policy, setting in (
        ("rns", CrawlSetting(2, 0.351)),
        (sampling_policy("cb"), TYPICAL),
        ("rr", ADAPTIVE),
    ):
        history = replace(coarsened(contents, setting.weeks), weight=popular.astype(float))
        history.neighbours.groups_by_content = groups
        result = results.trials[policy, setting]
        replays = [
            run(prepare(history, budget=setting.budget, warmup=0, seed=seed), "random", policy=policy)
            for seed in (1, 2)
        ]
        for metric in MEASURED:
            expected = np.mean([getattr(one, metric) for one in replays], axis=0)
            assert result.per_cycle[metric] == pytest.approx(expected)
    assert len(results.trials["rns", ADAPTIVE].per_cycle["ndcg"]) == 8
    assert results.changed_share[8] == coarsened(contents, 8).changed.mean()


def test_popularity_that_was_told_stays(contents: ContentHistory) -> None:
    """Weights of C^w are no popularity of their own: taken for one, they would be spread out anew."""
    popular = contents.history.neighbours.popularity()
    history = replace(contents.history, weight=popular.astype(float))
    assert not np.array_equal(history.neighbours.popularity(), popular)
    history.neighbours.popular = popular
    assert np.array_equal(history.neighbours.popularity(), popular)


def test_without_contents_what_needs_clusters_or_links_is_left_out() -> None:
    """Sites and directories are replayed, claims on the others are not made."""
    rng = np.random.default_rng(1)
    names = [f"dir{page % 5}/page{page}" for page in range(50)]
    history = ChangeHistory(rng.random((16, 50)) < 0.2, np.zeros(50, np.int32), page_names=names)
    todo = planned(history, QUICK)
    assert {policy.partition("(")[0] for policy, _ in todo} == {"rns", "rr", "gsb", "db"}
    result = run_experiment(history, QUICK._replace(seeds=1))
    assert list(result.trials) == todo
    assert result.trial(sampling_policy("cb"), TYPICAL) is None
    assert np.array_equal(
        result.trials["rns", TYPICAL].per_cycle["change_rate"],
        replay(coarsened(history, 8), "random", budget=0.088, warmup=0, seed=1).change_rate,
    )
    said = [claim.paper for claim in claims(result)]
    assert "DB finds more in longer cycles" in said
    assert not [text for text in said if "CB" in text or "LB" in text or "PRA" in text]


def test_too_few_weeks_are_one_error() -> None:
    """With what was found and what is needed."""
    history = ChangeHistory(np.ones((15, 3), np.bool_), np.zeros(3, np.int32), page_names=["a", "b", "c"])
    with pytest.raises(HistoryError, match=r"has 15 cycles.* at least 16"):
        run_experiment(history, QUICK)


@given(
    st.lists(st.tuples(st.sampled_from(("a.org", "b.org", "c.com", "ota/d")), st.integers(0, 4)), min_size=1)
)
def test_domains_count_every_page_once(pages: list[tuple[str, int]]) -> None:
    """Table 1 adds up to all pages and sites, Figure 4 to the pages of Table 1; the largest come first."""
    sites = sorted({site for site, _ in pages})
    addresses = [f"{site}{'/x' * depth}" for site, depth in pages]
    rows = domains(addresses, [sites.index(site) for site, _ in pages])
    assert sum(row.pages for row in rows) == len(pages)
    assert sum(row.sites for row in rows) == len(sites)
    assert all(sum(row.by_depth) == row.pages for row in rows)
    assert [row.pages for row in rows] == sorted((row.pages for row in rows), reverse=True)
    for row in rows:
        members = [address for address in addresses if address.split("/")[0].split(".")[-1] == row.name]
        assert row.by_depth[-1] == sum(address.count("/") == len(row.by_depth) - 1 for address in members) > 0


def as_in_the_paper() -> TanResults:
    """Results that agree with the paper in everything."""
    trials: dict[tuple[str, CrawlSetting], PolicyTrial] = {}

    def put(policy: str, setting: CrawlSetting, rate: float, weighted: float = 1.0) -> None:
        cycles = 56 // setting.weeks
        per_cycle = {"change_rate": np.full(cycles, rate), "weighted_change_rate": np.full(cycles, weighted)}
        trials[policy, setting] = PolicyTrial(policy, "random", per_cycle)

    for setting in SETTINGS:
        scale = setting.weeks / 80 * (1.2 - setting.budget)
        for name, value in {"rns": 1.0, "rr": 1.02, "gsb": 1.5}.items():
            put(name, setting, scale * value)
        for d in DEPTHS:
            put(sampling_policy("db", d), setting, scale * (3.0 - 0.1 * abs(d - 1)))
            put(sampling_policy("lb", d), setting, scale * (2.8 - 0.1 * abs(d - 3)))
            put(sampling_policy("cb", d), setting, scale * (3.5 - 0.1 * abs(d)))
            put(sampling_policy("db", d, "pra"), setting, 1.0, 1.95)
    for phi, ahead_from, rate in (("ha", 18, 0.5), ("wha", 16, 0.6)):
        put(sampling_policy("db", phi=phi), ADAPTIVE, trials["rns", ADAPTIVE].per_cycle["change_rate"][0])
        following_db = trials[sampling_policy("db", phi=phi), ADAPTIVE].per_cycle["change_rate"]
        following_db[ahead_from - 1 :] = rate
    return TanResults("paper", "", TanPlan(), 0, 0, [], {}, trials)


def test_claims_hold_where_results_are_those_of_the_paper(results: TanResults) -> None:
    """All of them; and each fails where its policies trade places."""
    result = claims(as_in_the_paper())
    assert [claim.paper for claim in result if not claim.holds] == []
    assert len(result) == 23
    turned = as_in_the_paper()
    for trial in turned.trials.values():
        for rates in trial.per_cycle.values():
            rates[:] = 1.0 / rates
    held = [claim.paper for claim in claims(turned) if claim.holds]
    assert held == ["RR is like RNS", "HA is like RNS in cycles 2 to 5", "WHA is like RNS in cycles 2 to 5"]
    assert {claim.paper for claim in claims(results)} < {claim.paper for claim in result}


def test_a_policy_that_is_never_ahead_is_told_so() -> None:
    """HA that stays behind DB to the end."""
    result = as_in_the_paper()
    result.trials[sampling_policy("db", phi="ha"), ADAPTIVE].per_cycle["change_rate"][:] = 0.0
    (said,) = [claim for claim in claims(result) if claim.paper.startswith("HA is above")]
    assert "in no cycle to the end" in said.measured
    assert not said.holds
