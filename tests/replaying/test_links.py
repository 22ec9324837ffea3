"""Links between texts: what is a link, where it leads, what counts."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.replaying.links import importance


def counted(texts: dict[str, str | None], sites: list[int] | None = None) -> dict[str, float]:
    """Importance by page name; ``texts``: name -> text in cycle 0."""
    pages = len(texts)
    numbers = np.arange(pages, dtype=np.int32)
    history = ChangeHistory(np.ones((1, pages), bool), sites or np.zeros(pages, int), page_names=list(texts))
    contents = ContentHistory(
        history, np.array([numbers, numbers]), np.arange(pages + 1, dtype=np.int32), list(texts.values())
    )
    return dict(zip(texts, importance(contents).tolist(), strict=True))


def linked(page: str, target: str, others: tuple[str, ...]) -> set[str]:
    """The pages that count one more for a link of a page."""
    found = counted({page: f"see [here]({target})", **dict.fromkeys(others, "")})
    assert set(found.values()) <= {1.0, 2.0}
    return {name for name, number in found.items() if number == 2.0}


DOCS = "docs"
"""The folder that links from the root may leave out."""
OTHERS = (f"{DOCS}/a.md", f"{DOCS}/b/index.md", "c.rst", f"{DOCS}/guide/d.html", "README.md")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("a.md", {f"{DOCS}/a.md"}),
        ("A.MD", {f"{DOCS}/a.md"}),
        ("./a", {f"{DOCS}/a.md"}),
        ("a/", {f"{DOCS}/a.md"}),
        ("a#part", {f"{DOCS}/a.md"}),
        ("a.html?x=1", {f"{DOCS}/a.md"}),
        ("../a", {f"{DOCS}/a.md"}),
        ("d", {f"{DOCS}/guide/d.html"}),
        ("%61.md", {f"{DOCS}/a.md"}),
        ("b/", {f"{DOCS}/b/index.md"}),
        ("b/index.html", {f"{DOCS}/b/index.md"}),
        (f"/{DOCS}/b", {f"{DOCS}/b/index.md"}),
        ("/a", {f"{DOCS}/a.md"}),
        ("/c.html", {"c.rst"}),
        ("../c.rst", {"c.rst"}),
        ("/", {"README.md"}),
        ("#part", set()),
        ("guide", set()),
        ("elsewhere.md", set()),
        (f"https://example.com/{DOCS}/a.md", set()),
        (f"//example.com/{DOCS}/a.md", set()),
        (f"//[example.com/{DOCS}/a.md", set()),
        ("../../../c.rst", set()),
    ],
)
def test_where_a_link_leads(target: str, wanted: set[str]) -> None:
    """Beside the page, below it, from the root or from docs; hosts are elsewhere, the page itself nowhere."""
    assert linked(f"{DOCS}/guide.md", target, OTHERS) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "[to](b.md)",
        "[to]( b.md 'title')",
        "[to](<b.md>)",
        '<a class=x href="b.html">to</a>',
        "<a href='b'>to</a>",
        "[to]: b.md",
        "text\n  [to]: ./b",
        "`to <b.rst>`_",
        "![image](b)",
    ],
)
def test_what_is_a_link(text: str) -> None:
    """In Markdown, HTML and reStructuredText."""
    assert counted({"a": text, "b": ""}) == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize("text", ["b.md", "(b.md)", "[b.md]", "`b.md`", "href=b.md", "[to] b.md", None])
def test_what_is_none(text: str | None) -> None:
    """Names alone are text; a page that is not there links to nothing."""
    assert counted({"a": text, "b": ""}) == {"a": 1.0, "b": 1.0}


@given(st.lists(st.lists(st.integers(0, 4), max_size=8), min_size=5, max_size=5))
def test_pages_that_link_are_counted_once_each(targets: list[list[int]]) -> None:
    """However often they link; links to themselves and from other sites do not count."""
    sites = [0, 0, 0, 1, 1]
    texts: dict[str, str | None] = {
        f"p{page}.md": " ".join(f"[x](p{target})" for target in own) for page, own in enumerate(targets)
    }
    wanted = [
        1.0
        + sum(page in targets[other] and sites[page] == sites[other] for other in range(5) if other != page)
        for page in range(5)
    ]
    assert list(counted(texts, sites).values()) == wanted


@example("//[")
@example("http:////]")
@given(st.text("ab./:[]%#?@\u2100 <>\"'()", max_size=12))
def test_no_text_of_a_link_is_an_error(target: str) -> None:
    """What people write into links need not be an address."""
    for text in (f"[x]({target})", f"<a href='{target}'>", f"[x]: {target}"):
        found = counted({"a.md": text, "b.md": ""})
        assert found["a.md"] == 1.0
        if "b" not in target:
            assert found["b.md"] == 1.0


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), st.lists(st.sampled_from("xyz"), min_size=1))
def test_a_relative_link_is_resolved_as_a_path(folder: list[str], steps: list[str]) -> None:
    """Up as many folders as the page is deep, then down: the page that stands there."""
    page, target = "/".join([*folder, "page.md"]), "/".join([*steps, "target.md"])
    found = counted({page: f"[x]({'../' * len(folder)}{PurePosixPath(target)})", target: ""})
    assert found[target] == 2.0


def test_only_the_first_cycle_counts() -> None:
    """Importance is known before the crawl begins."""
    history = ChangeHistory(np.array([[True, False]]), np.zeros(2, int), page_names=["a", "b"])
    version = np.array([[0, 2], [1, 2]], np.int32)
    later = ContentHistory(history, version, np.array([0, 2, 3], np.int32), ["", "[x](b)", ""])
    assert importance(later).tolist() == [1.0, 1.0]
