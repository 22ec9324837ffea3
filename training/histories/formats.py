"""File formats of change histories: reading and writing, streamed, in little memory.

Three formats, each also gzip-compressed, told apart by the file's content (docs/lab/histories.md):

* text: one page per line, character i is ``1`` if the page changed between cycle i - 1 and cycle i,
  else ``0`` (the format of BRDC'12 as the authors' program read it);
* TSV: ``site<TAB>page<TAB>bits``, then perhaps evidence as JSON (`state_field`), and lines that start with
  ``#``, which are skipped; in the bits ``.`` means that the outcome of the cycle was not observed;
* npz: NumPy arrays ``changed`` bool ``[cycles, pages]``, ``site`` integer ``[pages]``, and optionally
  ``weight`` float ``[pages]``, ``observed`` bool ``[cycles, pages]``, and ``site_names`` and
  ``page_names``, either arrays of strings or uint8 (UTF-8, a null byte after each name).
"""

import contextlib
import gzip
import io
import itertools
import json
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.store.atomic_files import replacing
from scrapy_gp4c.store.history_fields import EVIDENCE, read_evidence
from training.histories.history import (
    NOW_AND_THEN,
    ChangeHistory,
    HistoryFields,
    known_or_none,
    weights_or_none,
)
from training.histories.names import BATCH, UNDECODED, PackedNames, batches

MAX_LINE_BYTES: Final = 2**28
"""Largest length of a line: a few MB of gzip may unpack to many GB."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator["io.BufferedReader[Any] | lzma.LZMAFile"]:
    """Open a file that is plain, gzip or xz, as its first bytes say.

    Raises HistoryError where it cannot be read, also within the block: for damaged data, say.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            head = file.peek(2)[:2]
            if head == b"\x1f\x8b":
                yield stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 20))
            else:
                yield stack.enter_context(lzma.open(file)) if head == b"\xfd7" else file
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise HistoryError(
            f"{path}: the packed data is damaged or cut off ({error}); fetch or write the file again"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of an open file; raises HistoryError for one of more than `MAX_LINE_BYTES` bytes."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise HistoryError(
                f"{path}, line {number}: expected at most {MAX_LINE_BYTES:,} bytes; found more. Is it a "
                "history?"
            )
        yield line


BATCH_BYTES: Final = 2**26
"""Largest size of a batch of lines that are read together."""
MAX_ARCHIVE_BYTES: Final = 2**28
"""Largest size of an npz archive inside gzip, which is unpacked into memory."""


