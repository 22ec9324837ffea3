"""The panel: which pages are in it, their shadows, and what they tell about the other pages."""

import os
import signal
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from scrapy.settings import Settings as ScrapySettings

from benchmarks.panel import SCENARIOS, OpenVisits, coverage
from benchmarks.simulated_crawl import crawl, crawl_store, texts_of
from scrapy_gp4c.commands.status import STATUS
from scrapy_gp4c.crawling import control_group
from scrapy_gp4c.crawling.control_group import Tally, describe_estimates, estimates, predict
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.fingerprint import differ, is_changed
from scrapy_gp4c.page_state.columns import in_panel
from scrapy_gp4c.page_state.groups import Directories
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, KINDS, VISIT, WARMUP
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.ranking import draws
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import SHADOW
from tests.page_state.test_related import Plain, Visit, Web
from tests.support.loopback import Site
from tests.support.stores import pages
from training.histories.neighbours import PageDirectories

FINGERPRINTS = st.lists(st.sampled_from([0, 1, 3, 7, 15, 2**63, 2**64 - 1]), min_size=1, max_size=8)


@given(FINGERPRINTS, FINGERPRINTS, st.integers(1, 64))
def test_texts_differ_as_the_crawl_says(first: list[int], second: list[int], bits: int) -> None:
    """The same rule as for a visit, for arrays."""
    pairs = list(zip(first, second, strict=False))
    a, b = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    assert differ(a, b, bits).tolist() == [is_changed(x, y, bits) for x, y in pairs]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_share_keeps_the_panel_of_a_smaller_one(first: float, second: float) -> None:
    """The key alone decides; the share is met."""
    keys = np.random.default_rng(0).integers(0, 2**64, 2000, dtype=np.uint64)
    small, large = (in_panel(keys, share) for share in sorted((first, second)))
    assert not (small & ~large).any()
    assert abs(large.mean() - max(first, second)) < 5 * 0.5 / 2000**0.5
    assert in_panel(keys, 1.0).all()
    assert not in_panel(keys, 0.0).any()


def test_wilsons_interval() -> None:
    """10 of 100, for very many others: 5.52% to 17.44%, as in any textbook; for few, wider."""
    share = predict(10, 100, 10**12)
    assert share == pytest.approx((0.1, 0.05523, 0.17437), abs=1e-5)
    assert predict(10, 100, 100) == pytest.approx(predict(5, 50, 10**12), abs=1e-9)
    assert predict(0, 0, 5) is None


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 500), st.data())
def test_estimates_are_shares_within_their_intervals(
    unchosen: int, judged: int, others: int, data: Any
) -> None:
    """Whatever was counted; without unvisited pages they are the exact truth."""
    outdated = data.draw(st.integers(0, unchosen))
    changed = data.draw(st.integers(0, judged))
    first = data.draw(st.integers(0, 9))
    result = estimates(Tally(unchosen, unchosen, outdated), judged + others, judged, changed, first)
    if not judged + others or (others and not unchosen):
        assert result is None
        return
    assert result is not None
    for name in ("changed_share", "freshness"):
        share = result[name]
        assert -1e-12 <= share["low"] <= share["estimate"] <= share["high"] <= 1.0 + 1e-12
    if not others:
        assert result["changed_share"]["low"] == result["changed_share"]["high"] == changed / judged
        assert result["freshness"]["low"] == 1.0
    assert "%" in describe_estimates(result)


def make(**given_settings: Any) -> Settings:
    return Settings.load(ScrapySettings({f"GP4C_{name}": value for name, value in given_settings.items()}))


