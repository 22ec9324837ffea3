"""File formats of histories: round trips, damaged files, and files that are larger than memory."""

import gzip
import hashlib
import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.scoring.sizes import CLASSES
from training.histories import formats
from training.histories.contents import read_contents
from training.histories.formats import read_file, write_npz, write_text, write_tsv
from training.histories.growth import read_growth
from training.histories.history import ChangeHistory, known_or_none
from training.histories.names import BATCH, PackedNames
from training.histories.reading import read_history


@pytest.mark.parametrize("read", [read_file, read_contents])
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], packed: bool
) -> None:
    """It names the line, whatever the reader and however the file is packed."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 2**16)
    text = b"01" * 2**16
    path = tmp_path / "history"
    path.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(HistoryError, match="history, line 1: expected at most 65,536 bytes; found more"):
        read(path)


def test_no_more_is_read_than_a_line_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever follows, nothing is."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 100)

    class Endless(io.RawIOBase):
        read_bytes = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"1" * len(buffer)
            Endless.read_bytes += len(buffer)
            return len(buffer)

    with pytest.raises(HistoryError, match="line 1: expected at most 100 bytes"):
        list(formats.lines(Path("endless"), io.BufferedReader(Endless(), 64)))
    assert Endless.read_bytes < 1000


def test_lines_as_long_as_they_may_be_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without an end."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 4)
    assert list(formats.lines(Path("f"), io.BytesIO(b"abc\n\nabcd"))) == [b"abc\n", b"\n", b"abcd"]


def npz() -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, changed=np.eye(4, 5, dtype=bool), site=np.arange(5))
    return content.getvalue()


def test_an_archive_is_read_in_gzip_too(tmp_path: Path) -> None:
    """As the formats of lines are."""
    (tmp_path / "h.npz").write_bytes(npz())
    (tmp_path / "h.npz.gz").write_bytes(gzip.compress(npz()))
    one, other = (read_history(tmp_path / name) for name in ("h.npz", "h.npz.gz"))
    assert one.changed.tolist() == other.changed.tolist()


def test_an_archive_in_gzip_has_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unpacked into memory; one that is not is read from the file."""
    monkeypatch.setattr(formats, "MAX_ARCHIVE_BYTES", 100)
    (tmp_path / "h.npz").write_bytes(npz())
    assert read_history(tmp_path / "h.npz").pages == 5
    (tmp_path / "h.npz.gz").write_bytes(gzip.compress(npz()))
    with pytest.raises(HistoryError, match="at most 100 bytes inside gzip; found more"):
        read_history(tmp_path / "h.npz.gz")


def test_arrays_larger_than_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both figures; where a machine does not tell its memory, they are read."""
    (tmp_path / "h.npz").write_bytes(npz())
    monkeypatch.setattr(formats, "memory_bytes", lambda: 50)
    with pytest.raises(
        HistoryError, match=r"h.npz: its arrays take \d+ bytes, and this machine has 50 bytes"
    ):
        read_history(tmp_path / "h.npz")
    monkeypatch.setattr(formats, "memory_bytes", lambda: None)
    assert read_history(tmp_path / "h.npz").pages == 5


def test_an_array_that_only_says_it_is_large_is_refused(tmp_path: Path) -> None:
    """Its header is a claim; what follows are a few bytes."""
    head = io.BytesIO()
    shape = (2**20, 2**24)
    np.lib.format.write_array_header_1_0(head, {"descr": "|b1", "fortran_order": False, "shape": shape})
    unclosed = b"\x93NUMPY\x01\x00" + (100).to_bytes(2, "little") + b"{'shape': ((".ljust(100)
    for header in (head.getvalue(), unclosed):
        with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive:
            archive.writestr("changed.npy", header + b"\0" * 10)
        with pytest.raises(HistoryError, match=r"h.npz.*expected arrays changed"):
            read_history(tmp_path / "h.npz")


def _claimed(path: Path, **claims: tuple[str, tuple[int, ...]]) -> None:
    """Write an archive whose arrays claim types and shapes, and are zeros, packed to a thousandth."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (descr, shape) in claims.items():
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_2_0(file, header)
                file.write(bytes(2**20))


