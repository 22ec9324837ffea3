"""Doubt: whether an answer is the page, or a block, a challenge, a consent wall, a login or an error page.

`RULES` look at properties of answers rather than at words of one language; each names its source.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from scrapy import Request
from scrapy.http import Response

from scrapy_gp4c.crawling.requests import site_of
from scrapy_gp4c.fingerprint import PageReading, is_changed
from scrapy_gp4c.fingerprint.copy_notes import LOW, CopyNotes, asks_password, has_end, language_of, unpack
from scrapy_gp4c.page_state.page_names import head_and_path, last_name

MIN_WORDS: Final = 50
"""Fewest words of a copy for which the loss of nine tenths is doubtful."""
LEAST: Final = 0.1
"""Least share of a copy's words that an answer has without doubt."""
MIN_SHARING_PAGES: Final = 3
SHARING: Final = 0.1
"""Least share of a site's visited pages with one new text, for that text to be doubtful."""
TEMPORARY: Final = (302, 303, 307)
MAX_SHARING: Final = 10_000
"""Most texts and URLs of changed pages that are remembered: those of a block come soon after one another."""
MAX_TEXTS: Final = 100
"""Most doubtful texts that are remembered from cycle to cycle."""
NEAR_BITS: Final = 10
"""Most bits in which the SimHash halves of related texts differ, of 32; 1 in 40 unrelated pairs do."""
FAR_BITS: Final = 12
"""Fewest bits of the SimHash halves in which a block differs from the copy; a new page frame changes 8."""
TWICE_BITS: Final = 3
"""Most bits in which a text's SimHash half differs from that of its double, which has a seam."""
MAX_CHANGED: Final = 50
"""Number of a site's last changed pages that a new text is compared with."""
MIN_VARYING: Final = 2
"""Fewest alternating pages whose two answers of a cycle differ: one alone may have changed in between."""
MIN_NEAR_PAGES: Final = 4
"""Fewest pages with near texts that are doubtful; two thirds of the changed pages must have them, too."""
LOST: Final = 0.8
"""Share of a copy's words: a text with less is doubtful if two thirds of the visited pages have less."""
MAX_MARKED_WORDS: Final = 300
"""Answers with fewer words are doubtful if they have one of `MARKS`; long ones may write about it."""
UNLIKE_BITS: Final = 14
"""Fewest bits of 32 in which unlike texts' SimHashes differ: 16 in the mean, 10 if they share a third."""
MARKS: Final = {
    b"/.within.website/x/cmd/anubis/": "Anubis: its StaticPath, in github.com/TecharoHQ/anubis",
    b"_cf_chl_opt": "Cloudflare: its managed challenge, in github.com/microlinkhq/is-antibot",
    b"captcha-delivery.com/": "DataDome: docs.capsolver.com, DataDome captcha and interstitial",
    b'id="px-captcha"': "HUMAN (PerimeterX): docs.rs/crate/captchaforge, solver/vendors/perimeterx.rs",
    b"sec-if-cpt-container": "Akamai: its challenge, in github.com/germondai/trawl/pull/33",
    b"/_sec/cp_challenge/": "Akamai: the script of that challenge",
    # Frame of a block page; scripts on other pages have other parameters.
    b"_Incapsula_Resource?SWUDNSAI": "Imperva: github.com/ziplokk1/incapsula-cracker-py3/issues/1",
    b"_Incapsula_Resource?CWUDNSAI": "Imperva: the same, while a block is asked about",
    b"/.well-known/sgcaptcha/": "SiteGround: its captcha, in github.com/colophon-group/jobseek/pull/5835",
    b"sucuri_cloudproxy_js": "Sucuri: its challenge, in github.com/Anorov/cloudflare-scrape/issues/277",
    b"waf-jschallenge/": "ByteDance: the script of its challenge, in github.com/yinnho/aginxbrowser/issues/1",
    b"window.gokuProps": "AWS WAF: anti-captcha.com/apidoc/task-types/AmazonTaskProxyless",
}
"""Bytes in the body of challenges, and their source."""
CAPTCHAS: Final = (
    b"g-recaptcha",
    b"h-captcha",
    b"cf-turnstile",
    b"frc-captcha",
    b"smart-captcha",
    b"altcha",
    b"TencentCaptcha",
)
"""Names by which a page holds a captcha, by the documentation of reCAPTCHA, hCaptcha, Turnstile, Friendly
Captcha, SmartCaptcha and ALTCHA; Tencent's in github.com/D4Vinci/Scrapling/issues/265."""


