"""The sections of the report of a learned score function (`training.reporting.study.Study`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from scrapy_gp4c.scoring.expression import parse
from training.comparing import statistics
from training.comparing.trials import BASELINES, COMPETITIVE, best_baseline, values
from training.evolution.learning import LEARNED
from training.evolution.simplify import readable
from training.replaying.metrics import ORACLE, TRIO
from training.reporting import charts, formula, svg
from training.reporting.charts import SHARES, shown
from training.reporting.difference import difference_section
from training.reporting.glossary import DEFINITIONS, term_of
from training.reporting.page import Card, Page, Section, defined, figure, fold_away, paragraph, table
from training.reporting.page import formula as formula_block
from training.reporting.study import HEADLINE, Formula, Lead, Study, lead, points, signed


def page(study: Study) -> Page:
    """The report."""
    leads = {metric: lead(study, metric) for metric in TRIO}
    head = leads[HEADLINE]
    sections = [
        _worth(study, head),
        _curves(study),
        _ranking(study),
        formula_section(study.formulas),
        difference_section(study, head),
        _budgets(study),
        *study.more,
    ]
    return Page(
        study.title,
        _headline(head),
        shown(head.ours, True),
        DEFINITIONS[HEADLINE][1],
        [_card(one) for one in leads.values()],
        [section for section in sections if section.blocks or section.lead],
        study.facts,
        study.created,
    )


def _headline(head: Lead) -> str:
    baseline = f"{head.baseline} ({shown(head.theirs, True)})"
    found = "of the learned function's visits found a change"
    p = f"p {_p(head.p)}"
    match head.word:
        case "better":
            return f"{found}: significantly more than the best baseline, {baseline}; {p}."
        case "worse":
            return (
                f"{found}: significantly fewer than the best baseline, {baseline}; {p}. Use {head.baseline}."
            )
    direction = "more" if head.difference.mean > 0 else "fewer"
    return f"{found}, {direction} than the best baseline, {baseline}, but not significantly so; {p}."


def _p(p: float) -> str:
    return "unknown" if math.isnan(p) else "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _card(one: Lead) -> Card:
    percent = one.metric in SHARES
    difference = signed(one.difference.mean, percent)
    half = one.difference.half_width
    interval = "" if math.isnan(half) else f" ± {points(half, percent)}"
    return Card(
        one.metric,
        shown(one.ours, percent),
        [
            Markup("best {}: {} {}").format(defined("baseline"), one.baseline, shown(one.theirs, percent)),
            Markup("difference {}{}, {} {}").format(difference, interval, defined("p", "p"), _p(one.p)),
        ],
        one.word,
    )


def _worth(study: Study, head: Lead) -> Section:
    """What to expect, and what it costs if the test was lucky."""
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
        _whole(mean),
        defined("interval", "95% interval"),
        _whole(low),
        _whole(high),
    )
    per_cycle = study.visits_per_cycle
    gains = [
        ("expected", mean),
        ("cost of being wrong: low end of the interval", low),
        ("high end of the interval", high),
        (f"worst of {len(head.by_cycle)} cycles", 1000 * head.by_cycle.min()),
    ]
    if folds > 1:
        gains.insert(3, (f"worst of {folds} folds", 1000 * head.by_fold.min()))
    rows = [[name, _whole(gain), _whole(gain * per_cycle / 1000, 1)] for name, gain in gains]
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


def _whole(value: float, digits: int = 0) -> str:
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
        names = charts.with_oracle(study.trials, metric, names)
        chart = charts.methods(study.trials, metric, study.learned[metric], names)
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
                    shown(mean.mean, percent),
                    "–"
                    if math.isnan(mean.half_width)
                    else points(mean.half_width, percent).removesuffix(" points"),
                    svg.bar(mean.mean, mean.half_width, *scales[metric], name == LEARNED),
                )
            )
        cells.append(row)
    place = [name for name, _ in rows].index(LEARNED)
    return Section(
        "Ranking of the score functions",
        "By change rate. A function that finds most changes need not keep most copies current: pages that "
        "always change are sure finds, and stale again a cycle later.",
        [
            table(
                ["score function", *(defined(metric) for metric in TRIO)],
                cells,
                Markup("Means over all cycles and test sets {}").format(defined("interval")),
                strong=[place],
            )
        ],
    )


def formula_section(formulas: Sequence[Formula]) -> Section:
    """Learned functions, the first one at large."""
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
    section.blocks.append(
        formula_block(formula.mathml(first.text), readable(first.text), formula.tree(first.text), caption)
    )
    if len(formulas) > 1:
        rows = [
            [one.name, formula.mathml(one.text, ""), *(shown(value, False) for value in one.values.values())]
            for one in formulas
        ]
        head = ["learned", "score function", *first.values]
        section.blocks.append(fold_away("The functions of all folds", table(head, rows, words=2)))
    return section


def _terminals(text: str) -> Markup:
    """What the names in a formula mean."""
    names = dict.fromkeys(term_of(name.removesuffix("_rate")) for name in parse(text).terminals)
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
            figure(charts.budgets(study.trials, metric, study.budget_names), DEFINITIONS[metric][1])
            for metric in ("change_rate", "ndcg")
        ],
    )
