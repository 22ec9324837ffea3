"""Links in sources of pages: what counts as one, and where it leads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.clustering.clusters import count_images, links_of, targets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md)", ["b.md"]),
        ("[a]( <b.md> )", ["b.md"]),
        ('[a](b.md "a title")', ["b.md"]),
        ("[a](b.md#part) [c](d?x=1#e)", ["b.md", "d"]),
        ("![an image](b.png)", []),
        ("[away](https://h/b.md)", []),
        ("[two\nlines](b.md)", []),
        ("[a] (b.md)", []),
        (":doc:`guide/install`", ["guide/install"]),
        (":doc:`how to <guide/install>`", ["guide/install"]),
        (":pep:`8` :pep:`Typing <484>` :pep:`3107`", ["pep-0008", "pep-0484", "pep-3107"]),
        (":ref:`elsewhere`", []),
        ("[](b.md)", ["b.md"]),
    ],
)
def test_what_a_source_links_to(text: str, expected: list[str]) -> None:
    """Markdown and reST links within the site, without part and query; no images."""
    assert list(targets(text)) == expected


@given(st.lists(st.sampled_from(["![i](a.png)", "[x](a.md)", ".. image:: a.png", "text", ":doc:`a`"])))
def test_images_are_counted_in_both_formats(parts: list[str]) -> None:
    """Each once; links are none."""
    assert count_images("\n".join(parts)) == sum("image" in part or part[0] == "!" for part in parts)


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("page", "a/page.md"),
        ("page.md", "a/page.md"),
        ("./page", "a/page.html"),
        ("../page", "page.rst"),
        ("page", "a/page/index.md"),
        ("page/", "a/page/_index.md"),
        ("page", "a/page/README.md"),
        ("/b/page", "b/page.mdx"),
        ("../a/../b/page.rst", "b/page.rst"),
    ],
)
def test_a_link_finds_its_page_as_it_is_named(target: str, page: str) -> None:
    """Beside the linking page or from the root, whatever the ending; not the same page of another site."""
    links = links_of([0, 0, 1], ["a/from.md", page, page], [f"[x]({target})", "", ""])
    assert [*zip(links.source.tolist(), links.target.tolist(), strict=True)] == [(0, 1)]
    assert links.pages == 3


@given(st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=6))
def test_links_are_pairs_once_and_never_to_oneself(told: list[list[int]]) -> None:
    """Sorted by page; what leads nowhere is left out."""
    pages = [f"{number}.md" for number in range(len(told))]
    texts = [" ".join(f"[x]({other}.md)" for other in others) for others in told]
    links = links_of([0] * len(told), pages, texts)
    expected = {(a, b) for a, others in enumerate(told) for b in others if a != b and b < len(told)}
    assert [*zip(links.source.tolist(), links.target.tolist(), strict=True)] == sorted(expected)
    assert links.source.dtype == links.target.dtype == np.intp


def test_the_first_ending_that_fits_decides() -> None:
    """The name as it is written goes before the one with an ending, a file before an index of a directory."""
    pages = ["from.md", "x/index.md", "x.rst", "x.md", "x"]
    for left in range(len(pages) - 1, 0, -1):
        links = links_of([0] * (left + 1), pages[: left + 1], ["[x](x)", *[None] * left])
        assert links.target.tolist() == [left]
