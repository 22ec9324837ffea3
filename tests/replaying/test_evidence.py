"""Evidence of a replay: the best pages, shared scores, and sums over recent visits."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.page_state.groups import count_visits, directories
from scrapy_gp4c.page_state.related import RecentVisits, Related
from scrapy_gp4c.policies.base import Block, PolicySettings, Round, Selection
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.policies.top_k import CycleScorer, best_candidates, scored_by
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.ranking import top_k
from scrapy_gp4c.scoring.terminals import ROUND, STATE, compute
from training.histories.history import ChangeHistory
from training.replaying import evidence as evidence_module
from training.replaying.dense import replay_dense
from training.replaying.evidence import (
    BestRows,
    GroupWindow,
    Level,
    PageStates,
    ReplayEvidence,
    RoundScores,
    SharedRows,
)
from training.replaying.metrics import METRICS
from training.replaying.prepared import prepare
from training.replaying.replay import load, run

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e300, -1e300, 0.1, 0.1 + 1e-16]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@pytest.mark.slow
@example([0.0, 0.0, 0.0, 0.0, -0.0], 2, 1)
@example([1.0, 2.0] * 60, 110, 1)
@given(st.lists(SCORES, min_size=1, max_size=80), st.integers(0, 80), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_it_selects_what_a_ranking_of_all_would(scores, k, seed):
    """The same rows in the same order as `top_k`, whatever the scores, with equal ties and large ones."""
    values = np.array(scores)
    rng = np.random.default_rng(seed)
    ties = rng.permutation(len(values)).astype(np.uint64)
    k = min(k, len(values))
    selection = BestRows(len(values))
    for few in (0, len(values) - 1, 100):  # its memory is used again
        with patch.object(evidence_module, "FEW", few):
            found = selection.best(values, k, lambda rows: ties[rows])
        assert found.tolist() == top_k(values, ties, k).tolist()


def test_ties_are_asked_for_where_they_decide():
    """The ties of chosen pages and of those at the border are computed, never those of all pages."""
    scores = np.arange(3000.0)
    scores[2600:2650] = 2600.0
    asked = []

    def ties_of(rows):
        asked.append(np.sort(rows).tolist())
        return rows.astype(np.uint64)

    BestRows(3000).best(scores, 375, ties_of)
    assert asked == [list(range(2600, 2650)), [*range(2600, 2625), *range(2650, 3000)]]


PAGES = 6


class _Asked(dict):
    """Columns that tell which of them were asked for."""

    def __init__(self, columns, asked):
        super().__init__(columns)
        self.asked = asked

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)


class _RoundPages:
    """Pages in two states and three directories."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state, self.group = self.rng.integers(0, 2, PAGES), self.rng.integers(0, 3, PAGES)
        self.own = {
            "last_cycle": self.rng.integers(0, 3, 2),
            "X": self.rng.integers(0, 5, 2),
            "spent": np.zeros(2),
        }
        self.draw = self.rng.integers(0, 2**63, PAGES).astype(np.uint64)
        self.move()

    def move(self):
        """Another round."""
        self.directory = {"near": self.rng.random(3)}
        self.surprise = self.rng.random(PAGES)

    def columns(self):
        """Columns of all pages."""
        own = {name: values[self.state] for name, values in self.own.items()}
        others = {"near": self.directory["near"][self.group], "surprise_site": self.surprise}
        return own | others | {"draw": self.draw}

    def scored(self, scores, scores_of):
        """Scores of all pages, and the columns that were read page by page."""
        asked = set()
        shared = {
            Level.OWN: SharedRows(self.own, self.state),
            Level.DIRECTORY: SharedRows(self.directory, self.group),
        }

        def states():
            for rows in (slice(0, 4), slice(4, PAGES)):
                yield rows, _Asked({name: values[rows] for name, values in self.columns().items()}, asked)

        if scores.parts_of(scores_of) is None:
            pages = np.arange(PAGES, dtype=np.uint32)
            blocks = ((rows, Block(pages[rows], state, lambda rows: rows)) for rows, state in states())
            return scores.of_blocks(scores_of, blocks), asked
        return scores.of_rows(scores_of.cycle, shared, states()), asked