class AnswerFeatures(NamedTuple):
    """Properties of an answer that the rules of doubt (`RULES`) look at."""

    headers: Mapping[str, str]
    """Header name, in lower case -> value."""
    words: int
    """Number of compared words."""
    copy_words: int
    """Number of compared words of the page's copy; 0: it has no copy."""
    is_shared: bool = False
    """Whether many pages of the site with different copies have this text in this cycle."""
    is_known_block: bool = False
    """Whether the same text was doubted before."""
    shares_redirect: bool = False
    """Whether many pages of the site with different copies share a redirect in this cycle.

    They redirect to one URL, or temporarily to URLs that differ from theirs in the same way."""
    is_new_password: bool = False
    """Whether it asks for a password, and the copy did not."""
    is_other_kind: bool = False
    """Whether it is of another kind than the copy, such as text or data in place of HTML."""
    is_other_language: bool = False
    """Whether it names another language than the copy did."""
    is_of_another: bool = False
    """Whether it is a long text of another page of the site, and no other page had this page's copy."""
    lacks_end: bool = False
    """Whether the end of the HTML and some of the copy's words are missing, and the copy had its end."""
    is_marked: bool = False
    """Whether it is short and has one of `MARKS`."""
    has_captcha: bool = False
    """Whether it is short and has one of `CAPTCHAS`."""
    is_near: bool = False
    """Whether many pages of the site have nearly the same new text, and their copies were far apart."""
    is_halved: bool = False
    """Whether it has less than half of the copy's words, or all twice, as many pages of the site have.

    Also if most visited pages lost a fifth of their words, or if the answer before was doubtful, too."""
    is_alternating: bool = False
    """Whether it is once more back at its text before the last change, which was no block.

    For the cycle's second answer, the site must have variants, too: opening hours and stocks alternate."""
    is_short: bool = False
    """Whether it is unlike the copy, and has less than `MAX_MARKED_WORDS` and a third of the copy's words."""
    lacks_a_fifth: bool = False
    """Whether it has less than `LOST` of the copy's words, and is the first such answer of the cycle."""
    is_gate: bool = False
    """Whether a new temporary redirect led to a URL with the page's in a parameter (``?ReturnUrl=/page``)."""


class Rule(NamedTuple):
    """A rule of doubt: an answer for which it holds may not be the page."""

    reason: str
    holds: Callable[[AnswerFeatures], bool]
    source: str


def is_shared(pages: int, visited_pages: int) -> bool:
    """Whether a text is doubtful because so many (`pages`) of a site's visited pages changed to it."""
    return pages >= MIN_SHARING_PAGES and pages >= SHARING * visited_pages


def are_near(pages: int, changed_pages: int, visited_pages: int) -> bool:
    """Whether too many (`pages`) of a site's last changed pages have nearly the same text."""
    is_enough = pages >= max(MIN_NEAR_PAGES, changed_pages * 2 / 3)
    return is_enough and is_shared(pages, min(visited_pages, 5 * MAX_CHANGED))


def has_header(name: str, values: str) -> Callable[[AnswerFeatures], bool]:
    """Return the condition that a header, by its name in lower case, matches the pattern `values`."""
    return lambda answer: re.search(values, answer.headers.get(name, ""), re.IGNORECASE) is not None


