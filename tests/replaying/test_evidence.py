"""Evidence of a replay: sums of visits by group, terminals of related pages, and what it trusts."""

import numpy as np
import pytest

from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.page_state.groups import count_visits, directories
from scrapy_gp4c.page_state.related import RecentVisits, Related
from scrapy_gp4c.policies.base import PolicySettings, Round, Selection
from scrapy_gp4c.policies.top_k import scored_by
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.terminals import compute
from training.histories.history import ChangeHistory
from training.replaying.evidence import GroupWindow, ReplayEvidence
from training.replaying.prepared import prepare
from training.replaying.replay import run


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def cycle_tallies(window, plain):
        for level in ("directory", "site"):
            for mine, other in ((window.window, plain.window), (window.this_cycle, plain.this_cycle)):
                for one, same in zip(mine(level), other(level), strict=True):
                    assert one.tolist() == same.tolist()

    window = GroupWindow(tree, finished)
    for cycle in range(1, 8):
        rows, changed = np.empty(0, np.intp), np.empty(0, np.bool_)
        for visits in (0, 30, 0, 7):
            drawn = rng.integers(0, 12, visits), rng.random(visits) < 0.5
            window.add(*drawn)
            rows, changed = np.append(rows, drawn[0]), np.append(changed, drawn[1])
            cycle_tallies(
                window,
                Related(tree, RecentVisits(cycle, finished, count_visits(rows, changed, None)), lambda: None),
            )
        finished = [count_visits(rows, changed, None), *finished]
        window.finish()
        cycle_tallies(window, Related(tree, RecentVisits(cycle, finished), lambda: None))
    cycle_tallies(GroupWindow(tree, finished), Related(tree, RecentVisits(cycle, finished), lambda: None))


def test_a_history_without_names_has_sites_alone():
    """Terminals of directories are refused by name, those of sites are known."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    assert run(prepared, "t * near_site * surprise_site * rate_site").k == 4
    for name in ("near", "near_dir", "surprise_dir"):
        with pytest.raises(ScoreError, match=f"the terminal '{name}' needs the directories"):
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


def clustered(clusters: bool) -> ChangeHistory:
    """Six pages of three clusters, which go across directories."""
    changed = np.random.default_rng(3).random((9, 6)) < 0.4
    result = ChangeHistory(changed, np.zeros(6, np.int32), page_names=[f"{n // 3}/{n}" for n in range(6)])
    if clusters:
        nobody = np.empty(0, np.intp)
        result.neighbours.groups_by_content = PageGroups(
            np.array([0, 1, 2, 0, 1, 2], np.int32), np.zeros((3, 3), np.int32), Links(nobody, nobody, 6), ""
        )
    return result


def test_clusters_are_told_from_their_visits() -> None:
    """In plain Python, in every round of every cycle: the share so far, begun with that of three cycles."""
    cycle_tallies = clustered(clusters=True)
    prepared = prepare(cycle_tallies, budget=4, warmup=2)
    names = ("cluster_now", "cluster_recent")
    evidence = ReplayEvidence(prepared, ("last_cycle", *names))
    cluster = [0, 1, 2, 0, 1, 2]
    log = [
        (cycle, page, bool(cycle_tallies.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)
    ]
    draws = np.random.default_rng(1)
    for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
        evidence.begin(cycle, salt)
        pages = draws.permutation(6).astype(np.uint32)
        for part in (pages[:2], pages[2:4]):
            values = compute(names, evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)
            for page in range(6):
                visits_of_cluster = [visit for visit in log if cluster[visit[1]] == cluster[page]]
                before = [hit for when, _, hit in visits_of_cluster if cycle - 3 <= when < cycle]
                now = [hit for when, _, hit in visits_of_cluster if when == cycle]
                recent = (sum(before) + 0.1) / (len(before) + 1)
                assert values["cluster_recent"][page] == recent
                assert values["cluster_now"][page] == (sum(now) + recent) / (len(now) + 1)
            result = cycle_tallies.changed[cycle - 1, part]
            evidence.visit(Selection(part, np.zeros(2), None), result)
            log += [(cycle, page, hit) for page, hit in zip(part.tolist(), result.tolist(), strict=True)]
        evidence.observe()


def test_without_clusters_their_terminals_are_one_error() -> None:
    """With the command that makes them."""
    assert run(prepare(clustered(clusters=True), budget=2), "t * cluster_now").k == 2
    with pytest.raises(ScoreError, match=r"python -m training\.cluster"):
        run(prepare(clustered(clusters=False), budget=2), "t * cluster_recent")
