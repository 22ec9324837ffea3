"""Data in the markup of pages that no text shows."""

import pytest

from scrapy_gp4c.fingerprint.markup_data import data_sum


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("<li class='in-stock {}'>", True), ("<b itemprop=price content='{}'>", True),
        ("<script>f({{'rating': {}}})</script>", True), ("<!-- availability={} -->", True),
        ("<p>price: {}</p>", False), ("<b class='{}'>", False), ("<b data-id={}>", False),
        ("<script>stock()</script>{}", False), ("<p>in stock</p><b id={}>", False),
    ],
)  # fmt: skip
def test_named_data_of_the_markup_counts(source: str, counts: bool) -> None:
    """Texts do not: the fingerprint has them; nor do other names, nor any value of a page without data."""
    assert (data_sum(source.format(1)) != data_sum(source.format(2))) is counts
    assert bool(data_sum(source.format(1))) is counts


@pytest.mark.parametrize(
    "piece", ["<script>price ", "<script>price=' </script>", "<a price", "class=' stock"]
)
def test_hostile_markup_is_read_to_its_end(piece: str) -> None:
    """It costs time in proportion to its size."""
    assert data_sum(piece * 20_000) == data_sum(piece * 20_000)
