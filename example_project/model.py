"""The change model of the monitored web: which pages exist, and which version each shows on a day.

Everything is a pure function of ``(seed, hosts, day)``: every day draws from its own generator, so a
version does not depend on which days were asked for before, and whoever imports this module knows the
truth that the web serves. The traits it imitates, and its constants, are described in docs/lab/demo.md.
"""

import re
from functools import lru_cache
from statistics import NormalDist
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

PAGES_PER_HOST = 62  # mean; the sizes of hosts are log-normal
SIZE_SIGMA = 0.8
MOST_PAGES = 270  # of a host
SLOW_HOST_PAGES = 24  # the slow host is small: it is there to be slow, not to be the demo's length
DIRECTORY_PAGES = 6.8  # mean; the sizes of a host's directories are log-normal
DIRECTORY_SIGMA = 0.91
GROWING_EVERY = 10  # host grows: 10, 20, 30, ...
GROWING_PAGES = 120  # of a host that grows, ...
NEW_SHARE = 0.65  # ... of which this share appears on a day drawn from 2..LAST_BIRTH: two a day
NEW_ELSEWHERE = 0.01  # of the pages of other hosts, likewise
LAST_BIRTH = 40
FEED_ENTRIES = 20
GONE_SHARE = 0.04  # of the pages; they go on a day drawn from 2..LAST_GONE
LAST_GONE = 60
DEAD_SHARE = 0.01  # links to these never worked
ALIAS_SHARE = 0.02  # of the pages; they redirect to another page
STILL_SHARE = 0.33  # of the pages; they never change
ALWAYS_SHARE = 0.016  # of the pages; they are in directories that a program rewrites every day, where ...
ALWAYS_REACH = 0.79  # ... this share of the pages changes ...
ALWAYS_RATE = 2.4  # ... so often per day, weekends included: on 91% of the days
BUSY_SHARE = 0.0155  # of the pages; they change so often per day, log-uniform:
BUSY_RATES = (0.22, 1.5)
RATE_MEDIAN = 0.01  # changes per day of all other pages, log-normal
RATE_SIGMA = 0.8
SITE_CORRELATION = 0.45  # of how busy two pages of one host are ...
DIRECTORY_CORRELATION = 0.25  # ... and so much more where they share a directory
SWEEP_PROBABILITY = 0.011  # per directory and day; a sweep changes ...
SWEEP_REACH = (0.6, 1.0)  # ... this share of the directory's pages, uniform, but for those that never change
RELEASE_PROBABILITY = 0.005  # per host and day; a release changes ...
RELEASE_REACH = (0.1, 0.5)  # ... this share of the host's pages, in the same way
OLDEST_DAYS = 1000  # before day 1; the last change of pages that never change
WEEKEND_FACTOR = 0.56  # on days 6 and 7 of a week, to the other days; day 1 is a Monday
UNAVAILABLE_SHARE = 0.02  # of the pages on a day; they answer 503 once or twice
LAST_DAY = 400  # the model is defined for days 1 to LAST_DAY
NEVER = np.iinfo(np.int32).max

DIRECTORY, NEWS, SHOP, MANUAL = range(4)
NAMES = ("page", "article", "product", "page")  # by kind: of a page's file
SECTIONS = (  # by kind; a host with more directories has further parts of each
    ("",),
    ("news/world", "news/local", "news/science", "news/sport", "blog", "archive"),
    ("shop/tools", "shop/garden", "shop/kitchen", "shop/toys", "shop/books", "offers"),
    ("docs/guide", "docs/reference", "docs/howto", "docs/api", "docs/install", "about"),
)

# Hosts with a trait of their own. Host 0 is the directory that links to all others.
ROBOTS_HOST = 2  # robots.txt disallows /private/
SLOW_HOST = 3  # every response is delayed
LATIN_HOST = 4  # sends UTF-8, declares ISO-8859-1
CP1252_HOST = 5  # sends windows-1252, declares UTF-8
NO_SPACE_HOST = 6  # Japanese: a script without spaces between words
NO_CHARSET_HOST = 8  # sends UTF-8, declares nothing
CALENDAR_HOST = 13  # has a calendar that never ends

# What leads to the new pages of a host that grows; these take turns.
BY_INDEX, BY_SITEMAP, BY_FEED, BY_LYING_SITEMAP = range(4)
FILES = ("", "sitemap.xml", "feed.xml", "sitemap.xml")

