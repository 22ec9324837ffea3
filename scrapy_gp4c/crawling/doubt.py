"""Doubt: whether an answer is the page, or a block, a challenge, a consent wall, a login or an error page.

`RULES` are properties of answers, and not of words in one language; each names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy_gp4c.fingerprint.copy_notes import unpack
from scrapy_gp4c.fingerprint.sketches import is_changed

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_gp4c.fingerprint import PageReading

MIN_WORDS: Final = 50
"""Words of a copy from which on a rest of a tenth is doubtful; fewer words may change to anything."""
REST: Final = 0.1
MIN_SHARING_PAGES: Final = 3
SHARING: Final = 0.1
"""Share of the site's pages visited in the cycle that say the same from which on that is doubtful."""
MAX_IN_A_ROW: Final = 5
"""Refusals and doubtful answers in a row after which a site is left alone for the rest of a cycle."""
REFUSALS: Final = (403, 429, 503)
MAX_TEXTS: Final = 100
"""Doubtful texts that are remembered from cycle to cycle."""


class Answer(NamedTuple):
    """Properties of an answer that rules look at."""

    headers: Mapping[str, str]
    """Names in lower case."""
    words: int
    """Compared words."""
    copy_words: int
    """Compared words of the page's copy; 0: there is none."""
    sharing_pages: int = 0
    """Pages of the site, with different copies, that said the same in this cycle, this one included."""
    visited_pages: int = 0
    """Pages of the site that were visited in this cycle."""
    is_known_block: bool = False
    """Whether a cycle before has doubted the same text."""


class Rule(NamedTuple):
    """A rule of doubt."""

    reason: str
    holds: Callable[[Answer], bool]
    source: str


def _is_shared(answer: Answer) -> bool:
    pages = answer.sharing_pages
    return pages >= MIN_SHARING_PAGES and pages >= SHARING * answer.visited_pages


RULES: Final = (
    Rule(
        "a challenge of Cloudflare",
        lambda answer: answer.headers.get("cf-mitigated", "").lower() == "challenge",
        "developers.cloudflare.com: Detect a Challenge Page response",
    ),
    Rule(
        "a challenge of AWS WAF",
        lambda answer: answer.headers.get("x-amzn-waf-action", "").lower() in ("challenge", "captcha"),
        "docs.aws.amazon.com: How the CAPTCHA and Challenge actions work",
    ),
    Rule(
        "a text that a cycle before has doubted",
        lambda answer: answer.is_known_block,
        "the rule of shared texts, remembered",
    ),
    Rule(
        "a text that many pages of the site share in this cycle",
        _is_shared,
        "Bar-Yossef et al. 2004, Sic transit gloria telae: soft 404s have one text",
    ),
    Rule(
        "less than a tenth of the text that the page had",
        lambda answer: answer.copy_words >= MIN_WORDS and answer.words < REST * answer.copy_words,
        "public bug reports of change monitors: empty shells of pages while a site is repaired",
    ),
)


def reason_of(answer: Answer) -> str | None:
    """Reason to doubt an answer with a status of 2xx; None: there is none."""
    return next((rule.reason for rule in RULES if rule.holds(answer)), None)


class SharedTexts:
    """Fingerprints that pages of a site changed to in a cycle."""

    def __init__(self, doubted: list[int], distance_bits: int) -> None:
        """Take the fingerprints that cycles before have doubted."""
        self.doubted = dict.fromkeys(doubted)
        self._bits = distance_bits
        self._copies: dict[tuple[str, int], set[int]] = {}
        self._visited: dict[str, int] = {}

    def note(self, site: str, fingerprint: int, copy: int | None) -> tuple[int, int]:
        """Count a visit; returns the pages with different copies that said this, and visits of the site."""
        visited = self._visited[site] = self._visited.get(site, 0) + 1
        if copy is None or not is_changed(fingerprint, copy, self._bits):
            return 0, visited
        copies = self._copies.setdefault((site, fingerprint), set())
        copies.add(copy)
        return len(copies), visited

    def reason(
        self, response: Response, page: PageReading, copy: int | None, notes: bytes | None
    ) -> tuple[str | None, bool]:
        """Reason to doubt an answer, None without one, and whether pages of the site share its text.

        ``copy``: fingerprint of the page's copy; ``notes``: its notes, None where texts are not compared.
        """
        headers = {
            name.decode("latin-1").lower(): value[0].decode("latin-1")
            for name, value in response.headers.items()
            if value
        }
        if notes is None:
            return reason_of(Answer(headers, 0, 0)), False
        sharing, visited = self.note(urlsplit(response.url).netloc, page.fingerprint, copy)
        is_change = copy is not None and is_changed(page.fingerprint, copy, self._bits)
        is_known_block = is_change and page.fingerprint in self.doubted
        answer = Answer(headers, page.words, unpack(notes).words, sharing, visited, is_known_block)
        return reason_of(answer), sharing > 0

    def doubt(self, fingerprint: int) -> list[int]:
        """Remember a doubted fingerprint; returns all, the latest last."""
        self.doubted.pop(fingerprint, None)
        self.doubted[fingerprint] = None
        while len(self.doubted) > MAX_TEXTS:
            del self.doubted[next(iter(self.doubted))]
        return list(self.doubted)


class Patience:
    """Answers in a row by which sites refuse a crawl."""

    def __init__(self) -> None:
        """Begin with sites that refuse nothing."""
        self._in_a_row: dict[str, int] = {}
        self.left_alone: set[str] = set()

    def note(self, host: str, *, refuses: bool) -> bool:
        """Note an answer; True where the host is to be left alone from now on."""
        if not refuses:
            self._in_a_row.pop(host, None)
            return False
        count = self._in_a_row[host] = self._in_a_row.get(host, 0) + 1
        if count < MAX_IN_A_ROW or host in self.left_alone:
            return False
        self.left_alone.add(host)
        return True
