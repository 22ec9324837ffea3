"""URLs that repeat other pages: twins (second URLs of a page), and traps, whose links never end.

A visit of such a URL ends as ``excluded`` and names the page that it repeats. The page's copy stays, and a
change is reported for one URL alone. The other URLs are visited again after 1, 2, 4, ... 32 cycles, as
failing pages are.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from html import unescape
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit
from zlib import crc32

import numpy as np
import xxhash
from scrapy.http import Response

from scrapy_gp4c.fingerprint import has_text
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.groups import Place, in_scope, place_of_url
from scrapy_gp4c.store.opening import Store

HEAD_BYTES: Final = 65_536
"""Bytes at the start of a body in which a canonical link is looked for."""
MAX_TRIES: Final = 10
"""Most occurrences of ``canonical`` or ``og:url`` whose tags are looked at."""
_NAMING: Final = re.compile(
    rb"""<link\b.*\brel\s*=\s*["']?canonical\b|<meta\b.*\bproperty\s*=\s*["']?og:url\b""", re.I | re.DOTALL
)
_HREF: Final = re.compile(rb"""\b(?:href|content)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_CANONICAL_HEADER: Final = re.compile(rb'<([^<>]*)>[^<>,]*;\s*rel\s*=\s*"?canonical\b', re.IGNORECASE)
REPEATING: Final = 0.8
"""Least share of a scope's (`Scope`) new pages that repeat texts of others, for it to be a trap."""
MIN_REPEATS: Final = 30
"""Fewest repeating pages, in at least `MIN_CYCLES` cycles, for a scope to be a trap."""
MIN_CYCLES: Final = 3
MANY_REPEATS: Final = 200
"""Fewest repeating pages in one cycle for a scope to be a trap at once."""
MIN_NEW_PAGES: Final = 5
"""Fewest new pages of a trap in a cycle by which it may prove to be none any more."""
UNREAD: Final = 20
"""Number of the first new pages of a form of URL (`form_of`) whose texts are not compared."""
READ: Final = 30
"""Number of the form's next pages, whose texts are compared without their numbers."""
ALIKE: Final = 0.6
"""Least share of compared pages with alike texts for a warning; calendars' texts name months."""
MAX_NAMED: Final = 20
"""Most words of a URL, its last ones, that are left out of a text before it is compared."""
MIN_COMBINATIONS: Final = 16
"""Fewest combinations of a path's query parameters for a warning; at least 3 for each parameter, too."""
MAX_COMBINATIONS: Final = 256
"""Most combinations that are noted for a path."""
_IN_LIST: Final = re.compile("[,;|+ ]")
"""Sign between the members of a list in a URL, as in ``?ids=1,2`` and ``/tags/a+b``."""
_NUMBER: Final = re.compile(r"\d+")
MAX_REMEMBERED: Final = 100_000
"""Most texts of a cycle's new pages, and most scopes, that are remembered."""
IN_PATH: Final = "a date or a token in the path"
IN_HOST: Final = "the first name of the host"
IN_QUERY: Final = "a token without a name in the query"
_FIRST_NAME: Final = re.compile(r"(?<=://)(?!\d+\.)[^./?#@]+(?=\.[^./?#]+\.)")
_TOKENS: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:(?:19|20)\d\d[-_./]?[01]\d[-_./]?[0-3]\d|\d{10}(?:\d{3})?"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,})(?![0-9A-Za-z])"
)
"""Dates, Unix times, UUIDs and long hexadecimal numbers in a URL."""
SAMPLE: Final = 64
"""Most hashes of URLs without a part that are kept for this part, see `UrlParts`."""
MIN_VARIANTS: Final = 3
"""Fewest new pages that differ from known ones in a URL part alone, for a warning of it."""
DOUBLED: Final = 0.1
"""Least share of a cycle's changes that other pages had, too, for a warning."""
MAX_PARTS: Final = 20
MAX_PARAMETERS: Final = 8
MAX_SCOPES: Final = 200
"""Most scopes whose repeating pages the record of a cycle counts."""


