"""HTML report of a learned score function beside the baselines on test data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np
from markupsafe import Markup

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.scoring.expression import PRIMITIVES, Token, parse
from scrapy_gp4c.scoring.terminals import PAPERS
from training.comparing import statistics
from training.comparing.difference import Difference, class_names
from training.comparing.learned_score import LearnedScore, ScoreTrials
from training.comparing.trials import BASELINES, COMPETITIVE, Trials, best_baseline, values
from training.evolution.evolve import readable
from training.evolution.learning import LEARNED
from training.replaying.metrics import METRICS, ORACLE, TRIO
from training.reporting.figures import Chart, Line, shown
from training.reporting.page import (
    DEFINITIONS,
    Card,
    ReportPage,
    Section,
    defined,
    figure,
    fold_away,
    heat,
    paragraph,
    table,
    term_of,
)
from training.reporting.page import formula as formula_block

HEADLINE: Final = "change_rate"
SIGNIFICANT: Final = 1 - statistics.CONFIDENCE


class Formula(NamedTuple):
    name: str
    text: str
    values: dict[str, float]
    """Split (training, validation, test) -> value of the metric that the function was learned for."""


@dataclass
class Study:
    """Data of a report on an experiment (`training.papers.journal`) or a score file."""

    title: str
    trials: Trials
    learned: dict[str, str]
    """Metric -> name of the function in ``trials`` that was learned for it."""
    formulas: list[Formula]
    """Recommended function first."""
    facts: list[tuple[str, str]]
    created: str
    visits_per_cycle: float
    """Visits per cycle of one test set."""
    difference: Difference | None = None
    difference_note: str = ""
    """Reason why ``difference`` is missing."""
    budget_names: dict[str, str] = field(default_factory=dict)
    """Function replayed with smaller budgets too -> its name in the report."""
    extra_sections: list[Section] = field(default_factory=list)


class Lead(NamedTuple):
    """Lead of the learned function over the best baseline, by one metric."""

    metric: str
    learned_value: float
    baseline: str
    baseline_value: float
    difference: statistics.Mean
    p: float
    by_fold: Floats
    """``[folds]``: difference of the means in each fold."""
    by_cycle: Floats
    """``[cycles]``: difference of the means in each cycle."""

    @property
    def word(self) -> str:
        """Verdict: ``better``, ``worse``, or ``open`` where the lead is not significant."""
        if math.isnan(self.p) or self.p >= SIGNIFICANT:
            return "open"
        return "better" if self.difference.mean > 0 else "worse"


def lead(study: Study, metric: str) -> Lead:
    baseline = best_baseline(study.trials, metric)
    learned_values = values(study.trials, study.learned[metric], metric)
    baseline_values = values(study.trials, baseline, metric)
    difference, p = statistics.overall(learned_values, baseline_values)
    gap = learned_values - baseline_values
    return Lead(
        metric,
        float(learned_values.mean()),
        baseline,
        float(baseline_values.mean()),
        difference,
        p,
        gap.mean(axis=1),
        gap.mean(axis=0),
    )


def points(value: float, percent: bool) -> str:
    """Text of a difference of values for people: percentage points for shares."""
    if not percent:
        return f"{value:.3f}"
    return f"{100 * value:.{2 if abs(value) < 0.005 else 1}f} points"


def signed(value: float, percent: bool) -> str:
    """Text of a difference of values with its sign, without the unit."""
    return ("+" if value >= 0 else "−") + points(abs(value), percent).removesuffix(
        " points" if percent else ""
    )


SHARES: Final = frozenset(("change_rate", "freshness", "new_pages", "idle_pages"))
"""Metrics shown as per cent."""


def line(trials: Trials, name: str, metric: str, shown: str = "", intervals: bool = True) -> Line:
    """Line of a score function's means over the folds, cycle by cycle; ``shown``: name in the chart."""
    means = statistics.per_cycle(values(trials, name, metric))
    half_widths = [mean.half_width if intervals else math.nan for mean in means]
    return Line(shown or name, [mean.mean for mean in means], half_widths)


def cycles_of(trials: Trials) -> list[float]:
    scored = values(trials, next(iter(trials.series)), "change_rate").shape[1]
    return [float(trials.first_cycle + i) for i in range(scored)]


def per_cycle_chart(trials: Trials, key: str, title: str, metric: str, lines: list[Line]) -> Chart:
    x_label = "cycle of the test period"
    percent = metric in SHARES
    return Chart(key, title, x_label, METRICS[metric].heading, cycles_of(trials), lines, percent)


