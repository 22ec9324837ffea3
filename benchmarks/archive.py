"""Cost of an archive of texts to a crawl: time per response, and bytes per text.

    python -m benchmarks.archive [--pages 1000]

Pages of 10 KB (1,500 words) and of 2 KB are read as the crawl reads them, without an archive and with one: a
first version of each, then a second with one word more. The archive is a file on the disk, as in a
crawl. Processor time; the lowest of several rounds counts. A page that stays the same costs a look-up.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scrapy.http import HtmlResponse

from benchmarks import server
from benchmarks.common import machine
from scrapy_gp4c.archive.texts import Texts, Version
from scrapy_gp4c.fingerprint import read
from scrapy_gp4c.store.opening import ARCHIVE

SIZES = {300: "2 KB", 1_500: "10 KB"}
"""Number of words in a page -> size of its text, as printed."""


def responses(words: int, pages: int, changed: bool) -> list[HtmlResponse]:
    """The pages of the site of `benchmarks.server`; ``changed``: each with one word more."""
    server.WORDS_PER_PAGE = words
    bodies = [body.replace(b"</p>", b" anew</p>", 1) if changed else body for body in server._pages(pages)]
    return [HtmlResponse(f"http://site/{number}", body=body) for number, body in enumerate(bodies)]


def ms_each(work: Callable[[int, HtmlResponse], object], pages: Sequence[HtmlResponse]) -> float:
    """Processor time per response, ms."""
    start = time.process_time()
    for number, response in enumerate(pages):
        work(number, response)
    return 1000 * (time.process_time() - start) / len(pages)


def measure(words: int, pages: int) -> dict[str, float]:
    """Measure each cost once, for pages of ``words`` words."""
    old, new = (responses(words, pages, changed) for changed in (False, True))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, ARCHIVE)
        with Texts(path, versions=2) as texts:

            def keep(cycle: int) -> Callable[[int, HtmlResponse], object]:
                def archived(number: int, response: HtmlResponse) -> None:
                    made = read(response, with_text=True)
                    before = cycle - 1 if cycle > 1 and texts.frame(number, cycle - 1, 1) else None
                    texts.add(Version(number, cycle, 1, before, made.text or ""))

                return archived

            plain = ms_each(lambda number, response: read(response), responses(words, pages, False))
            first = ms_each(keep(1), old)
            second = ms_each(keep(2), new)
            same = ms_each(lambda number, response: texts.frame(number, 2, 1), old)
        size = path.stat().st_size / (2 * pages)
    return {"plain": plain, "first": first - plain, "second": second - plain, "same": same, "bytes": size}


ROUNDS = 5
"""Number of rounds, of which the lowest time counts."""


def main() -> int:
    """Print time and bytes per page for each size of page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=1000, help="pages of the site (default: %(default)s)")
    arguments = parser.parse_args()
    print(machine(("scrapy", "selectolax", "zstandard")))
    for words, size in SIZES.items():
        rounds = [measure(words, arguments.pages) for _ in range(ROUNDS)]
        lowest = {name: min(one[name] for one in rounds) for name in rounds[0]}
        print(f"pages of {size} ({words:,} words): fingerprint {lowest['plain']:.3f} ms")
        print(f"  keeping a first version, besides: {lowest['first']:.3f} ms")
        print(f"  keeping a changed version, besides: {lowest['second']:.3f} ms")
        print(f"  a page that stays the same: {lowest['same']:.3f} ms")
        print(f"  bytes of the file per version: {lowest['bytes']:,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