@pytest.mark.parametrize(
    "claims",
    [
        {"changed": ("|b1", (10**9, 1)), "site": ("<i4", (1,))},
        {"changed": ("|b1", (2, 10**9)), "site": ("<i4", (10**9,))},
        {"changed": ("|b1", (10**9, 0)), "site": ("<i4", (0,))},
        {"changed": ("|b1", (2**40, 2**40)), "site": ("<i4", (2**40,))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (2 * 10**9,))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (3,)), "site_names": ("|u1", (2 * 10**9,))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (3,)), "page_names": ("|u1", (2 * 10**9,))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (3,)), "page_names": ("<U0", (2 * 10**9,))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (3,)), "weight": ("<f8", (10**9, 3))},
        {"changed": ("|b1", (2, 3)), "site": ("<i4", (3,)), "observed": ("|b1", (10**9, 3))},
    ],
)
def test_shapes_alone_tell_a_history_of_any_size(
    tmp_path: Path, claims: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clear error before an array is read: one page and 10^9 cycles took more than a minute."""
    _claimed(tmp_path / "h.npz", **claims)
    monkeypatch.setattr(np, "load", None)  # nothing is loaded
    with pytest.raises(HistoryError, match=r"h\.npz: expected"):
        read_history(tmp_path / "h.npz")


def test_lines_tell_a_history_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As archives do: more cycles than a century of hours has, texts of a cycle that never comes."""
    monkeypatch.setattr(formats, "MAX_CYCLES", 100)
    (tmp_path / "text").write_text("0" * 101)
    (tmp_path / "tsv").write_text("site\tpage\t" + "0" * 101)
    (tmp_path / "contents").write_text('{"site": "s", "page": "p", "versions": {"0": "a", "999999999": "b"}}')
    (tmp_path / "export").write_text('# {"format": "gp4c-history/1", "cycles": 2000000000}\n')
    for name in ("text", "tsv", "contents"):
        with pytest.raises(HistoryError, match="expected at most 100 cycles"):
            read_history(tmp_path / name)
    with pytest.raises(HistoryError, match="expected the records of 2,000,000,000 cycles"):
        read_growth(tmp_path / "export")
    (tmp_path / "contents").write_text(
        '{"site": "s", "page": "p", "versions": {"0": "a", "%s": "b"}}' % ("9" * 5000)
    )
    with pytest.raises(HistoryError, match="a version is a cycle"):
        read_history(tmp_path / "contents")
    (tmp_path / "contents").write_text('{"site": ' + "[" * 100_000)
    with pytest.raises(HistoryError, match="what is no JSON"):
        read_history(tmp_path / "contents")
    monkeypatch.setattr(formats, "memory_bytes", lambda: 1_000)
    (tmp_path / "text").write_text(("0" * 100 + "\n") * 11)
    with pytest.raises(HistoryError, match="its 11 pages in 100 cycles take 1,100 bytes"):
        read_history(tmp_path / "text")


def test_a_machine_tells_its_memory_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no such call."""
    assert formats.memory_bytes() is None or formats.memory_bytes() > 2**20
    monkeypatch.delattr(formats.os, "sysconf", raising=False)
    assert formats.memory_bytes() is None


WRITERS = {"text": write_text, "tsv": write_tsv, "npz": write_npz}
NAME = st.text(st.characters(blacklist_characters="\t\n\r\0", codec="utf-8"), min_size=1, max_size=8)


@st.composite
def histories(draw) -> ChangeHistory:
    """Histories with any names that TSV can hold."""
    cycles, pages = draw(st.integers(1, 70)), draw(st.integers(1, 12))
    changed = draw(arrays.arrays(np.bool_, (cycles, pages)))
    sites = draw(st.lists(NAME.filter(lambda name: name[0] != "#"), min_size=1, max_size=pages, unique=True))
    site = [
        *range(len(sites)),
        *draw(st.lists(st.integers(0, len(sites) - 1), min_size=pages, max_size=pages)),
    ]
    names = draw(st.lists(NAME, min_size=pages, max_size=pages))
    weight = np.array(draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 1e6]), min_size=pages, max_size=pages)))
    weight = None if (weight == 1.0).all() else weight
    size = np.array(draw(st.lists(st.integers(0, CLASSES - 1), min_size=pages, max_size=pages)))
    latency = np.array(draw(st.lists(st.sampled_from([0, 7, 65_535]), min_size=pages, max_size=pages)))
    flipped = draw(arrays.arrays(np.uint64, int(changed.sum())))
    return ChangeHistory(
        changed,
        np.array(site[:pages]),
        weight,
        site_names=sites,
        page_names=names,
        size=known_or_none(size),
        latency_ms=known_or_none(latency),
        flipped=known_or_none(flipped),
    )


def identities(history: ChangeHistory) -> list[tuple[str, str]]:
    return [(history.site_names[s], p) for s, p in zip(history.site, history.page_names, strict=True)]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    """One directory for all examples of a property."""
    return tmp_path_factory.mktemp("histories")


@given(history=histories(), format_=st.sampled_from(sorted(WRITERS)), suffix=st.sampled_from(["", ".gz"]))
def test_what_is_written_is_read_again(scratch, history, format_, suffix):
    """Every format, plain and gzip, whatever the file is called: the same bits, names, weights and sizes."""
    path = scratch / f"file{suffix}"
    WRITERS[format_](path, history)
    again = read_history(path)
    assert np.array_equal(again.changed, history.changed)
    assert again.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert again.source == str(path)
    if format_ == "text":
        assert (again.page_names, again.site_names, set(again.site)) == (None, None, {0})
        assert again.weight is None
    else:
        assert identities(again) == identities(history)
        assert again.weights.tolist() == history.weights.tolist()
        assert (again.weight is None) == (history.weight is None)
        assert again.sizes.tolist() == history.sizes.tolist()
        assert again.latencies_ms.tolist() == history.latencies_ms.tolist()
        assert (again.flipped is None) == (history.flipped is None)
        assert again.flipped is None or again.flipped.tolist() == history.flipped.tolist()
        assert (again.size is None) == (history.size is None)
    if suffix:
        assert path.read_bytes()[:2] == b"\x1f\x8b"


def test_npz_keeps_weights_and_leaves_out_pages_not_observed(tmp_path):
    """The npz format holds all of a history; reading keeps the pages that a replay can use."""
    observed = np.ones((2, 3), bool)
    observed[0, 1] = False
    history = ChangeHistory(np.eye(2, 3, dtype=bool), np.arange(3), np.array([1.5, 2.0, 0.0]), observed)
    write_npz(tmp_path / "h.npz", history)
    again = read_history(tmp_path / "h.npz")
    assert again.weight.tolist() == [1.5, 0.0]
    assert again.site.tolist() == [0, 2]
    assert again.changed.tolist() == [[True, False], [False, False]]
    assert again.dropped_pages == 1


def test_npz_takes_names_as_strings_and_refuses_null_characters(tmp_path):
    """An archive made by hand may name its pages with an array of strings."""
    np.savez(tmp_path / "h.npz", changed=np.ones((1, 2), bool), site=np.zeros(2, int), page_names=["a", "bc"])
    assert list(read_history(tmp_path / "h.npz").page_names) == ["a", "bc"]
    history = ChangeHistory(np.ones((1, 1), bool), np.zeros(1, int), page_names=["a\0b"])
    with pytest.raises(HistoryError, match=r"page_names .*null"):
        write_npz(tmp_path / "h.npz", history)


def test_tsv_skips_comments_and_further_columns_and_counts_pages_not_observed(tmp_path):
    """A hand-written file: comments, a fourth column, Windows line ends, a page with a missing day."""
    path = tmp_path / "h"
    path.write_bytes(b"# made by hand\na\tp\t011\t9\textra\r\n#b\tq\t0\na\tr\t0.1\r\nb\tp\t100\n\n")
    history = read_history(path)
    assert identities(history) == [("a", "p"), ("b", "p")]
    assert history.changed.T.astype(int).tolist() == [[0, 1, 1], [1, 0, 0]]
    assert history.dropped_pages == 1


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("-1", "-1"),
        ("NaN", "nan"),
        ("1e308", r"1e\+308"),
        ('"3"', "'3'"),
        ("true", "True"),
        ("[2]", r"\[2\]"),
    ],
)
def test_a_tsv_line_with_a_wrong_weight_is_named(tmp_path, field, text):
    """With what was expected; what a fourth column says besides is none of a replay's business."""
    path = tmp_path / "history"
    path.write_text(f's\ta\t01\t{{"weight": 2}}\ns\tb\t.1\t{{"weight": {field}}}\n')
    assert read_history(path).weights.tolist() == [2.0]  # of a page that is left out anyway
    path.write_text(f's\ta\t01\t{{"weight": 2}}\ns\tb\t11\t{{"weight": {field}}}\n')
    with pytest.raises(HistoryError, match=f"line 2: weight: expected a number.*; found {text}"):
        read_history(path)
    path.write_text('s\ta\t01\t{"request": {"meta": {"weight": -3}}}\ns\tb\t11\t["weight"]\n')
    assert read_history(path).weight is None
    path.write_text('s\ta\t01\t{"weight"\n')
    with pytest.raises(HistoryError, match=r"line 1: .*Correct its fourth field"):
        read_history(path)


def test_a_site_may_begin_as_contents_do(tmp_path):
    """A brace at the beginning makes no file of contents where a tab follows."""
    history = ChangeHistory(np.ones((2, 1), bool), np.zeros(1, int), site_names=['{"a'], page_names=["p"])
    write_tsv(tmp_path / "h", history)
    assert identities(read_history(tmp_path / "h")) == [('{"a', "p")]


def test_unobserved_cycles_are_written_as_dots(tmp_path):
    """TSV has a character for a cycle that was not observed; the text format refuses such a history."""
    history = ChangeHistory(np.ones((2, 1), bool), np.zeros(1, int), observed=np.array([[True], [False]]))
    write_tsv(tmp_path / "h.tsv", history)
    assert (tmp_path / "h.tsv").read_text() == "0\t0\t1.\n"
    with pytest.raises(HistoryError, match="each of its 1 pages"):
        read_history(tmp_path / "h.tsv")
    with pytest.raises(HistoryError, match="write TSV or npz"):
        write_text(tmp_path / "h.txt", history)


def test_files_larger_than_a_batch_keep_the_order_of_their_pages(tmp_path):
    """Bits, sites and names of the pages stay together over the borders of the batches."""
    pages = 2 * BATCH + 3
    changed = np.random.default_rng(1).random((11, pages)) < 0.3
    site = np.arange(pages) % 7
    history = ChangeHistory(changed, site, page_names=PackedNames(f"p{i}" for i in range(pages)))
    write_tsv(tmp_path / "h.tsv.gz", history)
    again = read_history(tmp_path / "h.tsv.gz")
    assert np.array_equal(again.changed, changed)
    assert identities(again) == [(str(i % 7), f"p{i}") for i in range(pages)]
    write_npz(tmp_path / "h.npz", history)
    assert list(read_history(tmp_path / "h.npz").page_names) == [f"p{i}" for i in range(pages)]
    write_text(tmp_path / "h.txt", history)
    assert np.array_equal(read_history(tmp_path / "h.txt").changed, changed)


def test_equal_histories_make_equal_files(tmp_path):
    """No time or file name in a gzip file: digests of rebuilt files can be compared."""
    history = ChangeHistory(np.eye(3, dtype=bool), np.zeros(3, int))
    write_tsv(tmp_path / "a.tsv.gz", history, ["a note"])
    write_tsv(tmp_path / "b.tsv.gz", history, ["a note"])
    assert (tmp_path / "a.tsv.gz").read_bytes() == (tmp_path / "b.tsv.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.tsv.gz").read_bytes()).startswith(b"# a note\n")


