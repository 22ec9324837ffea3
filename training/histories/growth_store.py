"""Growth in the stores of crawls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.store.claims_text import claims_between
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.page_store import PageStore
from training.histories.growth import GrowthHistory
from training.histories.growth_visits import Visited, growth_of
from training.histories.store_window import Outcomes


def read_store_growth(path: Path) -> GrowthHistory:
    """Growth in the store at `path`, as `growth_of`.

    Raises HistoryError for a directory that is no store, or whose pages were visited now and then.
    """
    from scrapy_gp4c.store.opening import open_store  # needs lmdb; only a store does

    try:
        with open_store(path, readonly=True) as store:
            return growth_of(_visited(path, store))
    except StoreError as error:
        raise HistoryError(
            f"{path} is a directory, but no store of a crawl to read growth from: {error}"
        ) from error


def _visited(path: Path, store: PageStore) -> Visited:
    outcomes = Outcomes(store, everything=True)
    columns = store.columns_of(outcomes.page.astype(np.uint32))
    shown = Credentials.of_store(store.cycles()).url

    def urls(pages: npt.NDArray[np.intp]) -> list[str]:
        return [shown(stored["url"]) for stored in store.requests(pages)]

    claims = claims_between(store, 0, len(outcomes.page))
    return Visited(
        str(path),
        outcomes.judged,
        outcomes.changed,
        columns["entered"],
        columns["first_cycle"],
        columns["found_by"],
        urls,
        columns["key"].astype(np.uint64),
        columns["weight"],
        claims[np.argsort(claims["cycle"], kind="stable")],
    )