def methods(trials: Trials, metric: str, learned: str, names: Sequence[str] = COMPETITIVE) -> Chart:
    """Figure 4: the learned function, beside other score functions, in every cycle."""
    lines = [line(trials, learned, metric, LEARNED)]
    lines += [line(trials, name, metric, intervals=position == 0) for position, name in enumerate(names)]
    title = f"{METRICS[metric].heading} in every cycle"
    return per_cycle_chart(trials, f"figure4-{metric}", title, metric, lines)


def budgets(trials: Trials, metric: str, names: dict[str, str]) -> Chart:
    """Figure 5: functions learned at the full budget, tried with less. ``names``: function -> shown name."""
    by_budget = {float(share): series for share, series in trials.smaller_budgets.items()}
    by_budget[trials.budget] = trials.series
    shares = sorted(by_budget)
    lines = []
    for name, shown_name in names.items():
        means = [
            statistics.mean(np.array(by_budget[share][name][metric], dtype=np.float64).mean(axis=1))
            for share in shares
        ]
        lines.append(Line(shown_name, [mean.mean for mean in means], [mean.half_width for mean in means]))
    return Chart(
        f"figure5-{metric}",
        f"{METRICS[metric].heading} with less budget than learned for",
        "budget: visits per cycle, % of the pages",
        METRICS[metric].heading,
        [100.0 * share for share in shares],
        lines,
        metric in SHARES,
    )


def with_oracle(trials: Trials, metric: str, names: Sequence[str]) -> list[str]:
    """The names, with the oracle's unless its line would squeeze the others together."""
    best = max(float(values(trials, name, metric).mean()) for name in names)
    oracle = float(values(trials, ORACLE, metric).mean())
    return [*names, ORACLE] if oracle - best < 0.25 else [*names]


def interval_dot(value: float, half_width: float, low: float, high: float, *, strong: bool) -> Markup:
    """HTML of a dot with its interval on the scale low..high, for a table cell."""

    def x_of(number: float) -> float:
        return 4 + 92 * (min(max(number, low), high) - low) / max(high - low, 1e-9)

    whisker = ""
    if half_width > 0:
        whisker = (
            f'<path class="whisker" d="M{x_of(value - half_width):.1f} 8H{x_of(value + half_width):.1f}"/>'
        )
    role = "c0" if strong else "c7"
    return Markup(
        f'<svg class="dot {role}" viewBox="0 0 100 16" aria-hidden="true"><path class="grid" d="M0 8H100"/>'
        f'{whisker}<circle cx="{x_of(value):.1f}" cy="8" r="4"/></svg>'
    )


def page(study: Study) -> ReportPage:
    leads = {metric: lead(study, metric) for metric in TRIO}
    head = leads[HEADLINE]
    sections = [
        _switch_section(study, head),
        _curves(study),
        _ranking(study),
        formula_section(study.formulas),
        difference_section(study, head),
        _budgets(study),
        *study.extra_sections,
    ]
    return ReportPage(
        study.title,
        _headline(head),
        shown(head.learned_value, percent=True),
        DEFINITIONS[HEADLINE][1],
        [_card(one) for one in leads.values()],
        [section for section in sections if section.blocks or section.lead],
        study.facts,
        study.created,
    )


def _headline(head: Lead) -> str:
    baseline = f"{head.baseline} ({shown(head.baseline_value, percent=True)})"
    visits = "of the learned function's visits found a change"
    p = f"p {_p(head.p)}"
    match head.word:
        case "better":
            return f"{visits}: significantly more than the best baseline, {baseline}; {p}."
        case "worse":
            return (
                f"{visits}: significantly fewer than the best baseline, {baseline}; {p}. Use {head.baseline}."
            )
    direction = "more" if head.difference.mean > 0 else "fewer"
    return f"{visits}, {direction} than the best baseline, {baseline}, but not significantly so; {p}."


def _p(p: float) -> str:
    return "unknown" if math.isnan(p) else "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _card(one: Lead) -> Card:
    percent = one.metric in SHARES
    difference = signed(one.difference.mean, percent)
    half = one.difference.half_width
    interval = "" if math.isnan(half) else f" ± {points(half, percent)}"
    return Card(
        one.metric,
        shown(one.learned_value, percent=percent),
        [
            Markup("best {}: {} {}").format(
                defined("baseline"), one.baseline, shown(one.baseline_value, percent=percent)
            ),
            Markup("difference {}{}, {} {}").format(difference, interval, defined("p", "p"), _p(one.p)),
        ],
        one.word,
    )