def test_from_the_third_round_on_only_what_moves_is_read():
    """The second one puts draws aside, the third reads no page's; a cycle later all is read again."""
    pages, scores = _RoundPages(1), RoundScores(PAGES)
    scored = CycleScorer(functions.load("random * X * surprise_site * near"), 4)
    read = []
    for number in range(4):
        pages.move()
        if number == 3:
            scores.begin()
        told, asked = pages.scored(scores, scored)
        assert told.tobytes() == scored.function.scores(pages.columns(), 4).tobytes()
        read.append(asked)
    everything = {"draw", "X", "surprise_site"}
    assert [asked & everything for asked in read] == [
        everything,
        everything,
        {"surprise_site"},
        everything,
    ]


def test_another_function_is_told_by_itself():
    """Also in the middle of a cycle, and a callable is asked every time."""
    pages, scores = _RoundPages(2), RoundScores(PAGES)
    for text in ("t * near", "t * near", "X * near", "random * t", "X * near", "random * t", "t * near"):
        function = functions.load(text)
        told, _ = pages.scored(scores, CycleScorer(function, 4))
        assert told.tobytes() == function.scores(pages.columns(), 4).tobytes()
    told, _ = pages.scored(scores, lambda block: block.state["X"] * 2.0)
    assert told.tolist() == (pages.columns()["X"] * 2.0).tolist()


@pytest.mark.parametrize(
    "text",
    [
        "t * (X + 0.5) * near",
        "near * t",
        "near * near",
        "near",
        "t + spent",
        "log(t) - near / X",
        "1e300 * X * (1e300 * near)",
        "(t + spent) * near * sqrt(surprise_site)",
    ],
)
def test_pages_that_share_a_part_read_nothing_of_their_own_for_it(text):
    """Scores are those of the function bit for bit; an own state or a directory is told once."""
    pages, scores = _RoundPages(3), RoundScores(PAGES)
    scored = CycleScorer(functions.load(text), 4)
    told, asked = pages.scored(scores, scored)
    assert told.tobytes() == scored.function.scores(pages.columns(), 4).tobytes()
    assert asked <= {"surprise_site", next(iter(pages.columns()))}


TALLIES = {metric.tally for metric in METRICS.values() if metric.tally is not None}


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=3)", "rounds(rounds=3, sample=0.3)"])
@pytest.mark.parametrize(
    "score",
    [
        "t * (X + 0.5) * near",
        "(t + spent) * X * size_lift",
        "p / near_dir - near_site",
        "random * surprise_dir",
    ],
)
def test_states_that_are_dropped_on_the_way_change_no_replay(score, policy):
    """All visits and all metrics are the same, however soon states without pages are dropped."""
    rng = np.random.default_rng(3)
    pages = 300
    names = [f"d{rng.integers(0, 9)}/{page}" for page in range(pages)]
    changed = rng.random((14, pages)) < rng.random(pages)
    site = rng.integers(0, 5, pages).astype(np.int32)
    history = ChangeHistory(changed, site, page_names=names, size=rng.integers(0, 9, pages))
    prepared = prepare(history, budget=0.2)
    replays = []
    for slack in (0, evidence_module.SLACK):
        visits = []
        with patch.object(evidence_module, "SLACK", slack):
            tallies = replay_dense(
                prepared,
                load(score),
                TALLIES,
                lambda cycle, pages, changed, to=visits: to.append((cycle, pages.tolist(), changed.tolist())),
                load_policy(policy),
            )
        replays.append((visits, {name: getattr(tallies, name).tolist() for name in TALLIES}))
    assert replays[0] == replays[1]


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def told(window, plain):
        for level in ("directory", "site"):
            for mine, other in ((window.window, plain.window), (window.this_cycle, plain.this_cycle)):
                for one, same in zip(mine(level), other(level), strict=True):
                    assert one.tolist() == same.tolist()

    window = GroupWindow(tree, finished)
    for cycle in range(1, 8):
        rows, changed = np.empty(0, np.intp), np.empty(0, np.bool_)
        for visits in (0, 30, 0, 7):
            own = rng.integers(0, 12, visits), rng.random(visits) < 0.5
            window.add(*own)
            rows, changed = np.append(rows, own[0]), np.append(changed, own[1])
            told(
                window,
                Related(tree, RecentVisits(cycle, finished, count_visits(rows, changed, None)), lambda: None),
            )
        finished = [count_visits(rows, changed, None), *finished]
        window.finish()
        told(window, Related(tree, RecentVisits(cycle, finished), lambda: None))
    told(GroupWindow(tree, finished), Related(tree, RecentVisits(cycle, finished), lambda: None))


