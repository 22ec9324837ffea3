"""Order of many whole numbers, counted 16 bits at a time: comparing them takes several times as long."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def places_in_order(
    numbers: npt.NDArray[np.unsignedinteger[Any]], before: npt.NDArray[np.intp] | None = None
) -> npt.NDArray[np.intp]:
    """Places in which numbers ascend, ``[P]``, of P unsigned ones.

    ``before``: the order of places in which equal numbers stay, ``[P]``; None: the one that they have.
    """
    order = before
    bits_16 = numbers.astype(f"<u{max(2, numbers.itemsize)}", order="C", copy=False).view("<u2")
    for digit in bits_16.reshape(len(numbers), -1).T if len(numbers) else ():  # the lowest first
        digit = np.ascontiguousarray(digit) if order is None else digit[order]
        if digit.min() < digit.max():
            by_digit = np.argsort(digit, kind="stable")  # which NumPy does by counting up to 16 bits
            order = by_digit if order is None else order[by_digit]
    return np.arange(len(numbers)) if order is None else order
