"""Recognise score functions that rank alike, so that they are replayed once.

A replay depends on a score function only through the order (ties included) in which it puts the pages of
a cycle. A page's terminals are functions of its state, and where the state is small, every state that a
history of D cycles can lead to is listed: n judged visits, X changes among them, t cycles since the last
visit (and its outcome), with n + t <= D because n visits take n cycles before the last t. Two functions
that put all these states in the same order put the pages of every cycle in the same order: `t * X`,
`10 * t * X` and `exp(t * X)`, say, need one replay.

It is exact or not used: functions of terminals with a larger state (weights that fade with every visit),
and histories so long that listing the states would cost more than a replay, have no key.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from scrapy_gp4c import terminals
from scrapy_gp4c.expression import BLOCK_ROWS, Expression
from scrapy_gp4c.terminals import Array, Clock

LISTED: Final = frozenset(("n", "X", "last", "last_cycle"))
"""State columns whose values are listed."""
MOST_STATES: Final = BLOCK_ROWS
"""States up to which listing them pays."""


class Rankings:
    """Keys of rankings over the states of histories of `cycles` cycles, `warmup` of them warm-up."""

    def __init__(self, cycles: int, warmup: int, clock: Clock) -> None:
        """List nothing yet: states are listed when the first function asks for them."""
        self._cycles = cycles
        self._warmup = warmup
        self._clock = clock
        self._states: dict[bool, dict[str, Array] | None] = {}
        self._terminals: dict[tuple[bool, str], Array] = {}

    def key(self, expression: Expression) -> bytes | None:
        """Digest of the order in which `expression` puts the states; None where they are too many."""
        columns = set(terminals.columns_of(expression.terminals, self._clock))
        if not columns <= LISTED:
            return None
        outcome = "last" in columns
        if outcome not in self._states:
            self._states[outcome] = self._list(outcome)
        state = self._states[outcome]
        if state is None:
            return None
        values = {name: self._values(outcome, name, state) for name in expression.terminals}
        scores = expression(values, len(state["n"]))
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        digest = hashlib.blake2b(order.astype(np.uint16).tobytes(), digest_size=16)
        digest.update(np.packbits(ranked[1:] != ranked[:-1]).tobytes())
        return bytes([outcome]) + digest.digest()

    def _values(self, outcome: bool, name: str, state: dict[str, Array]) -> Array:
        if (outcome, name) not in self._terminals:
            computed = terminals.compute((name,), state, self._cycles, self._clock)
            self._terminals[outcome, name] = np.asarray(computed[name], dtype=np.float64)
        return self._terminals[outcome, name]

    def _list(self, outcome: bool) -> dict[str, Array] | None:
        """All states, as columns; with both outcomes of the last visit if they matter."""
        most = self._cycles - self._warmup
        if most**2 / 2 * (self._warmup + most / 3) * (1 + outcome) > MOST_STATES:
            return None
        rows = [
            (n, X, last, self._cycles - t)
            for n in range(self._warmup, self._cycles)
            for t in range(1, self._cycles - n + 1)
            for X in range(n + 1)
            for last in ((0, 1) if outcome else (0,))
            if not outcome or (X >= 1 if last else n == 0 or n > X)
        ]
        columns = np.array(rows).T
        return dict(zip(("n", "X", "last", "last_cycle"), columns, strict=True))
