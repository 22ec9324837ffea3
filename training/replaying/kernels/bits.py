"""Bits of 64-bit words, and keys: numbers by which pages of equal score are ordered."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np
from numba import types
from numba.extending import intrinsic

from scrapy_gp4c.scoring import ranking
from training.replaying.kernels.compiling import inner, outer

mix = inner(ranking.mix)
GOLDEN = np.uint64(ranking.GOLDEN)
ONE = np.uint64(1)


@intrinsic
def trailing_zeros(typingctx, word):
    """Number of zero bits below the lowest set bit of a word that is not 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), codegen


@intrinsic
def ones(typingctx, word):
    """Number of set bits of a word."""

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@inner
def first_change(words, width, page, after, upto):
    """First cycle in (after, upto] in which the page changed, or 0.

    `words`: `width` words for each page; bit c - 1 of these is set if it changed in cycle c.
    """
    if upto <= after:
        return 0
    first_word = np.int64(page) * width
    j = after >> 6
    last = (upto - 1) >> 6
    word = words[first_word + j] & (~np.uint64(0) << np.uint64(after & 63))
    while True:
        if j == last:
            word &= ~np.uint64(0) >> np.uint64(63 - ((upto - 1) & 63))
        if word:
            return (j << 6) + np.int64(trailing_zeros(word)) + 1
        if j == last:
            return 0
        j += 1
        word = words[first_word + j]


@inner
def copy(source, start, target, at, count):
    """Copy `count` items by a loop, because the checks of numba's slices take 2 s to compile."""
    for i in range(count):
        target[at + i] = source[start + i]


@inner
def bits_of(number):
    """Number of bits that it takes to write a number."""
    bits = 1
    while number >> bits:
        bits += 1
    return bits


@outer
def fill_keys(pages, salt, by_draw, keys):
    """Write to `keys` the distinct numbers by which `pages` of equal score are ordered.

    `by_draw`: random ones, made of the cycle's `salt`; else the page numbers.
    """
    if by_draw:
        for i in range(pages.size):
            keys[i] = mix(mix(np.uint64(pages[i]) + GOLDEN) ^ salt)
    else:
        for i in range(pages.size):
            keys[i] = np.uint64(pages[i])


@inner
def fill_marked_keys(pages, again, salt, by_draw, keys):
    """Write keys as `fill_keys` does, with the lowest bit set if the page had changed (`again` not 0)."""
    if by_draw:
        for i in range(pages.size):
            key = mix(mix(np.uint64(pages[i]) + GOLDEN) ^ salt)
            keys[i] = (key & ~ONE) | np.uint64(again[i] != 0)
    else:
        for i in range(pages.size):
            keys[i] = (np.uint64(pages[i]) << ONE) | np.uint64(again[i] != 0)


@inner
def insert(keys, n, key):
    """Insert `key` into the ascending `keys[:n]`, which become `keys[: n + 1]`."""
    while n > 0 and keys[n - 1] > key:
        keys[n] = keys[n - 1]
        n -= 1
    keys[n] = key