OTHER_LANGUAGE: Final = "another language than the page had"
ALTERNATING: Final = "once more the text before the last change; the next answer decides"
ONCE_MORE: Final = "less text than the page had; the next answer decides"
NO_REFUSALS: Final = (None, OTHER_LANGUAGE, ALTERNATING, ONCE_MORE)
"""Reasons for which a site is not left alone; None: there is no doubt."""
RULES: Final = (
    Rule(
        "a challenge of Cloudflare",
        has_header("cf-mitigated", "^challenge$"),
        "developers.cloudflare.com: Detect a Challenge Page response",
    ),
    Rule(
        "a challenge of AWS WAF",
        has_header("x-amzn-waf-action", "^(challenge|captcha)$"),
        "docs.aws.amazon.com: How the CAPTCHA and Challenge actions work",
    ),
    Rule(
        "a challenge of Vercel",
        has_header("x-vercel-mitigated", "^(challenge|deny)$"),
        "vercel.com/docs: Vercel Firewall, Attack Challenge Mode",
    ),
    Rule("a block of Sucuri", has_header("x-sucuri-block", "."), "docs.sucuri.net: Website Firewall"),
    Rule(
        "a challenge of Anubis",
        has_header("set-cookie", "-cookie-verification="),
        "TestCookieName in github.com/TecharoHQ/anubis, whose prefix is configured",
    ),
    Rule("a challenge of DataDome", has_header("x-dd-b", "^[12]$"), "github.com/microlinkhq/is-antibot"),
    Rule("the mark of a challenge", lambda answer: answer.is_marked, "see `MARKS`"),
    Rule(
        "a text that was doubted before",
        lambda answer: answer.is_known_block,
        "the rule of shared texts, remembered",
    ),
    Rule(
        "a text that many pages share in this cycle",
        lambda answer: answer.is_shared,
        "Bar-Yossef et al. 2004, Sic transit gloria telae: soft 404s have one text",
    ),
    Rule(
        "a text near those that many pages of the site came to in this cycle",
        lambda answer: answer.is_near,
        "public bug reports of change monitors: blocks that name an incident, a time, an IP or the URL",
    ),
    Rule(
        "a part of the text or twice the text, as many pages of the site or as at the last visit",
        lambda answer: answer.is_halved,
        "public bug reports of change monitors: teasers while a login is lost, pages in one body twice",
    ),
    Rule(
        ALTERNATING,
        lambda answer: answer.is_alternating,
        "public bug reports of change monitors: tests of variants, servers with other versions or languages",
    ),
    Rule(
        "a redirect that many pages share in this cycle",
        lambda answer: answer.shares_redirect,
        "Bar-Yossef et al. 2004, Sic transit gloria telae: soft 404s redirect to one URL",
    ),
    Rule(
        "a redirect to an address that would lead back to the page",
        lambda answer: answer.is_gate,
        "learn.microsoft.com: ReturnUrl of ASP.NET forms authentication",
    ),
    Rule(
        "a form for a password, which the page did not have",
        lambda answer: answer.is_new_password,
        "public bug reports of change monitors: sessions that end",
    ),
    Rule(
        "a captcha, and less than half of the text that the page had",
        lambda answer: answer.has_captcha and answer.words < answer.copy_words / 2,
        "public bug reports of change monitors: captchas that a single page asks for now and then",
    ),
    Rule(
        "another kind of content than the page had",
        lambda answer: answer.is_other_kind,
        "public bug reports of change monitors: errors in HTML from APIs, pages sent as bytes or plain text",
    ),
    Rule(
        OTHER_LANGUAGE,
        lambda answer: answer.is_other_language,
        "w3.org/International/questions/qa-html-language-declarations; sites that guess a reader's country",
    ),
    Rule(
        "the text of another page of the site",
        lambda answer: answer.is_of_another,
        "public bug reports of change monitors: caches that mix up pages, home pages for deleted ones",
    ),
    Rule(
        "no end of the HTML, which the page had",
        lambda answer: answer.lacks_end,
        "public bug reports of change monitors: pages that a server ceased to send halfway",
    ),
    Rule(
        "a short text unlike the page's, and less than a third of what that had",
        lambda answer: answer.is_short,
        "public bug reports of change monitors: blocks and soft 404s of one or two pages of a site",
    ),
    Rule(
        "no text, or less than a tenth of what the page had",
        lambda answer: (
            answer.words < LEAST * answer.copy_words and (answer.copy_words >= MIN_WORDS or not answer.words)
        ),
        "public bug reports of change monitors: empty answers under load, shells during repairs",
    ),
    Rule(
        ONCE_MORE,
        lambda answer: answer.lacks_a_fifth,
        "github.com/thp/urlwatch/issues/22: changes that are taken back in the next run",
    ),
)