class _Passing:
    """Evidence that must be gone through block by block."""

    def __init__(self, evidence):
        self.candidates, self.visits = evidence.candidates, evidence.visits


@given(
    seed=st.integers(0, 2**32),
    score=st.sampled_from(
        ["t * X", "t * near", "random", "t * rate_site * surprise_dir + spent", "size_lift", "-near"]
    ),
    ties=st.sampled_from(["random", "order"]),
    block_rows=st.integers(1, 30),
    k=st.integers(0, 40),
)
@settings(max_examples=60, deadline=None)
def test_ranking_all_at_hand_is_ranking_in_passing(seed, score, ties, block_rows, k):
    """Round for round: the same pages, scores and cut as a pass over the candidates finds."""
    rng = np.random.default_rng(seed)
    pages = 40
    history = ChangeHistory(
        changed=rng.random((6, pages)) < 0.3,
        site=rng.integers(0, 3, pages).astype(np.int32),
        page_names=[f"d{rng.integers(0, 4)}/{page}" for page in range(pages)],
        size=rng.integers(0, 4, pages),
    )
    prepared = prepare(history, budget=0.5, ties=ties, seed=seed % 100)
    with patch.object(evidence_module, "BLOCK_ROWS", block_rows):
        evidence = ReplayEvidence(prepared, (*STATE, *ROUND))
        settings_ = PolicySettings(functions.load(score), prepared.seed)
        for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
            evidence.begin(cycle, salt)
            for number in range(5):
                scores_of = scored_by(settings_, Round(cycle, number, k))
                one = best_candidates(scores_of, min(k, 10), evidence)
                other = best_candidates(scores_of, min(k, 10), _Passing(evidence))
                assert one.pages.tolist() == other.pages.tolist()
                assert one.scores.tobytes() == other.scores.tobytes()
                assert one.cut == other.cut
                evidence.visit(one, history.changed[cycle - 1, one.pages])
            evidence.observe()


def test_a_history_without_names_has_sites_alone():
    """Terminals of directories are refused by name, those of sites are known."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    assert run(prepared, "t * near_site * surprise_site * rate_site").k == 4
    for name in ("near", "near_dir", "surprise_dir"):
        with pytest.raises(ScoreError, match=f"the terminal '{name}' is told by the directories"):
            run(prepared, f"t * {name}")


def test_it_trusts_what_it_has_just_ranked_alone():
    """Not for a copy, for pages that were written to, or for those of a round before."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    evidence = ReplayEvidence(prepared, ("last_cycle", "X"))
    scores_of = scored_by(PolicySettings(functions.load("t * X"), 0), Round(3, 0, 4))
    evidence.begin(3, prepared.salts[0])
    chosen = evidence.best(scores_of, 4)
    assert evidence.trusts(chosen)
    assert not evidence.trusts(chosen._replace(pages=chosen.pages[::-1]))
    chosen.pages.flags.writeable = True
    assert not evidence.trusts(chosen)
    chosen = evidence.best(scores_of, 4)
    evidence.visit(chosen, np.zeros(4, np.bool_))
    assert not evidence.trusts(chosen)
    assert not evidence.may_visit(chosen.pages).any()


def history(clusters: bool) -> ChangeHistory:
    """Six pages of three clusters, which go across directories."""
    changed = np.random.default_rng(3).random((9, 6)) < 0.4
    found = ChangeHistory(changed, np.zeros(6, np.int32), page_names=[f"{n // 3}/{n}" for n in range(6)])
    if clusters:
        nobody = np.empty(0, np.intp)
        found.neighbours.groups_by_content = PageGroups(
            np.array([0, 1, 2, 0, 1, 2], np.int32), np.zeros((3, 3), np.int32), Links(nobody, nobody, 6), ""
        )
    return found


