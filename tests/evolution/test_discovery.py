"""Learning what ranks hubs: on small webs, to a file that a crawl plans by."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.ranking import GOLDEN
from scrapy_gp4c.settings import Settings
from tests.support.growing import crawl, random_web
from tests.support.live_replay import CYCLE_STEP
from training import evaluate, report
from training.evolution.discovery import (
    REPLAYS,
    DiscoveryCandidate,
    DiscoveryChoices,
    LearnedDiscovery,
    learn_discovery,
    learn_jointly,
    write_discovery,
)
from training.evolution.evolve import Parameters, canonical
from training.evolution.workers import workers
from training.histories.growth import NO_FINDER, GrowthHistory, read_growth, write_growth
from training.histories.history import ChangeHistory
from training.learn import main
from training.replaying.growth import HUBS, GrowthCrawl, GrowthReplay, replay_growth

SMALL = Parameters(("brought", "brought_t", "t", "w"), population=12, generations=3, start="named")


def choices_of(seed: int = 0, budget: float = 0.1) -> DiscoveryChoices:
    crawl_ = GrowthCrawl(budget, load("t"), table.load("top_k"), load(HUBS), 0.5, 2, seed)
    return DiscoveryChoices(crawl_, "visits", SMALL, 2, 7)


def learned_from(grown: GrowthHistory, choices: DiscoveryChoices, scores: list[float]) -> LearnedDiscovery:
    with workers(1) as parallel:
        return learn_discovery(grown, choices, parallel, lambda number, best: scores.append(best))


def same(one: DiscoveryCandidate, other: DiscoveryCandidate) -> bool:
    """Whether two candidates are one and did the same."""
    return one[:4] == other[:4] and one.replayed.current.tobytes() == other.replayed.current.tobytes()


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(2, 14))
def test_a_part_has_what_could_be_known_of_it(seed: int, last: int) -> None:
    """Pages born by its end with whoever leads to them, their changes and claims up to it."""
    grown = random_web(seed)
    rng = np.random.default_rng(seed)
    claims = np.zeros(20, DATED_CLAIM)
    claims["cycle"] = np.sort(rng.integers(1, 15, 20))
    claims["page"] = rng.integers(0, grown.history.pages, 20)
    grown = GrowthHistory(grown.history, grown.born, grown.finder, claims)
    part = grown.until(last)
    pages = np.flatnonzero(grown.born <= last)  # a page of this web is never older than its finder
    assert part.history.cycles == last
    assert part.history.changed.tolist() == grown.history.changed[:last, pages].tolist()
    assert part.history.weights.tolist() == grown.history.weights[pages].tolist()
    assert part.born.tolist() == grown.born[pages].tolist()
    position = {page: rank for rank, page in enumerate(pages.tolist())} | {NO_FINDER: NO_FINDER}
    assert part.finder.tolist() == [position[page] for page in grown.finder[pages].tolist()]
    expected = [
        (position[page], cycle)
        for page, cycle in zip(claims["page"].tolist(), claims["cycle"].tolist(), strict=True)
        if cycle <= last and page in position
    ]
    assert list(zip(part.claims["page"].tolist(), part.claims["cycle"].tolist(), strict=True)) == expected
    assert grown.until(grown.history.cycles).born.tolist() == grown.born.tolist()


def test_what_hangs_on_a_later_page_is_left_out() -> None:
    """A chain whose first page is born late cannot be found earlier, whatever its own birth says."""
    born, finder = np.array([0, 5, 1, 1], np.int32), np.array([NO_FINDER, 0, 1, 2], np.int32)
    grown = GrowthHistory(ChangeHistory(np.zeros((6, 4), bool), np.zeros(4, int)), born, finder)
    assert grown.until(4).born.tolist() == [0]
    assert grown.until(5).finder.tolist() == [NO_FINDER, 0, 1, 2]


@pytest.mark.slow
def test_learning_is_never_worse_by_what_it_chooses_by() -> None:
    """The default stands for selection too; a second run learns the same; later cycles have no say."""
    grown, choices = random_web(3, pages=60, cycles=24), choices_of()
    calls: list[float] = []
    learned = learned_from(grown, choices, calls)
    assert learned.best.selected >= learned.default.selected
    assert len(calls) == SMALL.generations
    assert calls == sorted(calls)
    again = learned_from(grown, choices, [])
    assert same(learned.best, again.best)
    assert learned.ends == (13, 18)
    changed = grown.history.changed.copy()
    changed[18:] = ~changed[18:] & (grown.born < 18)
    later = ChangeHistory(
        changed,
        grown.history.site,
        grown.history.weight,
        page_names=grown.history.page_names,
        key=grown.history.key,
    )
    other = learned_from(GrowthHistory(later, grown.born, grown.finder), choices, [])
    assert (other.best.text, *other.best[1:3]) == (learned.best.text, *learned.best[1:3])
    assert other.best.test != learned.best.test


def test_of_equals_the_default_is_taken() -> None:
    """Where the budget is enough for all hubs, nothing that ranks them is any better."""
    choices = choices_of(budget=1.0)
    learned = learned_from(random_web(1), choices, [])
    assert learned.best.text == learned.default.text == canonical(parse(HUBS)).text
    assert learned.best.replayed.current.tolist() == [1.0] * 12


def test_a_crawl_plans_by_what_was_learned(tmp_path: Path) -> None:
    """It loads the file, and visits every page in the cycle in which the replay did."""
    seed = (CYCLE_STEP * pow(GOLDEN, -1, 2**64)) % 2**64
    grown, choices = random_web(8), choices_of(seed, budget=0.2)
    learned = learned_from(grown, choices, [])
    path = tmp_path / "discovery.json"
    write_discovery(path, learned, choices, grown)
    content = json.loads(path.read_text())
    assert (content["format"], content["fitness"], content["clock"]) == ("gp4c-score/1", "current", "visits")
    assert content["test"] == {"current": learned.best.test}
    assert content["parameters"]["score_function"] == "t"
    settings = {
        "GP4C_DISCOVERY_FUNCTION": str(path),
        "GP4C_DISCOVERY": 0.5,
        "GP4C_SCORE_FUNCTION": "t",
        "GP4C_BUDGET": 0.2,
    }
    function = Settings.load(ScrapySettings(settings)).discovery_function
    assert function.expression is not None
    assert function.expression.text == content["expression"]
    crawled = crawl(tmp_path / "store", grown, settings)
    seeds = range(seed, seed + REPLAYS)
    crawls = [GrowthCrawl(0.2, load("t"), table.load("top_k"), function, 0.5, 2, one) for one in seeds]
    replayed = [replay_growth(grown, one) for one in crawls]
    assert (
        np.mean([one.current for one in replayed], axis=0).tobytes()
        == learned.best.replayed.current.tobytes()
    )
    assert learned.best.replayed.delay.tolist() == [delay for one in replayed for delay in one.delay.tolist()]
    assert learned.best.replayed.coverage == pytest.approx(np.mean([one.coverage for one in replayed]))
    web = GrowthReplay(grown, crawls[0])
    for cycle in range(1, grown.history.cycles + 1):
        web.cycle(cycle)
    known = np.flatnonzero(web.known)
    assert {page: int(web.state["entered"][page]) for page in known} == crawled.first_visit


@pytest.mark.slow
def test_joint_learning_beats_each_function_alone() -> None:
    """Functions learned by turns are those of one crawl, which does better than the crawl before, or as well.

    The oracle replays the crawl of the learned functions anew and takes the means itself.
    """
    grown, choices = random_web(5, pages=40, cycles=16), choices_of()
    few = replace(SMALL, population=6, generations=2)
    crawl_before = replace(choices.crawl, new_pages=2, from_start=True)
    first_visit_terminals = replace(few, terminals=("cash", "link_depth", "waited"))
    joint = [
        DiscoveryChoices(crawl_before, "visits", few, 1, 7, "hub_function"),
        DiscoveryChoices(crawl_before, "visits", first_visit_terminals, 1, 7, "new_page_function"),
        DiscoveryChoices(
            crawl_before, "visits", replace(few, terminals=("t", "X", "w")), 1, 7, "score_function"
        ),
    ]
    with workers(1) as parallel:
        learned = learn_jointly(grown, joint, parallel)
    assert [one.target for one, _ in learned] == [one.target for one in joint]
    crawl_after = learned[-1][0].crawl_by(learned[-1][1].best.text)

    def selected(crawl: GrowthCrawl) -> float:
        replays = [replay_growth(grown, replace(crawl, seed=seed)).current for seed in range(REPLAYS)]
        first, second = learned[0][1].ends[0] - crawl.warmup, learned[0][1].ends[1] - crawl.warmup
        means = np.mean(replays, axis=0)
        return float(means[:first].mean() + means[first:second].mean())

    assert selected(crawl_after) == learned[-1][1].best.selected
    assert selected(crawl_after) > selected(crawl_before)
    for one, result in learned:  # a last turn that changed nothing, or the crawl that it left
        function = getattr(crawl_after, one.target)
        assert function.expression.text == result.best.text


def test_what_tells_nothing_of_discovery_is_refused() -> None:
    """Too few cycles, or none of them bears a page in the part that is learned from."""
    with pytest.raises(
        LearningError, match=r"5 cycles, 3 of them after a warm-up of 2; .* at least 4: record"
    ):
        learned_from(random_web(1, cycles=5), choices_of(), [])
    grown = random_web(1)
    old = GrowthHistory(grown.history, np.where(grown.born > 0, 14, 0).astype(np.int32), grown.finder)
    with pytest.raises(LearningError, match="no page of memory is born in its first 8 cycles"):
        learned_from(old, choices_of(), [])


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Learns, tells what it is worth, and what to put into the settings."""
    write_growth(tmp_path / "grown.npz", random_web(2, pages=50, cycles=16))
    how = ["--population", "6", "--generations", "2", "--seeds", "1", "--jobs", "1", "--budget", "0.1"]
    arguments = [str(tmp_path / "grown.npz"), "--growth", "-o", str(tmp_path / "d.json"), *how]
    assert main([*arguments, "--score", "t", "--terminals", "t,w"]) == 0
    printed = capsys.readouterr()
    assert "GP4C_DISCOVERY_FUNCTION" in printed.out
    assert "generation 2 of 2: best" in printed.err
    content = json.loads((tmp_path / "d.json").read_text())
    assert content["parameters"]["terminals"] == ["brought", "brought_t", "t", "w"]
    assert content["parameters"]["budget"] == 0.1
    assert load(str(tmp_path / "d.json")).expression is not None
    assert main([*arguments, "--jointly", "--new-pages", "5", "--score", "t", "--terminals", "t,w"]) == 0
    joint_output = capsys.readouterr().out
    for name, setting in (("d", "SCORE"), ("d-hub", "DISCOVERY"), ("d-new_page", "NEW_PAGE")):
        assert f'GP4C_{setting}_FUNCTION = "{tmp_path / name}.json"' in joint_output
        assert json.loads((tmp_path / f"{name}.json").read_text())["fitness"] == "current"
    by = ["--score", str(tmp_path / "d.json"), "--discovery-function", str(tmp_path / "d-hub.json")]
    by += ["--new-page-function", str(tmp_path / "d-new_page.json"), "--discovery", "0.1", "--seed", "0"]
    by += ["--policy", "top_k"]
    evaluated = ["--growth", "--new-pages", "5", "--budget", "0.1", "--json", str(tmp_path / "e.json"), *by]
    assert evaluate.main([str(tmp_path / "grown.npz"), *evaluated]) == 0
    functions = [load(str(tmp_path / f"{name}.json")) for name in ("d", "d-hub", "d-new_page")]
    crawl_after = GrowthCrawl(0.1, functions[0], table.load("top_k"), functions[1], new_pages=5)
    crawl_after = replace(crawl_after, new_page_function=functions[2])
    result = replay_growth(read_growth(tmp_path / "grown.npz"), crawl_after)
    (row,) = json.loads((tmp_path / "e.json").read_text())
    assert row["change_rate"] == result.change_rate
    capsys.readouterr()
    assert report.main([str(tmp_path / "d-hub.json")]) == 2
    assert "is a discovery function, which ranks hubs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--front", "--fitness", "freshness"], "--fitness, --front: of what ranks pages, not hubs"),
        (["--promote", "score.json"], "--promote: of what ranks pages"),
        (["--discovery", "0"], "--discovery: expected a share above 0, at most 1; found 0.0"),
        (["--score", "nothing at all"], "nothing at all"),
    ],
)
def test_options_that_do_not_go_with_growth(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error, and no file."""
    write_growth(tmp_path / "grown.npz", random_web(2))
    assert main([str(tmp_path / "grown.npz"), "--growth", "-o", str(tmp_path / "d.json"), *more]) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "d.json").exists()


def test_a_history_of_changes_alone_is_no_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says what would be."""
    (tmp_path / "h.txt").write_text("0101\n1010\n")
    assert main([str(tmp_path / "h.txt"), "--growth", "-o", str(tmp_path / "d.json")]) == 2
    assert "tells nothing of growth" in capsys.readouterr().err.replace("\n", " ")
