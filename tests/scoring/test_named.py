"""The named score functions: each row is complete, and each index is what its definition says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import rates, terminals
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import BASELINES, DEFAULT, NAMED

CYCLE = 400
gaps = st.integers(1, 60)
expected_changes = st.floats(0.0, 40.0)
observed_cycles = st.integers(1, 300)


def score(name: str, expected: float, cycles: int, gap: int) -> tuple[float, float]:
    """Score of a page with so many expected changes in so many cycles, last visited so long ago; its rate."""
    state = terminals.new_state(1)
    state["E"][:], state["T"][:], state["last_cycle"][:] = expected, cycles, CYCLE - gap
    rate = float(rates.rate(state["E"], state["T"])[0])
    return float(load(name).scores(state, CYCLE)[0]), rate


def test_every_row_says_what_it_is() -> None:
    """An expression of known terminals, a source, one line of meaning, and, if any, a policy that exists."""
    for name, row in NAMED.items():
        assert load(name).policy == row.policy
        assert row.source
        assert row.meaning
        assert "\n" not in row.meaning
        assert row.policy is None or table.load(row.policy).text == row.policy
    assert DEFAULT in NAMED


def test_the_baselines_are_the_papers() -> None:
    """What learning, promotion and the published experiment compare with does not grow with the table."""
    assert list(BASELINES) == ["random", "age", "cg", "nad", "sad", "aad", "gad", "t*X"]
    assert all(NAMED[name].expression == text for name, text in BASELINES.items())


@given(expected_changes, observed_cycles, gaps)
def test_probability_is_that_of_a_poisson_process(expected: float, cycles: int, gap: int) -> None:
    """One minus the probability of no change since the last visit."""
    result, rate = score("probability", expected, cycles, gap)
    assert rate == pytest.approx((expected + 0.1) / (cycles + 1))
    assert result == pytest.approx(1 - math.exp(-rate * gap), abs=1e-12)


@given(expected_changes, observed_cycles, gaps)
def test_whittle_is_the_price_at_which_waiting_another_cycle_pays_as_much(
    expected: float, cycles: int, gap: int
) -> None:
    """Changes found per cycle, less that price of a visit, are the same for visits every t and t + 1 cycles.

    The chance of a change moves as x(t + 1) = α x(t) + u with α = exp(-rate), u = 1 - α: the paper's model.
    """
    price, rate = score("whittle", expected, cycles, gap)
    chance = [0.0]
    for _ in range(gap + 1):
        chance.append(math.exp(-rate) * chance[-1] + 1 - math.exp(-rate))
    now, later = (chance[gap] - price) / gap, (chance[gap + 1] - price) / (gap + 1)
    assert now == pytest.approx(later, abs=1e-12)


def index(cost: object, gap: int) -> float:
    """What a visit is worth after so many cycles: t c(t) less the sum of c(s) over 0..t."""
    assert callable(cost)
    return float(gap * cost(gap) - quad(cost, 0.0, gap, epsabs=1e-11, epsrel=1e-11)[0])


@given(st.floats(0.0, 6.0), st.integers(1, 20), st.integers(1, 20))
def test_freshness_greedy_is_the_index_of_outdated_copies(expected: float, cycles: int, gap: int) -> None:
    """A copy costs 1 per cycle from its first missed change on."""
    result, rate = score("freshness-greedy", expected, cycles, gap)
    assert result == pytest.approx(index(lambda s: 1 - math.exp(-rate * s), gap), rel=1e-6, abs=1e-9)


@given(st.floats(0.0, 6.0), st.integers(1, 20), st.integers(1, 20))
def test_harmonic_is_the_index_of_harmonic_staleness(expected: float, cycles: int, gap: int) -> None:
    """A copy that misses m changes costs 1 + 1/2 + ... + 1/m per cycle; m is Poisson with mean rate s."""
    result, rate = score("harmonic", expected, cycles, gap)
    most = int(8 * rate * gap) + 60
    costs = np.concatenate(([0.0], np.cumsum(1.0 / np.arange(1, most))))
    logs = np.array([math.lgamma(m + 1) for m in range(most)])

    def cost(s: float) -> float:
        mean = max(rate * s, 1e-300)
        return float(np.exp(np.arange(most) * math.log(mean) - mean - logs) @ costs)

    assert result == pytest.approx(index(cost, gap), rel=1e-6, abs=1e-9)
