"""What claims add to the odds of a change: nothing where they are noise, much where they hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring import hints, rates, terminals
from scrapy_gp4c.scoring.functions import load

SITEMAP, FEED = 0, 1
COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4)


def state(pages: int, **columns: list[float]) -> dict[str, np.ndarray]:
    """Columns of pages that were visited in cycle 4 last."""
    made = {name: np.zeros(pages, dtype) for name, dtype in {**terminals.STATE, **hints.COLUMNS}.items()}
    made["last_cycle"][:] = 4
    for name, values in columns.items():
        made[name][:] = values
    return made


def counts(*sites: list[float]) -> np.ndarray:
    """Counts of one kind for some sites: silent and unchanged, silent and changed, claimed and ..."""
    made = np.zeros((len(sites), len(hints.KINDS), 2, 2))
    made[:, SITEMAP] = np.array(sites).reshape(-1, 2, 2)
    return made


def pages(*sites: tuple[int, int]) -> np.ndarray:
    """Pages without and with unseen claims of one kind."""
    made = np.zeros((len(sites), len(hints.KINDS), 2), np.int64)
    made[:, SITEMAP] = sites
    return made


def test_claims_are_unseen_until_a_visit() -> None:
    """Due after the last visit: unseen, whichever came first; a visit clears all kinds, and keeps that there
    were."""
    pages = state(3)
    rows, kinds = np.array([0, 0, 1, 1]), np.array([SITEMAP, FEED, SITEMAP, SITEMAP])
    hints.claim(pages, rows, kinds, np.array([5, 3, 6, 2]))
    assert pages["claims"].tolist() == [0b0001_0011, 0b0001_0001, 0]
    assert pages["claimed_cycle"].tolist() == [5, 6, 0]
    assert hints.is_claimed(pages, SITEMAP, 7).tolist() == [True, True, False]
    assert hints.is_claimed(pages, FEED, 7).tolist() == [False, False, False]
    assert hints.has_claims(pages, FEED).tolist() == [True, False, False]
    hints.mark_seen(pages, np.array([0, 2]), np.array([1.5, 2.0]))
    assert pages["claims"].tolist() == [0b0011, 0b0001_0001, 0]
    assert pages["seen_min"].tolist() == [1.5, 0.0, 2.0]


def test_an_answer_stays_true_for_so_many_cycles() -> None:
    """Visited in cycle 4 and true for 2: claimed to have changed from cycle 7 on; headers go before
    changefreq."""
    pages = state(4)
    kinds = np.array([hints.EXPIRES, hints.EXPIRES, hints.CHANGEFREQ, hints.CHANGEFREQ, hints.CHANGEFREQ])
    hints.claim(pages, np.array([0, 1, 1, 2, 2]), kinds, np.array([2, 0, 9, 3, 10**6]))
    assert [hints.is_claimed(pages, hints.EXPIRES, cycle)[0] for cycle in (5, 6, 7)] == [False, False, True]
    assert hints.is_claimed(pages, hints.EXPIRES, 5).tolist() == [False, True, False, False]
    assert hints.has_claims(pages, hints.CHANGEFREQ).tolist() == [False, False, True, False]
    assert not hints.is_claimed(pages, hints.CHANGEFREQ, 4 + hints.LONGEST)[2]
    assert hints.is_claimed(pages, hints.CHANGEFREQ, 5 + hints.LONGEST)[2]
    hints.claim(pages, np.array([2]), np.array([hints.EXPIRES]), np.array([1]))
    assert hints.has_claims(pages, hints.EXPIRES).tolist() == [True, True, True, False]


@given(st.integers(0, 2**32))
def test_a_tally_is_what_was_claimed_and_found(seed: int) -> None:
    """Page by page and kind by kind, by the definition."""
    rng = np.random.default_rng(seed)
    pages = state(6, claims=rng.integers(0, 256, 6).tolist(), fresh=rng.integers(0, 256, 6).tolist())
    rows, changed = np.array([5, 0, 3]), rng.random(3) < 0.5
    tallies = hints.tally(pages, rows, changed, 9)
    for visit, row in enumerate(rows):
        for kind in range(len(hints.KINDS)):
            one = {name: column[[row]] for name, column in pages.items()}
            expected = -1
            if hints.has_claims(one, kind)[0]:
                expected = 2 * int(hints.is_claimed(one, kind, 9)[0]) + int(changed[visit])
            assert tallies[visit, kind] == expected
    site = np.array([1, 0, 1])
    result = hints.counted(tallies, site, 2)
    assert result.sum() == (tallies >= 0).sum()
    for number in range(2):
        for kind in range(len(hints.KINDS)):
            cell = tallies[site == number, kind]
            assert result[number, kind].ravel().tolist() == [int((cell == one).sum()) for one in range(4)]


@given(COUNTS, COUNTS, st.integers(1, 100))
def test_a_site_that_claims_the_same_of_all_its_pages_adds_nothing(
    site: list[int], other: list[int], many: int
) -> None:
    """Always now, or never: exactly nothing for the pages that are there, whatever was counted."""
    always = hints.lifts(counts(site, other), pages((0, many), (many, many)))
    never = hints.lifts(counts(site, other), pages((many, 0), (many, many)))
    assert always[0, SITEMAP, 1] == pytest.approx(0.0, abs=1e-12)
    assert never[0, SITEMAP, 0] == pytest.approx(0.0, abs=1e-12)
    for table in (always, never):
        assert np.isfinite(table).all()


@given(COUNTS, COUNTS)
def test_claims_never_turn_the_wrong_way(site: list[int], other: list[int]) -> None:
    """What a claim adds and what silence adds have opposite signs, or both are nothing."""
    table = hints.lifts(counts(site, other), pages((5, 5), (7, 1)))
    assert (table[..., 0] * table[..., 1] <= 0).all()


def test_trust_grows_with_what_was_seen() -> None:
    """A true site, one whose claims are chance, a new one: much, nothing, a little of what the others
    tell."""
    table = hints.lifts(
        counts([80, 2, 1, 17], [40, 10, 40, 10], [0, 0, 0, 0]), pages((90, 10), (50, 50), (50, 50))
    )
    true, chance, new = table[:, SITEMAP]
    assert true[1] > 3
    assert -2 < true[0] < 0
    assert chance.tolist() == [0.0, 0.0]
    assert 0 <= new[1] < true[1]
    assert not table[:, FEED].any()
    assert hints.holds(counts([80, 2, 1, 17], [40, 10, 40, 10], [0, 0, 0, 0]))[:, SITEMAP].tolist() == [
        True,
        False,
        False,
    ]


@given(st.integers(3, 200), st.integers(0, 5_000), st.integers(0, 5_000))
def test_more_silence_that_was_true_is_more_trust(right: int, silent: int, more: int) -> None:
    """A site that was never wrong holds, and no visit to a silent page that had not changed unsays it."""
    tables = [
        hints.lifts(counts([visits, 0, 0, right], [60, 20, 60, 20]), pages((90, 10), (50, 50)))
        for visits in (20 + silent, 20 + silent + more)
    ]
    less, greater = (table[0, SITEMAP] for table in tables)
    assert greater[1] > 0.8 * less[1] > 1.0
    assert greater[0] < 0.8 * less[0] < 0.0
    assert hints.holds(counts([20 + silent, 0, 0, right], [60, 20, 60, 20]))[0, SITEMAP]


def test_hinted_is_the_rate_alone_without_hints() -> None:
    """And moves with the lift; what was not told of is the last cycle, and all of it is told of by a
    claim."""
    pages = state(4, E=[2.0] * 4, T=[8] * 4, claims=[0, 1, 0x11, 0x11])
    pages["hint_listed"], pages["hint_span"] = np.array([0.0, -3.0, 3.0, -50.0]), np.zeros(4)
    names = ("hinted", "p", "hint_age")
    values = terminals.compute(names, pages | {"claimed_cycle": np.array([0, 3, 6, 8])}, 8)
    p = values["p"][0]
    assert values["hinted"][0] == p
    rate = 2.1 / 9
    told_of = 1 - np.exp(-rate * 3)
    odds = told_of / (1 - told_of) * np.exp(-3)
    assert values["hinted"][1] == pytest.approx(1 - (1 - odds / (1 + odds)) * np.exp(-rate))
    odds = p / (1 - p) * np.exp(3)
    assert values["hinted"][2] == pytest.approx(odds / (1 + odds))
    assert 0 < values["hinted"][3] < 1e-9
    assert values["hint_age"].tolist() == [0, 6, 3, 1]
    pages["hint_span"][:] = 2.0
    spanned = terminals.compute(["hinted"], pages, 8)["hinted"]
    odds = p / (1 - p) * np.exp(2)
    assert spanned[0] == pytest.approx(odds / (1 + odds))


def test_counts_halve_in_sixteen_cycles() -> None:
    """New ones count in full."""
    counts = np.ones((1, 1, 2, 2))
    for _ in range(16):
        counts = hints.decayed(counts, np.zeros(1))
    assert counts == pytest.approx(0.5)
    assert hints.decayed(np.zeros(1), np.ones(1)).tolist() == [1.0]


def random_pages(seed: int, pages: int = 40) -> dict[str, np.ndarray]:
    """Columns of pages with pasts of their own, some with claims; no site's claims lift anything."""
    random = np.random.default_rng(seed)
    made = state(pages, E=random.random(pages) * 5, T=random.integers(0, 30, pages))
    made["last_cycle"][:] = random.integers(1, 9, pages)
    made["claims"][:] = random.choice([0, 1, 17], pages)
    made |= {name: np.full(pages, 0.5) for name in terminals.ROUND}
    return made | {
        "hint_listed": np.zeros(pages),
        "hint_span": np.zeros(pages),
        "size_lift": np.ones(pages),
    }


