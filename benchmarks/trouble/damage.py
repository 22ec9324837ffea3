"""Stores whose files are damaged: read, and recovered."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.trouble.counting import DAMAGED, DIFFERENT, PAGE, Count, damage_count, in_children
from scrapy_gp4c.errors import StoreDamagedError, StoreError
from tests.store import test_recover
from tests.store.test_environment import flipped, read_all, varied


def damage(times: int, numbers: random.Random, directory: Path, change: Callable[..., bytes]) -> Count:
    """Read stores whose file `change` damages: each is as it was, or an error says what is damaged."""
    path = varied(directory / "store")
    sound, data = list(read_all(path)), (path / "data.mdb").read_bytes()
    seeds = [numbers.randrange(2**32) for _ in range(times)]

    def work(number: int) -> int:
        target = directory / "damaged"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (target / "data.mdb").write_bytes(change(data, random.Random(seeds[number])))
        try:
            return 0 if list(read_all(target)) == sound else DIFFERENT
        except StoreDamagedError:
            return DAMAGED

    return damage_count(times, *in_children(times, work))


def flip(data: bytes, numbers: random.Random) -> bytes:
    """`data` with one random bit flipped."""
    return flipped(data, numbers.randrange(8 * len(data)))


def wipe(data: bytes, numbers: random.Random) -> bytes:
    """`data` with one random page of zeros."""
    at = numbers.randrange(len(data) // PAGE) * PAGE
    return data[:at] + bytes(PAGE) + data[at + PAGE :]


def truncate(data: bytes, numbers: random.Random) -> bytes:
    """`data` with a random part of its end cut off."""
    return data[: numbers.randrange(1, len(data))]


def recoveries(times: int, numbers: random.Random, directory: Path) -> Count:
    """Recover damaged stores: each is sound afterwards and its losses are reported, or there is one error."""
    test_recover.build(directory / "store")
    data = (directory / "store" / "data.mdb").read_bytes()
    before = test_recover.Content.of(directory / "store")
    silent = ends = complete = refused = 0
    for number in range(times):
        damaged = bytearray(data)
        for _ in range(numbers.choice((1, 1, 2, 5))):
            at = numbers.randrange(2, len(data) // PAGE) * PAGE
            if numbers.random() < 0.4:
                damaged[at : at + PAGE] = bytes(PAGE)
            for _ in range(numbers.choice((1, 30))):
                damaged[at + numbers.randrange(PAGE)] ^= 1 << numbers.randrange(8)
        if numbers.random() < 0.15:
            del damaged[numbers.randrange(len(data) // 2, len(data)) :]
        try:
            done = test_recover.recovered(directory / str(number), bytes(damaged), before)
        except StoreError:
            refused += 1
            continue
        except AssertionError:
            ends += 1
            continue
        now = test_recover.Content.of(directory / str(number))
        missing = len(before.pages.keys() - now.pages.keys())
        silent += not now.visits.items() <= before.visits.items()
        silent += bool(missing) and not done.lost
        complete += not done.lost
    return Count(times, silent=silent, ends=ends, note=f"{complete} lost nothing, {refused} too much")
