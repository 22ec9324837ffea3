"""Doubt: whether an answer is the page, or a block, a challenge, a consent wall, a login or an error page.

`RULES` are properties of answers, and not of words in one language; each names its source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy_gp4c.fingerprint.copy_notes import asks_password, unpack
from scrapy_gp4c.fingerprint.sketches import is_changed

if TYPE_CHECKING:
    from scrapy import Request
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
MAX_WAIT_S: Final = 86_400.0
"""Longest wait that a header Retry-After gets."""
MAX_SHARING: Final = 10_000
"""Texts and URLs of changed pages that are remembered in a cycle: those of a block come close together."""
MAX_TEXTS: Final = 100
"""Doubtful texts that are remembered from cycle to cycle."""


class AnswerFeatures(NamedTuple):
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
    """Whether the same text was doubted before."""
    redirected_pages: int = 0
    """Pages of the site, with different copies, that this cycle's redirects led to the same URL, and that
    changed with it."""
    is_new_password: bool = False
    """Whether it asks for a password, and the copy did not."""


class Rule(NamedTuple):
    """A rule of doubt."""

    reason: str
    holds: Callable[[AnswerFeatures], bool]
    source: str


def is_shared(pages: int, visited_pages: int) -> bool:
    """Whether what so many pages of a site share is doubtful."""
    return pages >= MIN_SHARING_PAGES and pages >= SHARING * visited_pages


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
        "a challenge of Vercel",
        lambda answer: answer.headers.get("x-vercel-mitigated", "").lower() in ("challenge", "deny"),
        "vercel.com/docs: Vercel Firewall, Attack Challenge Mode",
    ),
    Rule(
        "a block of Sucuri",
        lambda answer: "x-sucuri-block" in answer.headers,
        "docs.sucuri.net: Website Firewall, block pages",
    ),
    Rule(
        "a challenge of Anubis",
        lambda answer: "anubis-cookie-verification" in answer.headers.get("set-cookie", ""),
        "anubis.techaro.lol: cookies that Anubis sets before a challenge",
    ),
    Rule(
        "a text that was doubted before",
        lambda answer: answer.is_known_block,
        "the rule of shared texts, remembered",
    ),
    Rule(
        "a text that many pages of the site share in this cycle",
        lambda answer: is_shared(answer.sharing_pages, answer.visited_pages),
        "Bar-Yossef et al. 2004, Sic transit gloria telae: soft 404s have one text",
    ),
    Rule(
        "a redirect to a URL that many pages of the site share in this cycle",
        lambda answer: is_shared(answer.redirected_pages, answer.visited_pages),
        "Bar-Yossef et al. 2004, Sic transit gloria telae: soft 404s redirect to one URL",
    ),
    Rule(
        "a form for a password, which the page did not have",
        lambda answer: answer.is_new_password,
        "public bug reports of change monitors: sessions that end",
    ),
    Rule(
        "no text, where the page had some",
        lambda answer: answer.words == 0 < answer.copy_words,
        "public bug reports of change monitors: empty answers of servers under load",
    ),
    Rule(
        "less than a tenth of the text that the page had",
        lambda answer: answer.copy_words >= MIN_WORDS and answer.words < REST * answer.copy_words,
        "public bug reports of change monitors: empty shells of pages while a site is repaired",
    ),
)


def reason_of(answer: AnswerFeatures) -> str | None:
    """Reason to doubt an answer with a status of 2xx; None: there is none."""
    return next((rule.reason for rule in RULES if rule.holds(answer)), None)


class Changed(NamedTuple):
    """A page that changed in this cycle, and what a later doubt needs to take that back."""

    page: int
    copy: int
    """Fingerprint of the copy before."""
    notes: bytes
    """Packed notes of that copy."""


class Doubt(NamedTuple):
    """Judgement of an answer."""

    reason: str | None
    """Reason to doubt that it is the page; None: there is none."""
    is_remembered: bool = False
    """Whether its text is doubted from now on."""
    taken_back: Sequence[Changed] = ()
    """Pages whose changes of this cycle turn out to be none."""


NO_DOUBT: Final = Doubt(None)


def site_of(request: Request) -> str:
    """Host that a page was asked of, before any redirect."""
    urls: list[str] = request.meta.get("redirect_urls") or [request.url]
    return urlsplit(urls[0]).netloc.rpartition("@")[2]


class SharedTexts:
    """Texts and URLs that changed pages of a site came to in a cycle."""

    def __init__(self, doubted: list[int]) -> None:
        """Take the fingerprints that cycles before have doubted."""
        self.doubted = dict.fromkeys(doubted)
        self._sharing: dict[tuple[str, int | str], dict[int, Changed]] = {}
        self._taken_back: set[int] = set()
        self._visited: Counter[str] = Counter()

    def _note(self, site: str, shared: int | str, changed: Changed) -> dict[int, Changed]:
        """Note a changed page; returns the pages that came to the same, by their different copies.

        ``shared``: fingerprint of the answer, or the URL that a redirect led to.
        """
        pages = self._sharing.pop((site, shared), {})
        pages.setdefault(changed.copy, changed)
        self._sharing[site, shared] = pages
        if len(self._sharing) > MAX_SHARING:
            del self._sharing[next(iter(self._sharing))]
        return pages

    def _to_take_back(self, pages: dict[int, Changed], page: int) -> list[Changed]:
        """Pages before this one that counted as changes; each is returned once."""
        earlier = [one for one in pages.values() if one.page != page and one.page not in self._taken_back]
        self._taken_back.update(one.page for one in earlier)
        self._taken_back.add(page)
        return earlier

    def judge(
        self,
        request: Request,
        response: Response,
        page: PageReading,
        copy: Changed | None,
        distance_bits: int,
    ) -> Doubt:
        """Judge an answer by all rules.

        ``request``: as it was sent last; ``copy``: what the page would have changed from; None: it has no
        copy, or none whose text is compared.
        """
        headers = {
            name.decode("latin-1").lower(): value[0].decode("latin-1")
            for name, value in response.headers.items()
            if value
        }
        if copy is None:
            is_known = page.words > 0 and page.fingerprint in self.doubted
            return Doubt(reason_of(AnswerFeatures(headers, 0, 0, is_known_block=is_known)))
        site, notes = site_of(request), unpack(copy.notes)
        self._visited[site] += 1
        visited = self._visited[site]
        if not is_changed(page.fingerprint, copy.copy, distance_bits):
            return Doubt(reason_of(AnswerFeatures(headers, notes.words, notes.words)))
        sharing = self._note(site, page.fingerprint, copy)
        is_redirected = bool(request.meta.get("redirect_urls"))
        redirected = self._note(site, response.url, copy) if is_redirected else {}
        answer = AnswerFeatures(
            headers,
            notes.words if page.kind == "bytes" and response.body else page.words,  # bytes have no words
            notes.words,
            len(sharing),
            visited,
            page.fingerprint in self.doubted,
            len(redirected),
            not notes.asks_password and asks_password(response),
        )
        earlier: list[Changed] = []
        for pages in (sharing, redirected):
            if is_shared(len(pages), visited):
                earlier += self._to_take_back(pages, copy.page)
        reason = reason_of(answer)
        return Doubt(reason, reason is not None and page.words > 0, earlier)

    def doubt(self, fingerprint: int) -> list[int]:
        """Remember a doubted fingerprint; returns all, the latest last."""
        self.doubted.pop(fingerprint, None)
        self.doubted[fingerprint] = None
        while len(self.doubted) > MAX_TEXTS:
            del self.doubted[next(iter(self.doubted))]
        return list(self.doubted)


class Patience:
    """Answers in a row by which sites refuse a crawl."""

    def __init__(self, left_alone: Mapping[str, float]) -> None:
        """Begin with hosts that are left alone already, see `left_alone`."""
        self._in_a_row: Counter[str] = Counter()
        self._good: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self.left_alone = dict(left_alone)
        """Host -> until when, s since 1970; a time that is over stands for the rest of the cycle."""

    def answers_well(self, host: str) -> bool:
        """Whether most answers of a host in this run have not refused the crawl."""
        return host not in self.left_alone and self._good[host] > self._refused[host]

    def note(self, host: str, until_s: float | None) -> bool:
        """Note an answer; True where the host is to be left alone from now on.

        ``until_s``: until when an answer that refuses the crawl wants no other, 0 where it does not say;
        None: it does not refuse it.
        """
        if until_s is None:
            self._good[host] += 1
            self._in_a_row.pop(host, None)
            return False
        self._refused[host] += 1
        self._in_a_row[host] += 1
        if self._in_a_row[host] < MAX_IN_A_ROW or host in self.left_alone:
            return False
        self.left_alone[host] = until_s
        return True


def retry_after(value: bytes | None, now_s: float) -> float:
    """Time, s since 1970, until which a header Retry-After wants no request, at most a day; 0: none.

    RFC 9110, section 10.2.3.
    """
    text = (value or b"").decode("latin-1").strip()
    wait_s = 0.0
    if text.isdecimal() and len(text) < 10:
        wait_s = float(text)
    elif text:
        with suppress(ValueError, TypeError, OverflowError):
            wait_s = parsedate_to_datetime(text).timestamp() - now_s
    return now_s + min(wait_s, MAX_WAIT_S) if wait_s > 0.0 else 0.0
