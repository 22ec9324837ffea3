"""Loss of nine honest hosts to a tenth one, which games the schedule or does not want to be crawled.

    python -m benchmarks.gaming [--budget 25%] [--seeds 2] [--only WAY ...]

Real crawls of ten loopback hosts by a spider that follows every link. Each has a start page and 40 pages, of
which a quarter changes in every fourth cycle, each in a turn of its own: where all change in one cycle, the
last such cycle decides the figures. The tenth host is honest, or

- *changes*: all of its pages change at every visit;
- *spreads*: they do, and each links to five new ones that do, at most 200 new pages in every cycle;
- *lists*: its start page lists 200 new pages in every cycle;
- *floods*: its start page has 100,000 links;
- *claims*: its sitemap claims in every cycle that all of its pages changed just now, which they did not;
- *large*: it has ten times as many pages;
- *trap*: each of its pages links to two new addresses of known texts.

Or it answers in cycles 6 to 9 with trouble, see `TROUBLE`: 200 with a block, a captcha, a wall, or nothing;
an error sink by redirect; a refusal by status, with or without Retry-After.

Counted from cycle 6 on: ranked visits to the tenth host, changes of the nine honest hosts that were found,
and their current copies; for each trouble, changes of the tenth host that are none, by page. Each way must
leave at least 95% of those with an honest tenth host, and at most one false change a page. Two honest crawls
of this web differ by a tenth in the changes that they find, so each way has a trial for each seed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple, Self

import numpy as np

from benchmarks.common import Answer, address_of, exit_code, follow_links, machine, printed, serve, verdict
from scrapy_gp4c.page_state.outcomes import CHANGED, FAILED, KINDS
from scrapy_gp4c.policies.base import read_budget
from scrapy_gp4c.store.opening import open_store

HOSTS, PAGES, CYCLES = 10, 40, 20
FIRST_COUNTED = 6
GAMES = ("changes", "spreads", "lists", "floods", "claims", "large", "trap")
FORM = "<form><input name=user><input type=password></form>"
TROUBLE: dict[str, tuple[int, dict[str, str], str]] = {
    "block": (200, {}, "You cannot see {path} on this server. Quote incident {number} if you write to us."),
    "captcha": (
        200,
        {},
        'Prove at {number} that you are no robot <div class="g-recaptcha"></div> <a href=/>back</a>',
    ),
    "consent": (302, {"Location": "/consent?continue={path}"}, ""),
    "login": (200, {}, "Who are you? " + FORM),
    "soft_404": (200, {}, "Nothing is at {path}. Look for it, or go back to where you came from." * 3),
    "maintenance": (200, {}, "We are back at six. This server is being repaired."),
    "sink": (302, {"Location": "/error"}, ""),
    "empty": (200, {}, ""),
    "403": (403, {}, "no"),
    "429": (429, {}, "slower"),
    "503": (503, {}, "later"),
    "retry_after": (503, {"Retry-After": "1"}, "later"),
}
"""Way -> status, headers and text of its answers; ``{number}`` differs in every answer."""
TROUBLED = range(6, 10)
WAYS = ("honest", *GAMES, *TROUBLE)
LINKS = 100_000
GROWTH = 200
"""Pages that a cycle adds to the tenth host, where it spreads or lists."""
TARGET = 0.95
FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(["scrapy.crawler", "scrapy_gp4c.middleware", "scrapy_gp4c.scheduler"])
SETTINGS = {
    "ADDONS": {"scrapy_gp4c.Addon": 500},
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 32,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "GP4C_NEW_PAGES": 500,  # more than the honest hosts have; all pages of *floods* are no crawl that ends
}


class Web:
    """Ten hosts in threads, of which the last is hostile; ``cycle`` is set from outside."""

    def __init__(self, way: str) -> None:
        self.cycle, self.way, self._visits = 1, way, 0
        self._servers = serve(self.answer, HOSTS)
        self.starts = [f"{address_of(server)}/" for server in self._servers]
        self.starts.append(f"{self.starts[-1]}sitemap.xml")

    def answer(self, host: int, path: str) -> Answer:
        way = self.way if host == HOSTS else "honest"
        if way not in TROUBLE or self.cycle not in TROUBLED or path == "/robots.txt":
            return Answer(self.page(host, path, way).encode())
        status, headers, text = TROUBLE[way]
        if status == 302 and path.startswith(("/consent", "/error")):
            status, headers, text = 200, {}, "We value you. Choose what we may do on {path}."
        values = {"path": path, "number": time.time_ns()}
        text = f"<html><body>{text}</body></html>".format(**values) if text else ""
        return Answer(
            text.encode(), status, {name: value.format(**values) for name, value in headers.items()}
        )

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def page(self, host: int, path: str, way: str) -> str:
        """Text of a page of a host in this cycle."""
        self._visits += 1
        if path == "/sitemap.xml":
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            date = f"<lastmod>{now}</lastmod>" if way == "claims" else ""
            entries = "".join(
                f"<url><loc>{self.starts[-1][:-11]}p/{n}</loc>{date}</url>" for n in range(PAGES)
            )
            return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        if path == "/":
            numbers = list(range({"floods": LINKS, "large": 10 * PAGES}.get(way, PAGES)))
            if way == "lists":
                numbers += range(PAGES + GROWTH * (self.cycle - 1), PAGES + GROWTH * self.cycle)
            links = "".join(f'<a href="/p/{n}">page {n}</a> ' for n in numbers)
            return f"<html><body><h1>Start</h1>{links}</body></html>"
        if not path.startswith("/p/"):
            return "<html><body>nothing else is here</body></html>"
        number = int(path.rpartition("/")[2].partition("?")[0])
        version = version_of(host, number, self.cycle)
        links = ""
        if way in ("changes", "spreads"):
            version = self._visits
        if way == "spreads":
            first, end = 5 * number + PAGES, PAGES + GROWTH * self.cycle
            links = "".join(f'<a href="/p/{n}">{n}</a> ' for n in range(first, min(first + 5, end)))
        if way == "trap":
            links = "".join(f'<a href="/p/{number}?t={self._visits}{n}">on</a> ' for n in range(2))
        text = f"page {_word(number)} tells in version {_word(version)} what is new in it. " * 9
        return f"<html><body><p>{text}</p>{links}</body></html>"


def _word(number: int) -> str:
    """Word for a number, of five letters: the size of a page must not tell its version."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(5))