def canonical_url(response: Response, page_url: str) -> str | None:
    """Return the URL that a response names as that of its page; None: it is `page_url`.

    By ``<link rel="canonical">`` (RFC 6596), a header ``Link`` (RFC 8288), ``og:url`` (ogp.me), or else by
    the end of redirects.
    """
    head, url = response.body[:HEAD_BYTES], response.url
    lowered = head.lower()
    href = _named_address(head, lowered, b"canonical")
    if href is not None and (base := _address(_tag(head, lowered.find(b"<base")))) is not None:
        url = _joined(url, base)
    if href is None and (match := _CANONICAL_HEADER.search(b",".join(response.headers.getlist("Link")))):
        href = match[1]
    if href is None:
        href = _named_address(head, lowered, b"og:url")
    if href is not None:
        url = _joined(url, href)
    return None if url == page_url else url


def _named_address(head: bytes, lowered: bytes, word: bytes) -> bytes | None:
    """Return the URL in the first tag with `word` that names a page's canonical URL; None: no tag does."""
    position = lowered.find(word)
    for _ in range(MAX_TRIES):
        if position < 0:
            break
        tag = _tag(head, lowered.rfind(b"<", 0, position))  # a pattern would try all tags: 0.5 ms
        if _NAMING.match(tag) and (address := _address(tag)) is not None:
            return address
        position = lowered.find(word, position + 1)
    return None


def _tag(head: bytes, begin: int) -> bytes:
    """Return the tag that begins at a position, up to ``>``; ``b""`` for a position below 0."""
    return head[begin : head.find(b">", begin) + 1] if begin >= 0 else b""


def _address(tag: bytes) -> bytes | None:
    match = _HREF.search(tag)
    return match and next(filter(None, match.groups()), b"")


def _joined(url: str, href: bytes) -> str:
    """Return the absolute URL of a link (`href`) on the page `url`; `url` itself where it is no URL."""
    with suppress(ValueError):
        return urljoin(url, unescape(href.decode("utf-8", "replace")).strip())
    return url


def are_related(url: str, other: str) -> bool:
    """Whether two URLs are of the same host, apart from ``www.`` and http or https."""
    site, other_site = ((urlsplit(one).hostname or "").removeprefix("www.") for one in (url, other))
    return site == other_site


