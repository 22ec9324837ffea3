"""Names of a store's sites, of which the store keeps only keys."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.protocols import PageReader


def site_names(store: PageReader, sites: Iterable[int]) -> dict[int, str]:
    """Names of sites by their keys, from the URL of any page that a site still has."""
    of_directory = store.directories()["site"]
    todo, names = set(sites), dict[int, str]()
    for first, block in store.blocks() if todo else ():
        groups, rows = np.unique(block["group"], return_index=True)
        for group, row in zip(groups.tolist(), rows.tolist(), strict=True):
            site = int(of_directory[group])
            if site in todo:
                url_place = place_of_url(store.request(first + row)["url"])
                if url_place.site_key == site:  # else the page is requested elsewhere by now
                    todo.remove(site)
                    names[site] = url_place.site
        if not todo:
            break
    return names