def version_of(host: int, number: int, cycle: int) -> int:
    """Version of an honest page: a quarter of them change in every fourth cycle, hosts by turns."""
    return (cycle + host + number // 4) // 4 if number % 4 == 0 else 0


class Row(NamedTuple):
    """Results of one trial, counted from cycle `FIRST_COUNTED` on."""

    hostile_share: float
    """Share of the ranked visits that the tenth host got."""
    honest_visits: int
    honest_changes: int
    """Changes found on the nine other hosts."""
    current: float
    """Share of the pages of the nine hosts with a current copy, mean over the cycles."""
    false_changes: float
    """False changes per page of the tenth host; 0 for ways without trouble."""


def trial(way: str, settings: dict[str, Any]) -> Row:
    """Crawl a web whose tenth host behaves in this way, cycle by cycle."""
    web = Web(way)
    with tempfile.TemporaryDirectory() as folder:
        for cycle in range(1, CYCLES + 1):
            web.cycle = cycle
            with ProcessPoolExecutor(1, mp_context=FORKED) as executor:  # imports are paid once
                executor.submit(
                    follow_links, web.starts, {**SETTINGS, **settings, "GP4C_STORE": f"{folder}/store"}
                ).result()
        web.close()
        with open_store(f"{folder}/store", readonly=True) as store:
            pages = np.arange(store.pages)
            urls = [one["url"] for one in store.requests(pages)]
            host = [int(url.partition("//127.0.0.")[2].partition(":")[0]) for url in urls]
            is_tenth = np.array(host) == HOSTS
            number = [int("0" + url.partition("/p/")[2].partition("?")[0]) for url in urls]
            ranked, honest, changes, current = [], 0, 0, []
            false_changes = 0
            copy = np.zeros(len(urls), int)
            for cycle, visits in store.visits(1, CYCLES):
                is_hostile = is_tenth[visits["page"]]
                ranked_tenth = is_hostile[visits["kind"] == KINDS.index("ranked")]
                visits = visits[~np.isin(visits["outcome"], FAILED) | ~is_hostile]
                tenth = is_tenth[visits["page"]]
                versions = np.array(
                    [version_of(host[page], number[page], cycle) for page in visits["page"]], int
                )
                is_real = copy[visits["page"]] != versions
                false_changes += int((tenth & (visits["outcome"] == CHANGED) & ~is_real).sum())
                copy[visits["page"]] = versions
                if cycle < FIRST_COUNTED:
                    continue
                now = np.array([version_of(*one, cycle) for one in zip(host, number, strict=True)])
                current.append((copy == now)[~is_tenth].mean())
                ranked.append(ranked_tenth)
                honest += int((~tenth).sum())
                changes += int((~tenth & (visits["outcome"] == CHANGED)).sum())
    false_changes_of_page = false_changes / is_tenth.sum() if way in TROUBLE else 0.0
    share = float(np.concatenate(ranked).mean())
    return Row(share, honest, changes, float(np.mean(current)), false_changes_of_page)


def print_ways(
    ways: Sequence[str], seeds: int, run: Callable[[str, int], Row]
) -> dict[str, tuple[float, float, float]]:
    """Print a row for each way; return by way the kept shares of changes and copies, and the false changes.

    ``ways``: begin with ``honest``; ``run(way, seed)`` does a trial.
    """
    print(
        "| tenth host | its share of ranked visits | visits to honest hosts | their changes found | kept | "
        "their current copies | kept | false changes a page |"
    )
    print("|---|---|---|---|---|---|---|---|")
    honest: list[Row] = []
    shares: dict[str, tuple[float, float, float]] = {}
    for way in ways:
        rows = [run(way, seed) for seed in range(seeds)]
        honest = honest or rows
        share, visits, _, _, false_changes = (statistics.fmean(column) for column in zip(*rows, strict=True))
        changes, current = (Compared.of(rows, honest, name) for name in ("honest_changes", "current"))
        print(
            f"| {way} | {share:.0%} | {visits:,.0f} | {changes.mean:.0f} | {changes.ratio:.0%} "
            f"± {changes.error:.0%} | {current.mean:.1%} | {current.ratio:.0%} ± {current.error:.0%} | "
            f"{false_changes:.2f} |",
            flush=True,
        )
        changes_kept, copies_kept = (printed(one.ratio, ".0%") for one in (changes, current))
        shares[way] = changes_kept, copies_kept, printed(false_changes, ".2f")
    return shares


def main() -> int:
    """Print a row for each way; return 1 where honest hosts keep less than the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--budget", type=read_budget, default=0.25, help="GP4C_BUDGET (default: 25%%)")
    parser.add_argument("--seeds", type=int, default=2, help="trials of each way")
    parser.add_argument("--only", choices=WAYS[1:], nargs="+", help="some ways, beside the honest trials")
    arguments = parser.parse_args()
    print(machine())
    print(f"python -m benchmarks.gaming {' '.join(sys.argv[1:])}\n")
    ways = WAYS if arguments.only is None else ("honest", *arguments.only)
    settings = {"GP4C_BUDGET": arguments.budget}
    shares = print_ways(ways, arguments.seeds, lambda way, seed: trial(way, {**settings, "GP4C_SEED": seed}))
    lowest, lies = min(min(one[:2]) for one in shares.values()), max(one[2] for one in shares.values())
    label = "changes and current copies of honest hosts kept, worst way"
    holds = verdict(label, lowest, TARGET, at_least=True)
    return exit_code(verdict("false changes a page, worst way", lies, 1.0, at_least=False), holds)


class Compared(NamedTuple):
    """A figure's mean over some trials, and its ratio to the mean with an honest tenth host."""

    mean: float
    ratio: float
    """Ratio of the means."""
    error: float
    """Standard error of the ratio, NaN for a single trial."""

    @classmethod
    def of(cls, rows: Sequence[Row], honest: Sequence[Row], name: str) -> Self:
        """Compare the field `name` of the trials ``rows`` with that of the trials ``honest``."""
        one, other = ([float(getattr(row, name)) for row in some] for some in (rows, honest))
        mean, share = statistics.fmean(one), statistics.fmean(one) / statistics.fmean(other)
        if len(one) < 2:
            return cls(mean, share, float("nan"))
        squares = (
            statistics.variance(some) / len(some) / statistics.fmean(some) ** 2 for some in (one, other)
        )
        return cls(mean, share, 0.0 if rows is honest else share * sum(squares) ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
