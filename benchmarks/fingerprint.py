"""Does the fingerprint find what changed, does it stay still under noise, and what does it cost?

Run: ``python -m benchmarks.fingerprint [--pages N]``. docs/lab/fingerprint.md states its figures. On
generated pages it compares the fingerprint with a plain 64-bit SimHash of the same shingles; on the pages of
the example project's web it compares successive days, whose truth is known.
"""

import argparse
import json
import lzma
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import simhash
from scrapy.http import HtmlResponse

from benchmarks.common import exit_code, machine, median_ratio, printed, verdict
from benchmarks.hostile_texts import HOSTILE
from example_project.model import Web
from example_project.page_text import Noise, render
from scrapy_gp4c.fingerprint import distance, fingerprint, fingerprint_of_text
from scrapy_gp4c.fingerprint.answers import MAX_TEXT_CHARACTERS, page_text
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import shingle_hashes

THRESHOLD = 3
WORDS_PER_SENTENCE = 12
LENGTHS = (50, 100, 200, 500, 1000)
HOSTILE_SECONDS = 1.0
FOUND_SHARE = 0.996
DOUBLING = 2.5
LETTERS = "aabcdeeefghiilmnoooprssttuv"


def plain_simhash(response: HtmlResponse) -> int:
    """Return the 64-bit SimHash of the same shingles, for which a threshold of 3 was published."""
    hashes = shingle_hashes(normalise(page_text(response)))
    digests = {str(number): int(value).to_bytes(8, "big") for number, value in enumerate(hashes)}
    return int(simhash.Simhash(list(digests), hashfunc=lambda name: digests.get(name.decode(), b"")).value)


