"""What tells workers apart whose exponentials differ in the last bit: seen in real second processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from scrapy_gp4c.distributed.arithmetic import Arithmetic, of_this_process

OTHER_VALUES = """
import hashlib, json
import numpy as np
from scrapy_gp4c.distributed.arithmetic import of_this_process
x = np.random.default_rng(1).random(100_000)
results = [np.exp(x), np.exp(30 * x), np.log(x), np.log(100 * x), np.exp2(-x), np.expm1(-x), x**1.7, x**0.3]
values = hashlib.sha256(b"".join(one.tobytes() for one in results)).hexdigest()
print(json.dumps([values, of_this_process()]))
"""


def elsewhere(*without: str) -> tuple[str, Arithmetic]:
    """Digest of other values, and the arithmetic, of a process in which NumPy lacks these features."""
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(without)}
    command = [sys.executable, "-c", OTHER_VALUES]
    values, (bits, features) = json.loads(subprocess.check_output(command, env=environment))
    return values, Arithmetic(bits, tuple(features))


def test_arithmetics_are_equal_where_other_values_are() -> None:
    """Whatever the processor has, and whatever is taken away of it."""
    full_values, full = elsewhere()
    assert full == of_this_process()
    removals = {full.features, tuple(one for one in full.features if one != "X86_V3")}
    for without in sorted(filter(None, removals)):
        values, found = elsewhere(*without)
        assert set(found.features) == {*full.features} - {*without}
        assert (values == full_values) == (found.bits == full.bits), without


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (("A", "B", "C"), ("A",), 'set NPY_DISABLE_CPU_FEATURES="B C" in the environment of this worker'),
        (("A",), ("A", "C"), 'set NPY_DISABLE_CPU_FEATURES="C" in the environment of the others'),
        (("A",), ("A",), "let all have the same version of NumPy and of the C library"),
    ],
)
def test_the_remedy(ours: tuple[str, ...], theirs: tuple[str, ...], expected: str) -> None:
    """Takes away what one side alone has."""
    assert Arithmetic("x", ours).remedy(Arithmetic("y", theirs)) == expected


def test_the_remedy_helps() -> None:
    """A worker that follows it computes as the one that was there before."""
    full = of_this_process()
    _, plain = elsewhere(*full.features)
    if plain.bits == full.bits:
        pytest.skip("NumPy computes the same here, whatever it makes use of")
    told = full.remedy(plain)
    assert elsewhere(*told.split('"')[1].split())[1].bits == plain.bits
