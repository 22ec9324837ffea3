"""Fuzzing of readers: valid files, changed at random as by damage, other versions or hand.

``GP4C_FUZZ=100000 python -m pytest tests -k foreign`` reads 100,000 of each kind instead of 50.
"""

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

fuzzed: Final = settings(
    max_examples=int(os.environ.get("GP4C_FUZZ", "50")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Decorator of a Hypothesis test of a reader."""

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["\ud800", "9" * 5000, 2**64, -1, 1e308, "__import__('os')", "a.b.c", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
PIECES: Final = st.binary(max_size=6) | st.sampled_from(
    [b"\t", b"\n", b"\r", b"{", b"[" * 2000, b'"', b"\0", b"\xff", b"9" * 400, b"-", b"1e999", b"NaN", b"#",
     b"http://", b"\xed\xa0\x80", b"\\ud800", b"\x1f\x8b", b"PK\x03\x04"]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """A sample with some bytes replaced, removed, repeated or put in between; or any bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    content = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.sampled_from([0, 0, 1, 1, 2, 5, 40])))
        repeated = draw(st.sampled_from([b"", content[start:stop] * 2]))
        content = content[:start] + repeated + draw(PIECES) + content[stop:]
    return content


@st.composite
def mutated_json(draw: st.DrawFn, samples: Sequence[Any]) -> Any:
    """A sample with up to three of its values, at any depth, removed or replaced by other JSON."""
    content = json.loads(json.dumps(draw(st.sampled_from(samples))))
    for _ in range(draw(st.integers(1, 3))):
        holder, path = {"": content}, ""
        for _ in range(draw(st.integers(0, 6))):
            inner = holder[path]
            names = (
                list(inner)
                if isinstance(inner, dict)
                else list(range(len(inner)))
                if isinstance(inner, list)
                else []
            )
            if not names:
                break
            holder, path = inner, draw(st.sampled_from(names))
        if path != "" and draw(st.booleans()):
            del holder[path]
        else:
            holder[path] = draw(JSON)
            if path == "":
                content = holder[""]
    return content
