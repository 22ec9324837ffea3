"""The papers' formulas and algorithms, written anew from their texts in exact fractions, beside ours.

"Journal" is Santos et al. 2014, "thesis" A. Santos 2013, T Tan et al. 2007, P Pandey & Olston 2005. Where a
text can be read in several ways, the reading is that of docs/lab/reproduction.md, and the test names it.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.policies.members import SampleOutcomes
from scrapy_gp4c.policies.sampling import PHIS
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.terminals import STATE
from tests.support import quality
from tests.support.policies import Memory
from training.clustering.clusters import nearest
from training.evolution.selection import SELECTIONS

ONE: Final = Fraction(1)


def weights(name: str, n: int) -> list[Fraction]:
    """Weights w_1..w_n of the estimators (journal 5.1)."""
    if name == "nad":
        return [Fraction(1, n)] * n
    if name == "sad":
        return [Fraction(0)] * (n - 1) + [ONE]
    if name == "aad":
        return [Fraction(2 * i, n * (n + 1)) for i in range(1, n + 1)]
    return [Fraction(2 ** (i - 1), 2**n - 1) for i in range(1, n + 1)]


def rate(name: str, changes: list[bool]) -> Fraction:
    """lambda_p = sum_i w_i I_i(p), I_i whether the page changed; 0 before the first observation."""
    return sum(
        (w for w, changed in zip(weights(name, len(changes)), changes, strict=True) if changed), ONE - 1
    )


def probability(rate_: Fraction, t: int) -> float:
    """phi = 1 - e^(-lambda t); the journal prints e^(lambda t), the sign is mended."""
    return -math.expm1(-float(rate_ * t))


VISITS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=60)


@given(VISITS, st.integers(1, 20), st.sampled_from(["visits", "cycles"]))
def test_terminals_are_the_printed_sums(visits: list[tuple[int, bool]], t: int, clock: str) -> None:
    """n, X, t, CG, NAD, SAD, AAD and GAD of the journal, section 5.1, to 2e-15.

    As printed the sums are over visits. On the clock of cycles, that of the authors' program, they are over
    all cycles since the first copy: a cycle without a visit counts as one without a change.
    """
    state = terminals.new_state(1)
    cycle, by_cycle = 0, []
    for gap, changed in visits:
        cycle += gap
        by_cycle += [False] * (gap - 1) + [changed]
        terminals.observe(state, np.array([changed]), cycle)
    outcomes = [changed for _, changed in visits] if clock == "visits" else by_cycle + [False] * (t - 1)
    n, X = len(visits), sum(changed for _, changed in visits)
    expected = {"n": n, "X": X, "t": t, "cg": -math.log(Fraction(2 * (n - X) + 1, 2 * n + 1))}
    expected |= {name: probability(rate(name, outcomes), t) for name in ("nad", "sad", "aad", "gad")}
    result = terminals.compute(tuple(expected), state, cycle + t, clock)  # type: ignore[arg-type]
    for name, value in expected.items():
        assert result[name][0] == pytest.approx(value, rel=2e-15, abs=2e-15), name


@given(*[st.lists(st.integers(0, 20).map(lambda x: Fraction(x, 20)), min_size=1, max_size=9)] * 2)
def test_selection_methods(training: list[Fraction], validation: list[Fraction]) -> None:
    """Sum and Avg (thesis 3.5): less the (population) standard deviation over all cycles of both sets."""
    values = training + validation
    mean = sum(values, Fraction(0)) / len(values)
    sigma = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    t, v = (sum(part, Fraction(0)) / len(part) for part in (training, validation))
    arrays = [np.array([float(value) for value in part]) for part in (training, validation)]
    assert SELECTIONS["sum"](*arrays) == pytest.approx(float(t + v) - sigma, abs=1e-12)
    assert SELECTIONS["avg"](*arrays) == pytest.approx(float(t + v) / 2 - sigma, abs=1e-12)


def directory_distance(seed: str, page: str) -> int:
    """d_DB (T, eq. 2) between http://u_1/.../u_m and http://v_1/.../v_n.

    Two readings: sign(m - n), not sign(n - m), as the text wants upper directories positive; and sign(0) = 1,
    as all pages of one depth would be at distance 0 otherwise.
    """
    u, v = (address.split("/") for address in (seed, page))
    m, n = len(u), len(v)
    c = next((i for i in range(min(m, n) - 1) if u[i] != v[i]), min(m, n) - 1)
    return ((m - c) + (n - c) - 2) * (1 if m >= n else -1)


SEGMENTS = st.lists(st.sampled_from("ab"), max_size=3)


@given(st.lists(SEGMENTS, min_size=2, max_size=9), st.integers(-4, 5))
def test_distances_in_directories(folders: list[list[str]], d: int) -> None:
    """Within d of the first page are the pages that equation 2 puts there, the nearest first."""
    addresses = ["/".join(["h", *folder, f"{number}.html"]) for number, folder in enumerate(folders)]
    places = [place_of_url(f"http://{address}") for address in addresses]
    grouping = groupings.tree_of_directories(
        np.arange(len(places)), [(place.site, place.directory) for place in places]
    )
    distances = [directory_distance(addresses[0], address) for address in addresses]
    expected = [
        {page for page, distance in enumerate(distances) if distance == (at if d >= 0 else -at)}
        for at in range(abs(d) + 1)
    ]
    rings = [set(ring.tolist()) for ring in grouping.rings(0, d)]
    assert [ring - {0} for ring in rings] == [ring - {0} for ring in expected[: len(rings)]]
    assert not any(expected[len(rings) :])


PAGES: Final = 7
LINKS = st.sets(st.tuples(st.integers(0, PAGES - 1), st.integers(0, PAGES - 1)), max_size=14).map(
    lambda links: sorted(link for link in links if link[0] != link[1])
)


def hops(links: list[tuple[int, int]], begin: int) -> dict[int, int]:
    """Page -> length of the shortest path to it, by relaxing every link as often as there are pages."""
    length = {begin: 0}
    for _ in range(PAGES):
        for source, target in links:
            if source in length:
                length[target] = min(length.get(target, PAGES), length[source] + 1)
    return length


@given(LINKS, st.integers(-4, 4))
def test_distances_along_links(links: list[tuple[int, int]], d: int) -> None:
    """d_LB (T, eq. 1): h hops along the links, -h against them, 0 for pages with a common parent.

    Siblings are at 0 although there are paths to them (Figure 1); the sign of d chooses the direction.
    """
    forward = hops(links, 0)
    backward = hops([(target, source) for source, target in links], 0)
    parents = {source for source, target in links if target == 0}
    siblings = {target for source, target in links if source in parents} | {0}
    reached = forward if d > 0 else backward
    expected = [siblings] + [
        {page for page, h in reached.items() if h == at} - siblings for at in range(1, abs(d) + 1)
    ]
    source, target = np.array(links, np.intp).reshape(-1, 2).T
    grouping = groupings.Links(source, target, PAGES)
    assert [set(ring.tolist()) for ring in grouping.rings(0, d)] == expected


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=8, unique=True))
def test_distances_of_clusters(centres: list[tuple[int, int]]) -> None:
    """d_CB (T, section 4.3): 0 within a cluster, 1 for the one with the nearest centroid, 2 for the next."""

    def squared(a: int, b: int) -> int:
        return sum((x - y) ** 2 for x, y in zip(centres[a], centres[b], strict=True))

    order = nearest(np.array(centres, float))
    for cluster, ranked in enumerate(order.tolist()):
        assert sorted(ranked) == list(range(len(centres)))
        assert ranked[0] == cluster
        distances = [squared(cluster, other) for other in ranked]
        assert distances == sorted(distances)
        rings = [ring.tolist() for ring in groupings.ClusterRanks(order).rings(cluster, 1)]
        assert rings == [[cluster], [ranked[1]]]


@given(LINKS)
def test_page_rank_is_equation_9(links: list[tuple[int, int]]) -> None:
    """PR = (1 - d) / N + d sum PR / OL, solved by elimination in fractions; dangling pages link to all."""
    damping = Fraction(85, 100)
    out = {
        page: [target for source, target in links if source == page] or list(range(PAGES))
        for page in range(PAGES)
    }
    rows = [
        [
            Fraction(page == other) - damping * Fraction(out[other].count(page), len(out[other]))
            for other in range(PAGES)
        ]
        + [(1 - damping) / PAGES]
        for page in range(PAGES)
    ]
    for pivot in range(PAGES):
        rows[pivot] = [value / rows[pivot][pivot] for value in rows[pivot]]
        for other in range(PAGES):
            if other != pivot:
                factor = rows[other][pivot]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    source, target = np.array(links, np.intp).reshape(-1, 2).T
    result = groupings.Links(source, target, PAGES).page_rank()
    assert result == pytest.approx([float(row[-1]) for row in rows], rel=1e-6)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.booleans(), st.integers(0, 10))
def test_adaptive_probabilities(history: list[bool], changed: bool, popular: int) -> None:
    """phi of a sample: its change (T, eq. 3), its history (eqs. 5 to 8) and its PageRank (section 6.2).

    Equation 8 divides by n what its weights have divided; read as sum w_i I_i, w_i = i / (1 + .. + n).
    """
    state = {name: np.zeros(1, dtype) for name, dtype in STATE.items()}
    for cycle, one in enumerate(history, start=1):
        terminals.observe(state, np.array([one]), cycle)
    memory = Memory(state, np.array([changed]), np.zeros(1, np.uint64), block_rows=1)
    memory.popular = np.array([popular], np.uint8)
    sample = SampleOutcomes(np.array([0]), np.array([changed]))
    outcomes = [*history, changed]
    n = len(outcomes)
    weighted = sum((Fraction(i, n * (n + 1) // 2) for i, one in enumerate(outcomes, 1) if one), ONE - 1)
    expected = {
        "change": float(changed),
        "ha": probability(Fraction(sum(outcomes), n), 1),
        "wha": probability(weighted, 1),
        "pra": float(Fraction(popular + 1, 11)),
    }
    for name, value in expected.items():
        assert float(PHIS[name](sample, memory, n, "cycles")[0]) == pytest.approx(value, rel=2e-15), name


def test_the_worked_example_of_table_1() -> None:
    """P, section 1.1: the query "cancer", four pages, a Boolean score; ranks r are seen with c r^(-3/2).

    Equal scores go by page number. p1's copy has not gained the word yet, p2's has not lost it, p3 has no
    copy, p4 is gone: all that the copies' answer has, p2 and p4, is useless.
    """
    web = {"p1": "a new thyroid cancer therapy", "p2": "important traffic laws and rules"}
    web |= {"p3": "early tests to detect breast cancer", "p4": ""}
    copies = {"p1": "a new chipset designed for cell phones", "p2": "cancer symptoms", "p3": ""}
    copies |= {"p4": "cancer association seeking volunteers to help raise awareness"}

    def scores(texts: dict[str, str]) -> list[Fraction]:
        return [Fraction("cancer" in texts[page].split()) for page in ("p1", "p2", "p3", "p4")]

    def useful(held: list[Fraction], live: list[Fraction]) -> float:
        answer = sorted((page for page in range(4) if held[page]), key=lambda page: (-held[page], page))
        return sum(float(live[page]) * rank**-1.5 for rank, page in enumerate(answer, start=1))

    live = scores(web)
    ideal = useful(live, live)
    assert ideal == 1 + 2**-1.5  # p1, then p3
    for refreshed, expected in (
        ("", 0.0),
        ("p1", 1 / ideal),
        ("p1 p3", (1 + 3**-1.5) / ideal),
        ("p1 p2 p3 p4", 1),
    ):
        held = scores({page: web[page] if page in refreshed.split() else copies[page] for page in web})
        assert useful(held, live) / ideal == pytest.approx(expected)
        tables = [np.array([[float(score) for score in row]]) for row in (held, live)]
        assert quality.quality(*tables, np.ones(1)) == pytest.approx(useful(held, live) / ideal, rel=1e-15)