def _switch_section(study: Study, head: Lead) -> Section:
    """Section on the changes gained by a switch to the learned function: mean, interval and worst cases."""
    section = Section("What a switch would bring")
    mean, half = 1000 * head.difference.mean, 1000 * head.difference.half_width
    if math.isnan(half):
        section.lead = "One value to compare is too few for an interval: test on more cycles or folds."
        return section
    folds = len(head.by_fold)
    low, high = mean - half, mean + half
    section.lead = Markup(
        "Per 1,000 {}, replacing {} by the learned function would find <strong>{}</strong> changes; the {} "
        "runs from {} to {}."
    ).format(
        defined("visits"),
        head.baseline,
        _signed_count(mean),
        defined("interval", "95% interval"),
        _signed_count(low),
        _signed_count(high),
    )
    per_cycle = study.visits_per_cycle
    gains = [
        ("expected", mean),
        ("cost of being wrong: low end of the interval", low),
        ("high end of the interval", high),
        (f"worst of {counted(len(head.by_cycle), 'cycle')}", 1000 * head.by_cycle.min()),
    ]
    if folds > 1:
        gains.insert(3, (f"worst of {counted(folds, 'fold')}", 1000 * head.by_fold.min()))
    rows = [[name, _signed_count(gain), _signed_count(gain * per_cycle / 1000, 1)] for name, gain in gains]
    heads = ["", "changes per 1,000 visits", f"changes per cycle of {per_cycle:,.0f} visits"]
    section.blocks.append(table(heads, rows, f"Changes found, less those of {head.baseline}"))
    if folds == 1:
        section.blocks.append(
            paragraph(
                "There is one test set, so the test pairs its cycles. Cycles of the same pages are not "
                "independent: take the p value as too optimistic."
            )
        )
    return section


def _signed_count(value: float, digits: int = 0) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _curves(study: Study) -> Section:
    lead: str | Markup = "Values on the only test set."
    if len(values(study.trials, study.learned[HEADLINE], HEADLINE)) > 1:
        lead = Markup(
            "Means over the test sets; bands are the {} of the learned function and the best {}."
        ).format(defined("interval", "95% intervals"), defined("baseline"))
    section = Section("Cycle by cycle", lead)
    for metric in TRIO:
        best = best_baseline(study.trials, metric)
        names = [best, *(name for name in COMPETITIVE if name != best)]
        names = with_oracle(study.trials, metric, names)
        chart = methods(study.trials, metric, study.learned[metric], names)
        section.blocks.append(figure(chart, Markup("{}: {}").format(defined(metric), DEFINITIONS[metric][1])))
    return section


def _ranking(study: Study) -> Section:
    rows: list[tuple[str, dict[str, statistics.Mean]]] = []
    for name in (LEARNED, *BASELINES, ORACLE):
        means = {}
        for metric in TRIO:
            means[metric] = statistics.mean(
                values(study.trials, study.learned[metric] if name == LEARNED else name, metric)
            )
        rows.append((name, means))
    rows.sort(key=lambda row: -row[1][HEADLINE].mean)
    scales = {
        metric: (
            min(means[metric].mean - np.nan_to_num(means[metric].half_width) for _, means in rows),
            max(means[metric].mean + np.nan_to_num(means[metric].half_width) for _, means in rows),
        )
        for metric in TRIO
    }
    cells = []
    for rank, (name, means) in enumerate(rows, start=1):
        term = name if name in DEFINITIONS else ""
        row: list[str | Markup] = [Markup("{}. {}").format(rank, defined(term, name) if term else name)]
        for metric in TRIO:
            mean, percent = means[metric], metric in SHARES
            row.append(
                Markup("{} <small>± {}</small> {}").format(
                    shown(mean.mean, percent=percent),
                    "–"
                    if math.isnan(mean.half_width)
                    else points(mean.half_width, percent).removesuffix(" points"),
                    interval_dot(mean.mean, mean.half_width, *scales[metric], strong=name == LEARNED),
                )
            )
        cells.append(row)
    rank_of_learned = [name for name, _ in rows].index(LEARNED)
    return Section(
        "Ranking of the score functions",
        "By change rate. A function that finds most changes need not keep most copies current: pages that "
        "always change are sure finds, and stale again a cycle later.",
        [
            table(
                ["score function", *(defined(metric) for metric in TRIO)],
                cells,
                Markup("Means over all cycles and test sets {}").format(defined("interval")),
                strong=[rank_of_learned],
            )
        ],
    )


