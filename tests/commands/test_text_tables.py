"""Tables for the terminal."""

from __future__ import annotations

from scrapy_gp4c.commands.text_tables import table_lines, width_of


def test_wide_letters_take_two_columns() -> None:
    """Columns stay aligned with Chinese, Korean, full width and combining letters."""
    texts = ("abc", "\u4e2d\u6587", "\ud55c", "\uff21", "e\u0301")
    assert [width_of(text) for text in texts] == [3, 4, 2, 2, 1]
    lines = table_lines([("site", "pages", "URL"), ("\u4e2d\u6587", "1", "a"), ("e\u0301", "22", "b")], 1)
    assert [width_of(line) for line in lines] == [len("site  pages  URL"), *[len("site  pages  a")] * 2]