_PATH = re.compile(
    r"/(?:[a-z0-9/-]+/(?:article|product|page)-([1-9][0-9]{0,8})\.html|sitemap\.xml|feed\.xml)?"
)


class Web:
    """The pages of the monitored web; arrays are indexed by page, pages are grouped by host and directory.

    Attributes:
        host: int32 [P], the page's host, 0 (the directory) to ``hosts``.
        number: int32 [P], the page's number on its host; 0 is the host's index page.
        directory: int32 [P], the page's directory, numbered from 0 over all hosts.
        kind: int8 [P], DIRECTORY, NEWS, SHOP or MANUAL.
        born: int32 [P], first day on which the page exists.
        gone: int32 [P], first day on which it answers 404 or 410; NEVER for most, 0 for dead links.
        alias: int32 [P], the page it redirects to; itself for most.
        redirects: bool [P], pages that redirect.
        private: bool [P], pages that robots.txt disallows.
        steady: bool [P], ordinary pages that exist on all days: no index, no redirect, not disallowed.
        grows: bool [hosts + 1], hosts whose pages mostly appear later than on day 1.
        found_by: int8 [hosts + 1], what lists the new pages of a host: BY_INDEX, BY_FEED and so on.
        file: bool [P], sitemaps and feeds.
        always: bool [P], pages that a program rewrites almost every day.
        still: bool [P], pages that never change; sitemaps and feeds, which do as pages come and go.
        rate: float64 [P], changes per day of the page alone, mean over the days of a week.
        age_days: int32 [P], days from the last change before day 1 to day 1.
        first: int32 [hosts + 2], the first page of each host; the last element is P.
    """

    def __init__(self, seed: int = 1, hosts: int = 40) -> None:
        if hosts < 1 or hosts > 250:
            raise ValueError(f"a web has 1 to 250 hosts besides its directory, not {hosts}")
        self.seed, self.hosts = seed, hosts
        rng = np.random.default_rng([seed, 0])
        size = rng.lognormal(0.0, SIZE_SIGMA, hosts)
        host = np.arange(1, hosts + 1)
        fixed = np.where(
            host % GROWING_EVERY == 0, GROWING_PAGES, np.where(host == SLOW_HOST, SLOW_HOST_PAGES, 0)
        )
        drawn = fixed == 0
        size *= (PAGES_PER_HOST * hosts - fixed.sum()) / size[drawn].sum()
        size = np.where(drawn, np.clip(np.rint(size), 8, MOST_PAGES), fixed).astype(np.int32)
        size = np.concatenate([[1], size])
        self.first = np.concatenate([[0], np.cumsum(size)]).astype(np.int32)
        self.pages = pages = int(self.first[-1])
        self.host = np.repeat(np.arange(hosts + 1, dtype=np.int32), size)
        self.number = (np.arange(pages) - self.first[self.host]).astype(np.int32)
        self.kind = np.where(self.host == 0, DIRECTORY, NEWS + self.host % 3).astype(np.int8)
        turn, after = np.divmod(np.arange(hosts + 1), GROWING_EVERY)
        self.grows = (turn > 0) & (after == 0)
        self.found_by = np.where(self.grows, (turn - 1) % len(FILES), BY_INDEX).astype(np.int8)
        self.index = self.number == 0
        self.file = (self.number == 1) & (self.found_by != BY_INDEX)[self.host]
        self._lives(rng)
        self._directories(rng)
        self._rates(rng)

    def _lives(self, rng: np.random.Generator) -> None:
        pages, ordinary = self.pages, ~self.index & ~self.file
        fate = rng.random(pages)
        new = ordinary & (rng.random(pages) < np.where(self.grows, NEW_SHARE, NEW_ELSEWHERE)[self.host])
        self.born = np.where(new, rng.integers(2, LAST_BIRTH + 1, pages), 1).astype(np.int32)
        going = ordinary & (fate < GONE_SHARE)
        dead = ordinary & ~going & (fate < GONE_SHARE + DEAD_SHARE)
        last_day = np.maximum(rng.integers(2, LAST_GONE + 1, pages), self.born + 1)
        self.gone = np.where(dead, 0, np.where(going, last_day, NEVER)).astype(np.int32)
        self.private = ordinary & (self.host == ROBOTS_HOST) & (self.number % 6 == 0)
        steady = ordinary & ~new & (self.gone == NEVER) & ~self.private
        aliased = steady & (rng.random(pages) < ALIAS_SHARE)
        targets = np.flatnonzero(steady & ~aliased)
        self.alias = np.arange(pages, dtype=np.int32)
        if targets.size:
            self.alias[aliased] = rng.choice(targets, int(aliased.sum()))
        self.steady, self.redirects = steady & ~aliased, aliased

    def _directories(self, rng: np.random.Generator) -> None:
        places = []
        for size in np.diff(self.first):
            count = max(1, round((size - 1) / DIRECTORY_PAGES))
            weight = rng.lognormal(0.0, DIRECTORY_SIGMA, count)
            places += [[0], 1 + np.sort(rng.choice(count, size - 1, p=weight / weight.sum()))]
        self._directory_in_host = np.concatenate(places).astype(np.int32)  # within the host; 0: its root
        self._directory_in_host[self.file] = 0
        pairs = self.host.astype(np.int64) << 32 | self._directory_in_host
        self.directory = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
        # Directories that a program rewrites: in a random order, until they have the pages.
        size = np.bincount(self.directory, minlength=self.pages)
        order = rng.permutation(int(self.directory[-1]) + 1)
        order = order[~np.isin(order, self.directory[self.index])]
        before = np.cumsum(size[order]) - size[order] / 2
        chosen = order[before < self.pages * ALWAYS_SHARE / ALWAYS_REACH]
        self._rewritten = np.isin(self.directory, chosen)

    def _rates(self, rng: np.random.Generator) -> None:
        """Draw how often pages change: alike within a host, more so within a directory."""
        page_share = 1.0 - SITE_CORRELATION - DIRECTORY_CORRELATION
        busy = np.sqrt(SITE_CORRELATION) * rng.standard_normal(self.hosts + 1)[self.host]
        busy += np.sqrt(DIRECTORY_CORRELATION) * rng.standard_normal(self.pages)[self.directory]
        busy += np.sqrt(page_share) * rng.standard_normal(self.pages)
        # Quantiles instead of the draws: webs of few hosts would differ too much from seed to seed.
        share = (np.argsort(np.argsort(busy)) + 0.5) / self.pages
        top = 1.0 - BUSY_SHARE
        middle = (share - STILL_SHARE) / (top - STILL_SHARE)
        z = np.array([NormalDist().inv_cdf(x) if 0.0 < x < 1.0 else 0.0 for x in middle])
        low, high = BUSY_RATES
        rate = np.where(share < top, RATE_MEDIAN * np.exp(RATE_SIGMA * z), 0.0)
        rate = np.where(share >= top, low * (high / low) ** ((share - top) / BUSY_SHARE), rate)
        self.always = self._rewritten & (rng.random(self.pages) < ALWAYS_REACH)
        self.still = (share <= STILL_SHARE) & ~self.always | self.file
        self.rate = np.where(self.always, ALWAYS_RATE, np.where(self.still, 0.0, rate))
        shared = SWEEP_PROBABILITY * np.mean(SWEEP_REACH) + RELEASE_PROBABILITY * np.mean(RELEASE_REACH)
        gap_days = np.random.default_rng([self.seed, 3]).exponential(1.0, self.pages) / (self.rate + shared)
        self.age_days = np.where(self.still, OLDEST_DAYS, np.minimum(gap_days, OLDEST_DAYS)).astype(np.int32)

    @lru_cache(maxsize=1024)  # noqa: B019 - one web lives as long as its process or test
    def _state(self, day: int) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
        """Whether each page changes on a day, its version, and the day of its last change; [P] each."""
        if day <= 1:
            version = (self.born <= day).astype(np.int32)
            return np.zeros(self.pages, dtype=bool), version, version * (1 - self.age_days)
        if day > LAST_DAY:
            raise ValueError(f"the model is defined for days 1 to {LAST_DAY}, not {day}")
        _, version, since = self._state(day - 1)
        rng = np.random.default_rng([self.seed, 1, day])
        pace = (WEEKEND_FACTOR if (day - 1) % 7 >= 5 else 1.0) * 7 / (5 + 2 * WEEKEND_FACTOR)
        changed = rng.random(self.pages) < -np.expm1(-self.rate * np.where(self.always, 1.0, pace))
        for group, probability, (least, most) in (
            (self.directory, SWEEP_PROBABILITY, SWEEP_REACH),
            (self.host, RELEASE_PROBABILITY, RELEASE_REACH),
        ):
            groups = int(group[-1]) + 1
            reach = (rng.random(groups) < probability * pace) * rng.uniform(least, most, groups)
            changed |= (rng.random(self.pages) < reach[group]) & ~self.still
        changed &= (self.born < day) & (day < self.gone)
        for page in np.flatnonzero(self.index | self.file).tolist():
            changed[page] |= not np.array_equal(self.listed(page, day), self.listed(page, day - 1))
        version = version + (changed | (self.born == day))
        return changed, version, np.where(changed | (self.born == day), day, since).astype(np.int32)

    def listed(self, page: int, day: int) -> NDArray[np.int32]:
        """The pages that an index page, a sitemap or a feed lists on a day; on host 0 the index pages."""
        host = int(self.host[page])
        if host == 0:
            return self.first[1:-1]
        pages = np.arange(self.first[host] + 1, self.first[host + 1], dtype=np.int32)
        how, born, gone = self.found_by[host], self.born[pages], self.gone[pages]
        living = pages[self.alive(day)[pages] & ~self.file[pages]]
        fed = living[np.argsort(-self.born[living], kind="stable")][:FEED_ENTRIES]
        if self.file[page]:
            return fed if how == BY_FEED else living
        here = (born <= day) & ((day < gone) | (gone == 0))
        if how == BY_FEED:  # the archive of the feed
            here &= ~np.isin(pages, fed)
        elif how != BY_INDEX:
            here &= born == 1
        return pages[here]

    def changed(self, day: int) -> NDArray[np.bool_]:
        """Pages whose content on ``day`` differs from the day before, bool [P]; a birth is no change."""
        return self._state(day)[0][self.alias]

    def versions(self, day: int) -> NDArray[np.int32]:
        """The version that each page shows on ``day``, int32 [P]: 0 before its birth, 1 at its birth."""
        return self._state(day)[1][self.alias]

    def last_change(self, day: int) -> NDArray[np.int32]:
        """The day since which each page shows its version of ``day``, int32 [P]: below 1 if before day 1."""
        return self._state(day)[2][self.alias]

    def alive(self, day: int) -> NDArray[np.bool_]:
        """Pages with a text of their own that can be fetched on ``day``, bool [P].

        They are born, not gone, not disallowed by robots.txt, and no redirects.
        """
        return (self.born <= day) & (day < self.gone) & ~self.private & ~self.redirects

    @lru_cache(maxsize=1024)  # noqa: B019 - one web lives as long as its process or test
    def refusals(self, day: int) -> NDArray[np.int8]:
        """How often each page answers 503 on ``day`` before it answers 200, int8 [P]: 0, 1 or 2."""
        rng = np.random.default_rng([self.seed, 2, day])
        refuses = rng.random(self.pages) < UNAVAILABLE_SHARE
        return np.where(refuses, rng.integers(1, 3, self.pages), 0).astype(np.int8)

    @lru_cache(maxsize=65536)  # noqa: B019 - one web lives as long as its process or test
    def path(self, page: int) -> str:
        """The path of a page's URL."""
        if self.index[page]:
            return "/"
        if self.file[page]:
            return f"/{FILES[self.found_by[self.host[page]]]}"
        kind = self.kind[page]
        folder = self._folder(kind, int(self._directory_in_host[page]) - 1)
        folder = "live/" * bool(self._rewritten[page]) + ("private" if self.private[page] else folder)
        return f"/{folder}/{NAMES[kind]}-{self.number[page]}.html"

    @staticmethod
    def _folder(kind: int, number: int) -> str:
        """Path of a host's directory: a section, for later numbers also a part of it."""
        part, section = divmod(number, len(SECTIONS[kind]))
        return SECTIONS[kind][section] + (f"/part-{part + 1}" if part else "")

    def address(self, host: int) -> str:
        """The loopback address of a host; the directory is 127.0.0.1."""
        return f"127.0.0.{host + 1}"

    def url(self, page: int, port: int) -> str:
        """The URL of a page on a web served at ``port``."""
        return f"http://{self.address(int(self.host[page]))}:{port}{self.path(page)}"

    def find(self, address: str, path: str) -> int | None:
        """The page at a path of a host, or None where the web has no such page."""
        match = _PATH.fullmatch(path)
        if match is None or not address.startswith("127.0.0."):
            return None
        host = int(address.rpartition(".")[2]) - 1
        number = int(match[1] or path.endswith(".xml"))
        if not 0 <= host <= self.hosts or number >= self.first[host + 1] - self.first[host]:
            return None
        page = int(self.first[host]) + number
        return page if self.path(page) == path else None

    def page_of(self, url: str) -> int | None:
        """The page with this URL (its query is ignored), or None."""
        parts = urlsplit(url)
        return self.find(parts.hostname or "", parts.path)