def random_web(seed: int, pages: int, cycles: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts and keys of pages with very different change rates."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(0.4, 1.5, pages)
    texts = texts_of(rng.random((cycles, pages)) < rate, rng)
    return texts, rng.integers(0, 2**64, pages, dtype=np.uint64)


@settings(max_examples=25)
@given(
    st.integers(0, 1000), st.integers(1, 3), st.sampled_from(["t*X", "age", "nad", "random"]), st.booleans()
)
def test_shadows_equal_a_model(seed: int, warmup: int, score: str, failures: bool) -> None:
    """Page by page in plain Python: visited when the score reaches the cut, compared with that copy."""
    texts, keys = random_web(seed, 60, 9)
    chosen = make(PANEL=0.4, BUDGET=0.6, WARMUP_VISITS=warmup, SCORE_FUNCTION=score, SEED=seed)
    failing = np.random.default_rng(seed).random(texts.shape) < 0.15 if failures else None
    model: dict[int, dict[str, Any]] = {}
    start: list[dict[str, int]] = []
    copies: list[int] = []
    for done in crawl(texts, chosen, keys, failing):
        cycle, plan = done.record["cycle"], done.record["plan"]
        unchosen = outdated_unchosen = judged = 0
        draw = dict(zip(keys.tolist(), draws(keys, seed, cycle).tolist(), strict=True))
        for visit in done.visits:
            page = int(visit["page"])
            if visit["kind"] == KINDS.index("panel") and page not in model:
                model[page] = {**start[page], "copy": copies[page]}
            if page not in model or visit["outcome"] not in JUDGED:
                continue
            mine, text = model[page], int(texts[cycle - 1, page])
            t, rate = cycle - mine["last_cycle"], mine["X"] / mine["n"] if mine["n"] else 0.0
            value = {
                "t*X": t * mine["X"],
                "age": t,
                "nad": -np.expm1(-rate * t),
                "random": draw[int(keys[page])] * 2.0**-64,
            }[score]
            rank = (-value, draw[int(keys[page])])
            (cut,) = [one and (-one[0], one[1]) for one in plan["cuts"]]
            visited = plan["ranked"] == plan["rankable"] or (plan["ranked"] > 0 and rank <= cut)
            outdated = text != mine["copy"]
            judged += 1
            unchosen += not visited
            outdated_unchosen += not visited and outdated
            if visited:
                mine.update(n=mine["n"] + 1, X=mine["X"] + outdated, last_cycle=cycle, copy=text)
        names = ("n", "X", "last_cycle")
        results = {
            int(s["page"]): {**{name: int(s[name]) for name in names}, "copy": int(s["copy"])}
            for s in done.shadows
        }
        assert results == model
        estimated = done.record["panel"]
        if estimated is not None:
            assert estimated["judged"] == judged
            assert (estimated["unchosen"], estimated["outdated"]) == (unchosen, outdated_unchosen)
        start = [{name: int(done.state[name][page]) for name in names} for page in range(60)]
        copies = done.state["fingerprint"].tolist()


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 1000), st.sampled_from(["top_k", "rounds(rounds=3)"]), st.booleans())
@example(13, "top_k", True)  # pages that failed are still in the warm-up when others are ranked
def test_shadows_are_told_of_related_pages_as_if_their_own_were_no_panel_page(
    seed: int, policy: str, failures: bool
) -> None:
    """Page by page in plain Python: its visits as a panel page taken out, those of its shadow put in."""
    texts, keys = random_web(seed, 60, 12)
    score = "t * near + rate_site * surprise_dir + near_site * surprise_site + near_dir + 0.125 * spent"
    chosen = make(PANEL=0.5, BUDGET=0.75, SCORE_FUNCTION=score, POLICY=policy, SEED=seed)
    failing = np.random.default_rng(seed).random(texts.shape) < 0.15 if failures else None
    if failing is not None:
        failing[0] = False
    directory = [page // 5 for page in range(60)]
    site = [number // 4 for number in range(12)]
    around = PageDirectories(np.array(directory), Directories(np.array(site), 3))
    real: list[Visit] = []
    mine: dict[int, list[Visit]] = {}
    decided = 0
    for done in crawl(texts, chosen, keys, failing, around):
        cycle, plan, rounds = done.record["cycle"], done.record["plan"], done.record["rounds"]
        judged = [
            Visit(cycle, int(one["page"]), bool(one["outcome"] == CHANGED), one["kind"] == WARMUP)
            if one["outcome"] in JUDGED
            else None
            for one in done.visits
        ]
        state = {int(shadow["page"]): shadow for shadow in done.shadows}
        seen_now = {visit.page for visit in judged if visit}
        for page, shadow in state.items():
            mine.setdefault(page, [visit for visit in real if visit.page == page])
            if page not in seen_now or not 0 < plan["ranked"] < plan["rankable"]:
                assert page not in seen_now or shadow["last_cycle"] == cycle or not plan["ranked"]
            elif len(mine[page]) >= 2:
                reached, close = False, False
                for number, (cut, one) in enumerate(zip(plan["cuts"], rounds, strict=True)):
                    of_sites = {key: cuts for key, *cuts in plan["site_cuts"][number]}
                    cut = of_sites.get(site[directory[page]], cut)
                    spent = sum(part["planned"] for part in rounds[:number])
                    spent -= sum(plan[kind] for kind in ("panel", "warmup", "new")) if number else 0
                    visits = [visit for visit in judged[: one["seen"]] if visit and visit.page != page]
                    others = [visit for visit in real if visit.page != page]
                    web = Web(directory, site, [1] * 60, sorted(others + mine[page]) + visits, cycle, 0.0)
                    value = Plain(web).values(page)
                    score_now = (
                        (cycle - max(visit.cycle for visit in mine[page])) * value["near"]
                        + value["rate_site"] * value["surprise_dir"]
                        + value["near_site"] * value["surprise_site"]
                        + value["near_dir"]
                        + 0.125 * spent / plan["budget"]
                    )
                    reached |= cut is not None and score_now > cut[0]
                    close |= cut is not None and abs(score_now - cut[0]) < 1e-6
                assert close or reached == (shadow["last_cycle"] == cycle), (cycle, page)
                decided += not close
            if shadow["last_cycle"] == cycle and page in seen_now:
                result = shadow["found_cycle"] == cycle
                mine[page].append(Visit(cycle, page, bool(result)))
        real += [visit for visit in judged if visit]
    assert decided > 20


def test_shadows_are_scored_by_the_weights_of_their_pages(tmp_path: Path) -> None:
    """Shadows of pages that weigh more would have been visited more often."""
    texts, keys = random_web(2, 200, 8)
    urls = [f"http://h{page // 50}/{page // 10}/{page}" for page in range(200)]
    with Store(tmp_path / "s") as store:
        store.add_pages((int(key), {"url": url}) for key, url in zip(keys, urls, strict=True))
        store.put_weights(np.arange(100), np.full(100, 50.0))
    crawl_store(
        tmp_path / "s", texts, make(PANEL=0.3, BUDGET=0.4, SEED=3, SCORE_FUNCTION="w * t"), keys, urls
    )
    with Store(tmp_path / "s") as store:
        assert store.verify() == []
        shadows = store.shadows(store.last_cycle)
    heavy = shadows["page"] < 100
    assert shadows["n"][heavy].mean() > 1.5 * shadows["n"][~heavy].mean()


def test_where_all_is_visited_a_shadow_is_its_page() -> None:
    """With a budget for everything there is no difference between panel pages and others."""
    texts, keys = random_web(1, 80, 8)
    *_, last = crawl(texts, make(PANEL=0.5, BUDGET=1.0), keys)
    assert len(last.shadows) > 20
    for name in terminals.STATE:
        assert np.array_equal(last.shadows[name], last.state[name][last.shadows["page"]])
    assert last.record["panel"]["freshness"]["estimate"] == 1.0


def planned_with_cut(score: float, rankable: int) -> dict[str, Any]:
    """Of a cycle's record, a plan of one page, which ended at this score."""
    beside = dict.fromkeys(("hub", "panel", "warmup", "new"), 0)
    plan = {"ranked": 1, "rankable": rankable, "budget": 1, "cuts": [(score, 0)], "copies": 2, **beside}
    return {"plan": plan, "rounds": [{"planned": 1, "seen": 0}]}


def test_a_text_that_changes_back_is_no_change_for_the_shadow() -> None:
    """The panel page sees both changes; a page visited before and after them sees none."""
    shadows = np.zeros(1, SHADOW)
    shadows["copy"] = shadows["current"] = 0xFF
    record = {"cycle": 5, "formula": "t", "clock": "visits", "seed": 0}
    record |= planned_with_cut(100.0, rankable=9)
    visits = np.zeros(1, VISIT)
    visits["outcome"] = CHANGED
    for text, outdated in ((0xFFFF, 1), (0xFF, 0)):
        visits["fingerprint"] = text
        shadows, tally = control_group.advance(OpenVisits(visits), visits, shadows, record, 0, 3)
        assert tally == Tally(1, 1, outdated)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_intervals_cover_the_truth(scenario: str) -> None:
    """Too few or too many of 60 runs would have a chance of 0.1% with a coverage of 93% to 97%."""
    runs = 60
    for covered in coverage(scenario, runs, pages=2000).values():
        assert binom.ppf(0.001, runs, 0.93) <= covered <= binom.ppf(0.999, runs, 0.97)


def run_cycles(path: Path, cycles: int, **given_settings: Any) -> list[dict[str, Any]]:
    """Crawl, or go on crawling, a web of 200 pages with the live classes; returns the cycle records."""
    texts, keys = random_web(2, 200, cycles)
    urls = [f"http://h{page // 50}/{page // 10}/{page}" for page in range(200)]
    crawl_store(path, texts, make(PANEL=0.3, BUDGET=0.4, SEED=3, **given_settings), keys, urls)
    with Store(path) as store:
        return store.cycles()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Records of nine cycles without a kill."""
    return run_cycles(tmp_path_factory.mktemp("store") / "whole", 9)


@pytest.mark.parametrize("where", ["before the plan counts", "before", "after", "in the fold"])
def test_a_kill_while_a_cycle_closes_changes_no_estimate(
    tmp_path: Path, undisturbed: list[dict[str, Any]], where: str
) -> None:
    """kill -9 around the writing of the shadows: the resumed cycle and all later ones estimate the same."""
    expected = undisturbed
    assert any(record["panel"] for record in expected)
    child = os.fork()
    if not child:
        deadly = {
            "before the plan counts": (Store, "add_round"),
            "before": (Store, "put_shadows"),
            "after": (fold, "fold"),
            "in the fold": (fold, "put_visits"),
        }[where]
        function = getattr(*deadly)
        calls = iter(range(1000))

        def kill(*arguments: Any, **fields: Any) -> Any:
            if next(calls) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **fields)

        setattr(*deadly, kill)
        run_cycles(tmp_path / "killed", 9)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    resumed = run_cycles(tmp_path / "killed", 9)
    assert [record["panel"] for record in resumed] == [record["panel"] for record in expected]
    assert [record["plan"] for record in resumed] == [record["plan"] for record in expected]


RELATED = {
    "POLICY": "rounds(rounds=4)",
    "SCORE_FUNCTION": "t * (rate_site + spent * spent) * near * sqrt(surprise_dir)",
}


@pytest.fixture(scope="module")
def related(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store of nine cycles without a kill, by a score function that reads related pages."""
    path = tmp_path_factory.mktemp("store") / "whole"
    assert all(len(record["plan"]["cuts"]) == 4 for record in run_cycles(path, 9, **RELATED))
    return path


@pytest.mark.parametrize(("plan", "visit"), [(13, -1), (35, -1), (-1, 700)])
def test_a_kill_between_rounds_that_read_related_pages_changes_nothing(
    tmp_path: Path, related: Path, plan: int, visit: int
) -> None:
    """kill -9 at a plan or a visit: cuts, draws, estimates and every logged visit are those without."""
    with Store(related) as store:
        expected = store.cycles()
    child = os.fork()
    if not child:
        add_round, record = Store.add_round, Store.record
        rounds, visits = iter(range(1000)), iter(range(100_000))

        def kill_at_plan(*arguments: Any, **about: Any) -> None:
            if next(rounds) == plan:
                os.kill(os.getpid(), signal.SIGKILL)
            add_round(*arguments, **about)

        def kill_at_visit(*arguments: Any) -> None:
            if next(visits) == visit:
                os.kill(os.getpid(), signal.SIGKILL)
            record(*arguments)

        Store.add_round = kill_at_plan  # type: ignore[method-assign]
        Store.record = kill_at_visit  # type: ignore[method-assign]
        run_cycles(tmp_path / "killed", 9, **RELATED)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    resumed = run_cycles(tmp_path / "killed", 9, **RELATED)
    assert [record["panel"] for record in resumed] == [record["panel"] for record in expected]
    assert [record["plan"] for record in resumed] == [record["plan"] for record in expected]
    names = ["page", "kind", "outcome", "fingerprint"]
    logs = []
    for path in (related, tmp_path / "killed"):
        with Store(path) as store:
            assert store.verify() == []
            logs.append([(cycle, rows[names].tolist()) for cycle, rows in store.visits()])
            logs[-1] += [store.group_visits(cycle).tolist() for cycle in range(1, 10)]
    assert logs[0] == logs[1]


def test_a_resumed_cycle_ranks_shadows_by_the_function_of_its_plan(tmp_path: Path) -> None:
    """The settings may name another score function by then: the plan was made with the recorded one."""
    shadows = np.zeros(2, SHADOW)
    shadows["n"], shadows["X"], shadows["last_cycle"] = 9, [0, 5], [1, 8]
    record = {"cycle": 10, "clock": "visits", "seed": 0}
    record |= planned_with_cut(5.0, rankable=3)
    visits = np.empty(0, VISIT)
    store: Any = OpenVisits(visits)
    for formula, expected in (("t", [True, False]), ("t * X", [False, True])):
        visited, _ = control_group.choose_shadows(store, visits, shadows, {**record, "formula": formula}, 2)
        assert visited.tolist() == expected


def test_a_dotted_path_in_a_record_is_the_settings_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store is data: what its record names is not imported; the same in the settings is taken."""
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a')\nscore = lambda t: t['X']\n")
    monkeypatch.syspath_prepend(tmp_path)
    shadows = np.zeros(2, SHADOW)
    shadows["page"], shadows["n"], shadows["X"] = [0, 1], 9, [0, 5]
    record = {"cycle": 10, "clock": "visits", "seed": 0, "formula": "planted.score"}
    record |= planned_with_cut(5.0, rankable=3)
    in_force = Settings.load(ScrapySettings({"GP4C_PANEL": 0.5}))
    with Store(tmp_path / "s") as store:
        store.add_pages(pages(2))
        store.begin_cycle({})
        visits = store.open_visits()
        with pytest.raises(ScoreError, match="only settings may name"):
            control_group.choose_shadows(store, visits, shadows, record, 2, functions.load("t"))
        assert control_group.close_cycle(store, record, in_force) is None
        assert not (tmp_path / "ran").exists()
        function = functions.load("planted.score")
        assert control_group.choose_shadows(store, visits, shadows, record, 2, function)[0].tolist() == [
            False,
            False,
        ]


@pytest.mark.slow
async def test_a_crawl_shows_what_goes_on_elsewhere(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Log line, stats, cycle record and `scrapy gp4c status` of a real crawl; the panel within the budget."""
    from tests.support.loopback import Pages, html, stats
    from tests.support.loopback import crawl as run_spider

    words = "a page of a few words about subject number"
    paths = [f"/page/{number}" for number in range(40)]

    results = {}
    for day in range(6):
        for number, path in enumerate(paths):
            version = day if number % 2 else 0
            site.pages[path] = html(f"{words} {number}: " + " ".join(f"{word}{version}" for word in "abcdef"))
        caplog.clear()
        with caplog.at_level("INFO"):
            half = {"GP4C_PANEL": 0.5, "GP4C_BUDGET": 0.75}
            results = stats(await run_spider(Pages, tmp_path / "s", half, site=site))
    with Store(tmp_path / "s", readonly=True) as store:
        record = store.cycles()[-1]
        keys = np.concatenate([block["key"] for _, block in store.blocks()])
    pages = int(in_panel(keys, 0.5).sum())
    assert 5 < pages < 30
    assert record["plan"]["panel"] == record["panel"]["judged"] == pages
    assert record["plan"]["panel"] + record["plan"]["ranked"] == 30
    line = next(message for message in caplog.messages if "finished" in message and "Cycle 6" in message)
    assert f"by a panel of {pages} pages" in line
    shown = SimpleNamespace(
        open_store=lambda: Store(tmp_path / "s", readonly=True),
        settings=make(),
        spider_class=Pages,
    )
    STATUS(shown, Namespace(cycles=1, json=False))  # type: ignore[arg-type] # no project
    assert f"cycle 6; by a panel of {pages} pages" in capsys.readouterr().out
    assert results["panel/freshness"] == record["panel"]["freshness"]["estimate"]
    assert results["panel/changed_share"] == record["panel"]["changed_share"]["estimate"]
