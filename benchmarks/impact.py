"""Cost of measuring refresh values, and the error of the estimates.

Run: ``python -m benchmarks.impact [CONTENTS] [--accuracy] [--updates N] [--indexing MB]``. It takes processor
time: of the estimate for a refreshed page, in a batch, beside the fingerprint of its text; of a refit of
5,000 terms and 100,000 pages; of the exact quality of a run over all weeks; of updating a search index, with
and without measuring (``--indexing``: so many megabytes, as a curve). ``--accuracy`` takes updates at random,
each refreshed alone, and compares the estimates with the exact changes, for the single terms Q' and the
queries Q. docs/lab/user-centric.md has figures. Without CONTENTS it makes some: 400 pages over 12 weeks.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import spearmanr

from benchmarks.indexing import Point, curve
from benchmarks.indexing import draw as draw_curves
from scrapy_gp4c.fingerprint import fingerprint_of_text
from scrapy_gp4c.search.gains import Refreshes, impacts, refit
from scrapy_gp4c.search.measuring import Postings
from scrapy_gp4c.search.queries import Workload, workload
from training.histories.contents import read_contents
from training.papers.user_centric import Trial, prepared, updates_of
from training.replaying.refresh_value import QualityMeasure, estimator_of
from training.replaying.search import WorkloadPlan, above_knee, count, draw, search

TERMS, PAGES, PER_PAGE = 5_000, 100_000, 50


def best_s(call: Callable[[], object], times: int = 3) -> float:
    """The least processor time of several runs, in seconds."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def time_estimates(trial: Trial, updates: int) -> None:
    """Print the time of the estimate for a page beside that of its fingerprint."""
    corpus, contents = trial.corpus, trial.corpus.contents
    estimator = estimator_of(corpus, trial.how)
    versions = updates_of(trial, 1, trial.history.cycles).version
    chosen = np.random.default_rng(1).permutation(versions)[:updates]
    texts, prepared_pages = [], []
    for new in chosen.tolist():
        sides = [dict(zip(*occurrences(trial, version), strict=True)) for version in (new - 1, new)]
        terms = np.array(sorted(sides[0].keys() | sides[1].keys()), np.int64)
        before, after = (
            Postings(
                terms,
                np.array([side.get(term, 0) for term in terms.tolist()], np.int64),
                np.full(len(terms), corpus.length[version]),
            )
            for side, version in zip(sides, (new - 1, new), strict=True)
        )
        texts.append(contents.texts[new] or "")
        prepared_pages.append(Refreshes(np.zeros(len(terms), np.int64), before, after))
    batch = together(prepared_pages)
    estimates = best_s(lambda: impacts(estimator, batch, len(texts)))
    one_by_one = best_s(lambda: [impacts(estimator, page, 1) for page in prepared_pages])
    fingerprints = best_s(lambda: [fingerprint_of_text(text) for text in texts])
    each = [1e3 * taken / len(texts) for taken in (estimates, one_by_one, fingerprints)]
    print(
        f"estimate of a page {each[0]:.2f} ms ({each[1]:.2f} ms alone), its fingerprint {each[2]:.2f} ms: "
        f"{estimates / fingerprints:.2f}"
    )


def together(pages: list[Refreshes]) -> Refreshes:
    """Join refreshes of single pages to one batch."""

    def joined(side: str) -> Postings:
        parts = [getattr(page, side) for page in pages]
        return Postings(
            *(np.concatenate([getattr(one, name) for one in parts]) for name in ("term", "tf", "length"))
        )

    numbers = [np.full(len(page.refresh), number) for number, page in enumerate(pages)]
    return Refreshes(np.concatenate(numbers), joined("before"), joined("after"))


def occurrences(trial: Trial, version: int) -> tuple[list[int], list[int]]:
    """Terms of the queries (Q') in a version, and the count of each."""
    rows = slice(trial.corpus.start[version], trial.corpus.start[version + 1])
    return trial.corpus.term[rows].tolist(), trial.corpus.tf[rows].tolist()


def time_refit() -> None:
    """Print the time of a refit of the estimator with `TERMS` terms and `PAGES` pages."""
    rng = np.random.default_rng(1)
    size = PAGES * PER_PAGE
    term = np.minimum(TERMS * rng.random(size) ** 3, TERMS - 1).astype(np.int64)
    pairs = np.unique(np.repeat(np.arange(PAGES), PER_PAGE) * TERMS + term)
    page, term = np.divmod(pairs, TERMS)
    size = len(pairs)
    postings = Postings(term, rng.integers(1, 9, size), rng.integers(50, 5_000, PAGES)[page])
    taken = best_s(lambda: refit("tfidf", np.full(TERMS, 1 / TERMS), postings, PAGES, 2_500.0), 1)
    print(f"refit of {TERMS:,} terms and {PAGES:,} pages ({size:,} occurrences): {taken:.2f} s")