@given(st.integers(0, 2**32))
def test_the_rate_of_claims_is_that_of_their_probability(seed: int) -> None:
    """Without a lift it is the page's own rate, bit for bit; with one, the rate of the raised probability."""
    made = random_pages(seed)
    lifts = np.random.default_rng(seed).choice([0.0, 0.0, -2.0, 3.0], (2, 40))
    made["hint_listed"], made["hint_span"] = lifts
    values = terminals.compute(("rate", "hinted", "hint_rate", "t"), made, 9)
    plain = (lifts == 0).all(axis=0)
    assert (values["hint_rate"][plain] == values["rate"][plain]).all()
    hinted = np.minimum(values["hinted"], 1 - 1e-9)[~plain]
    assert 1 - np.exp(-values["hint_rate"] * values["t"])[~plain] == pytest.approx(hinted)


UNLIFTED = (
    "2 * hinted * t",
    "hint_rate + t / hinted",
    "default",
    "changes",
    "p - t / size_lift ** 2 + 2 * 3 * t",
)


@given(st.sampled_from(UNLIFTED), st.integers(0, 99))
def test_a_function_has_the_same_scores_where_neither_claims_nor_sizes_lift(text: str, seed: int) -> None:
    """Bit for bit: a replay of a history without claims and sizes needs none of their columns."""
    function, made = load(text), random_pages(seed)
    plain = function.for_pages()
    assert set(plain.terminals).isdisjoint((*terminals.CLAIMED, "size_lift"))
    assert (plain.scores(made, 9) == function.scores(made, 9)).all()


