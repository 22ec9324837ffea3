"""Whether the trees of an LMDB 0.9 file are in order, told from its bytes, before LMDB follows them.

LMDB trusts its file: a damaged page ends the process (an assertion, SIGBUS), or hides what is there. Here all
is looked at that LMDB keeps for itself: headers, nodes and the order of keys, level by level, many pages at
once; that no page is used twice or both used and free; and what each tree says of its own size. Values have
checksums (`sealed`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.store.lmdb_store.header import VERSION, Header, NoLmdbFileError, read_header
from scrapy_gp4c.store.lmdb_store.tree_pages import (
    BRANCH,
    ELSEWHERE,
    HEAD_BYTES,
    LEAF,
    TABLE,
    Nodes,
    check_bounds,
    numbers_at,
    read_nodes,
)

Array = npt.NDArray[Any]

ALL_LEAVES: Final = 16_384
"""Leaves up to which a look takes all of them: 64 MiB."""
SAMPLED_LEAVES: Final = 1_024
_ATTEMPTS: Final = 3
_BATCH: Final = 1_024
_OVERFLOW: Final = 4
"""Flag of the first page of a large value."""
NO_ROOT: Final = 2**64 - 1
TREE: Final = np.dtype(
    [("pad", "<u4"), ("flags", "<u2"), ("depth", "<u2"), ("branches", "<u8"), ("leaves", "<u8"),
     ("elsewhere", "<u8"), ("entries", "<u8"), ("root", "<u8")]
)  # fmt: skip
"""A tree's record (mdb.c: MDB_db)."""
_NUMBER_KEYS: Final = 8
_ANYTHING: Final = np.full(3, 2**64 - 1, np.uint64)


class Looked(NamedTuple):
    """How much of a file was looked at: pages of its trees."""

    pages: int
    of: int


def look(data: Path, *, thorough: bool = False) -> Looked:
    """Look at the trees of a file; at all leaves where there are few, at a sample, or ``thorough``: at all.

    A file that is shorter than its header says may be sound, as pages at the end that were allocated and
    freed in one transaction are never written. Where a writer goes on meanwhile, looks again. Raises
    NoLmdbFileError, with a text that says what is wrong.
    """
    with data.open("rb", buffering=0) as file:  # what is read a second time is not remembered
        for _ in range(_ATTEMPTS):
            header = read_header(file)
            if header.version != VERSION:
                break
            try:
                return _Look(file, header, thorough).all()
            except NoLmdbFileError:
                if read_header(file).transaction == header.transaction:
                    raise
    return Looked(0, 0)  # LMDB tells of the version; a busy writer looked when it began