def show_accuracy(trial: Trial, updates: int) -> None:
    """Print estimates beside exact changes of quality, each update refreshed alone."""
    updates_drawn = updates_of(trial, 1, trial.history.cycles)
    chosen = np.random.default_rng(2).permutation(len(updates_drawn.page))[:updates]
    version = trial.corpus.contents.version
    first_seen = np.array(
        [np.flatnonzero(version[:, updates_drawn.page[i]] == updates_drawn.version[i])[0] for i in chosen]
    )
    order = np.argsort(first_seen, kind="stable")
    chosen, cycle = chosen[order], first_seen[order]
    before = version[cycle - 1].copy()
    after = before.copy()
    after[np.arange(len(chosen)), updates_drawn.page[chosen]] = updates_drawn.version[chosen]
    both = np.stack((before, after), axis=1).reshape(-1, version.shape[1])
    live = np.repeat(after, 2, axis=0)
    for name, queries in (("Q'", singles(trial.how.workload)), ("Q", trial.how.workload)):
        answers = search(trial.corpus, queries, trial.how.scoring, trial.how.importance)
        exact = np.diff(answers.usefulness(both, live).reshape(-1, 2), axis=1)[:, 0]
        rank = spearmanr(updates_drawn.gained[chosen], exact).statistic
        print(f"{len(chosen)} updates, estimates against exact changes on {name}: Spearman {rank:.3f}")


def show_indexing(points: list[Point], figure: Path | None) -> None:
    """Print, and draw to ``figure``, the processor time of indexing with and without measuring."""
    for point in points:
        print(
            f"indexing {point.megabytes:g} MB of changed texts: {point.measuring_s:.2f} s with measuring, "
            f"{point.without_s:.2f} s without: {point.ratio:.2f}"
        )
    if figure is not None:
        draw_curves(points, figure)


def singles(queries: Workload) -> Workload:
    """Q': a query for each single term of ``queries``."""
    return workload(
        {(term,): float(f) for term, f in zip(queries.terms, queries.term_frequency, strict=True)}
    )


def write_contents(path: Path, pages: int = 400, weeks: int = 12) -> Path:
    """Write a file of contents with Zipf-distributed words; a fifth of the pages change lines at random."""
    rng = np.random.default_rng(1)

    def line() -> str:
        return " ".join(f"word{rank}" for rank in rng.zipf(1.4, 12) % 50_000)

    with open(path, "w", encoding="utf-8") as file:
        for page in range(pages):
            lines = [f"# {line()}", *(line() for _ in range(60))]
            versions = {0: "\n".join(lines)}
            for week in range(1, weeks + 1):
                if page % 5 == 0 and rng.random() < 0.5:
                    lines[int(rng.integers(len(lines)))] = line()
                    versions[week] = "\n".join(lines)
            file.write(json.dumps({"site": "made", "page": str(page), "versions": versions}) + "\n")
    return path


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("contents", nargs="?", help="JSON lines of site, page and versions")
    parser.add_argument("--accuracy", action="store_true", help="compare with exact changes")
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--indexing", type=float, metavar="MB", help="index so many MB of changed texts")
    parser.add_argument("--figure", type=Path, metavar="OUT", help="with --indexing: draw the curves")
    parser.add_argument("--site", help="only the pages of this site")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        contents = read_contents(
            options.contents or write_contents(Path(folder) / "contents.jsonl"), options.site
        )
    drawn = draw(contents, WorkloadPlan())
    corpus = count(contents)
    workload, _ = above_knee(corpus.of(drawn), drawn)
    trial = prepared("impact", corpus.of(workload), QualityMeasure(workload))
    if options.accuracy:
        show_accuracy(trial, options.updates)
        return
    if options.indexing:
        show_indexing(curve(contents, workload, options.indexing), options.figure)
        return
    time_estimates(trial, options.updates)
    time_refit()
    show_indexing(curve(contents, workload, 1.0)[-1:], None)
    versions = trial.search.live
    held = np.repeat(versions[:1], len(versions) - 1, axis=0)
    for cycle in range(1, len(held)):  # a run: a twentieth of the pages in turn
        held[cycle:, cycle % 20 :: 20] = versions[cycle + 1, cycle % 20 :: 20]
    trial.search.quality(held[:2])
    taken = best_s(lambda: trial.search.quality(held))
    size = f"{held.shape[1]:,} pages, {len(held)} weeks, {len(workload.queries):,} queries"
    print(f"exact quality of {size}: {taken:.2f} s")


if __name__ == "__main__":
    main()