def test_clusters_are_told_from_their_visits() -> None:
    """In plain Python, in every round of every cycle: the share so far, begun with that of three cycles."""
    told = history(clusters=True)
    prepared = prepare(told, budget=4, warmup=2)
    names = ("cluster_now", "cluster_recent")
    evidence = ReplayEvidence(prepared, ("last_cycle", *names))
    cluster = [0, 1, 2, 0, 1, 2]
    log = [(cycle, page, bool(told.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)]
    draws = np.random.default_rng(1)
    for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
        evidence.begin(cycle, salt)
        pages = draws.permutation(6).astype(np.uint32)
        for part in (pages[:2], pages[2:4]):
            values = compute(names, evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)
            for page in range(6):
                own = [visit for visit in log if cluster[visit[1]] == cluster[page]]
                before = [hit for when, _, hit in own if cycle - 3 <= when < cycle]
                now = [hit for when, _, hit in own if when == cycle]
                recent = (sum(before) + 0.1) / (len(before) + 1)
                assert values["cluster_recent"][page] == recent
                assert values["cluster_now"][page] == (sum(now) + recent) / (len(now) + 1)
            found = told.changed[cycle - 1, part]
            evidence.visit(Selection(part, np.zeros(2), None), found)
            log += [(cycle, page, hit) for page, hit in zip(part.tolist(), found.tolist(), strict=True)]
        evidence.observe()


def test_without_clusters_their_terminals_are_one_error() -> None:
    """With the command that makes them."""
    assert run(prepare(history(clusters=True), budget=2), "t * cluster_now").k == 2
    with pytest.raises(ScoreError, match=r"python -m training\.cluster"):
        run(prepare(history(clusters=False), budget=2), "t * cluster_recent")


STATE_PAGES = 60


def _as_bits(values):
    return values.astype(np.float64).tobytes()


@given(seed=st.integers(0, 2**32), slack=st.sampled_from([0, 4096]))
@settings(max_examples=50, deadline=None)
def test_pages_have_what_observing_each_by_itself_gives(seed, slack):
    """Whatever is visited: all columns are those of pages that are observed one by one."""
    rng = np.random.default_rng(seed)
    expected = terminals.new_state(STATE_PAGES)
    with patch.object(evidence_module, "SLACK", slack):
        states = PageStates(terminals.new_state(1), np.zeros(STATE_PAGES, np.uint32))
        for cycle in range(1, 12):
            pages = rng.permutation(STATE_PAGES)[: rng.integers(0, STATE_PAGES)]
            changed = rng.random(len(pages)) < 0.4
            visited = {name: values[pages] for name, values in expected.items()}
            terminals.observe(visited, changed, cycle)
            for name, values in visited.items():
                expected[name][pages] = values
            states.observe(pages, changed, cycle)
            if cycle == 3:
                states["E"]  # kept for each page from now on
            for name, values in states.columns.items():
                assert _as_bits(values[states.number]) == _as_bits(expected[name])
            assert _as_bits(states["E"]) == _as_bits(expected["E"])
    assert _as_bits(states["X"]) == _as_bits(expected["X"])


def test_pages_in_equal_state_share_it():
    """Two ways to one state end in one; states without pages are dropped when they are many."""
    state = {name: values for name, values in terminals.new_state(1).items() if name in ("X", "last_cycle")}
    with patch.object(evidence_module, "SLACK", 0):
        states = PageStates(state, np.zeros(4, np.uint32))
        states.observe(np.array([0, 1]), np.array([True, False]), 1)
        states.observe(np.array([0, 1]), np.array([False, True]), 2)
        assert states.number[0] == states.number[1]
        assert states.number[2] == states.number[3]
        for cycle in range(3, 30):
            states.observe(np.array([0, 1]), np.array([False, False]), cycle)
        assert states.states <= 6