def reason_of(answer: AnswerFeatures) -> str | None:
    """Return the reason of the first rule that doubts an answer with a status of 2xx; None: no rule does."""
    return next((rule.reason for rule in RULES if rule.holds(answer)), None)


class Changed(NamedTuple):
    """Page that changed in this cycle, and its copy before, which it gets back if that is doubted later."""

    page: int
    copy: int
    """Fingerprint of the copy before the change."""
    notes: bytes
    """Packed notes of that copy, see `scrapy_gp4c.fingerprint.copy_notes`."""
    url: str = ""
    """URL of the page."""


class Doubt(NamedTuple):
    """Result of the rules of doubt for one answer."""

    reason: str | None
    """Reason to doubt that it is the page; None: there is none."""
    is_remembered: bool = False
    """Whether its text is doubted from now on."""
    taken_back: Sequence[Changed] = ()
    """Pages whose changes of this cycle were blocks too."""


NO_DOUBT: Final = Doubt(None)


def near_bits(a: int, b: int) -> int:
    """Return in how many of 32 bits two fingerprints' SimHashes differ; unrelated texts: about 16."""
    return ((a ^ b) >> 32).bit_count()


def way_of(old: str, new: str) -> str:
    """Return what a redirect changed in a URL: "OLD NEW", the two URLs without their common end."""
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
    return f"{old[: len(old) - end]} {new[: len(new) - end]}"


def leads_back(url: str, to: str) -> bool:
    """Whether a query parameter of the URL `to` holds `url` or its path, as in ``/login?next=/page``."""
    path = head_and_path(url)[1]
    values = [value for _, value in parse_qsl(urlsplit(to).query)]
    return any(value == path or ("://" in value and head_and_path(value)[1] == path) for value in values)


def is_marked(response: Response, words: int, marks: Iterable[bytes] = MARKS) -> bool:
    """Whether an answer of few compared `words` has one of `marks`, bytes of a challenge, in its body."""
    return words < MAX_MARKED_WORDS and any(mark in response.body for mark in marks)


class NewText(NamedTuple):
    """New text of a changed page, to be compared with new texts of other pages of its site."""

    fingerprint: int
    page: Changed
    words_share: float
    """Share of the earlier copy's words that it has; 0 if it has all of them twice."""


class NearPages(NamedTuple):
    """Changed pages with texts near that of the page judged last, which is one of them."""

    pages: dict[int, Changed]
    """Fingerprint of the copy before -> changed page."""
    from_far: int
    """Number of these pages whose copies before were far from the new text."""
    halved: dict[int, Changed]
    """Fingerprint as above -> page that lost half of its words; empty if the page judged last did not."""
    shrunk: dict[int, Changed]
    """Fingerprint as above -> page with less than `LOST` of its words; empty likewise."""