def memory_bytes() -> int | None:
    """Bytes of memory of this machine; None: unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


MAX_CYCLES: Final = 1_000_000
"""Largest number of cycles of a history: the hours of a hundred years."""
MAX_PAGES: Final = 100_000_000
MAX_NAME_BYTES: Final = 2_083
"""Largest mean length of page or site names."""
MAX_SITES: Final = 100_000
"""Largest number of sites beyond one for each page: a history may name sites whose pages were left out."""


def check_size(path: Path, cycles: int, pages: int) -> None:
    """Raise HistoryError for more cycles or pages than a replay can take: a file may claim any number."""
    memory = memory_bytes()
    if cycles > MAX_CYCLES or pages > MAX_PAGES:
        raise HistoryError(
            f"{path}: expected at most {MAX_CYCLES:,} cycles and {MAX_PAGES:,} pages; found {cycles:,} "
            f"cycles and {pages:,} pages. Take longer cycles, or a part of the pages."
        )
    if memory is not None and cycles * pages > memory:
        raise HistoryError(
            f"{path}: its {pages:,} pages in {cycles:,} cycles take {cycles * pages:,} bytes, and this "
            f"machine has {memory:,} bytes of memory. Take longer cycles, or a part of the pages."
        )


class ArrayHeader(NamedTuple):
    """Shape and type of an array in an archive, by its header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_arrays(
    path: Path,
    file: IO[bytes],
    names: Sequence[str],
    needed: str,
    check: Callable[[dict[str, ArrayHeader]], None] = lambda headers: None,
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays `names` of an npz archive, plain or within gzip, as far as they are there.

    ``needed``: text of what was expected, for errors; ``check``: raises HistoryError for headers that do not
    fit, before any array is read. Raises HistoryError for no archive, and for arrays larger than memory.
    """
    content: IO[bytes] = file
    if not file.seekable() or isinstance(getattr(file, "raw", None), gzip.GzipFile):
        packed = file.read(MAX_ARCHIVE_BYTES + 1)
        if len(packed) > MAX_ARCHIVE_BYTES:
            raise HistoryError(
                f"{path}: expected an archive of at most {MAX_ARCHIVE_BYTES:,} bytes inside gzip; found "
                "more. Unpack it with gunzip first: an .npz archive is packed as it is."
            )
        content = io.BytesIO(packed)
    try:
        with zipfile.ZipFile(content) as archive:
            members = set(archive.namelist())
            headers = {name: _header(archive, name) for name in names if f"{name}.npy" in members}
        check(headers)
        size = sum(math.prod(shape) * max(1, dtype.itemsize) for shape, dtype in headers.values())
        memory = memory_bytes()
        if memory is not None and size > memory:
            raise HistoryError(
                f"{path}: its arrays take {size:,} bytes, and this machine has {memory:,} bytes of memory; "
                f"{needed}. Is it a history?"
            )
        content.seek(0)
        with np.load(content, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in headers}
    except MemoryError as error:
        raise HistoryError(
            f"{path}: an array says that it is larger than memory ({error}); {needed}"
        ) from error
    except HistoryError:
        raise
    except (
        ValueError,
        zipfile.BadZipFile,
        KeyError,
        NotImplementedError,
        RuntimeError,
        OverflowError,
        TokenError,  # of numpy's reader of headers
    ) as error:
        raise HistoryError(f"{path} is no readable .npz archive: {error}; {needed}") from error


def _header(archive: zipfile.ZipFile, name: str) -> ArrayHeader:
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"the array {name} has the shape {shape}")
    return ArrayHeader(shape, dtype)


class PageEvidence(NamedTuple):
    """Evidence of pages (weights, sizes and the like) in a TSV file's further fields, beside the bits."""

    weight: npt.NDArray[np.float64]
    size: npt.NDArray[np.uint8]
    latency_ms: npt.NDArray[np.uint16]
    flipped: npt.NDArray[np.uint64]


_EVIDENCE: Final = tuple(f'"{name}"'.encode() for name in EVIDENCE)


def page_evidence(path: Path, rows: Sequence[tuple[int, list[bytes]]]) -> PageEvidence:
    """Parse the evidence of pages from the numbers and fields of their lines; raises HistoryError.

    By default weights are 1, other values 0.
    """
    weight, size, latency_ms = np.ones(len(rows)), np.zeros(len(rows), "u1"), np.zeros(len(rows), "u2")
    ends = list(itertools.accumulate((row[2].count(b"1") for _, row in rows), initial=0))
    flipped = np.broadcast_to(np.uint64(0), ends[-1])  # takes no memory: few histories have such bits
    for position, (line, row) in enumerate(rows):
        if len(row) > 3 and any(name in row[3] for name in _EVIDENCE):
            try:
                state = read_evidence(json.loads(row[3]))
                if state.flipped:
                    flipped = flipped if flipped.flags.writeable else flipped.copy()
                    flipped[ends[position] : ends[position + 1]] = [int(one, 16) for one in state.flipped]
            except (ValueError, RecursionError) as error:
                raise HistoryError(f"{path}, line {line}: {error}. Correct its fourth field.") from None
            weight[position], size[position] = state.weight, state.size
            latency_ms[position] = state.latency_ms
    return PageEvidence(weight, size, latency_ms, flipped)


def state_field(history: ChangeHistory, page: int, flipped: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    """Yield the fourth field of a page's line, JSON such as ``{"first_cycle": 1, "size": 9}``, unless empty.

    ``flipped``: part of `ChangeHistory.flipped` for this page.
    """
    state: dict[str, Any] = {}
    if history.weight is not None and history.weight[page] != 1.0:
        state["weight"] = float(history.weight[page])
    for name, values in (("size", history.size), ("latency_ms", history.latency_ms)):
        if values is not None and values[page]:
            state[name] = int(values[page])
    if flipped.any():
        state["flipped"] = [f"{bits:x}" for bits in flipped.tolist()]
    if state:
        yield json.dumps({"first_cycle": 1, **state}).encode()


_NOT_FLIPPED: Final = np.empty(0, np.uint64)
NAME_FIELDS: Final = ("site_names", "page_names")
OPTIONAL: Final = ("weight", "observed", "size", "latency_ms", "flipped")
"""Names of optional arrays of an npz archive: fields of `HistoryFields`."""

LAYOUTS: Final = "lines of 0 and 1, lines of site<TAB>page<TAB>bits, or a NumPy .npz archive; each also gzip"


def read_file(path: Path) -> HistoryFields:
    """Read a history file of any format; raises errors as `training.histories.reading.read_history` does."""
    with opened(path) as file:
        if file.peek(4)[:4] == b"PK\x03\x04":
            return _read_npz(path, file)
        return _read_lines(path, file)


class _Pages:
    """Collector of a history's pages, batch by batch, in little memory: bits packed, names in blocks."""

    def __init__(self, path: Path) -> None:
        self.path, self.cycles, self.pages, self.first_line = path, 0, 0, 0
        self.packed: list[npt.NDArray[np.uint8]] = []
        self.site: list[npt.NDArray[np.int32]] = []
        self.sites: dict[bytes, int] = {}
        self.dropped = 0

    def add(self, lines: list[int], bits: list[bytes], sites: list[bytes] | None) -> npt.NDArray[np.intp]:
        """Add a page per entry (at least one); return which entries have no ``.`` in `bits`, as positions."""
        if not self.cycles:
            self.cycles, self.first_line = len(bits[0]), lines[0]
        self.pages += len(bits)
        check_size(self.path, self.cycles, self.pages)
        length = np.fromiter(map(len, bits), np.int64, len(bits))
        if (bad := np.flatnonzero(length != self.cycles)).size:
            raise HistoryError(
                f"{self.path}, line {lines[bad[0]]}: expected {self.cycles} characters, one per cycle, as in "
                f"line {self.first_line}; found {length[bad[0]]}. Every page needs the same cycles."
            )
        values = np.frombuffer(b"".join(bits), np.uint8).reshape(len(bits), self.cycles)
        ones = values == ord("1")
        other = values != ord("0")
        other &= ~ones
        complete = np.arange(len(bits))
        if other.any():
            if sites is not None:
                unobserved = values == ord(".")
                other &= ~unobserved
                complete = np.flatnonzero(~unobserved.any(axis=1))
            if other.any():
                row, column = np.argwhere(other)[0]
                allowed = "0, 1 or . (not observed)" if sites is not None else "0 or 1"
                raise HistoryError(
                    f"{self.path}, line {lines[row]}, cycle {column + 1}: expected {allowed}; "
                    f"found {chr(values[row, column])!r}. A change history holds {LAYOUTS}."
                )
            self.dropped += len(bits) - len(complete)
            ones = ones[complete]
        self.packed.append(np.packbits(ones, axis=1))
        if sites is None:
            self.site.append(np.zeros(len(complete), np.int32))
        else:
            numbers = (self.sites.setdefault(sites[i], len(self.sites)) for i in complete.tolist())
            self.site.append(np.fromiter(numbers, np.int32, len(complete)))
        return complete

    def fields(self) -> HistoryFields:
        if not self.packed:
            raise HistoryError(f"{self.path} is empty: expected one line per page ({LAYOUTS})")
        pages = sum(map(len, self.packed))
        if not pages:
            raise HistoryError(
                f"{self.path}: each of its {self.dropped:,} pages has cycles that were not observed ('.'), "
                f"and only pages observed in every cycle can be used; {NOW_AND_THEN}"
            )
        changed = np.empty((self.cycles, pages), np.bool_)
        end = 0
        for packed in self.packed:
            start, end = end, end + len(packed)
            changed[:, start:end] = np.unpackbits(packed, axis=1, count=self.cycles).T
        return HistoryFields(changed, np.concatenate(self.site), dropped_pages=self.dropped)


def _read_lines(path: Path, file: IO[bytes]) -> HistoryFields:
    pages, tabbed, line, blank = _Pages(path), None, 0, 0
    names, evidence = PackedNames(), [page_evidence(path, [])]
    for batch in batches(lines(path, file), most_bytes=BATCH_BYTES):
        numbers, rows = [], []
        for text in batch:
            line += 1
            text = text.rstrip(b"\r\n")
            if not text:
                blank = blank or line
            elif not text.startswith(b"#"):
                if blank:
                    raise HistoryError(f"{path}, line {blank}: expected a page; found an empty line")
                numbers.append(line)
                rows.append(text)
        if not rows:
            continue
        if tabbed is None:
            tabbed = b"\t" in rows[0]
        if not tabbed:
            pages.add(numbers, rows, None)
            continue
        columns = [row.split(b"\t", 3) for row in rows]
        for number, row in zip(numbers, columns, strict=True):
            if len(row) < 3 or not row[2]:
                raise HistoryError(
                    f"{path}, line {number}: expected site<TAB>page<TAB>bits; found {len(row)} of the "
                    "3 columns"
                    if len(row) < 3
                    else f"{path}, line {number}: expected bits in column 3; found nothing"
                )
        complete = pages.add(numbers, [row[2] for row in columns], [row[0] for row in columns])
        names.extend(columns[i][1] for i in complete.tolist())
        evidence.append(page_evidence(path, [(numbers[i], columns[i]) for i in complete.tolist()]))
    fields = pages.fields()
    if not tabbed:
        return fields
    site_names = [site.decode("utf-8", UNDECODED) for site in pages.sites]
    *columns_known, flipped = zip(*evidence, strict=True)
    weight, size, latency_ms = map(np.concatenate, columns_known)
    return fields._replace(
        site_names=site_names,
        page_names=names,
        weight=weights_or_none(weight),
        size=known_or_none(size),
        latency_ms=known_or_none(latency_ms),
        flipped=np.concatenate(flipped) if any(bits.any() for bits in flipped) else None,
    )


def _read_npz(path: Path, file: IO[bytes]) -> HistoryFields:
    needed = "expected arrays changed (bool [cycles, pages]) and site (integer [pages])"
    names = ("changed", "site", *OPTIONAL, *NAME_FIELDS)
    arrays = read_arrays(path, file, names, needed, partial(_check_headers, path, needed))
    sites, pages = (_names(arrays.get(name)) for name in NAME_FIELDS)
    optional: dict[str, Any] = {name: arrays.get(name) for name in OPTIONAL}
    return HistoryFields(arrays["changed"], arrays["site"], **optional, site_names=sites, page_names=pages)


def _check_headers(path: Path, needed: str, headers: dict[str, ArrayHeader]) -> None:
    if missing := {"changed", "site"} - headers.keys():
        raise HistoryError(
            f"{path}: {needed}; {' and '.join(sorted(missing))} missing, "
            f"found {', '.join(headers) or 'nothing'}"
        )
    shape = headers["changed"].shape
    if len(shape) != 2:
        raise HistoryError(f"{path}: {needed}; found changed of shape {list(shape)}")
    cycles, pages = shape
    check_size(path, cycles, pages)
    for name in ("site", "weight", "observed", "size", "latency_ms"):
        expected = shape if name == "observed" else (pages,)
        if name in headers and headers[name].shape != expected:
            raise HistoryError(
                f"{path}: expected {name!r} of {pages:,} pages, {list(expected)}; found "
                f"{list(headers[name].shape)}"
            )
    if "flipped" in headers and (changes := math.prod(headers["flipped"].shape)) > cycles * pages:
        raise HistoryError(
            f"{path}: expected in 'flipped' at most a value for each page and cycle, {cycles * pages:,}; "
            f"found {changes:,}. Export the history anew."
        )
    for name, most in zip(NAME_FIELDS, (pages + MAX_SITES, pages), strict=True):
        if name in headers:
            length, dtype = math.prod(headers[name].shape), headers[name].dtype
            if length > (most * MAX_NAME_BYTES if dtype == np.uint8 else most):
                raise HistoryError(
                    f"{path}: expected at most {most:,} {name}; found an array of {length:,} {dtype.name}"
                )


def _names(array: npt.NDArray[Any] | None) -> PackedNames | None:
    if array is None:
        return None
    return PackedNames(_split(array) if array.dtype == np.uint8 else array.astype(str).ravel().tolist())


def _split(text: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    ends = np.flatnonzero(text == 0) + 1
    start = 0
    for end in ends[BATCH - 1 :: BATCH].tolist() + ends[-1:].tolist():
        yield from text[start:end].tobytes().split(b"\0")[:-1]
        start = end


def write_text(path: str | Path, history: ChangeHistory) -> None:
    """Write the text format (no sites, names or weights); gzip if `path` ends in ``.gz``.

    Raises HistoryError if the history has unobserved cycles.
    """
    if history.observed is not None:
        raise HistoryError("the text format cannot say that a cycle was not observed: write TSV or npz")
    with created(path) as file:
        for _, characters in _rows(history):
            file.write(np.pad(characters, ((0, 0), (0, 1)), constant_values=ord("\n")).tobytes())


def write_tsv(path: str | Path, history: ChangeHistory, notes: Iterable[str] = ()) -> None:
    """Write TSV, numbers standing in for missing names; gzip if `path` ends in ``.gz``.

    ``notes``: comment lines for its head. Raises HistoryError for a name that the format cannot hold.
    """
    sites = [_column(history.site_names, i) for i in range(int(history.site.max()) + 1)]
    if (bad := next((site for site in sites if site.startswith(b"#")), None)) is not None:
        raise HistoryError(f"a site of a TSV history cannot begin with '#' (a comment); found {bad!r}")
    ends = np.cumsum(history.changed.sum(axis=0))[:-1]
    flipped = [] if history.flipped is None else np.split(history.flipped, ends)
    with created(path) as file:
        file.writelines(f"# {' '.join(note.split())}\n".encode() for note in notes)
        for first, characters in _rows(history):
            for i, row in enumerate(characters, start=first):
                page = _column(history.page_names, i)
                state = state_field(history, i, flipped[i] if flipped else _NOT_FLIPPED)
                file.write(b"\t".join((sites[history.site[i]], page, row.tobytes(), *state)) + b"\n")


def write_npz(
    path: str | Path, history: ChangeHistory, extra_arrays: Mapping[str, npt.NDArray[Any]] = {}
) -> None:
    """Write an npz archive with all there is, unobserved pages and `extra_arrays` included.

    Raises HistoryError for a name with a null character.
    """
    arrays: dict[str, npt.NDArray[Any] | None] = {"changed": history.changed, "site": history.site}
    arrays |= {name: getattr(history, name) for name in OPTIONAL} | {**extra_arrays}
    for field in NAME_FIELDS:
        names = getattr(history, field)
        if names is not None:
            text = b"".join(_raw(names, i) + b"\0" for i in range(len(names)))
            if text.count(b"\0") != len(names):
                raise HistoryError(f"{field} of an npz history must not hold null characters")
            arrays[field] = np.frombuffer(text, np.uint8)
    content = io.BytesIO()  # an archive is written out of order, which gzip cannot
    present = {name: array for name, array in arrays.items() if array is not None}
    np.savez_compressed(content, **present)  # type: ignore[arg-type]  # all its other keywords are arrays
    with created(path) as file:
        file.write(content.getbuffer())


def _rows(history: ChangeHistory) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """Yield for each batch of pages its first position, and bits as characters, ``[pages, cycles]``."""
    for first in range(0, history.pages, BATCH):
        batch = np.s_[:, first : first + BATCH]
        characters = history.changed[batch].astype(np.uint8) + np.uint8(ord("0"))
        if history.observed is not None:
            characters[~history.observed[batch]] = ord(".")
        yield first, np.ascontiguousarray(characters.T)


def _column(names: Sequence[str] | None, i: int) -> bytes:
    if names is None:
        return str(i).encode()
    name = _raw(names, i)
    if not name or any(character in name for character in b"\t\n\r"):
        raise HistoryError(f"a name of a TSV history must not be empty or hold a tab or newline: {name!r}")
    return name


def _raw(names: Sequence[str], i: int) -> bytes:
    return names.raw(i) if isinstance(names, PackedNames) else names[i].encode("utf-8", UNDECODED)


@contextlib.contextmanager
def created(path: str | Path, content: str = "change history") -> Iterator[IO[bytes]]:
    """Context with a file to write whole or not at all, gzip if it ends in .gz. Raises HistoryError."""
    try:
        with replacing(path) as raw:
            if str(path).endswith(".gz"):
                # No file name and time in it: equal histories make equal files.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield raw
    except OSError as error:
        raise HistoryError(f"cannot write the {content} {path}: {error.strerror or error}") from error


WRITERS: Final = {
    end: write
    for name, write in {".txt": write_text, ".tsv": write_tsv, ".npz": write_npz}.items()
    for end in ((name,) if name == ".npz" else (name, f"{name}.gz"))
}