def test_the_age_at_first_sight_is_the_newest_change_before_the_first_fetch() -> None:
    """Claims about later changes say nothing of it, and the first that arrive count."""
    made = state(3, first_cycle=[4, 4, 0])
    rows = np.array([0, 0, 1, 2])
    hints.claim(made, rows, np.full(4, SITEMAP), np.array([-6, 1, 4, 1]))
    assert made["age_first"].tolist() == [3, 0, 0]
    hints.claim(made, np.array([0, 1]), np.full(2, FEED), np.array([-90, -70_000]))
    assert made["age_first"].tolist() == [3, 65_535, 0]


@pytest.mark.parametrize("truthful", [True, False])
def test_ages_are_trusted_as_far_as_rates_follow_them(truthful: bool) -> None:
    """Pages that changed late change often, or ages are drawn."""
    random = np.random.default_rng(2)
    rates_of = random.choice([0.02, 0.5], 200)
    made = state(200, T=np.full(200, 10), E=random.poisson(rates_of * 10).astype(float))
    ages = random.exponential(1.0 / rates_of)
    made["age_first"][:] = 1 + (ages if truthful else random.permutation(ages))
    evidence = hints.age_evidence(made, float(rates_of.mean()))
    trust = hints.trust_of_ages(evidence.sum(keepdims=True))[0]
    assert (trust > 0.99) if truthful else (trust < 0.01)
    made |= {name: np.full(200, trust if name == "age_trust" else 0.0) for name in terminals.ROUND}
    values = terminals.compute(("rate", "hint_rate"), made, 5)
    error = {name: np.abs(np.log(value / rates_of)).mean() for name, value in values.items()}
    assert error["hint_rate"] < error["rate"] if truthful else error["hint_rate"] < error["rate"] * 1.01


def test_trust_of_ages_is_the_probability_of_their_log_odds() -> None:
    """Sums of evidence are in whole units of `rates.UNIT`."""
    log_odds = np.array([-1.0, 0.0, 2.0])
    evidence = np.rint(log_odds / rates.UNIT).astype(np.int64)
    assert hints.trust_of_ages(evidence) == pytest.approx(1 / (1 + np.exp(-log_odds)))