class SharedTexts:
    """Memory of a cycle's new texts and redirects, to find those that many pages came to at once."""

    def __init__(self, doubted: list[int]) -> None:
        self.doubted = dict.fromkeys(doubted)
        self.sharing: dict[tuple[str, int | str], dict[int, Changed]] = {}
        """Site, or "" for all, and text or URL -> fingerprint of copy -> changed page that came to it."""
        self._new_texts: dict[str, dict[int, NewText]] = {}
        """Site, or "" for all -> page -> its new text; the page that changed last is the last."""
        self.asked_once_more: set[int] = set()
        """Pages with an answer of this cycle that was doubtful because of `ONCE_MORE` or `ALTERNATING`."""
        self.unchanged: dict[tuple[str, int], Changed | None] = {}
        """Site, and fingerprint that a page still has in this cycle -> the page; None: several have it."""
        self._taken_back: set[int] = set()
        self._visited: Counter[str] = Counter()
        """Site, or "" for all -> number of visited pages."""
        self._returned: defaultdict[str, set[int]] = defaultdict(set)
        """Site -> copies of pages that are back at the text before their last change, as after a block."""
        self._alternating: defaultdict[str, dict[int, Changed | None]] = defaultdict(dict)
        """Site -> fingerprint of copy -> page back there once more, see `AnswerFeatures`; None: doubtful."""
        self._second_answers = Counter[tuple[str, bool]]()
        """Site, and whether pages were as their copies again -> number of second answers to these pages."""

    def _note(self, site: str, shared: int | str, changed: Changed) -> dict[int, Changed]:
        """Note a changed page; returns fingerprint of copy -> page for all that came to the same text or URL.

        Pages of all sites count if they are many enough to doubt the text or URL (`shared`), else those of
        `site`. A text is given by its fingerprint.
        """
        pages: dict[int, Changed] = {}
        for scope in (site, ""):
            earlier, pages = pages, self.sharing.pop((scope, shared), {})
            pages.setdefault(changed.copy, changed)
            self.sharing[scope, shared] = pages
            if len(self.sharing) > MAX_SHARING:
                del self.sharing[next(iter(self.sharing))]
        return pages if is_shared(len(pages), self._visited[""]) else earlier

    def _note_new_text(self, site: str, new: NewText) -> NearPages:
        """Note the new text of a page of a site; returns the pages with texts near it, this one included."""
        texts = self._new_texts.setdefault(site, {})
        texts.pop(new.page.page, None)
        pages, from_far = {new.page.copy: new.page}, 1
        for text, page, _ in texts.values():
            if near_bits(text, new.fingerprint) <= NEAR_BITS < near_bits(page.copy, new.page.copy):
                pages[page.copy] = page
                from_far += near_bits(text, page.copy) >= FAR_BITS
        texts[new.page.page] = new
        if len(texts) > MAX_CHANGED:
            del texts[next(iter(texts))]
        halved, shrunk = (
            {
                one.page.copy: one.page
                for one in texts.values()
                if max(one.words_share, new.words_share) < least
            }
            for least in (0.5, LOST)
        )
        return NearPages(pages, from_far, halved, shrunk)

    def to_take_back(self, site: str, copy: Changed) -> list[Changed]:
        """Return changed pages to take back as the page of `copy` is unchanged, each once in a cycle.

        Those came to its text, so that the site has probably sent them the answer of this page by mistake.
        Or they alternate, as this page has done from one answer to the next, see `_varies`.
        """
        text, pages = (site, copy.copy), dict[int, Changed]()
        if self.unchanged.get(text) is not None and unpack(copy.notes).words >= MIN_WORDS:
            sharing = self.sharing.get(text, {}).values()
            pages = {page.copy: page for page in sharing if self._is_of_another(*text, page)}
        if copy.page in self.asked_once_more and copy.copy in self._alternating[site]:
            self._second_answers[site, True] += 1
            if self._varies(site):
                pages |= {text: page for text, page in self._alternating[site].items() if page}
        return self._to_take_back(pages, copy.page) if pages else []

    def _varies(self, site: str) -> bool:
        """Whether a third of a site's alternating pages do so from answer to answer: these say nothing."""
        again, others = (self._second_answers[site, is_copy] for is_copy in (True, False))
        return again >= max(MIN_VARYING, others / 2)

    def _is_of_another(self, site: str, fingerprint: int, changed: Changed) -> bool:
        """Whether a page changed to the text of just one other page, from a text that no other page had.

        Not to that of a page with its name in another directory, as from /stable/a to /latest/a at a release.
        """
        before = self.unchanged.get((site, changed.copy), changed)
        other = self.unchanged.get((site, fingerprint))
        if before is None or other is None or before.page != changed.page:
            return False
        return other.page != changed.page and last_name(other.url) != last_name(changed.url)

    def _to_take_back(self, pages: dict[int, Changed], page: int) -> list[Changed]:
        """Return those of `pages` whose changes are not taken back yet, without `page`, and mark them so."""
        earlier = [
            changed
            for changed in pages.values()
            if changed.page != page and changed.page not in self._taken_back
        ]
        self._taken_back.update(changed.page for changed in earlier)
        self._taken_back.add(page)
        return earlier

    def _note_redirect(
        self, request: Request, response: Response, copy: Changed, was_redirected: bool
    ) -> tuple[dict[int, Changed], bool]:
        """Note an answer's redirect; returns pages as `_note` does, and `AnswerFeatures.is_gate`."""
        if not request.meta.get("redirect_urls"):
            return {}, False
        site = site_of(request)
        sharing = self._note(site, response.url.partition("?")[0], copy)
        is_temporary = any(status in TEMPORARY for status in request.meta.get("redirect_reasons", ()))
        if was_redirected or not is_temporary:
            return sharing, False
        first, *others = request.meta["redirect_urls"]
        heads = [head_and_path(url)[0] for url in (first, response.url)]
        # At another host, such as that of a parked domain, each redirect may lead to another page.
        way = way_of(first, response.url) if heads[0] == heads[1] else " ".join(heads)
        led_away = self._note(site, way, copy)
        is_gate = any(leads_back(first, url) for url in (*others, response.url))
        return max(sharing, led_away, key=len), is_gate

    def judge(
        self,
        request: Request,
        response: Response,
        page: PageReading,
        copy: Changed | None,
        distance_bits: int,
        *,
        was_redirected: bool,
        was_doubtful: bool,
        was_excluded: bool,
    ) -> Doubt:
        """Return whether an answer is doubtful by `RULES`, and which earlier changes were the same mistake.

        ``request``: as it was sent last; ``page``: what was read of the response; ``copy``: the page before,
        None: it has no copy, or none whose text is compared; ``was_redirected``, ``was_doubtful``: of the
        page's last answer; ``was_excluded``: whether the page repeated another at its last visit, so that it
        may have its text.
        """
        headers = {
            name.decode("latin-1").lower(): b", ".join(value).decode("latin-1")
            for name, value in response.headers.items()
            if value
        }
        if copy is None:
            is_known = page.words > 0 and page.fingerprint in self.doubted
            marked = is_marked(response, page.words)
            return Doubt(reason_of(AnswerFeatures(headers, 0, 0, is_known_block=is_known, is_marked=marked)))
        site, notes = site_of(request), unpack(copy.notes)
        self._visited.update((site, ""))
        if not is_changed(page.fingerprint, copy.copy, distance_bits):
            # Its notes may already be of this answer, where a callback asks again: it is no return.
            return Doubt(reason_of(AnswerFeatures(headers, notes.words, notes.words)))
        if page.fingerprint & LOW == notes.earlier > 0 and page.fingerprint not in self.doubted:
            return self._judge_return(site, copy, notes, headers)
        return self._judge_change(
            site,
            request,
            response,
            page,
            copy,
            notes,
            headers,
            was_redirected=was_redirected,
            was_doubtful=was_doubtful,
            was_excluded=was_excluded,
        )

    def _judge_return(self, site: str, copy: Changed, notes: CopyNotes, headers: Mapping[str, str]) -> Doubt:
        """Return whether an answer with the page's text before its last change is doubtful."""
        returned, alternating = self._returned[site], self._alternating[site]
        returned.add(copy.copy)
        # The end of a sale brings back the texts of all its pages: only a second return is of variants.
        if notes.returns > 0 and not notes.was_believed:
            alternating[copy.copy] = None
        is_first = len(returned) < MIN_NEAR_PAGES and not notes.was_believed
        is_alternating = is_first or copy.copy in alternating
        if copy.page in self.asked_once_more:
            self._second_answers[site, False] += copy.copy in alternating
            is_alternating = copy.copy in alternating and self._varies(site)
        answer = AnswerFeatures(headers, notes.words, notes.words, is_alternating=is_alternating)
        if (reason := reason_of(answer)) == ALTERNATING:
            self.asked_once_more.add(copy.page)
        elif reason is None and copy.copy in alternating:
            alternating[copy.copy] = copy
        return Doubt(reason)

    def _judge_change(
        self,
        site: str,
        request: Request,
        response: Response,
        page: PageReading,
        copy: Changed,
        notes: CopyNotes,
        headers: Mapping[str, str],
        *,
        was_redirected: bool,
        was_doubtful: bool,
        was_excluded: bool,
    ) -> Doubt:
        """Return whether a changed text is doubtful, and which earlier changes were the same mistake."""
        visited = self._visited[site]
        sharing = self._note(site, page.fingerprint, copy)
        redirected, is_gate = self._note_redirect(request, response, copy, was_redirected)
        bits = near_bits(page.fingerprint, copy.copy)
        has_words = page.kind != "bytes" and notes.words >= MIN_WORDS
        is_halved = has_words and page.words < notes.words / 2
        is_twice = has_words and abs(page.words / notes.words - 2) <= LEAST and bits <= TWICE_BITS
        reasons = request.meta.get("redirect_reasons", ())  # the target of a permanent one is a twin
        has_text = page.words >= MIN_WORDS and not was_excluded
        is_itself = has_text and all(status in TEMPORARY for status in reasons)
        has_block_kind = page.kind in ("html", "json")
        is_short = is_halved and has_block_kind and page.words < min(notes.words / 3, MAX_MARKED_WORDS)
        words_share = 0.0 if is_twice else page.words / notes.words if has_words else 1.0
        new = NewText(page.fingerprint, copy, words_share)
        near, everywhere = self._note_new_text(site, new), self._note_new_text("", new)
        if are_near(everywhere.from_far, len(self._new_texts[""]), self._visited[""]):
            # A proxy may block many sites.
            near = everywhere._replace(halved=near.halved, shrunk=near.shrunk)
        changed = len(self._new_texts[site]) + len(self._returned[site])
        many_share, many_redirect = (is_shared(len(pages), visited) for pages in (sharing, redirected))
        is_near, many_halved = (
            are_near(pages, changed, visited) for pages in (near.from_far, len(near.halved))
        )
        many_shrunk = are_near(len(near.shrunk), visited, visited)
        is_once_more = copy.page in self.asked_once_more
        block_has_ended = len(self._returned[site]) >= MIN_NEAR_PAGES
        answer = AnswerFeatures(
            headers=headers,
            words=notes.words if page.kind == "bytes" and response.body else page.words,  # bytes have none
            copy_words=notes.words,
            is_shared=many_share,
            is_known_block=page.fingerprint in self.doubted,
            shares_redirect=many_redirect,
            is_new_password=not notes.asks_password and asks_password(response),
            is_other_kind=page.kind != notes.kind and "features" not in (page.kind, notes.kind),
            is_other_language=0 < notes.language != (language_of(response) or notes.language),
            is_of_another=is_itself and self._is_of_another(site, page.fingerprint, copy),
            lacks_end=notes.has_end and page.words < notes.words and not has_end(response),
            is_marked=is_marked(response, page.words),
            has_captcha=is_marked(response, page.words, CAPTCHAS),
            is_near=is_near,
            is_halved=many_halved
            or many_shrunk
            or (is_halved and was_doubtful and not is_once_more and not block_has_ended),
            is_short=is_short and bits >= UNLIKE_BITS,
            lacks_a_fifth=0 < words_share < LOST and not (was_doubtful or is_once_more or block_has_ended),
            is_gate=is_gate,
        )
        earlier: list[Changed] = []
        for pages, are_doubtful in (
            (sharing, many_share),
            (redirected, many_redirect),
            (near.pages, is_near),
            (near.halved, many_halved),
            (near.shrunk, many_shrunk),
        ):
            if are_doubtful:
                earlier += self._to_take_back(pages, copy.page)
        if (reason := reason_of(answer)) == ONCE_MORE:
            self.asked_once_more.add(copy.page)
            return Doubt(reason, taken_back=earlier)
        # Near and halved texts differ the next time; translations and texts of other pages are no blocks.
        is_other = is_near or many_halved or many_shrunk or answer.is_other_language or answer.is_of_another
        return Doubt(reason, reason is not None and page.words > 0 and (many_share or not is_other), earlier)

    def remember_doubted(self, fingerprint: int) -> list[int]:
        """Remember the fingerprint of a doubted text; returns all remembered ones, the latest last."""
        self.doubted.pop(fingerprint, None)
        self.doubted[fingerprint] = None
        while len(self.doubted) > MAX_TEXTS:
            del self.doubted[next(iter(self.doubted))]
        return list(self.doubted)
