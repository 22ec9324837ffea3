"""Replay: the effectiveness of a score function on a recorded history, cycle by cycle.

Thesis section 3.4, Algorithm 2; journal section 5.2. Every page is fetched in cycle 0 and visited in each
warm-up cycle 1..W. Then in every cycle c = W + 1..D: score each page by the outcomes of its earlier visits,
visit the k pages of the highest scores, and judge each visit by whether the page changed since its last one.
docs/lab/replay.md works an example by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeGuard, get_args

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import ExpressionError, HistoryError, ScoreError
from scrapy_gp4c.page_state.related import BY_DIRECTORY
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import discovery, functions, refresh_value, terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.measured import COLUMNS as MEASURED
from scrapy_gp4c.scoring.terminals import CLUSTERED, Clock
from training.histories.history import ChangeHistory
from training.replaying.baselines import BASELINES, Baseline
from training.replaying.dense import replay_dense
from training.replaying.measured import check_measured, unmeasured
from training.replaying.metrics import (
    CONTENTS,
    IMPACT,
    KNOWN,
    METRICS,
    ORACLE,
    PAGE_BY_PAGE,
    Tallies,
    measure,
)
from training.replaying.prepared import DEFAULTS, CrawlChoices, PreparedHistory, Ties, are_groups, prepare_for

if TYPE_CHECKING:
    from training.replaying.grouped import PrefixCaches  # with compiled loops, see `run_all`

Engine = Literal["auto", "grouped", "dense"]
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)
QUICK: Final = 10_000_000
"""Largest pages times cycles for which a few replays use the dense engine, without compiled loops.

Both give the same numbers, and compiling takes longer than these replays.
"""


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay, one entry per scored cycle in every array; None: metric not asked for.

    `training.replaying.metrics` defines the metrics.
    """

    score: str
    """Score function: the text given, or an expression's canonical text."""
    k: int
    """Visits per cycle."""
    engine: Engine
    scored_cycles: Ints
    visited: Ints
    changed: Ints
    pending: Ints
    """Pages that had changed since their last visit, before the visits of the cycle."""
    change_rate: Floats
    ndcg: Floats | None = None
    weighted_change_rate: Floats | None = None
    freshness: Floats | None = None
    age: Floats | None = None
    harmonic_staleness: Floats | None = None
    new_pages: Floats | None = None
    idle_pages: Floats | None = None
    weighted_ndcg: Floats | None = None
    changes_per_s: Floats | None = None
    impact: Floats | None = None
    quality: Floats | None = None


def replay(
    history: ChangeHistory,
    score_function: str | Expression | ScoreFunction | Baseline,
    *,
    budget: float,
    warmup: int = DEFAULTS.warmup,
    ties: Ties = DEFAULTS.ties,
    clock: Clock | None = DEFAULTS.clock,
    seed: int = DEFAULTS.seed,
    engine: Engine = "auto",
    metrics: Iterable[str] = tuple(METRICS),
) -> ReplayResult:
    """Replay `score_function` on `history`: visit ``budget`` pages in every cycle, and compute metrics.

    ``score_function``: anything that `scrapy_gp4c.scoring.functions.load` reads, ``"oracle"`` (ranks by the
    truth: an upper bound of the change rate in every cycle), a name of `baselines.BASELINES`, an Expression
    or a loaded ScoreFunction. The policy is the one that a name brings along, else ``top_k``. ``budget``:
    visits per cycle, see `metrics.budget_pages`. ``engine``: ``grouped`` scores groups of pages in equal
    state, ``dense`` every page; both give the same numbers, ``auto`` takes the faster one. ``metrics``: names
    of `metrics.KNOWN`. Other parameters: see `CrawlChoices`.

    Raises HistoryError for choices that do not fit the history, ScoreError or ExpressionError for a score
    function that cannot be used.
    """
    prepared = prepare_for(history, CrawlChoices(budget, warmup, ties, clock, seed))
    return run(prepared, score_function, clock=clock, engine=engine, metrics=metrics)


def run(
    prepared: PreparedHistory,
    score_function: str | Expression | ScoreFunction | Baseline,
    *,
    clock: Clock | None = None,
    engine: Engine = "auto",
    metrics: Iterable[str] = tuple(METRICS),
    policy: str | None = DEFAULTS.policy,
) -> ReplayResult:
    """Replay a score function on a prepared history; parameters and errors as for `replay`.

    ``policy``: see `scrapy_gp4c.policies.table.load`; None: that of the function, else ``top_k``, which alone
    has a fast path. Raises PolicyError for a policy that cannot be read or breaks its contract.
    """
    return run_all(prepared, [score_function], clock=clock, engine=engine, metrics=metrics, policy=policy)[0]


