"""Contents: texts of pages by cycle, and the history of changes that they make."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training.histories.contents import read_contents
from training.histories.reading import read_history


def line(page: str, versions: dict[int, str | None], site: str = "docs") -> str:
    return json.dumps({"site": site, "page": page, "versions": versions})


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Three pages over four cycles: one changes and goes, one never changes, one is of another site."""
    return written(
        tmp_path / "contents.jsonl",
        line("a", {0: "one", 2: "two", 3: None}),
        line("b", {0: "still"}),
        line("a", {0: "other", 4: "new"}, site="blog"),
    )


def test_versions_changes_and_texts_tell_the_same(example: Path) -> None:
    """In cycle c a page holds the version of the greatest key that is at most c."""
    contents = read_contents(example)
    assert contents.version.dtype == np.int32
    assert contents.version.tolist() == [[0, 3, 4], [0, 3, 4], [1, 3, 4], [2, 3, 4], [2, 3, 5]]
    assert contents.history.changed.tolist() == (np.diff(contents.version, axis=0) > 0).tolist()
    assert contents.texts_at(3) == [None, "still", "other"]
    assert contents.page_of_version.tolist() == [0, 0, 0, 1, 2, 2]
    assert list(contents.history.page_names or ()) == ["a", "b", "a"]
    assert list(contents.history.site_names or ()) == ["docs", "blog"]


def test_sites_and_changed_pages_alone(example: Path) -> None:
    """The cycles stay those of the whole file."""
    docs = read_contents(example, site="docs")
    assert (docs.history.pages, docs.history.cycles) == (2, 4)
    changed = read_contents(example, changed_only=True)
    assert changed.texts == ["one", "two", None, "other", "new"]
    assert changed.history.site.tolist() == [0, 1]


@pytest.mark.parametrize("packed", [gzip.open, lzma.open])
def test_packed_files_are_read_by_what_is_in_them(example: Path, tmp_path: Path, packed) -> None:
    """Whatever they are called; `read_history` takes the changes of one."""
    path = tmp_path / "contents"
    with packed(path, "wb") as file:
        file.write(example.read_bytes())
    contents = read_contents(path)
    assert contents.texts == read_contents(example).texts
    assert read_history(path).changed.tolist() == contents.history.changed.tolist()
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(HistoryError, match="damaged or cut off"):
        read_contents(path)


def test_a_version_of_the_same_text_is_no_change(tmp_path: Path) -> None:
    """A commit may touch a file and leave its text."""
    path = written(tmp_path / "c", line("a", {0: "x", 1: "x", 2: "y", 3: "x"}))
    assert read_contents(path).history.changed.ravel().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{", "line 2: expected a line of JSON .* no JSON"),
        ('["a"]', "line 2: expected a line of JSON"),
        (line("", {0: "x"}), "line 2: expected a line of JSON"),
        (line("b", {1: "x"}), "line 2.*no text in cycle 0"),
        (line("b", {0: None, 1: "x"}), "line 2.*no text in cycle 0"),
        (line("b", {}), "line 2.*no text in cycle 0"),
        ('{"site": "s", "page": "b", "versions": {"0": "x", "00": "y"}}', "two versions of one cycle"),
        ('{"site": "s", "page": "b", "versions": {"0": "x", "-1": "y"}}', "version '-1'"),
        ('{"site": "s", "page": "b", "versions": {"0": 7}}', "version '0'"),
        (line("a", {0: "x"}), "line 2: page 'a' of site 'docs' stands in line 1 already"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, wrong: str, said: str) -> None:
    """File, line, what was expected and what was found."""
    path = written(tmp_path / "c", line("a", {0: "x", 1: "y"}), wrong)
    with pytest.raises(HistoryError, match=said):
        read_contents(path)


def test_a_file_without_use_is_refused(tmp_path: Path, example: Path) -> None:
    """Missing, empty, not UTF-8, nothing that changes, no such site."""
    with pytest.raises(HistoryError, match="cannot read"):
        read_contents(tmp_path / "missing")
    with pytest.raises(HistoryError, match="is empty"):
        read_contents(written(tmp_path / "empty"))
    (tmp_path / "latin").write_bytes(b'{"site": "\xe9"}\n')
    with pytest.raises(HistoryError, match="line 1"):
        read_contents(tmp_path / "latin")
    with pytest.raises(HistoryError, match="nothing changes"):
        read_contents(written(tmp_path / "still", line("a", {0: "x"})))
    with pytest.raises(HistoryError, match="no site 'x'; it has: blog, docs"):
        read_contents(example, site="x")


@given(
    st.lists(
        st.dictionaries(st.integers(1, 6), st.sampled_from(["x", "y", None]), max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_any_pages_are_as_their_keys_say(tmp_path_factory: pytest.TempPathFactory, pages) -> None:
    """Against a plain search for the greatest key."""
    pages = [{0: "x", 6: "z"}, *({0: "y", **page} for page in pages)]
    path = tmp_path_factory.mktemp("any") / "c"
    contents = read_contents(written(path, *(line(f"p{i}", page) for i, page in enumerate(pages))))
    for cycle in range(7):
        assert contents.texts_at(cycle) == [page[max(key for key in page if key <= cycle)] for page in pages]