def formula_section(formulas: Sequence[Formula]) -> Section:
    """Section on learned functions, the first one in full."""
    first = formulas[0]
    section = Section(
        "The learned function",
        Markup("{}. Pages are visited in the order of this score{}").format(
            first.name, _terminals(first.text)
        ),
    )
    caption = (
        "The score language is closed: dividing by zero, and the logarithm of what is not positive, give 0. "
        "Constants are rounded for the eye."
    )
    section.blocks.append(formula_block(mathml(first.text), readable(first.text), tree(first.text), caption))
    if len(formulas) > 1:
        rows = [
            [one.name, mathml(one.text, ""), *(shown(value, percent=False) for value in one.values.values())]
            for one in formulas
        ]
        head = ["learned", "score function", *first.values]
        section.blocks.append(fold_away("The functions of all folds", table(head, rows, words=2)))
    return section


def _terminals(text: str) -> Markup:
    names = map(term_of, parse(text).terminals)
    meanings = [
        Markup("{} = {}").format(defined(name), DEFINITIONS[name][1].rstrip("."))
        for name in names
        if name in DEFINITIONS
    ]
    return Markup(": {}.").format(Markup("; ").join(meanings)) if meanings else Markup(".")


def _budgets(study: Study) -> Section:
    if not study.trials.smaller_budgets:
        return Section("If the budget is smaller")
    return Section(
        "If the budget is smaller",
        Markup(
            "Functions learned at a {} of {:.1%} of the pages, used with less; bands, if any, are {}."
        ).format(defined("budget"), study.trials.budget, defined("interval", "95% intervals")),
        [
            figure(budgets(study.trials, metric, study.budget_names), DEFINITIONS[metric][1])
            for metric in ("change_rate", "ndcg")
        ],
    )


def _shifts(shares: Any) -> str:
    """Sentence on the largest cells of the table of differences."""
    rows, columns = class_names("X"), class_names("t")
    texts = []
    for index, word in ((int(shares.argmax()), "to"), (int(shares.argmin()), "from")):
        row, column = divmod(index, len(columns))
        ago = "one cycle" if columns[column] == "1" else f"{columns[column]} cycles"
        texts.append(
            f"{signed(float(shares[row, column]), True)} points {word} pages with {rows[row]} changes found "
            f"and a last visit {ago} ago"
        )
    return f"The largest shifts: {texts[0]}; {texts[1]}."


def difference_section(study: Study, head: Lead) -> Section:
    """Section on pages that the learned function visits instead of the best baseline's."""
    title = f"Where it differs from {head.baseline}"
    if study.difference is None:
        return Section(title, study.difference_note)
    difference = study.difference
    section = Section(
        title,
        Markup(
            "{} of each cycle's visits are the same. The visits that only the learned function makes find a "
            "change in <strong>{}</strong> of cases, those that only {} makes in <strong>{}</strong>."
        ).format(
            shown(difference.common, percent=True),
            shown(difference.alone_rate, percent=True),
            head.baseline,
            shown(difference.other_alone_rate, percent=True),
        ),
    )
    if difference.X_t.any():
        section.blocks.append(paragraph(_shifts(difference.X_t)))
    section.blocks.append(
        heat(
            class_names("X"),
            class_names("t"),
            difference.X_t,
            f"Share of the visits, learned less {head.baseline}, in percentage points: which pages get more "
            "visits (+) and which fewer (−), by changes found so far (rows) and cycles since the last visit",
        )
    )
    for name, groups in (*difference.by.items(), ("site", difference.by_site)):
        label = defined(name) if name in DEFINITIONS else name
        section.blocks.append(_groups(groups, label, head.baseline, f"By {name}"))
    return section


def _groups(groups: Sequence[Any], label: str | Markup, baseline: str, title: str) -> Markup:
    rows = [
        [
            group.name,
            shown(group.share, percent=True),
            shown(group.other_share, percent=True),
            signed(group.share - group.other_share, True),
            shown(group.rate, percent=True),
            shown(group.other_rate, percent=True),
        ]
        for group in groups
    ]
    head = [
        label, "visits: learned", f"visits: {baseline}", "difference", "change rate: learned",
        f"change rate: {baseline}",
    ]  # fmt: skip
    return fold_away(title, table(head, rows))


