"""Answers to a workload, query by query, as `scrapy_gp4c.search.measuring` defines them, for many cycles."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from training.replaying.kernels.compiling import outer

LIVE, COPY = 1, 2
"""Flags of a version: it is its page's live version; the copy of its page holds it."""


@outer
def usefulness(start, version, page, score, looks, is_now, truth, scored, waiting, by_query, is_due):
    """Write the usefulness of every answer to `by_query`: sum over ranks of looks times live version's score.

    Queries that are not `is_due` are left out. `start[q]`: first entry of query q, best score first;
    `version`, `page`, `score`: of each entry; `looks`: by rank; `is_now`: `LIVE` and `COPY`, by version.
    Scratch by page: `scored` (-1 at first), `truth` and `waiting`, for copies listed before live versions.
    """
    for query in range(len(start) - 1):
        if not is_due[query]:
            continue
        rank = 0
        others = 0
        total = 0.0
        for entry in range(start[query], start[query + 1]):
            what = is_now[version[entry]]
            if what == LIVE + COPY:
                total += looks[rank] * score[entry]
                rank += 1
            elif what == COPY:
                waiting[0, others] = rank
                waiting[1, others] = page[entry]
                others += 1
                rank += 1
            elif what == LIVE:
                truth[page[entry]] = score[entry]
                scored[page[entry]] = query
        for one in range(others):
            if scored[waiting[1, one]] == query:
                total += looks[waiting[0, one]] * truth[waiting[1, one]]
        by_query[query] = total


@outer
def clicks(start, version, page, looks, frequency, is_copy, clicked):
    """Add to `clicked`, by page, how often users look at its copy in all answers; `is_copy`: by version."""
    for query in range(len(start) - 1):
        rank = 0
        for entry in range(start[query], start[query + 1]):
            if is_copy[version[entry]]:
                clicked[page[entry]] += frequency[query] * looks[rank]
                rank += 1
