"""Links between pages of recorded contents: how they are written, and where they lead."""

from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training.histories.history import ChangeHistory
from training.histories.links import links_of


def linked(texts: dict[str, str | None], sites: list[int] | None = None) -> list[tuple[int, int]]:
    """Numbers of linking and linked page; ``texts``: name -> text."""
    site = np.array(sites or [0] * len(texts), np.int32)
    history = ChangeHistory(np.zeros((2, len(texts)), np.bool_), site, page_names=list(texts))
    links = links_of(history, list(texts.values()))
    assert links.pages == len(texts)
    assert links.source.dtype == links.target.dtype == np.intp
    return [*zip(links.source.tolist(), links.target.tolist(), strict=True)]


DOCS = "docs"
"""The folder that links from the root may leave out."""
OTHERS = (
    f"{DOCS}/a.md",
    f"{DOCS}/b/index.md",
    "c.rst",
    f"{DOCS}/guide/d.html",
    "README.md",
    f"{DOCS}/e/_index.md",
)


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("a.md", f"{DOCS}/a.md"),
        ("A.MD", f"{DOCS}/a.md"),
        ("./a", f"{DOCS}/a.md"),
        ("a/", f"{DOCS}/a.md"),
        ("a#part", f"{DOCS}/a.md"),
        ("a.html?x=1", f"{DOCS}/a.md"),
        ("../a", f"{DOCS}/a.md"),
        (f"../{DOCS}/a.rst", f"{DOCS}/a.md"),
        ("d", f"{DOCS}/guide/d.html"),
        ("%61.md", f"{DOCS}/a.md"),
        ("b/", f"{DOCS}/b/index.md"),
        ("b/index.html", f"{DOCS}/b/index.md"),
        ("e/", f"{DOCS}/e/_index.md"),
        ("/docs/b", f"{DOCS}/b/index.md"),
        ("/a", f"{DOCS}/a.md"),
        ("/c.html", "c.rst"),
        ("../c.rst", "c.rst"),
        ("/", "README.md"),
        ("#part", None),
        ("guide", None),
        ("elsewhere.md", None),
        (f"https://example.com/{DOCS}/a.md", None),
        (f"//example.com/{DOCS}/a.md", None),
        (f"//[example.com/{DOCS}/a.md", None),
        ("../../../c.rst", None),
    ],
)
def test_where_a_link_leads(target: str, page: str | None) -> None:
    """Beside the page, below it, from the root or from docs; hosts are elsewhere, the page itself nowhere."""
    texts = {f"{DOCS}/guide.md": f"see [here]({target})", **dict.fromkeys(OTHERS)}
    assert linked(texts) == ([] if page is None else [(0, 1 + OTHERS.index(page))])


@pytest.mark.parametrize(
    "text",
    [
        "[to](b.md)",
        "[](b.md)",
        "[two\nlines]( b.md 'title')",
        "[to](<b.md>)",
        '<a class=x href="b.html">to</a>',
        "<a href='b'>to</a>",
        "[to]: b.md",
        "text\n  [to]: ./b",
        "`to <b.rst>`_",
        ":doc:`b`",
        ":doc:`how to <b>`",
        "[![image](i.png)](b)",
    ],
)
def test_what_is_a_link(text: str) -> None:
    """In Markdown, HTML and reStructuredText."""
    assert linked({"a": text, "b": ""}) == [(0, 1)]


@pytest.mark.parametrize(
    "text", ["b.md", "(b.md)", "[b.md]", "`b.md`", "href=b.md", "[to] b.md", ":ref:`b`", None]
)
def test_what_is_none(text: str | None) -> None:
    """Names alone are text; a page that is not there links to nothing."""
    assert linked({"a": text, "b": ""}) == []


def test_proposals_of_python_are_links() -> None:
    """By their number, with or without a title."""
    proposals = {"peps/pep-0008.rst": "", "peps/pep-0484.rst": "", "peps/pep-3107.rst": ""}
    assert linked({**proposals, "peps/x.rst": ":pep:`8` :pep:`Typing <484>` :pep:`3107`"}) == [
        (3, 0),
        (3, 1),
        (3, 2),
    ]


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), min_size=5, max_size=5))
def test_links_are_pairs_once_and_of_one_site(targets: list[list[int]]) -> None:
    """Sorted by page, however often a page links to another; none to itself or to another site."""
    sites = [0, 0, 0, 1, 1]
    texts: dict[str, str | None] = {
        f"p{page}.md": " ".join(f"[x](p{target})" for target in of_page)
        for page, of_page in enumerate(targets)
    }
    pairs = {(a, b) for a, of_page in enumerate(targets) for b in of_page if a != b and sites[a] == sites[b]}
    assert linked(texts, sites) == sorted(pairs)


@example("//[")
@example("http:////]")
@given(st.text("ab./:[]%#?@\u2100 <>\"'()", max_size=12))
def test_no_text_of_a_link_is_an_error(target: str) -> None:
    """Links whose texts are no addresses are left out."""
    for text in (f"[x]({target})", f"<a href='{target}'>", f"[x]: {target}"):
        assert linked({"a.md": text, "b.md": ""}) in ([], [(0, 1)] if "b" in target else [])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), st.lists(st.sampled_from("xyz"), min_size=1))
def test_a_relative_link_is_resolved_as_a_path(folder: list[str], steps: list[str]) -> None:
    """Up as many folders as the page is deep, then down: the page that stands there."""
    page, target = "/".join([*folder, "page.md"]), "/".join([*steps, "target.md"])
    assert linked({page: f"[x]({'../' * len(folder)}{PurePosixPath(target)})", target: ""}) == [(0, 1)]