def run_all(
    prepared: PreparedHistory,
    score_functions: Sequence[str | Expression | ScoreFunction | Baseline],
    *,
    clock: Clock | None = None,
    engine: Engine = "auto",
    metrics: Iterable[str] = tuple(METRICS),
    policy: str | None = DEFAULTS.policy,
    prefix_caches: PrefixCaches | None = None,
) -> list[ReplayResult]:
    """Replay several score functions, each as by `run`; what is equal for several is computed once.

    ``prefix_caches``: dictionary to pass to all calls for `prepared`, empty at first; it keeps replays.
    """
    metric_names = tuple(metrics)
    for choice, known, what in (
        *((metric, KNOWN, "metric") for metric in metric_names),
        (engine, ENGINES, "engine"),
        (clock or "visits", terminals.CLOCKS, "clock"),
    ):
        if choice not in known:
            raise HistoryError(f"there is no {what} {choice!r} for a replay; there are: {', '.join(known)}")
    needs = {tally for metric in metric_names if (tally := KNOWN[metric].tally) is not None}
    functions = [load(function, clock) for function in score_functions]
    functions = [variant_for(prepared, one) if isinstance(one, ScoreFunction) else one for one in functions]
    for function in functions:
        if isinstance(function, ScoreFunction) and not MEASURED.keys().isdisjoint(function.columns):
            check_measured(prepared, function)
    texts = [policy or policy_of(function) for function in functions]
    policies = {text: load_policy(text) for text in dict.fromkeys(texts)}
    choosers = [policies[text] for text in texts]
    grouped = {
        number: function
        for number, (function, chooser) in enumerate(zip(functions, choosers, strict=True))
        if engine != "dense" and _is_groupable(function, prepared, chooser, metric_names)
    }
    if engine == "grouped" and len(grouped) < len(functions):
        lone = next(number for number in range(len(functions)) if number not in grouped)
        raise ScoreError(
            f"{score_functions[lone]!s} scores every page by itself, so pages cannot be grouped: "
            "use the engine 'dense' or 'auto'"
            if choosers[lone].text == TOP_K.text
            else f"the policy {choosers[lone].text!r} chooses page by page: use the engine 'dense' or 'auto'"
        )
    tallies: dict[int, Tallies] = {}
    if grouped:
        from training.replaying.grouped import replay_grouped  # compiles: only when it is used

        results = replay_grouped(prepared, list(grouped.values()), needs, prefix_caches)
        tallies = dict(zip(grouped, results, strict=True))
    for number, function in enumerate(functions):
        if number not in grouped:
            tallies[number] = replay_dense(
                prepared, function, needs, policy=choosers[number], by_rounds=engine == "dense"
            )
    measured = {id(counts): measure(counts, prepared.weights) for counts in tallies.values()}
    return [
        ReplayResult(
            ORACLE if function is None else function.text,
            prepared.k,
            "grouped" if number in grouped else "dense",
            prepared.scored_cycles,
            counts["visited"].copy(),
            counts["changed"].copy(),
            counts["pending"].copy(),
            **{name: values.copy() for name, values in measured[id(counts)].items()},
        )
        for number, function in enumerate(functions)
        for counts in [tallies[number]]
    ]


def _is_groupable(
    function: ScoreFunction | Baseline | None,
    prepared: PreparedHistory,
    chooser: PolicyChoice,
    metric_names: Iterable[str],
) -> TypeGuard[ScoreFunction]:
    """Whether the grouped engine can replay a function: it knows neither sites nor single pages."""
    return (
        isinstance(function, ScoreFunction)
        and PAGE_BY_PAGE.isdisjoint(metric_names)
        and prepared.site_share >= 1.0
        and prepared.promises is None
        and chooser.text == TOP_K.text
        and are_groups(function)
    )


def variant_for(history: ChangeHistory | PreparedHistory, function: ScoreFunction) -> ScoreFunction:
    """Variant of `function` for a history: without terminals of claims and sizes where it has none."""
    return function.for_pages(has_claims=history.claims is not None, has_sizes=history.size is not None)


def can_replay(history: ChangeHistory | PreparedHistory, function: ScoreFunction | Baseline | None) -> bool:
    """Whether `history` has the data that `function` reads; None, the oracle, reads changes alone.

    Directories need names of pages, clusters a file of groups, refresh values contents and a log of queries.
    """
    if not isinstance(function, ScoreFunction):
        return True
    function = variant_for(history, function)
    if not discovery.COLUMNS.keys().isdisjoint(function.columns) or unmeasured(history, function.columns):
        return False
    knows = history.neighbours.knows
    if not knows("directory") and any(name in BY_DIRECTORY for name in function.columns):
        return False
    if not knows("cluster") and any(name in CLUSTERED for name in function.columns):
        return False
    return history.impact is not None or refresh_value.COLUMNS.keys().isdisjoint(function.columns)


def metrics_of(history: ChangeHistory) -> tuple[str, ...]:
    impact = history.impact
    if impact is None:
        return tuple(METRICS)
    return (*METRICS, *(name for name in CONTENTS if name == IMPACT or impact.quality is not None))


def policy_of(function: ScoreFunction | Baseline | None) -> str:
    """Text of the policy that a score function is replayed under by default: its own, else ``top_k``."""
    policy = function.policy if isinstance(function, ScoreFunction) else None
    return policy or TOP_K.text


def load(
    score_function: str | Expression | ScoreFunction | Baseline, clock: Clock | None = None
) -> ScoreFunction | Baseline | None:
    """Load a score function or baseline from its name or text, on a clock; None: the oracle.

    Raises ScoreError or ExpressionError.
    """
    if isinstance(score_function, str):
        if score_function == ORACLE:
            return None
        try:
            score_function = (
                BASELINES[score_function] if score_function in BASELINES else functions.load(score_function)
            )
        except ExpressionError as error:
            raise ExpressionError(
                f"{error}\n(nor one of {', '.join((ORACLE, *BASELINES))}, which a replay also knows)"
            ) from None
    elif isinstance(score_function, Expression):
        score_function = functions.of_expression(score_function)
    if isinstance(score_function, ScoreFunction) and score_function.expression is not None:
        unknown = [name for name in score_function.terminals if name in terminals.UNREPLAYED]
        if unknown:
            raise ScoreError(
                f"the score function {score_function.text!r} reads {', '.join(unknown)}; histories "
                "of changes lack the new pages that visits bring: leave it out, or use --growth"
            )
    return score_function if isinstance(score_function, Baseline) else score_function.on_clock(clock)
