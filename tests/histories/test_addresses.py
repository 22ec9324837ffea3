"""Addresses of pages: what Table 1 and Figure 4 of Tan et al. 2007 count, and clusters tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from training.histories.history import ChangeHistory, addresses_of, depth_of, domain_of


def history(names: list[str] | None) -> ChangeHistory:
    """Three pages of two sites."""
    return ChangeHistory(
        np.ones((2, 3), np.bool_), np.array([0, 1, 1]), site_names=["www.a.edu", "ota/b"], page_names=names
    )


def test_addresses_have_site_and_path() -> None:
    """Of paths with and without a slash, and of whole URLs, which name their host themselves."""
    found = addresses_of(history(["/x/1", "y", "https://c.gov:80/z?q=1"]))
    assert found == ["www.a.edu/x/1", "ota/b/y", "c.gov:80/z?q=1"]
    assert [domain_of(one) for one in found] == ["edu", "ota", "gov:80"]
    assert [depth_of(one) for one in found] == [2, 2, 1]


def test_pages_without_names_have_none() -> None:
    """One error, that names the history."""
    with pytest.raises(HistoryError, match="memory does not tell the names"):
        addresses_of(history(None))