class _Look:
    """One look at a file."""

    def __init__(self, file: BinaryIO, header: Header, thorough: bool) -> None:
        self._file = file
        self._header = header
        self._size = header.page_bytes
        self._pages = os.fstat(file.fileno()).st_size // self._size
        self._thorough = thorough or self._pages <= header.last_page
        # Nothing is as large as a header says that may be damaged.
        self._used = np.zeros(self._pages, np.bool_)
        self._used[:2] = True
        self._beyond = np.zeros(0, np.int64)
        self._looked = self._of = 0

    def all(self) -> Looked:
        """Look at the free list and the table of tables, then at the tables."""
        raw = self._bytes(self._header.meta_at + HEAD_BYTES + 24, 2 * TREE.itemsize)
        first = np.frombuffer(raw, TREE)
        if first["flags"].tolist() != [_NUMBER_KEYS, 0]:
            raise NoLmdbFileError("has a damaged header")
        for _, value in self._walk(first[:1], keep=True, numbers=True):
            self._free(value)
        tables = self._walk(first[1:], keep=True, numbers=False)
        records = [value for flags, value in tables if flags & TABLE]
        trees = np.frombuffer(b"".join(records), TREE)
        if trees["flags"].any():
            raise NoLmdbFileError("has a table of another kind")
        self._walk(trees, keep=False, numbers=False)
        return Looked(self._looked, self._of)

    def _free(self, value: bytes) -> None:
        """Take a list of free pages."""
        pages = np.frombuffer(value, "<u8") if len(value) % 8 == 0 else np.zeros(0, np.uint64)
        if not len(pages) or pages[0] > len(pages) - 1:
            raise NoLmdbFileError("has a damaged list of free pages")
        listed = pages[1 : 1 + int(pages[0])]
        if np.any(listed[1:] >= listed[:-1]):
            raise NoLmdbFileError("has a damaged list of free pages")
        self._use(listed, np.ones(len(listed), np.int64), there=False)

    def _use(self, first: Array, count: Array, *, there: bool = True) -> None:
        """Note that pages are used, each by one only; raises where one cannot be."""
        if not len(first):
            return
        last = first.astype(np.uint64) + count.astype(np.uint64) - np.uint64(1)
        if there and last.max() >= self._pages and last.max() <= self._header.last_page:
            raise NoLmdbFileError("is truncated")
        if last.max() > self._header.last_page or first.max() > last.max():
            raise NoLmdbFileError("refers to a page that it has not")
        if there and int(count.sum()) > self._pages:
            raise NoLmdbFileError("uses a page twice")
        pages = np.repeat(first.astype(np.int64) - np.cumsum(count) + count, count) + np.arange(count.sum())
        written = pages[pages < self._pages]
        self._beyond = np.concatenate([self._beyond, pages[pages >= self._pages]])
        twice = written[self._used[written]].tolist() + _repeated(written) + _repeated(self._beyond)
        if twice:
            raise NoLmdbFileError(f"uses page {twice[0]} twice")
        self._used[written] = True

    def _bytes(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        return self._file.read(count)

    def _read(self, numbers: Array) -> Array:
        """Pages ``[P, bytes]``."""
        read = [self._bytes(number * self._size, self._size) for number in numbers.tolist()]
        if any(len(page) < self._size for page in read):
            raise NoLmdbFileError("is truncated")
        return np.frombuffer(b"".join(read), np.uint8).reshape(len(read), self._size)

    def _walk(self, trees: Array, *, keep: bool, numbers: bool) -> list[tuple[int, bytes]]:
        """Look at trees, all of them level by level; ``keep``: return the flags and values of the leaves.

        ``numbers``: keys are numbers of the machine.
        """
        there = trees["root"] != NO_ROOT
        if np.any(there != (trees["depth"] > 0)) or np.any(trees["entries"][~there]):
            raise NoLmdbFileError("has a tree that says two things of its size")
        tree = np.flatnonzero(there)
        number, low = trees["root"][tree], np.zeros((len(tree), 3), np.uint64)
        counted = np.zeros((4, len(trees)), np.int64)
        sampled = int(trees["leaves"][tree].sum()) > ALL_LEAVES and not self._thorough
        found: list[tuple[int, bytes]] = []
        level = 0
        while len(number):
            level += 1
            self._use(number, np.ones(len(number), np.int64))
            self._of += len(number)
            is_leaf = trees["depth"][tree] == level
            counted[0] += np.bincount(tree[~is_leaf], minlength=len(trees))
            counted[1] += np.bincount(tree[is_leaf], minlength=len(trees))
            high = np.concatenate([low[1:], _ANYTHING[None]])
            high[np.append(tree[1:] != tree[:-1], True)] = _ANYTHING
            leaves, branches = np.flatnonzero(is_leaf), np.flatnonzero(~is_leaf)
            if sampled and len(leaves) > SAMPLED_LEAVES:
                stride = len(leaves) // SAMPLED_LEAVES
                leaves = leaves[self._header.transaction % stride :: stride]
            for some in _batches(leaves):
                pages = self._read(number[some])
                nodes = read_nodes(pages, number[some], LEAF, numbers)
                check_bounds(nodes, low[some], high[some])
                found += self._leaves(pages, nodes, tree[some], counted, keep)
            inner = [
                self._children(number[some], tree[some], low[some], high[some], numbers)
                for some in _batches(branches)
            ]
            number, tree, low = (
                (np.concatenate(parts) for parts in zip(*inner, strict=True))
                if inner
                else (number[:0], tree[:0], low[:0])
            )
        said = [trees[name] for name in ("branches", "leaves", "elsewhere", "entries")]
        for count, expected in list(zip(counted, said, strict=True))[: 2 if sampled else 4]:
            if np.any(count != expected.astype(np.int64)):
                raise NoLmdbFileError("has a tree of another size than it says")
        return found

    def _children(
        self, number: Array, tree: Array, low: Array, high: Array, numbers: bool
    ) -> tuple[Array, Array, Array]:
        """Look at branches: the numbers of their children, the trees and the lowest keys of these."""
        nodes = read_nodes(self._read(number), number, BRANCH, numbers)
        self._looked += len(number)
        bounds = np.where(nodes.is_first[:, None], low[nodes.page], nodes.key)
        check_bounds(nodes._replace(key=bounds), low, high)
        children = nodes.size.astype(np.uint64) | nodes.flags.astype(np.uint64) << np.uint64(32)
        return children, tree[nodes.page], bounds

    def _leaves(
        self, pages: Array, nodes: Nodes, tree: Array, counted: Array, keep: bool
    ) -> list[tuple[int, bytes]]:
        """Look at what leaves say of values: how many there are, and which pages the large ones have."""
        counted[3] += np.bincount(tree[nodes.page], minlength=counted.shape[1])
        large = np.flatnonzero(nodes.flags & ELSEWHERE)
        first = numbers_at(pages, nodes.page[large], nodes.value_at[large])
        count = -(-(nodes.size[large] + HEAD_BYTES) // self._size)
        self._use(first, count)
        self._looked += len(pages)
        if len(large):
            heads = self._read(first)[:, :HEAD_BYTES]
            flags, run = heads[:, 10:12].copy().view("<u2")[:, 0], heads[:, 12:16].copy().view("<u4")[:, 0]
            if (
                np.any(heads[:, :8].copy().view("<u8")[:, 0] != first)
                or np.any(flags != _OVERFLOW)
                or np.any(run != count)
            ):
                raise NoLmdbFileError("has a damaged large value")
            np.add.at(counted[2], tree[nodes.page[large]], count)
        if not keep:
            return []
        elsewhere = dict(zip(large.tolist(), first.tolist(), strict=True))
        values = []
        for node, (page, at, size, flags_) in enumerate(
            zip(
                nodes.page.tolist(),
                nodes.value_at.tolist(),
                nodes.size.tolist(),
                nodes.flags.tolist(),
                strict=True,
            )
        ):
            if node in elsewhere:
                value = self._bytes(elsewhere[node] * self._size + HEAD_BYTES, size)
            else:
                value = pages[page, at : at + size].tobytes()
            values.append((flags_, value))
        return values


def _repeated(pages: Array) -> list[int]:
    ordered = np.sort(pages)
    repeated: list[int] = ordered[1:][ordered[1:] == ordered[:-1]].tolist()
    return repeated


def _batches(places: Array) -> list[Array]:
    return [places[start : start + _BATCH] for start in range(0, len(places), _BATCH)]