GOOD = b"0101\n" * (BATCH + 1)
BAD_FILES = {
    "nothing": (b"", r"is empty: expected one line per page"),
    "comments only": (b"# a\n# b\n", r"is empty"),
    "ragged text": (b"0101\n01011\n", r"line 2: expected 4 characters.*as in line 1; found 5"),
    "ragged in a later batch": (GOOD + b"010\n", rf"line {BATCH + 2}: expected 4 characters.*found 3"),
    "another character": (b"0101\n0121\n", r"line 2, cycle 3: expected 0 or 1; found '2'"),
    "a dot in text": (b"01.1\n", r"line 1, cycle 3: expected 0 or 1; found '\.'"),
    "an empty line": (b"0101\n\n0101\n", r"line 2: expected a page; found an empty line"),
    "spaces": (b"0 1 0 1\n", r"line 1, cycle 2: expected 0 or 1; found ' '"),
    "prose": (b"hello world\n", r"line 1, cycle 1: expected 0 or 1; found 'h'.*site<TAB>page<TAB>bits"),
    "binary": (bytes(range(128, 256)), r"line 1, cycle 1: expected 0 or 1"),
    "two columns": (b"s\tp\t01\ns\tp\n", r"line 2: expected site<TAB>page<TAB>bits; found 2 of the 3"),
    "text in TSV": (b"# x\ns\tp\t01\n01\n", r"line 3: expected site<TAB>page<TAB>bits; found 1 of the 3"),
    "no bits": (b"s\tp\t\n", r"line 1: expected bits in column 3; found nothing"),
    "ragged TSV": (b"# x\ns\tp\t01\ns\tq\t0\n", r"line 3: expected 2 characters.*as in line 2; found 1"),
    "TSV with a letter": (b"s\tp\t0x\n", r"line 1, cycle 2: expected 0, 1 or \. .*found 'x'"),
    "TSV in text": (b"0101\na\tb\t0101\n", r"line 2: expected 4 characters.*found 8"),
    "zip without arrays": (b"PK\x03\x04nonsense", r"no readable .npz archive.*expected arrays changed"),
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("what", BAD_FILES)
def test_a_file_that_is_no_history_is_refused(tmp_path, what, suffix):
    """The error names file and line, what was expected and what was found; in gzip files too."""
    content, said = BAD_FILES[what]
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(HistoryError, match=said) as caught:
        read_history(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("arrays_", "said"),
    [
        ({"site": np.zeros(2, int)}, "changed missing, found site"),
        ({"changed": np.zeros((2, 2), bool)}, "site missing, found changed"),
        ({"changed": np.zeros((2, 2)), "site": np.zeros(2, int)}, "'changed' .*float64"),
        ({"changed": np.zeros((2, 2), bool), "site": np.zeros(3, int)}, "'site' .*2 pages"),
        ({"changed": np.zeros((2, 2), bool), "site": np.array([{}, {}])}, "no readable .npz"),
    ],
)
def test_an_archive_with_other_arrays_is_refused(tmp_path, arrays_, said):
    """Missing arrays, wrong types and shapes, and pickles are refused with the file's name."""
    np.savez(tmp_path / "h.npz", **arrays_)
    with pytest.raises(HistoryError, match=said) as caught:
        read_history(tmp_path / "h.npz")
    assert "h.npz" in str(caught.value)


def test_damaged_gzip_is_refused_wherever_it_breaks(tmp_path):
    """Cut off in the header, in the data, before the checksum; or with a flipped bit: one clear error."""
    rng = random.Random(0)
    text = "".join("".join(rng.choices("01", k=57)) + "\n" for _ in range(3000)).encode()
    good = gzip.compress(text)
    path = tmp_path / "h.gz"
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 255
    for bad in (
        good[:2],
        good[:5],
        good[: len(good) // 2],
        good[:-4],
        bytes(flipped),
        good[:-8] + b"12345678",
    ):
        path.write_bytes(bad)
        with pytest.raises(HistoryError):
            read_history(path)
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(HistoryError, match=r"h\.gz: the packed data is damaged or cut off"):
        read_history(path)


def test_a_file_that_cannot_be_opened_or_made_is_refused(tmp_path):
    """Reading a missing file and writing into a missing directory name the path."""
    with pytest.raises(HistoryError, match=r"cannot read .*missing: No such file"):
        read_history(tmp_path / "missing")
    history = ChangeHistory(np.ones((1, 1), bool), np.zeros(1, int))
    with pytest.raises(HistoryError, match=r"cannot write .*h\.tsv: No such file"):
        write_tsv(tmp_path / "missing" / "h.tsv", history)


@pytest.mark.parametrize(("site", "page"), [("#s", "p"), ("a\tb", "p"), ("s", "a\nb"), ("s", "")])
def test_names_that_tsv_cannot_hold_are_refused(tmp_path, site, page):
    """A name with a tab or newline, an empty one, or a site that would be a comment cannot be written."""
    history = ChangeHistory(np.ones((1, 1), bool), np.zeros(1, int), site_names=[site], page_names=[page])
    with pytest.raises(HistoryError, match="TSV history"):
        write_tsv(tmp_path / "h.tsv", history)


@given(st.lists(st.text(max_size=9)))
def test_packed_names_are_a_sequence_of_the_names(names):
    """Names behave like the list they were made of: length, items, slices, iteration, selection."""
    packed = PackedNames(names)
    assert list(packed) == names
    assert list(packed[1:]) == names[1:]
    assert list(packed.take(np.arange(len(names))[::-1])) == names[::-1]
    assert list(packed.take(slice(1, None)).take(slice(1, None))) == names[2:]
    if names:
        assert packed[-1] == names[-1]
    with pytest.raises(IndexError):
        packed[len(names)]
    packed.extend(names)
    assert list(packed) == names + names


MEASURE = """
import sys
from benchmarks.common import peak_mb
from training.histories.reading import read_history
before = peak_mb()
history = read_history(sys.argv[1])
assert (history.pages, history.cycles) == (417_048, 57), history
print(peak_mb() - before)
"""


@pytest.mark.slow
def test_reading_the_papers_collection_takes_little_memory(tmp_path):
    """417,048 pages x 57 cycles (24 MB of bits), with names: below 80 MB above the interpreter."""
    path = tmp_path / "h.tsv"
    bits = "01" * 28 + "0"
    with open(path, "w") as file:
        for page in range(417_048):
            file.write(f"site{page // 58}\thttp://site{page // 58}.example/p{page}\t{bits}\n")
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 80


@pytest.mark.parametrize("format_", sorted(WRITERS))
def test_half_a_history_never_has_its_name(tmp_path, monkeypatch, format_):
    """A writer that is stopped in the middle leaves the file of before, and no other."""
    history = ChangeHistory(np.zeros((3, 5), bool), np.zeros(5, np.int32))
    path = tmp_path / f"history.{format_}.gz"
    path.write_bytes(b"before")

    def stopped(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        WRITERS[format_](path, history)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [path.name]
    monkeypatch.undo()
    WRITERS[format_](path, history)
    assert read_history(path).pages == 5


@pytest.mark.parametrize(
    ("offset", "value"),
    [(4, 247), (6, 1), (6, 32), (8, 77)],  # version, encryption, patched data, method of compression
)
def test_an_archive_that_python_cannot_unpack_is_an_error(tmp_path, offset, value):
    """Flipped bits in its headers ask for what zipfile lacks: one error that names the file."""
    np.savez(tmp_path / "h.npz", changed=np.eye(3, dtype=bool), site=np.arange(3))
    content = bytearray((tmp_path / "h.npz").read_bytes())
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = content.find(mark)
        while at >= 0:
            content[at + offset + shift] = value
            at = content.find(mark, at + 1)
    (tmp_path / "h.npz").write_bytes(content)
    with pytest.raises(HistoryError, match=r"h\.npz is no readable \.npz archive"):
        read_history(tmp_path / "h.npz")
