"""Sums over visits, by directory and site."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

from numba import njit


@njit(cache=True)
def add(group, found, tried, sign, site, of_directory, of_site):
    """Add `sign` times the changes `found` by visits, `tried`, to sums of both.

    ``group``: directory of each entry; ``site``: of each directory; ``of_directory``, ``of_site``: two sums
    each, changes and visits.
    """
    directory_found, directory_tried = of_directory
    site_found, site_tried = of_site
    for i in range(len(group)):
        own = group[i]
        above = site[own]
        directory_found[own] += sign * found[i]
        directory_tried[own] += sign * tried[i]
        site_found[above] += sign * found[i]
        site_tried[above] += sign * tried[i]
