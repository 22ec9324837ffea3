"""Trouble beside a store or from sites: archives, search indexes, feeds, sitemaps, diffs, monitors."""

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.trouble.counting import DAMAGED, DIFFERENT, Count, damage_count, in_children, patience
from scrapy_gp4c.archive.differences import differences, shown
from scrapy_gp4c.archive.texts import Texts, Version, archive_problem
from scrapy_gp4c.crawling.claim_files import read_claims
from scrapy_gp4c.errors import ArchiveError, ClaimFileError, Gp4cError
from scrapy_gp4c.search.index import check_index
from scrapy_gp4c.store.opening import open_store
from tests.crawling.test_claim_files import FEEDS, SITEMAPS
from tests.search.test_index import FILE, filled_index
from tests.support.sources import ROOT


def _damaged(data: bytes, numbers: random.Random) -> bytes:
    """`data` damaged at random: bits flipped, parts removed, repeated or shuffled, or the end cut."""
    spoiled = bytearray(data)
    for _ in range(numbers.choice((1, 3, 30))):
        at, size = numbers.randrange(len(spoiled)), numbers.choice((1, 1, 8, 64))
        change = numbers.randrange(4)
        if change == 0:
            spoiled[at] ^= 1 << numbers.randrange(8)
        elif change == 1 and len(spoiled) > 2 * size:
            del spoiled[at : at + size]
        elif change == 2:
            spoiled[at:at] = spoiled[at : at + size] * numbers.choice((2, 2_000))
        else:
            spoiled[at : at + size] = numbers.randbytes(size)
    return bytes(spoiled[: numbers.randrange(1, len(spoiled) + 1)] if numbers.random() < 0.1 else spoiled)


def claim_files(times: int, numbers: random.Random, directory: Path) -> Count:
    """Read sitemaps and feeds with wrong bytes: each gives claims or one error."""
    bodies = [("sitemap", body) for body in SITEMAPS] + [("feed", body) for body in FEEDS]
    seeds = [numbers.randrange(2**32) for _ in range(times)]

    def work(number: int) -> int:
        dice = random.Random(seeds[number])
        for _ in range(50):
            kind, body = dice.choice(bodies)
            with suppress(ClaimFileError):
                read_claims(kind, _damaged(body, dice), "http://h/file.xml")
        return 0

    ends, hangs = in_children(times, work)
    return Count(50 * times, hangs=hangs, ends=sum(map(bool, ends)))


def long_diffs(times: int, numbers: random.Random, directory: Path) -> Count:
    """Diff texts of 1 MiB that differ at random, in their order or everywhere: each takes at most 2 s."""
    seeds = [numbers.randrange(2**32) for _ in range(times)]

    def work(number: int) -> int:
        dice = random.Random(seeds[number])
        words = [f"w{dice.randrange(dice.choice((3, 300, 30_000)))}" for _ in range(150_000)]
        other = list(words)
        for _ in range(dice.choice((10, 1_000, 50_000))):
            other[dice.randrange(len(other))] = f"x{dice.randrange(99)}"
        if dice.random() < 0.3:
            dice.shuffle(other)
        start_s = time.process_time()
        list(shown(differences(" ".join(words), " ".join(other))))
        return int(time.process_time() - start_s > 2.0)

    ends, hangs = in_children(times, work)
    return Count(times, hangs=hangs + ends.count(1), ends=sum(end not in (0, 1) for end in ends))


def damaged_archives(times: int, numbers: random.Random, directory: Path) -> Count:
    """Read archives with wrong bytes: each text is as it was, or an error says what is damaged."""
    path, said = directory / "texts.sqlite", {}
    with Texts(path, 2) as texts:
        for key in range(300):
            said[key] = f"page {key} says " + " ".join(str(numbers.randrange(99)) for _ in range(50))
            texts.add(Version(key, 1, key, None, said[key]))
    data = path.read_bytes()
    spoiled = [_flipped(data, numbers) for _ in range(times)]

    def work(number: int) -> int:
        other = directory / f"{number}.sqlite"
        other.write_bytes(spoiled[number])
        try:
            with Texts(other, readonly=True) as texts:
                for key, text in said.items():
                    frame = texts.frame(key, 1, key)
                    if frame is not None and texts.text(frame) != text:
                        return DIFFERENT
            return DAMAGED if archive_problem(other, deep=True) else 0
        except ArchiveError:
            return DAMAGED

    return damage_count(times, *in_children(times, work))


def damaged_indexes(times: int, numbers: random.Random, directory: Path) -> Count:
    """Check search indexes with wrong bytes: each is sound, or gives one error."""
    filled_index(directory).close()
    data = (directory / FILE).read_bytes()
    spoiled = [_flipped(data, numbers) for _ in range(times)]

    def work(number: int) -> int:
        other = directory / f"{number}.sqlite"
        other.write_bytes(spoiled[number])
        return DAMAGED if check_index(other) else 0

    return damage_count(times, *in_children(times, work))


def _flipped(data: bytes, numbers: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(numbers.choice((1, 10, 100))):
        spoiled[numbers.randrange(len(spoiled))] ^= 1 << numbers.randrange(8)
    return bytes(spoiled)


def signalled_monitors(times: int, numbers: random.Random, directory: Path) -> Count:
    """Send a monitor SIGTERM, once or twice, or SIGKILL at any moment: it ends, and the next one goes on."""
    store, log = directory / "store", directory / "log"
    lost = ends = 0
    hangs: list[int] = []
    for _ in range(times):
        command = [sys.executable, "-m", "tests.support.monitored", str(store), str(log), "1000000", "0.1"]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            time.sleep(numbers.uniform(0.5, 3.0))
            kind = numbers.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL))
            for _ in range(numbers.choice((1, 2))):
                process.send_signal(kind)
                time.sleep(numbers.uniform(0.0, 0.2))
            with patience(process.pid, hangs):
                assert process.stderr is not None
                ends += "Traceback" in process.stderr.read()
                process.wait()
        try:
            if (store / "data.mdb").exists():
                with open_store(store, readonly=True) as opened:
                    lost += bool(opened.verify())
        except Gp4cError:
            lost += 1
    return Count(times, lost, hangs=len(hangs), ends=ends)