def score_page(learned: LearnedScore, again: ScoreTrials | None, note: str = "") -> ReportPage:
    """Report of a score file; only of what it records, where it could not be replayed.

    ``again``: its replay; ``note``: why there is none.
    """
    if again is None:
        return _recorded(learned, note)
    return page(
        Study(
            f"Score function {learned.name}",
            again.trials,
            dict.fromkeys(TRIO, LEARNED),
            [_formula(learned)],
            _facts(learned),
            learned.created,
            again.visits_per_cycle,
            again.difference,
            budget_names={name: name for name in again.tried},
        )
    )


def _formula(learned: LearnedScore) -> Formula:
    fitness = learned.fitness
    values = {split: values[fitness] for split, values in learned.values.items() if fitness in values}
    return Formula(f"{learned.name}, learned for {fitness.replace('_', ' ')}", learned.text, values)


def _facts(learned: LearnedScore) -> list[tuple[str, str]]:
    history, process = learned.history, learned.parameters
    return [
        ("History", f"{history.source}, SHA-256 {history.sha256 or 'unknown'}"),
        ("Size", f"{counted(history.pages, 'page')}, {counted(history.cycles, 'cycle')}"),
        ("Learned", learned.created),
        ("Protocol", f"{process['protocol']}, warm-up of {counted(process['warmup'], 'cycle')}"),
        ("Budget", f"{process['budget']} per cycle"),
        (
            "Genetic programming",
            f"{counted(process['population'], 'individual')}, "
            f"{counted(process['generations_done'], 'generation')}, "
            f"{counted(process['seeds'], 'run')}, seed {learned.seed}, selection {learned.selection}, "
            f"{process.get('forget', 0.0):.0%} of the training changes taken out",
        ),
        ("Estimators", f"clock of the {learned.clock}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in learned.versions.items())),
    ]


def _recorded(learned: LearnedScore, note: str) -> ReportPage:
    training, validation, test = learned.values.values()
    cards = [
        Card(
            metric,
            shown(test[metric], percent=metric in SHARES),
            [f"training {training[metric]:.3f}, validation {validation[metric]:.3f}"],
        )
        for metric in TRIO
    ]
    return ReportPage(
        f"Score function {learned.name}",
        "of the learned function's visits to test pages found a change, as the score file records.",
        f"{test[HEADLINE]:.1%}",
        "visited pages that had changed / visited pages",
        cards,
        [
            formula_section([_formula(learned)]),
            Section("Beside the baselines", note),
        ],
        _facts(learned),
        learned.created,
    )


SIGNS: Final = {"+": "+", "-": "−", "*": "·", "/": "÷", "div": "÷", "neg": "−", "pow": "xʸ", "sqrt": "√"}
STEP_PX: Final = 62.0
LEVEL_PX: Final = 54.0


class Node(NamedTuple):
    """A node of the expression tree."""

    token: Token
    children: "tuple[Node, ...]"


def tree_of(text: str) -> Node:
    """Parse an expression to its tree, with constants rounded to 4 digits. Raises ExpressionError."""
    stack: list[Node] = []
    for token in reversed(parse(readable(text)).tokens):
        arity = PRIMITIVES[token].arity if token in PRIMITIVES else 0
        stack.append(Node(token, tuple(stack.pop() for _ in range(arity))))
    return stack.pop()


def mathml(text: str, name: str = "score") -> Markup:
    """MathML of ``name = expression``, for the expression `text`."""
    body = f"<mi>{escape(name)}</mi><mo>=</mo>" if name else ""
    return Markup(
        f'<math display="block" aria-label="{escape(readable(text))}"><mrow>{body}{_math(tree_of(text))[0]}'
        "</mrow></math>"
    )


def _math(node: Node) -> tuple[str, int]:
    """MathML of a node and its binding strength, as in `scrapy_gp4c.scoring.expression`."""
    token = node.token
    if isinstance(token, float):
        return _number(token)
    if token not in PRIMITIVES:
        return _terminal(token), 9
    inner = [_math(child) for child in node.children]
    match token:
        case "/" | "div":
            return f"<mfrac><mrow>{inner[0][0]}</mrow><mrow>{inner[1][0]}</mrow></mfrac>", 8
        case "pow":
            return f"<msup><mrow>{_closed(inner[0], 9)}</mrow><mrow>{inner[1][0]}</mrow></msup>", 8
        case "exp":
            return f"<msup><mi>e</mi><mrow>{inner[0][0]}</mrow></msup>", 8
        case "sqrt":
            return f"<msqrt><mrow>{inner[0][0]}</mrow></msqrt>", 9
        case "abs":
            return f"<mrow><mo>|</mo>{inner[0][0]}<mo>|</mo></mrow>", 9
        case "neg":
            return f"<mrow><mo>−</mo>{_closed(inner[0], 2)}</mrow>", 0
        case "+" | "-" | "*":
            strength = PRIMITIVES[token].infix
            strength_left = 0 if strength == 1 else strength  # a leading minus sign needs no parentheses
            right = strength + (token == "-")
            arguments = f"{_closed(inner[0], strength_left)}<mo>{SIGNS[token]}</mo>{_closed(inner[1], right)}"
            return f"<mrow>{arguments}</mrow>", strength
    name = {"log": "ln"}.get(token, token)
    arguments = "<mo>,</mo>".join(text for text, _ in inner)
    return f"<mrow><mi>{name}</mi><mo>(</mo>{arguments}<mo>)</mo></mrow>", 9


def _closed(inner: tuple[str, int], strength: int) -> str:
    text, binding = inner
    return f"<mrow><mo>(</mo>{text}<mo>)</mo></mrow>" if binding < strength else text


def _number(value: float) -> tuple[str, int]:
    mantissa, _, exponent = f"{abs(value):g}".partition("e")
    text = f"<mn>{mantissa}</mn>"
    if exponent:
        text = f"<mrow>{text}<mo>·</mo><msup><mn>10</mn><mn>{int(exponent)}</mn></msup></mrow>"
        strength = 2
    else:
        strength = 9
    return (f"<mrow><mo>−</mo>{text}</mrow>", 0) if value < 0 else (text, strength)


def _terminal(name: str) -> str:
    base, _, suffix = name.partition("_")
    if suffix == "rate" and base in PAPERS:  # the rate in 1 - exp(-rate * t) of Tan and Mitra
        return f'<msub><mi>λ</mi><mi mathvariant="normal">{escape(base.upper())}</mi></msub>'
    return f"<mi>{escape(name if len(name) == 1 else name.upper())}</mi>"


def tree(text: str) -> Markup:
    """SVG of the expression's tree: operators round, terminals filled, constants plain."""
    root = tree_of(text)
    edges: list[str] = []
    nodes: list[str] = []
    depth, width = 0, 0.0

    def put_node(node: Node, level: int) -> tuple[float, float]:
        """Draw a node above the middle of its children, and these; return its position."""
        nonlocal depth, width
        y, depth = 24 + level * LEVEL_PX, max(depth, level)
        number = len(nodes)
        nodes.append("")
        positions = [put_node(child, level + 1) for child in node.children]
        if positions:
            x = (positions[0][0] + positions[-1][0]) / 2
        else:
            room = max(STEP_PX, 2 * _half(_label(node)[1]) + 12)
            x, width = width + room / 2, width + room
        edges.extend(
            f'<path class="edge" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>' for to_x, to_y in positions
        )
        nodes[number] = _box(node, x, y)
        return x, y

    put_node(root, 0)
    names = escape(readable(text))
    height = 48 + depth * LEVEL_PX
    return Markup(
        f'<svg class="tree" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="Expression tree of {names}">{"".join(edges)}{"".join(nodes)}</svg>'
    )


def _label(node: Node) -> tuple[str, str]:
    """Kind of a node (its CSS class), and the text written in it."""
    token = node.token
    if isinstance(token, float):
        return "constant", f"{token:.4g}".replace("-", "−")
    if token in PRIMITIVES:
        return "operator", {"*": "×", "log": "ln"}.get(token, SIGNS.get(token, token))
    return "terminal", token


def _half(text: str) -> float:
    """Half the width of a node with the label `text`."""
    return max(16.0, 4.0 + 4.2 * len(text))


def _box(node: Node, x: float, y: float) -> str:
    kind, text = _label(node)
    half = _half(text)
    return (
        f'<g class="node {kind}"><rect x="{x - half:.1f}" y="{y - 15:.1f}" width="{2 * half:.1f}" '
        f'height="30" rx="{15 if kind == "operator" else 6}"/>'
        f'<text x="{x:.1f}" y="{y + 5:.1f}" text-anchor="middle">{escape(text)}</text></g>'
    )
