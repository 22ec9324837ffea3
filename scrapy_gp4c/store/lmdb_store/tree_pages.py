"""Pages of an LMDB 0.9 file's trees, read many at once: their nodes, and whether these are in order."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError

Array = npt.NDArray[Any]

HEAD_BYTES: Final = 16
"""Of a page."""
BRANCH, LEAF = 1, 2
ELSEWHERE, TABLE = 1, 2
"""Flags of a leaf's node: its value has pages of its own, or is a table's record."""
_NODE_BYTES: Final = 8


class Nodes(NamedTuple):
    """The nodes of some pages, each ``[N]``."""

    page: Array
    """Which of the pages."""
    is_first: Array
    """Whether it is its page's first."""
    key_at: Array
    """Byte of the page where the key begins."""
    key: Array
    """uint64 ``[N, 3]``: its first 16 bytes as two numbers, and its length."""
    size: Array
    """Bytes of a leaf's value; a branch's child but for its highest part."""
    flags: Array
    """A leaf's; a branch's child, its highest part."""
    value_at: Array
    """Byte of the page where the value begins."""


def numbers_at(pages: Array, page: Array, at: Array) -> Array:
    """Numbers of 8 bytes at places of pages, uint64."""
    found: Array = pages[page[:, None], at[:, None] + np.arange(8)].copy().view("<u8")[:, 0]
    return found


def read_nodes(pages: Array, number: Array, kind: int, numbers: bool) -> Nodes:
    """The nodes of pages of a kind, which say the numbers that they are at; raises NoLmdbFileError."""
    words = pages.view("<u2")
    size = pages.shape[1]
    lower, upper = words[:, 6].astype(np.int64), words[:, 7].astype(np.int64)
    count = (lower - HEAD_BYTES) // 2
    wrong = (pages[:, :8].copy().view("<u8")[:, 0] != number) | (words[:, 5] != kind) | (lower % 2 == 1)
    wrong |= (count < (2 if kind == BRANCH else 1)) | (lower > upper) | (upper > size - _NODE_BYTES)
    _refuse(wrong, number)
    page = np.repeat(np.arange(len(pages)), count)
    within = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count)
    at = words[page, HEAD_BYTES // 2 + within].astype(np.int64)
    _refuse((at % 2 == 1) | (at < upper[page]) | (at > size - _NODE_BYTES), number[page])
    halves = [words[page, at // 2 + place].astype(np.int64) for place in range(4)]
    value_size, flags, key_size = halves[0] | halves[1] << 16, halves[2], halves[3]
    kept = 0 if kind == BRANCH else np.where(flags & ELSEWHERE, 8, value_size)
    taken = _NODE_BYTES + key_size + kept
    _refuse(at + taken > size, number[page])
    if kind == LEAF:
        _refuse((flags & ~(ELSEWHERE | TABLE)) > 0, number[page])
    # Nodes lie close to each other: what is altered in the size of one shows in their sum.
    _refuse(np.bincount(page, taken + taken % 2, len(pages)) != size - upper, number)
    nodes = Nodes(
        page,
        within == 0,
        at + _NODE_BYTES,
        _keys(pages, page, at + _NODE_BYTES, key_size, numbers),
        value_size,
        flags,
        at + _NODE_BYTES + key_size,
    )
    inner = np.flatnonzero(~nodes.is_first)
    if kind == BRANCH:  # the first key of a branch is no key
        inner = inner[~nodes.is_first[inner - 1]]
    _refuse(~_less(nodes.key[inner - 1], nodes.key[inner]), number[page[inner]])
    return nodes


def _keys(pages: Array, page: Array, at: Array, length: Array, numbers: bool) -> Array:
    """Keys as numbers that sort as they do, uint64 ``[N, 3]``."""
    keys = np.zeros((len(page), 3), np.uint64)
    keys[:, 2] = length
    for part in range(1 if numbers or length.max(initial=0) <= 8 else 2):
        places = at[:, None] + np.arange(8 * part, 8 * part + 8)
        taken = pages[page[:, None], np.minimum(places, pages.shape[1] - 1)]
        taken[np.arange(8 * part, 8 * part + 8) >= length[:, None]] = 0
        keys[:, part] = taken.view("<u8" if numbers else ">u8")[:, 0]
    return keys


def _less(one: Array, other: Array) -> Array:
    """Tell which keys are less than others; of those that are too long to tell, all."""
    equal = one == other
    less = (one[:, 0] < other[:, 0]) | equal[:, 0] & (
        (one[:, 1] < other[:, 1]) | equal[:, 1] & ((one[:, 2] < other[:, 2]) | (one[:, 2] > 16))
    )
    found: Array = less
    return found


def check_bounds(nodes: Nodes, low: Array, high: Array) -> None:
    """Raise unless the keys of pages are between the keys that lead to them."""
    last = np.append(nodes.is_first[1:], True)
    if np.any(_less(nodes.key[nodes.is_first], low)) or not np.all(_less(nodes.key[last], high)):
        raise NoLmdbFileError("has keys out of order")


def _refuse(wrong: Array, number: Array) -> None:
    """Raise for the first page of which something is wrong."""
    if np.any(wrong):
        raise NoLmdbFileError(f"has a damaged page, {number[np.argmax(wrong)]}")