class UrlParts:
    """Detects parts of URLs, such as a token or a date, that alone make known pages look new.

    For each part, such as the parameter ``sid``, the smallest hashes of all pages' URLs without it are kept
    from cycle to cycle: a sample, to which those of new pages are compared.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: dict[str, list[int]] = store.newest_value("url_parts", {})
        self._now: defaultdict[str, dict[int, list[str]]] = defaultdict(dict)
        """URL part -> hash of a URL without it -> URLs of this cycle's new pages."""
        self._pages: Counter[str] = Counter()
        self._chained: Counter[tuple[str, int]] = Counter()
        """URL part, and hash as above -> number of new pages whose finders' URLs differ in it alone."""
        self._changed: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        """Fingerprints of a copy and of the text after it -> URLs of the pages that changed so."""

    def note(self, url: str, finder_url: str = "") -> None:
        """Note a new page, by its URL; ``finder_url``: of the page that linked to it."""
        finders = set(parts_of(finder_url))
        for part, other_url in parts_of(url):
            if part in self._now or len(self._now) < MAX_PARTS:
                self._pages[part] += 1
                name = crc32(other_url.encode())
                self._chained[part, name] += (part, other_url) in finders
                self._now[part].setdefault(name, []).append(url)
                if len(self._now[part]) > 2 * SAMPLE:
                    self._now[part] = dict(sorted(self._now[part].items())[:SAMPLE])

    def note_change(self, url: str, copy: int, fingerprint: int) -> None:
        """Note a page that changed, by its URL and the fingerprints of its copy and of its new text."""
        if has_text(fingerprint) and len(self._changed) < MAX_REMEMBERED:
            self._changed[copy, fingerprint].append(url)

    def finish(self, requested_urls: Sequence[str], requested_pages: int) -> Iterator[str]:
        """Yield warnings about URL parts that make known pages look new.

        ``requested_urls``: a sample of the known pages that the spider asked for, `requested_pages` in all.
        """
        parts = [pair for url in requested_urls for pair in parts_of(url)]
        requested_parts = Counter(part for part, _ in parts)
        requested_again = {(part, crc32(other.encode())) for part, other in parts}
        for part, now in self._now.items():
            before = self._before.get(part, [])
            urls = {name: now[name] for name in now if len(before) < SAMPLE or name <= before[-1]}
            # Several new pages that differ in a part alone are a growing list or a directory.
            again = [name for name in before if len(urls.get(name, ())) == 1]
            pages = self._pages[part] * len(again) // max(1, sum(map(len, urls.values())))
            others = requested_parts[part] * requested_pages / max(1, len(requested_urls))
            if len(again) >= max(MIN_VARIANTS, len(urls) / 2) and pages >= 2 * others:
                yield self._warning(part, pages, urls[again[0]][0])
            elif cursors := [
                name for name in before if self._is_cursor(part, name) and (part, name) not in requested_again
            ]:
                pages = sum(len(now[name]) for name in cursors)
                yield (
                    f"{counted(pages, 'new page')}, such as {now[cursors[0]][0]}, are reached "
                    f"from one another by {part}, which had other values in earlier runs; pages with those "
                    "are visited as well, for nothing. Give such requests "
                    'meta={"gp4c": False}: they are sent then whenever the page before is visited. `scrapy '
                    "gp4c forget` takes the old pages out."
                )
            self._before = {**self._before, part: sorted({*before, *now})[:SAMPLE]}
        if self._now:
            self._store.amend_record(url_parts=self._before)
        yield from self._doubled()

    def _doubled(self) -> Iterator[str]:
        """Yield warnings about pages that changed from and to the texts of others, by what URLs differ in."""
        doubled = defaultdict[str, list[tuple[str, str]]](list)
        for url, *others in self._changed.values():
            for part, other in {_different_part(url, other): other for other in others}.items():
                doubled[part].append((url, other))
        for part, pairs in doubled.items():
            if len(pairs) < max(MIN_VARIANTS, DOUBLED * len(self._changed)):
                continue
            url, other = pairs[0]
            differ = f"others that differ in nothing but {part}" if part else f"others, here {url}"
            yield (
                f"{counted(len(pairs), 'page')}, such as {other}, changed in the same way as {differ}. If "
                f"{'that makes no page of its own' if part else 'these are the same pages'}, "
                f"{_remedy_of_part(part)}: else each change is reported again."
            )

    def _is_cursor(self, part: str, name: int) -> bool:
        """Whether a part of URLs is a cursor: each new page links to the one with the part's next value.

        ``name``: hash of the URLs without that part.
        """
        pages = len(self._now[part].get(name, ()))
        return 1 < pages <= 2 * self._chained[part, name] + 2

    def _warning(self, part: str, pages: int, example: str) -> str:
        new = counted(self._store.pages - self._store.merged_pages, "new page")
        return (
            f"{pages:,} of {new}, such as {example}, differ from known pages in nothing but {part}. If that "
            f"makes no page of its own, as a token or a date of today, {_remedy_of_part(part)}: else these "
            "pages are new in each cycle, and never compared."
        )


def _different_part(url: str, other: str) -> str:
    """Return the part without which two URLs are equal; "" if there is none."""
    one, two = ({rest: part for part, rest in (("", url), *parts_of(url))} for url in (url, other))
    return next((one[rest] or two[rest] for rest in one if rest in two), "")


def _remedy_of_part(part: str) -> str:
    if not part:
        return 'keep the spider out of one address of each, or give them {"never": True} in GP4C_RULES'
    if part in (IN_PATH, IN_HOST, IN_QUERY):
        return "leave it out in a REQUEST_FINGERPRINTER_CLASS of yours (docs/settings.md)"
    return f"add {part} to GP4C_URL_PARAMS_IGNORED"


