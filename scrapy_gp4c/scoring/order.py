"""Order of many whole numbers: sorted together with their places, in a fraction of `argsort`'s time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def places_in_order(numbers: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.intp]:
    """Places in which numbers ascend, equal ones in the order that they have: ``[P]``, of P unsigned ones."""
    if len(numbers) < 2:
        return np.arange(len(numbers))
    keys = numbers.astype(np.uint64)
    lowest = keys.min()
    keys -= lowest
    place_bits = np.uint64((len(keys) - 1).bit_length())
    low_bits = np.uint64(max(0, int(keys.max()).bit_length() + int(place_bits) - 64))
    keys >>= low_bits  # so that both have room in 64 bits
    keys <<= place_bits
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    order = (keys & _ones(place_bits)).view(np.intp)
    if not low_bits:
        return order
    ordered = numbers[order]
    if (ordered[1:] < ordered[:-1]).any():  # what was left out decides among neighbours
        keys >>= place_bits
        is_alike = keys[1:] == keys[:-1]
        rows = np.flatnonzero(np.append(is_alike, False) | np.append(False, is_alike))
        group = np.append(True, ~is_alike).cumsum(dtype=np.uint64)[rows]
        rest = ordered[rows].astype(np.uint64) - lowest & _ones(low_bits)
        order[rows] = order[rows[places_in_order(group << low_bits | rest)]]
    return order


def _ones(bits: np.uint64) -> np.uint64:
    return np.uint64((1 << int(bits)) - 1)