class Page:
    """A generated article with content that may change, and noise such as time stamps and ads."""

    def __init__(self, dice: Random, words: int) -> None:
        self.dice = dice
        self.vocabulary = ["".join(dice.choices(LETTERS, k=dice.randint(2, 9))) for _ in range(2000)]
        self.headline = self.sentence(6)
        self.price = f"{dice.randint(1, 999)}.{dice.randrange(100):02d}"
        self.sentences = [self.sentence() for _ in range(words // WORDS_PER_SENTENCE)]
        self.now = datetime(2026, 3, 1) + timedelta(seconds=dice.randrange(10**7))
        self.ad, self.session = self.sentence(), "0" * 16
        self.gap, self.swapped, self.views = "\n", False, None

    def sentence(self, words: int = WORDS_PER_SENTENCE) -> str:
        return " ".join(self.dice.choices(self.vocabulary, k=words)).capitalize() + "."

    def change(self, what: str) -> None:
        """Change one part of the page or its noise, named as in `generated`."""
        dice = self.dice
        if what == "price":
            while (price := f"{dice.randint(1, 999)}.{dice.randrange(100):02d}") == self.price:
                pass
            self.price = price
        elif what == "sentence":
            self.sentences[dice.randrange(len(self.sentences))] = self.sentence()
        elif what == "headline":
            self.headline = self.sentence(6)
        elif what == "time stamp":
            self.now += timedelta(seconds=dice.randint(1, 10**6))
        elif what == "ad":
            self.ad = self.sentence(dice.randint(3, 15))
        elif what == "session id":
            self.session = f"{dice.getrandbits(64):016x}"
        elif what == "white space":
            self.gap = dice.choice((" ", "\n\n", "\t", "\r\n  "))
        elif what == "attribute order":
            self.swapped = not self.swapped
        elif what == "unmasked counter":
            self.views = dice.randrange(10**4)

    def response(self) -> HtmlResponse:
        gap = self.gap
        link = f'<a class="x" href="/n?sid={self.session}">'
        if self.swapped:
            link = f'<a href="/n?sid={self.session}" class="x">'
        stamps = (
            "%Y-%m-%d %H:%M:%S",
            "%a, %d %b %Y %H:%M:%S GMT",
            "%d. %B %Y, %H:%M Uhr",
            "%I:%M %p",
            "%d/%m/%y",
        )
        body = gap.join(f"<p>{s.replace(' ', gap)}</p>" for s in self.sentences)
        html = (
            f"<html><head><title>Shop</title></head><body><nav>{link}Home</a></nav>{gap}<h1>{self.headline}</h1>"
            f"<p>Price: <b>${self.price}</b></p><div class='advert'>{self.ad}</div>{body}{gap}{link}more</a>"
            f"<div>Updated {self.now.strftime(stamps[len(self.headline) % 5])}</div>"
            f"<p>{self.views or 17} readers</p></body></html>"
        )
        return HtmlResponse("http://127.0.0.1/", body=html.encode(), encoding="utf-8")


def generated(pages: int) -> None:
    """Print the shares of generated pages judged changed, per kind of change and length."""
    kinds = (
        "price",
        "sentence",
        "headline",
        "time stamp",
        "ad",
        "session id",
        "white space",
        "attribute order",
    )
    print(f"\nShare judged changed at distance >= {THRESHOLD}, {pages} generated pages each; words:")
    print(f"{'':30s}" + "".join(f"{n:>9,}" for n in LENGTHS) + "   distance (1st percentile, mean)")
    for kind in (*kinds, "unmasked counter"):
        for name, sketch in (("fingerprint", fingerprint), ("plain SimHash", plain_simhash)):
            shares, bits = [], []
            for words in LENGTHS:
                moved = []
                for number in range(pages):
                    page = Page(Random(f"{kind}/{words}/{number}"), words)
                    before = sketch(page.response())
                    page.change(kind)
                    moved.append(distance(before, sketch(page.response())))
                shares.append(statistics.fmean(bit >= THRESHOLD for bit in moved))
                bits += moved
            print(f"{kind:17s}{name:13s}" + "".join(f"{s:9.2%}" for s in shares), end="")
            print(f"   {np.percentile(bits, 1):.0f}, {statistics.fmean(bits):.1f}", flush=True)


def served(days: int) -> None:
    """Print hits and false alarms on the example project's pages, each day against the day before."""
    web = Web()
    truth_and_verdict: Counter[tuple[bool, bool]] = Counter()
    start = datetime(2026, 3, 2, 6)
    for day in range(2, 2 + days):
        before, after = web.versions(day - 1), web.versions(day)
        alive = web.alive(day - 1) & web.alive(day) & ~web.index & ~web.file
        moved = np.flatnonzero(alive & (before != after))
        still = np.flatnonzero(alive & (before == after))
        for page in [*moved.tolist(), *Random(day).sample(still.tolist(), min(200, still.size))]:
            prints = []
            for on in (day - 1, day):
                now = start + timedelta(days=on, seconds=page)
                html = render(web, page, on, 8000, Noise(Random(f"{page}/{on}"), now))
                prints.append(
                    fingerprint(HtmlResponse("http://127.0.0.1/", body=html.encode(), encoding="utf-8"))
                )
            truth_and_verdict[bool(before[page] != after[page]), distance(*prints) >= THRESHOLD] += 1
    changed = truth_and_verdict[True, True] + truth_and_verdict[True, False]
    same = truth_and_verdict[False, True] + truth_and_verdict[False, False]
    print(
        f"\nServed pages over {days} days: {truth_and_verdict[True, True]} of {changed} changes found,",
        end=" ",
    )
    print(f"{truth_and_verdict[False, True]} of {same} unchanged pages judged changed")


def real_edits(path: Path) -> bool:
    """Print how many edits are found in an xz file of contents; return whether the target holds."""
    edits: Counter[tuple[bool, bool]] = Counter()
    with lzma.open(path, "rt") as lines:
        for line in lines:
            versions = json.loads(line)["versions"]
            texts = [versions[cycle] for cycle in sorted(versions, key=int)]
            read = [(normalise(text).split(), fingerprint_of_text(text)) for text in texts]
            for (words, before), (new_words, after) in pairwise(read):
                edits[words != new_words, distance(before, after) >= THRESHOLD] += 1
    total = edits[True, True] + edits[True, False]
    print(f"\nReal edits: {edits[True, True]:,} of {total:,} found;", end=" ")
    print(f"{edits[False, False]:,} of blanks, dates and tokens alone are left alone")
    return verdict("share of real edits found", edits[True, True] / total, FOUND_SHARE, at_least=True)


def speed() -> None:
    """Print the time per page beside Scrapy's time to extract its links; medians of 15 pairs."""
    print("\nTime per page, and as a share of Scrapy's own response.css('a::attr(href)') on it:")
    for size, words in ((10_000, 1200), (170_000, 22_000)):
        body = Page(Random(1), words).response().body[:size]
        rounds = 50 if size < 50_000 else 3

        def seconds(
            work: Callable[[HtmlResponse], object], body: bytes = body, rounds: int = rounds
        ) -> float:
            # Each is another page: of a page that was fingerprinted last, the text is kept.
            bodies = [b"%d %b" % (number, body) for number in range(rounds)]
            pages = [HtmlResponse("http://127.0.0.1/", body=one, encoding="utf-8") for one in bodies]
            begin = time.process_time()
            for response in pages:
                work(response)
            return (time.process_time() - begin) / rounds

        pairs = [
            (seconds(fingerprint), seconds(lambda r: r.css("a::attr(href)").getall())) for _ in range(15)
        ]
        page_s = statistics.median(pair[0] for pair in pairs)
        print(f"{len(body):>9,} bytes, all text: {page_s * 1e3:.3f} ms, {median_ratio(pairs):.2f}")


def hostile() -> bool:
    """Print the time of each hostile text, and what doubling it costs; return whether both targets hold."""
    print(f"\nHostile texts of {MAX_TEXT_CHARACTERS:,} bytes; beside, how much longer than half of it:")

    def seconds(text: str) -> float:
        begin = time.process_time()
        fingerprint_of_text(text)
        return time.process_time() - begin

    took, doubling = [], []
    for name, hostile_text in HOSTILE.items():
        half, longest = (hostile_text.text(size) for size in (MAX_TEXT_CHARACTERS // 2, MAX_TEXT_CHARACTERS))
        pairs = [(seconds(longest), seconds(half)) for _ in range(3)]
        longest_s, half_s = (min(times) for times in zip(*pairs, strict=True))
        took.append(printed(longest_s, ".3f"))
        doubling.append(printed(longest_s / half_s, ".2f"))
        print(f"{name:<32} {took[-1]:.3f} s  {doubling[-1]:.2f}")
    print(f"median: {statistics.median(took):.3f} s")
    slowest = verdict("slowest hostile text, seconds", max(took), HOSTILE_SECONDS, at_least=False)
    return verdict("twice the text, times the time", max(doubling), DOUBLING, at_least=False) and slowest


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--pages", type=int, default=500, help="generated pages per kind and length (default: 500)"
    )
    parser.add_argument("--days", type=int, default=20, help="days of the served web (default: 20)")
    parser.add_argument("--edits", type=Path, help="compressed versions of real texts, to judge instead")
    options = parser.parse_args()
    print(machine())
    if options.edits is not None:
        return exit_code(real_edits(options.edits))
    speed()
    holds = hostile()
    served(options.days)
    generated(options.pages)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
