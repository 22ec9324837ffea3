"""What Tan et al. 2007 say of their policies (section 6.2), beside what the same replays of ours say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from training.comparing.policy_trials import written
from training.comparing.statistics import Floats
from training.comparing.tan import (
    ADAPTIVE,
    BEST_D,
    BUDGETS,
    SPANS_WEEKS,
    TYPICAL,
    Results,
    Setting,
    following,
)

NAMES: Final = {"lb": "LB", "db": "DB", "cb": "CB"}


class Claim(NamedTuple):
    """What the paper says, and what came out here."""

    paper: str
    ours: str
    holds: bool
    numbers: tuple[float, ...]
    """What it was judged by; nan: the history has no groups for a policy, or too few cycles."""


def rate(results: Results, policy: str, setting: Setting, metric: str = "change_rate") -> float:
    """Mean over the cycles; nan where the history has no groups for the policy."""
    trial = results.found(policy, setting)
    return float("nan") if trial is None else trial.mean(metric).mean


def over_d(results: Results, policy: str, depths: Sequence[int], setting: Setting) -> Floats:
    """C of a policy at every d, ``[depths]``; nan where it was not replayed."""
    return np.array([rate(results, following(policy, d), setting) for d in depths])


def claims(results: Results) -> list[Claim]:
    """All that the history can tell of."""
    parts = (_compared, _by_depth, _up_and_down, _by_setting, _popular, _by_history)
    found = [claim for part in parts for claim in part(results)]
    return [claim for claim in found if np.isfinite(claim.numbers).all()]


def _compared(results: Results) -> Iterator[Claim]:
    rns, rr, gsb = (rate(results, name, TYPICAL) for name in ("rns", "rr", "gsb"))
    for policy, name in NAMES.items():
        own = rate(results, following(policy), TYPICAL)
        yield Claim(
            f"{name} finds about three times as many changes as RNS and RR",
            f"{own / rns:.2f} times RNS, {own / rr:.2f} times RR",
            own >= 2.5 * max(rns, rr),
            (own,),
        )
        twice = f"{name} finds about twice as many as GSB"
        yield Claim(twice, f"{own / gsb:.2f} times", own >= 1.7 * gsb, (own,))
    yield Claim("RR is like RNS", f"{rr / rns:.2f} times RNS", abs(rr / rns - 1) <= 0.1, (rr, rns))
    yield Claim("GSB is better than RNS", f"{gsb / rns:.2f} times RNS", gsb > rns, (gsb, rns))


def _by_depth(results: Results) -> Iterator[Claim]:
    depths = results.plans.depths
    near = [d for d in depths if 0 <= d <= 3]
    cb, db = (over_d(results, name, near, TYPICAL) for name in ("cb", "db"))
    pairs = ", ".join(f"{one:.3f} and {other:.3f}" for one, other in zip(cb, db, strict=True))
    text = f"{pairs} at d = {', '.join(map(str, near))}"
    yield Claim("CB is better than DB for d from 0 to 3", text, bool((cb > db).all()), (*cb, *db))
    db, lb = (over_d(results, name, depths, TYPICAL) for name in ("db", "lb"))
    text = f"at {int((db > lb).sum())} of {len(depths)} d, by {float((db - lb).mean()):+.3f} on average"
    yield Claim("DB is better than LB overall", text, float(db.mean()) > float(lb.mean()), (*db, *lb))
    for policy, best in {"db": (0, 1), "lb": (3,), "cb": (0,)}.items():
        own = [d for d in depths if d >= 0] if policy == "cb" else list(depths)
        values = over_d(results, policy, own, TYPICAL)
        d = own[int(np.argmax(values))]
        said = f"{NAMES[policy]} is best at d = {' or '.join(map(str, best))}"
        yield Claim(said, f"best at d = {d}", d in best, tuple(values))


def _up_and_down(results: Results) -> Iterator[Claim]:
    sizes = [d for d in results.plans.depths if d > 0 and -d in results.plans.depths]
    if not sizes:
        return
    for policy in ("lb", "db"):
        up = float(over_d(results, policy, sizes, TYPICAL).mean())
        down = float(over_d(results, policy, [-d for d in sizes], TYPICAL).mean())
        said = f"{NAMES[policy]} is better with d > 0 than with d < 0"
        yield Claim(said, f"{up:.3f} and {down:.3f}", up > down, (up, down))


def _by_setting(results: Results) -> Iterator[Claim]:
    policy = following("db")
    spans = [rate(results, policy, TYPICAL._replace(weeks=weeks)) for weeks in SPANS_WEEKS]
    text = f"{', '.join(f'{value:.3f}' for value in spans)} in {', '.join(map(str, SPANS_WEEKS))} weeks"
    yield Claim("DB finds more in longer cycles", text, spans == sorted(spans), tuple(spans))
    shares = [rate(results, policy, TYPICAL._replace(budget=budget)) for budget in BUDGETS]
    text = (
        f"{', '.join(f'{value:.3f}' for value in shares)} with {', '.join(f'{one:.1%}' for one in BUDGETS)}"
    )
    yield Claim("DB finds more with a smaller R", text, shares == sorted(shares, reverse=True), tuple(shares))


def _popular(results: Results) -> Iterator[Claim]:
    metric, d = "weighted_change_rate", BEST_D["db"]
    adaptive = rate(results, following("db", d, "pra"), ADAPTIVE, metric)
    plain = rate(results, following("db"), ADAPTIVE, metric)
    text = f"{adaptive / plain - 1:+.0%} at d = {d}: {adaptive:.3f} and {plain:.3f}"
    yield Claim("PRA finds almost 100% more C^w than DB", text, adaptive >= 1.8 * plain, (adaptive, plain))


def _by_history(results: Results) -> Iterator[Claim]:
    metric, names = "change_rate", ("db", "ha", "wha")
    if results.found(following("db"), ADAPTIVE) is None:
        return
    rns = results.trials["rns", ADAPTIVE]
    db, ha, wha = (
        results.trials[following("db", phi="change" if name == "db" else name), ADAPTIVE] for name in names
    )
    for name, trial in (("HA", ha), ("WHA", wha)):
        first, random = (float(one.per_cycle[metric][1:5].mean()) for one in (trial, rns))
        said, text = f"{name} is like RNS in cycles 2 to 5", f"{first:.3f} and {random:.3f}"
        yield Claim(said, text, abs(first / random - 1) <= 0.1, (first, random))
    ahead = wha.ahead(ha, metric)
    text = f"by {written(ahead, sign='+')} a cycle"
    yield Claim("WHA is better than HA", text, ahead.mean > ahead.half_width, (ahead.mean,))
    for name, trial, since in (("WHA", wha, 16), ("HA", ha, 18)):
        leads = trial.per_cycle[metric] - db.per_cycle[metric]
        late = float(leads[since - 1 :].mean()) if len(leads) >= since else float("nan")
        behind = np.flatnonzero(leads <= 0)
        first_cycle = int(behind[-1]) + 2 if len(behind) else 1
        when = f"from cycle {first_cycle} on" if first_cycle <= len(leads) else "in no cycle to the end"
        text = f"above {when}; {late:+.3f} from cycle {since} on"
        yield Claim(f"{name} is above DB from cycle {since} on", text, first_cycle <= since, (late,))