def parts_of(url: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a URL that may be a token or a date, each with the URL without it."""
    head, mark, query = url.partition("?")
    if (path := _TOKENS.sub("*", head)) != head:
        yield IN_PATH, path + mark + query
    if (hosts := _FIRST_NAME.sub("*", head)) != head:
        yield IN_HOST, hosts + mark + query
    parameters = query.split("&") if query else []
    for position, parameter in enumerate(parameters[:MAX_PARAMETERS]):
        name, _, value = parameter.partition("=")
        if "://" in value or "%3a%2f%2f" in value.lower():  # of a service that fetches the page
            continue
        name = name if value or not _TOKENS.fullmatch(name) else IN_QUERY
        yield name, "&".join((head, *parameters[:position], *parameters[position + 1 :]))


class Scope(NamedTuple):
    """Pages of a site whose directories start with a prefix: the unit in which traps are detected."""

    site: str
    prefix: str
    has_query: bool
    """Whether the URLs of the pages have a query."""


def scopes_of(url: str) -> list[Scope]:
    """Return the scopes of a page, the deepest first: its directory, the prefixes of its path, its site."""
    url_place = place_of_url(url)
    prefixes = dict.fromkeys((url_place.directory, *reversed(url_place.prefixes), ""))
    return [Scope(url_place.site, prefix, "?" in url) for prefix in prefixes]


def form_of(url: str) -> str:
    """Return a URL with 0 for each number, without query values and repetitions of a part of its path."""
    path, _, query = url.partition("?")
    names = dict.fromkeys(_NUMBER.sub("0", path).split("/"))
    return f"{'/'.join(names)}?{sorted(name for name, _ in parse_qsl(query, True))}"


def remedy_of(examples: Sequence[str]) -> str:
    """Return how to leave out pages that repeat others, by some of their URLs (`examples`)."""
    queries = (parse_qsl(urlsplit(url).query, True) for url in examples)
    all_names = dict.fromkeys(name for query in queries for name, _ in query)
    names = [name for name in all_names if not _TOKENS.fullmatch(name)]
    remedy = (
        f"Add to GP4C_URL_PARAMS_IGNORED what makes no page of its parameters ({', '.join(names)[:200]})"
        if names
        else 'Give these pages {"never": True} in GP4C_RULES'
    )
    return f"{remedy}, or keep the spider out"


class ScopeCounts:
    """Counts of a scope's new pages in a cycle, and of those that repeat texts of others."""

    __slots__ = ("examples", "pages", "repeats")

    def __init__(self) -> None:
        self.pages = self.repeats = 0
        self.examples = deque[str](maxlen=MAX_PARTS)
        """URLs of the last pages that repeat others."""


class Repeats:
    """Detects traps by new pages with texts of other pages, over several cycles, and caps their new pages."""

    def __init__(self, store: Store, most: int | None) -> None:
        """``most``: new pages of a trap that a cycle takes (`GP4C_TRAP_PAGES`); None: nothing is a trap."""
        self._store, self._most = store, most
        self.parts = UrlParts(store)
        self._taken = dict.fromkeys((Scope(*one) for one in store.newest_value("traps", ())), 0)
        """Trap -> number of its new pages in this cycle."""
        self._before: dict[Scope, list[int]] = {
            Scope(*scope): counts for *scope, counts in store.newest_value("repeats", ())
        }
        """Scope -> numbers of new pages, repeating pages and cycles, of cycles with repeating pages."""
        self._tallies: dict[Scope, ScopeCounts] = {}
        self._texts: dict[tuple[str, int], str] = {}
        """Site and fingerprint of a text -> URL of the cycle's first new page that had it."""
        self._alike_hosts = defaultdict[str, set[str]](set)
        """Domain -> its hosts with new pages that had texts of another of its hosts."""
        self._forms: dict[str, tuple[int, set[int]]] = {}
        """Form of URL, see `form_of` -> number of new pages, and hashes of their texts without numbers."""
        self._combinations: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
        """URL without query, or before a list at its end -> sets of parameters and of lists' members."""
        self._facets: set[str] = set()
        """URLs without query for whose combined parameters there was a warning."""
        self._originals: dict[tuple[str, int], int] | None = None
        """Site and fingerprint -> first page in a trap that has this text; None: not read yet."""
        self.excluded: set[int] = set()
        """Pages whose visits of this run ended as repeats of others."""

    def trap_of(self, url: str) -> Scope | None:
        """Return the trap that a page is in, by its URL; None: it is in none."""
        return next((one for one in scopes_of(url) if one in self._taken), None) if self._taken else None

    def takes(self, url: str, finder_url: str = "") -> bool:
        """Count a new page; returns False if its trap has had its cap of new pages in this cycle."""
        self.parts.note(url, finder_url)
        if (trap := self.trap_of(url)) is None:
            return True
        self._taken[trap] += 1
        return self._most is None or self._taken[trap] <= self._most

    def original(self, page: int, url: str, fingerprint: int) -> int | None:
        """Return the first page with this text in the trap of `page`; None: no other, or there is no trap."""
        if self._most is None or not has_text(fingerprint) or (trap := self.trap_of(url)) is None:
            return None
        if self._originals is None:
            self._originals = self._read_originals()
        key = trap.site, fingerprint
        first = self._originals.setdefault(key, page)
        if first < page and first not in self.excluded:
            return first
        self._originals[key] = page
        return None

    def note_first(self, url: str, fingerprint: int, *, is_repeat: bool = False) -> str | None:
        """Count the text of a new page; returns the warning where the page reveals a trap.

        ``is_repeat``: whether its text is known to be that of another page.
        """
        if self._most is None or not has_text(fingerprint):
            return None
        site = place_of_url(url).site
        is_repeat |= self._texts.setdefault((site, fingerprint), url) != url
        if len(self._texts) > MAX_REMEMBERED or len(self._tallies) > MAX_REMEMBERED:
            self._texts.clear()
            self._tallies.clear()
        for scope in self._counted(url):
            tally = self._tallies.setdefault(scope, ScopeCounts())
            tally.pages += 1
            if is_repeat:
                tally.repeats += 1
                tally.examples.append(url)
        return self._find_trap(url) if is_repeat else self._note_host(site, url, fingerprint)

    def first_url(self, url: str, fingerprint: int) -> str:
        """Return the URL of the cycle's first new page with this text on the site of `url`, maybe itself."""
        return self._texts.get((place_of_url(url).site, fingerprint), url)

    def _note_host(self, site: str, url: str, fingerprint: int) -> str | None:
        """Count `site` if the text of its page is known from another host of its domain (``*.example.org``).

        Returns the warning, that the hosts may have no end, when `MIN_REPEATS` of them are counted.
        """
        domain = _FIRST_NAME.sub("*", f"://{site}")[3:]
        first_url = self._texts.setdefault((domain, fingerprint), url) if domain != site else url
        if place_of_url(first_url).site == site or site in self._alike_hosts[domain]:
            return None
        self._alike_hosts[domain].add(site)
        if len(self._alike_hosts[domain]) != MIN_REPEATS:
            return None
        return (
            f"{MIN_REPEATS} hosts {domain}, such as {url}, have new pages with texts of one another. If "
            "their names have no end, leave them out by allowed_domains of the spider or by GP4C_RULES."
        )

    def note_numberless(self, url: str, read_text: Callable[[], str]) -> str | None:
        """Compare texts of new pages whose URLs differ by numbers alone; returns a warning if most are alike.

        Texts are compared without their numbers and the words of the URL. ``read_text``: returns the normal
        form of the page's text; called for `READ` pages of each form of URL (`form_of`).
        """
        if self._most is None or len(self._forms) > MAX_REMEMBERED:
            return None
        if (warning := self._note_combination(url)) is not None:
            return warning
        form = form_of(url)
        pages, texts = self._forms.get(form, (0, set[int]()))
        self._forms[form] = pages + 1, texts
        if not UNREAD <= pages < UNREAD + READ:
            return None
        text = _NUMBER.sub("0", read_text())
        parts = urlsplit(url)
        words = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))][-MAX_NAMED:]
        named = "|".join(re.escape(_NUMBER.sub("0", word.lower())) for word in dict.fromkeys(words))
        text = re.sub(rf"(?<!\w)(?:{named})(?!\w)", "", text)
        texts.add(xxhash.xxh3_64_intdigest(text.encode()))
        alike = READ - len(texts)
        if pages + 1 < UNREAD + READ or alike < ALIKE * READ:
            return None
        return (
            f"New pages such as {url} may be a trap: {alike} of {READ} that were compared "
            "differ by numbers or by words of their address alone, as a calendar's or a search's do. They "
            'are not capped: give them {"never": True} in GP4C_RULES, keep the spider out, or set '
            "GP4C_NEW_PAGES."
        )

    def _note_combination(self, url: str) -> str | None:
        """Note the parameters of a new page; returns a warning if its path's are combined, as facets are.

        The members of a list count as parameters, in the query and at the end of the path.
        """
        path, _, query = url.partition("?")
        lists = {name: _IN_LIST.split(value) for name, value in parse_qsl(query, True)}
        head, _, tail = path.rpartition("/")
        if len(members := _IN_LIST.split(tail)) > 1:
            path, lists[""] = head, members
        names = frozenset(
            f"{name}={member}" if len(members) > 1 else name
            for name, members in lists.items()
            for member in members
        )
        if not names or path in self._facets:
            return None
        combinations = self._combinations[path]
        if names in combinations or len(combinations) == MAX_COMBINATIONS:
            return None
        combinations.add(names)
        if len(combinations) < max(MIN_COMBINATIONS, 3 * len(frozenset().union(*combinations))):
            return None
        self._facets.add(path)
        return (
            f"New pages such as {url} combine the parameters or names of {path} in {len(combinations)} ways, "
            "as the filters of a shop do. They are not capped: add to GP4C_URL_PARAMS_IGNORED what makes no "
            'page of its own, give combinations {"never": True} in GP4C_RULES, or set GP4C_NEW_PAGES.'
        )

    def _counted(self, url: str) -> list[Scope]:
        """Return the scopes that a page counts for: its trap alone, or else all of its scopes."""
        trap = self.trap_of(url)
        return scopes_of(url) if trap is None else [trap]

    def _find_trap(self, url: str) -> str | None:
        """Make the deepest scope of a page with enough repeats a trap; returns the warning, or None."""
        if self.trap_of(url) is not None:
            return None
        for scope in scopes_of(url):
            # A page of a trap that is over was counted for the trap alone.
            tally = self._tallies.get(scope, ScopeCounts())
            pages, repeats, cycles = self._before.get(scope, [0, 0, 0])
            is_now = tally.repeats >= MANY_REPEATS and tally.repeats >= REPEATING * tally.pages
            is_trap = cycles >= MIN_CYCLES and repeats >= max(MIN_REPEATS, REPEATING * pages)
            if is_now or is_trap:
                self._taken[scope], self._originals = 0, None
                self._store.amend_record(traps=[list(one) for one in self._taken])
                counts = (tally.pages, tally.repeats) if is_now else (pages, repeats)
                line = self._warning(scope, *counts, tally.examples or [url])
                for outer in scopes_of(url):  # outer scopes are no traps by the pages of this one
                    self._before.pop(outer, None)
                    self._tallies[outer] = ScopeCounts()
                return line
        return None

    def _warning(self, scope: Scope, pages: int, repeats: int, examples: Sequence[str]) -> str:
        assert self._most is not None  # else nothing is a trap
        return (
            f"{scope.site}/{scope.prefix} is a trap: {repeats:,} of {counted(pages, 'new page')}, such as "
            f"{examples[-1]}, have texts of other pages. Each cycle takes at most "
            f"{counted(self._most, 'new page')} of it (GP4C_TRAP_PAGES). {remedy_of(examples)}."
        )

    def finish(self) -> list[str]:
        """Compare the cycle's new pages with earlier ones, and return warnings; call before it is closed."""
        if not self._texts:
            return []
        for url in self._repeats_of_known():
            for scope in self._counted(url):
                tally = self._tallies.setdefault(scope, ScopeCounts())
                tally.repeats += 1
                tally.examples.append(url)
        alike: dict[str, Scope] = {}
        for scope, tally in self._tallies.items():
            if tally.repeats:
                pages, repeats, cycles = self._before.get(scope, [0, 0, 0])
                self._before[scope] = [pages + tally.pages, repeats + tally.repeats, cycles + 1]
                if not cycles and tally.repeats >= max(MIN_REPEATS, REPEATING * tally.pages):
                    alike.setdefault(tally.examples[-1], scope)  # the deepest scope comes first
        ended = [trap for trap in self._taken if self._is_over(trap)]
        for trap in ended:
            del self._taken[trap]
            self._before.pop(trap, None)
        lines = [
            f"{trap.site}/{trap.prefix} is no trap any more: its new pages have texts of their own."
            for trap in ended
        ]
        examples = [tally.examples[-1] for tally in self._tallies.values() if tally.repeats]
        lines += filter(None, (self._find_trap(url) for url in dict.fromkeys(examples)))
        for url, scope in alike.items():
            if self.trap_of(url) is None:  # the line of a trap says more
                tally = self._tallies[scope]
                lines.append(
                    f"{tally.repeats:,} of {counted(tally.pages, 'new page')} in "
                    f"{scope.site}/{scope.prefix}, such as {url}, have texts of other pages, and "
                    f"may be visited for nothing. {remedy_of(tally.examples)}."
                )
        most = sorted(self._before.items(), key=lambda item: item[1][1])[-MAX_SCOPES:]
        if most or ended:
            traps = [list(trap) for trap in self._taken]
            self._store.amend_record(traps=traps, repeats=[[*scope, counts] for scope, counts in most])
        return lines

    def _is_over(self, trap: Scope) -> bool:
        """Whether most new pages of a trap had texts in this cycle that no other page has."""
        tally = self._tallies.get(trap)
        return tally is not None and tally.pages >= MIN_NEW_PAGES and tally.repeats < tally.pages / 2

    def _repeats_of_known(self) -> list[str]:
        """Return the URLs of new pages whose texts pages of the same site had before this cycle."""
        store = self._store
        fingerprints = np.unique(np.array([one for _, one in self._texts], np.uint64))
        sites, known = store.site_keys(), set[tuple[int, int]]()
        for _, block in store.blocks({"fingerprint", "has_copy", "group"}):
            rows = np.flatnonzero((block["has_copy"] > 0) & np.isin(block["fingerprint"], fingerprints))
            known.update(
                zip(sites[block["group"][rows]].tolist(), block["fingerprint"][rows].tolist(), strict=True)
            )
        return [
            url
            for (site, fingerprint), url in self._texts.items()
            if (Place(site, "").site_key, fingerprint) in known
        ]

    def _read_originals(self) -> dict[tuple[str, int], int]:
        """Return the first page with each text in a trap, by the trap's site and the text's fingerprint."""
        directories = self._store.directories()
        originals: dict[tuple[str, int], int] = {}
        inside = [(trap.site, in_scope(directories, trap.site, trap.prefix)) for trap in self._taken]
        for first, block in self._store.blocks({"fingerprint", "has_copy", "group", "failures"}):
            is_sound = (block["has_copy"] > 0) & (block["failures"] == 0)
            for site, is_inside in inside:
                for row in np.flatnonzero(is_sound & is_inside[block["group"]]).tolist():
                    originals.setdefault((site, int(block["fingerprint"][row])), first + row)
            if len(originals) > MAX_REMEMBERED:
                break
        return originals
