"""Doubt before belief: answers that are not the page, by rules and by real crawls over many cycles."""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from scrapy import Request
from scrapy.http import Headers, HtmlResponse
from scrapy.responsetypes import responsetypes
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c import visit
from scrapy_gp4c.crawling.cycle import retry_after, turn_level
from scrapy_gp4c.crawling.doubt import (
    ALTERNATING,
    MARKS,
    ONCE_MORE,
    RULES,
    AnswerFeatures,
    Doubt,
    SharedTexts,
    are_near,
    is_marked,
    is_shared,
    reason_of,
)
from scrapy_gp4c.crawling.fetched import KnownCopy
from scrapy_gp4c.crawling.messages import lying
from scrapy_gp4c.crawling.visits import judge
from scrapy_gp4c.fingerprint import ComparedPart, read
from scrapy_gp4c.fingerprint.copy_notes import LOW, notes_of, pack
from scrapy_gp4c.page_state.rules import NO_RULE
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import LinkFollower, Pages, Site, crawl, html, outcomes
from tests.support.sources import ROOT

FULL = {"GP4C_BUDGET": 1.0, "RETRY_ENABLED": False, "CONCURRENT_REQUESTS": 1}
WALL = html("we value your privacy choose which partners may read what you do here accept all or reject")


def text_of(number: int) -> str:
    """A text of its own, of a hundred words."""
    return " ".join(f"word{number * 7919 + position * 31}" for position in range(100))


@pytest.mark.parametrize(
    ("answer", "is_doubted"),
    [
        (AnswerFeatures({"cf-mitigated": "challenge"}, 100, 100), True),
        (AnswerFeatures({"x-amzn-waf-action": "captcha"}, 100, 0), True),
        (AnswerFeatures({}, 9, 100), True),
        (AnswerFeatures({}, 10, 100), False),
        (AnswerFeatures({}, 0, 49), True),
        (AnswerFeatures({}, 1, 49), False),
        (AnswerFeatures({}, 0, 0), False),
        (AnswerFeatures({}, 100, 100, shares_redirect=is_shared(3, 30)), True),
        (AnswerFeatures({}, 100, 100, is_new_password=True), True),
        (AnswerFeatures({}, 100, 100, is_other_kind=True), True),
        (AnswerFeatures({}, 100, 100, is_other_language=True), True),
        (AnswerFeatures({}, 49, 100, has_captcha=True), True),
        (AnswerFeatures({}, 50, 100, has_captcha=True), False),
        (AnswerFeatures({}, 60, 100, lacks_end=True), True),
        (AnswerFeatures({"x-vercel-mitigated": "challenge"}, 100, 100), True),
        (AnswerFeatures({"x-sucuri-block": "12"}, 100, 100), True),
        (AnswerFeatures({}, 100, 100, is_shared(3, 30)), True),
        (AnswerFeatures({}, 100, 100, is_shared(3, 31)), False),
        (AnswerFeatures({}, 100, 100, is_shared(2, 2)), False),
        (AnswerFeatures({}, 100, 0, is_marked=True), True),
        (AnswerFeatures({"set-cookie": "a=b, x-cookie-verification=1"}, 100, 0), True),
        (AnswerFeatures({}, 100, 100, is_near=are_near(4, 6, 30)), True),
        (AnswerFeatures({}, 100, 100, is_gate=True), True),
        (AnswerFeatures({}, 30, 100, is_short=True), True),
        (AnswerFeatures({}, 100, 100, is_halved=are_near(4, 6, 30)), True),
        (AnswerFeatures({}, 100, 100, is_halved=are_near(3, 3, 3)), False),
        (AnswerFeatures({}, 100, 100, is_near=are_near(4, 7, 30)), False),
        (AnswerFeatures({}, 100, 100, is_alternating=True), True),
    ],
)
def test_rules(answer: AnswerFeatures, is_doubted: bool) -> None:
    """Each rule holds from its border on; each names its source."""
    assert (reason_of(answer) is not None) == is_doubted
    assert all(rule.source for rule in RULES)


def challenge(request: ServerRequest) -> bytes:
    """A challenge of a bot manager, answered 200."""
    request.setHeader("cf-mitigated", "challenge")
    return html(f"checking your browser {request.path!r} " * 20).encode()


def login(request: ServerRequest) -> bytes:
    """A redirect to a login, which says where the reader came from, so that no two texts are alike."""
    if not request.path.startswith(b"/login"):
        request.redirect(b"/login?next=" + request.path)
        return b""
    return html(f"please log in again {text_of(len(str(request)) + int(1e6 * time.time()))}").encode()


def password(request: ServerRequest) -> bytes:
    """A form for a password, at each page's own URL, with a text of its own."""
    form = '<form><input name="user"><input  name=p type="password"></form>'
    return html(f"who are you {text_of(10_000 + int(request.path[1:]))} {form}").encode()


def incident(request: ServerRequest) -> bytes:
    """A block that names the URL and an incident, so that no two texts are alike."""
    number = f"18.{request.path!r}.{time.monotonic_ns() * 7919:x}"
    why = "If you believe that this is an error, write to us and quote the number of the incident"
    return html(
        f"You are not allowed to see {request.path!r} on this server. {why}, which is {number}"
    ).encode()


def marked(request: ServerRequest) -> bytes:
    """A challenge with a text of its own each time, told by its script."""
    script = '<script src="/.within.website/x/cmd/anubis/static/js/main.mjs"></script>'
    return html(f"making sure of you {text_of(time.monotonic_ns())} {script}").encode()


def halved(request: ServerRequest) -> bytes:
    """A page that the server ceased to send."""
    return html(text_of(int(request.path[1:]))).encode()[:500]


def twice(request: ServerRequest) -> bytes:
    """A page that the server sends twice in one body."""
    return 2 * html(text_of(int(request.path[1:]))).encode()


def plain(request: ServerRequest) -> bytes:
    """A page that is called something else."""
    request.setHeader("Content-Type", "text/plain")
    return html(text_of(int(request.path[1:]))).encode()


def teaser(request: ServerRequest) -> bytes:
    """A third of the page, as whoever is not logged in gets it."""
    words = text_of(int(request.path[1:])).split()[:30]
    return html(" ".join([*words, "log in to read on"])).encode()


def shorter(request: ServerRequest) -> bytes:
    """A page without the part that an include, which fails, has in all pages."""
    return html(" ".join(text_of(int(request.path[1:])).split()[:70])).encode()


def itself(request: ServerRequest) -> bytes:
    """A redirect to the page itself, which never ends."""
    request.redirect(request.path)
    return b""


BLOCKS = [WALL, incident, login, itself]
MORE_BLOCKS = [challenge, html(""), marked, password, halved, twice, plain, teaser, shorter]


@pytest.mark.parametrize(
    "block", [*BLOCKS, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE_BLOCKS)]
)
async def test_a_site_that_blocks_for_some_cycles(
    site: Site,
    store_path: Path,
    block: str | Callable[[ServerRequest], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No false change, few requests, and all is as before when the block ends."""
    pages: dict[str, Any] = {f"/{number}": html(text_of(number)) for number in range(20)}
    site.pages = dict(pages)
    urls = tuple(map(site.url, pages))
    for _ in range(2):
        await crawl(Pages, store_path, FULL, urls=urls)
    site.pages = dict.fromkeys([*pages, "/login"], block)
    false_changes = 0
    with caplog.at_level(logging.WARNING):
        for cycle in (3, 4):
            site.log.clear()
            await crawl(Pages, store_path, FULL, urls=urls)
            all_outcomes = [one for ends in outcomes(store_path, cycle).values() for one in ends]
            false_changes += all_outcomes.count("changed")
            # Five doubtful answers, each after a redirect, and what is sent while the spider reads the last.
            assert len(site.log) <= 12, (cycle, all_outcomes)
    assert "is left alone for the rest of the cycle" in caplog.text
    assert false_changes == 0
    site.pages = dict(pages)
    for _ in (5, 6):
        await crawl(Pages, store_path, FULL, urls=urls)
    assert outcomes(store_path, 6) == {path: ["unchanged"] for path in pages}


async def test_pages_that_ask_for_a_password_from_the_first_visit_on_are_named(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link that ends the session hid each page after it for ever, in silence; one login page is none."""
    form = html(f"{text_of(90)}<form><input type=password></form>")
    site.pages = {"/1": html(text_of(1)), "/login": form}
    for named in (0, 1, 0):
        caplog.clear()
        await crawl(Pages, store_path, FULL, urls=tuple(map(site.url, site.pages)))
        assert caplog.text.count("asks for a password from its first visit on") == named
        site.pages |= {"/2": form, "/3": form}


async def test_readers_of_another_country_and_parts_of_pages_are_no_changes(
    site: Site, store_path: Path
) -> None:
    """Temporary redirects that lead all pages alike are doubtful, and so is one of a single page to a login.

    So is another language of the page itself, by the HTML or by a header.

    A part of a page (206) that nobody asked for is an error, and so is an answer without content (204).
    """
    pages = {f"/{number}": html(text_of(number)) for number in range(3)}  # of 5, it would be left alone
    site.pages = {**pages, "/part": html(text_of(50)), "/member": html(text_of(60))}
    site.pages["/guess"] = f"<html class=a lang='en-GB'><body>{text_of(80)}"
    urls = tuple(map(site.url, site.pages))
    for _ in range(3):
        await crawl(Pages, store_path, FULL, urls=urls)

    def abroad(request: ServerRequest) -> bytes:
        if request.path == b"/part":
            request.setResponseCode(206 if cycle == 4 else 204)
            return html(text_of(50)).encode()[:700] if cycle == 4 else b""
        path = request.path.decode()
        if path == "/guess":
            request.setHeader("Content-Language", "de-AT")
            return f"<html {'lang=de' * (cycle == 4)}><body>{text_of(90)}".encode()
        if path == "/member":
            request.redirect(b"/sso?lang=de&next=%2Fmember")
            return b""
        if path == "/sso":
            return html(text_of(70)).encode()
        if path.startswith("/de/"):
            return html(text_of(100 + int(path[4:]))).encode()
        request.redirect(f"/de{path}".encode())
        return b""

    site.pages = dict.fromkeys([*site.pages, *(f"/de{path}" for path in pages), "/sso"], abroad)
    for cycle in (4, 5):
        await crawl(Pages, store_path, FULL, urls=urls)
        ends = outcomes(store_path, cycle)
        assert ends.pop("/part") == ["error"]
        assert {one for outcomes_of_page in ends.values() for one in outcomes_of_page} == {"doubtful"}


LETTERS = "Съешь же ещё этих мягких французских булок, да выпей чаю"
CHARSETS = [  # of the bytes, of the page's own word, of the header's from cycle to cycle
    (
        "utf-8",
        "",
        ("; charset=utf-8", "; charset=iso-8859-1", "; charset=windows-1251", "", "; charset=none"),
    ),
    ("utf-8", "koi8-r", ("; charset=utf-8", "", "; charset=shift_jis")),
    ("cp1251", "windows-1251", ("; charset=windows-1251", "; charset=utf-8", "", "; charset=utf-8")),
    ("koi8-r", "koi8-r", ("", "; charset=utf-8", "; charset=euc-jp")),
]


@pytest.mark.parametrize(("bytes_of", "own", "headers"), CHARSETS)
async def test_a_false_charset_is_no_change(
    site: Site, store_path: Path, bytes_of: str, own: str, headers: tuple[str, ...]
) -> None:
    """The bytes stay, and what the header says of their charset does not; other words are a change."""
    words, header = f"{LETTERS} {text_of(1)} {LETTERS}", headers[0]

    def page(request: ServerRequest) -> bytes:
        request.setHeader("Content-Type", f"text/html{header}")
        meta = f'<meta charset="{own}">' if own else ""
        return f"<html><head>{meta}</head><body>{words}</body></html>".encode(bytes_of)

    site.pages["/"] = page
    ends = []
    for header in headers:  # noqa: B007, the page reads it
        await crawl(Pages, store_path, FULL, urls=(site.url("/"),))
        ends += outcomes(store_path, len(ends) + 1)["/"]
    words = f"{LETTERS[::-1]} {text_of(1)} {LETTERS[::-1]}"
    await crawl(Pages, store_path, FULL, urls=(site.url("/"),))
    ends += outcomes(store_path, len(ends) + 1)["/"]
    assert ends == ["first", *["unchanged"] * (len(headers) - 1), "changed"]


def judged(
    texts: SharedTexts,
    number: int,
    old: str,
    new: str,
    earlier: str = "",
    host: str = "a.example",
    kind: str = "text/html",
    *,
    directory: str = "",
    was_believed: bool = True,
    returns: int = 1,
) -> Doubt:
    """Judgement of a page that was one text and is another; ``earlier``: its text before the old one."""
    url, headers, write = f"http://{host}{directory}/{number % 100}", Headers({"Content-Type": kind}), html
    if kind == "application/json":
        write = json.dumps
    copy, page, first = (
        responsetypes.from_args(headers, url)(url, headers=headers, body=write(text).encode())
        for text in (old, new, earlier)
    )
    readings = read(copy, None), read(page, None)
    notes = notes_of(readings[0], None, b"")
    if earlier:
        notes = notes._replace(
            earlier=read(first, None).fingerprint & LOW, was_believed=was_believed, returns=returns
        )
    before = KnownCopy(
        number, readings[0].fingerprint, pack(notes), rule=NO_RULE, distance_bits=1, is_believed=False,
        needs_text=False, was_redirected=False, was_doubtful=False, was_excluded=False,
    )  # fmt: skip
    return judge(Request(page.url), page, ComparedPart(page, None), readings[1], before, texts).doubt


def test_a_new_frame_around_the_texts_of_all_pages_is_no_doubt() -> None:
    """Pages whose own texts stay in it have changed, however alike they have become."""
    texts, frame = SharedTexts([]), text_of(999)
    for number in range(20):
        doubt = judged(texts, number, text_of(number), f"{frame} {text_of(number)}")
        assert doubt == (None, False, [])


@pytest.mark.parametrize("names_the_host", [False, True])
def test_a_block_of_many_sites_is_doubtful(names_the_host: bool) -> None:
    """As a proxy answers for all of them, longer than their pages; the first ones are taken back."""
    texts, portal, taken_back = SharedTexts([]), text_of(999) * 4, []
    for number in range(8):
        host = f"{number}.example"
        doubt = judged(texts, number, text_of(number), portal + host * names_the_host, host=host)
        taken_back += [one.page for one in doubt.taken_back]
    assert doubt.reason is not None
    assert taken_back == list(range(3 if names_the_host else 2))


def test_pages_that_give_way_to_one_notice_that_names_each_have_changed() -> None:
    """As products that are sold out, while other pages change in their own ways: no block."""
    texts, notice = SharedTexts([]), " ".join(text_of(999).split()[:90])
    for number in range(10, 20):
        assert judged(texts, number, text_of(number), text_of(number + 100)).reason is None
    for number in range(1, 5):
        text = f"{notice} {text_of(number).split()[0]}"
        assert judged(texts, number, text_of(number), text).reason is None


def test_the_text_before_a_block_is_no_doubt() -> None:
    """A page that comes back is believed, though the block has lasted so long that it was, and is longer."""
    text = " ".join(text_of(2).split()[:30])
    assert judged(SharedTexts([]), 1, text_of(1), text).reason is not None
    assert judged(SharedTexts([]), 1, text_of(1), text, earlier=text).reason is None


def test_changes_that_a_block_has_hidden_are_no_doubt() -> None:
    """Where the other pages of a site lose the block's long text as well, and have their own texts again."""
    texts, wall = SharedTexts([]), text_of(999) * 2
    for number in range(6):
        page_text = text_of(number)
        assert judged(texts, number, f"{wall} {page_text}", page_text, earlier=page_text).reason is None
    for number in range(6, 10):
        assert judged(texts, number, f"{wall} {text_of(number)}", text_of(number + 100)).reason is None


@pytest.mark.parametrize(("was_believed", "returns"), [(False, 1), (True, 1), (False, 0)])
def test_second_answers_decide_whether_pages_that_come_back_are_variants(
    was_believed: bool, returns: int
) -> None:
    """Pages are asked for once more: all that are back a second time, and three that are for the first time.

    Not those whose text in between was doubted, and then believed.
    """
    texts = SharedTexts([])
    is_twice = returns > 0 and not was_believed

    def doubt_of(number: int, text: str) -> Doubt:
        notes = {"was_believed": was_believed, "returns": returns}
        return judged(texts, number, text_of(number + 50), text, earlier=text_of(number), **notes)

    for number in range(7):
        is_asked = is_twice or (number < 3 and not was_believed)
        assert (doubt_of(number, text_of(number)).reason == ALTERNATING) == is_asked
    if not was_believed:
        for number in range(3):
            assert doubt_of(number, text_of(number)).reason is None
        answers = [doubt_of(number, text_of(number + 50)) for number in (4, 5)]
        # One page alone may have changed between its two answers.
        taken_back = [0, 1, 2] if is_twice else []
        assert [[one.page for one in doubt.taken_back] for doubt in answers] == [[], taken_back]
        assert (doubt_of(6, text_of(6)).reason == ALTERNATING) == is_twice


@pytest.mark.slow
@pytest.mark.parametrize("has_variants", [False, True])
async def test_variants_are_reported_twice_at_most_and_opening_hours_in_each_cycle(
    has_variants: bool, site: Site, store_path: Path
) -> None:
    """A line of variants differs from answer to answer, that of opening hours from cycle to cycle.

    Real changes are reported at once, and the site is not left alone.
    """
    urls, changes, answers = [site.url(f"/{number}") for number in range(12)], Counter[str](), Counter[str]()

    def answer(request: ServerRequest) -> bytes:
        path = request.path.decode()
        answers[path] += 1
        number = 5 + 100 * (cycle > 6) if path == "/5" else int(path[1:])
        turn = answers[path] if has_variants else cycle
        return html(f"{'Open until eight, come in' * (turn % 2)} {text_of(number)}").encode()

    site.pages = {f"/{number}": answer for number in range(12)}
    for cycle in range(1, 10):
        await crawl(Pages, store_path, FULL, urls=urls)
        ends = outcomes(store_path, cycle)
        changes.update(path for path in ends if "changed" in ends[path])
        assert len(ends) == len(urls)
        if cycle == 7:
            assert ends["/5"] == ["changed"]
    others = {changes[path] for path in ends if path != "/5"}
    assert (others, changes["/5"] > 2) == ({1, 2} if has_variants else {8}, True)


def test_the_text_of_another_page_is_doubtful() -> None:
    """Whichever is visited first; not of a page that shows others' texts, as the latest, nor of two pages.

    Nor of a page with the same name in another directory, as when a version is released.
    """
    page_texts = [text_of(number) for number in range(4)]
    texts = SharedTexts([])
    for number in (1, 2, 3):
        assert judged(texts, number, page_texts[number], page_texts[number]).reason is None
    assert judged(texts, 10, text_of(70), page_texts[1]).reason == "the text of another page of the site"
    assert judged(texts, 101, text_of(71), page_texts[1], directory="/stable").reason is None
    assert judged(texts, 11, page_texts[2], page_texts[3]).reason is None
    judged(texts, 4, page_texts[3], page_texts[3])
    assert judged(texts, 12, text_of(72), page_texts[3]).reason is None
    texts = SharedTexts([])
    assert judged(texts, 10, text_of(70), page_texts[1]).reason is None
    assert [one.page for one in judged(texts, 1, page_texts[1], page_texts[1]).taken_back] == [10]


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_of_a_challenge_is_doubtful_on_short_pages_alone(mark: bytes) -> None:
    """At the first visit, too; a long page may write about challenges."""
    for words, is_doubted in ((40, True), (400, False)):
        text = " ".join(f"word{number}" for number in range(words))
        body = html(f"{text} <script>{mark.decode()}</script>").encode()
        response = HtmlResponse("http://a.example/", body=body, encoding="utf-8")
        assert is_marked(response, read(response, None).words) == is_doubted


def test_a_captcha_of_a_single_page_is_doubtful() -> None:
    """Where it takes the place of the text; beside the text, as in a form for comments, it is a change."""
    captcha = '<form>Prove that you are human.<div class="g-recaptcha" data-sitekey="a"></div></form>'
    assert judged(SharedTexts([]), 1, text_of(1), captcha).reason is not None
    assert judged(SharedTexts([]), 1, text_of(1), text_of(1) + captcha).reason is None


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
@pytest.mark.parametrize(("words", "is_doubted"), [(30, True), (40, False)])
def test_a_short_block_of_a_single_page_is_doubtful(words: int, is_doubted: bool, kind: str) -> None:
    """Less than a third of the words that the page had; a list that gets as short keeps some of its own."""
    block, list_end = (" ".join(text_of(number).split()[:words]) for number in (2, 1))
    reason = judged(SharedTexts([]), 1, text_of(1), block, kind=kind).reason
    assert (reason not in (None, ONCE_MORE)) == is_doubted
    assert judged(SharedTexts([]), 1, text_of(1), list_end, kind=kind).reason == ONCE_MORE


async def test_less_text_is_a_change_if_the_next_answer_has_no_more(site: Site, store_path: Path) -> None:
    """The page is asked for once more in the same cycle: a part that was missing is no change."""
    pages = {f"/{number}": text_of(number) for number in range(5)}
    answers = Counter[str]()

    def shortened_page(request: ServerRequest) -> bytes:
        path = request.path.decode()
        answers[path] += 1
        is_part = path == "/1" or (path == "/2" and answers[path] == 1)
        return html(" ".join(pages[path].split()[: 60 if is_part else 100])).encode()

    site.pages = {path: html(text) for path, text in pages.items()}
    urls = tuple(map(site.url, pages))
    for _ in range(2):
        await crawl(Pages, store_path, FULL, urls=urls)
    site.pages = dict.fromkeys(pages, shortened_page)
    await crawl(Pages, store_path, FULL, urls=urls)
    assert outcomes(store_path, 3) == {path: ["changed" if path == "/1" else "unchanged"] for path in pages}
    assert answers == {path: 2 if path in ("/1", "/2") else 1 for path in pages}


class Described(Pages):
    """Makes items of all answers that have changed by a reading of the result, and hands its meta on."""

    name = "described"
    reads: Callable[[Any], object] = staticmethod(lambda response: True)
    items, answers = Counter[str](), Counter[str]()

    async def start(self) -> Any:
        for url in self.urls:
            # The store keeps no lambda: the request of the first answer is sent again.
            yield Request(url, lambda response: self.parse(response))

    def parse(self, response: Any) -> Any:
        path = response.url.rpartition("/")[2]
        self.answers[path] += 1
        if not self.reads(response):
            return None
        self.items[path] += 1
        return Request(response.url, meta=response.meta)


def failing(response: Any) -> bool:
    """Fail at the first answer."""
    if Described.answers[response.url.rpartition("/")[2]] == 1:
        raise ValueError
    return True


@pytest.mark.parametrize(
    ("reads", "answers"),
    [
        (lambda response: True, 1),
        (lambda response: visit(response).changed, 2),
        (lambda response: response.meta["gp4c"]["changed"], 2),
        (lambda response: response.meta["gp4c"].changed, 2),
        (lambda response: "doubtful" not in response.meta["gp4c"], 2),
        (lambda response: {**response.meta["gp4c"]}["changed"], 2),
        (lambda response: dict(response.meta["gp4c"].items())["changed"], 2),
        (failing, 2),
    ],
    ids=("not at all", "visit", "key", "attribute", "in", "copy", "items", "failing"),
)
async def test_a_second_answer_with_the_text_of_the_first_makes_no_items_twice(
    site: Site, store_path: Path, reads: Callable[[Any], object], answers: int
) -> None:
    """Its callback runs for a callback that asked whether the page has changed, or failed at the first."""
    site.pages = {f"/{number}": html(text_of(number)) for number in range(5)}
    urls = tuple(map(site.url, site.pages))
    for _ in range(2):
        await crawl(Described, store_path, FULL, urls=urls)
    site.pages["/1"] = html(" ".join(text_of(1).split()[:60]))
    Described.items.clear()
    Described.answers.clear()
    await crawl(Described, store_path, FULL, urls=urls, reads=reads)
    assert outcomes(store_path, 3)["/1"] == ["changed"]
    assert (Described.items["1"], Described.answers["1"]) == (1, answers)


async def test_what_stays_doubtful_is_the_page_in_the_end(site: Site, store_path: Path) -> None:
    """After GP4C_BELIEVE_AFTER visits there is one change."""
    site.pages["/"] = html(text_of(1))
    crawl_settings = {**FULL, "GP4C_BELIEVE_AFTER": 2}
    for _ in range(2):
        await crawl(Pages, store_path, crawl_settings, urls=(site.url(),))
    site.pages["/"] = html("we have moved")
    results = []
    for cycle in range(3, 12):
        await crawl(Pages, store_path, crawl_settings, urls=(site.url(),))
        results += outcomes(store_path, cycle).get("/", [])
    assert results[:3] == ["doubtful", "doubtful", "changed"]
    assert set(results[3:]) == {"unchanged"}


async def test_a_server_that_always_says_not_modified_hides_no_change_for_ever(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every 8th visit goes without validators; what was hidden shows that the site's 304s are false.

    Validators of an address that a page leads to for now are not sent to the next such address.
    """
    text = {"now": 1}

    def latest(request: ServerRequest) -> bytes:
        request.redirect(f"/{'version' * text['now']}".encode())
        return b""

    def page(request: ServerRequest) -> bytes:
        is_true = request.path != b"/stuck"
        request.setHeader("ETag", f'"{text["now"]}"' if is_true else '"always"')
        if request.getHeader("If-None-Match"):
            request.setResponseCode(304)
            return b""
        return html(text_of(text["now"] * 100 + len(request.path))).encode()

    paths = ("/", "/a", "/ab", "/stuck")
    site.pages = {**{f"/{'version' * now}": page for now in range(1, 21)}, "/latest": latest}
    site.pages |= dict.fromkeys(paths, page)
    crawl_settings = {**FULL, "GP4C_SKIP_UNCHANGED": True}
    results: list[Counter[str]] = []
    versions = []
    with caplog.at_level(logging.WARNING):
        for cycle in range(1, 21):
            await crawl(Pages, store_path, crawl_settings, urls=tuple(map(site.url, (*paths, "/latest"))))
            text["now"] += cycle > 3
            ends_of = outcomes(store_path, cycle)
            versions += ends_of.pop("/latest")
            results.append(Counter(one for ends in ends_of.values() for one in ends))
    assert versions == ["first", *["unchanged"] * 3, *["changed"] * 16]
    assert all(one == {"not_modified": 4} for one in results[1:8])
    assert results[-1] == {"changed": 4}
    assert "was answered 304 though it had changed" in caplog.text


def test_sites_with_false_304s_are_named() -> None:
    """In a line of the status, with what follows from it."""
    assert "a.example (3 pages)" in str(lying({"a.example": [1, 2, 3]}))


class Asked(Pages):
    """Notes what its callback hears of doubt."""

    reasons: ClassVar[list[str | None]] = []

    def parse(self, response: Any) -> None:
        self.reasons.append(visit(response).doubtful)


@pytest.mark.parametrize("blocked", [("/2",), ("/0", "/1", "/3")])
async def test_a_doubtful_page_is_asked_for_once_more_at_the_end(
    site: Site, store_path: Path, blocked: tuple[str, ...]
) -> None:
    """Of a site that answers others well: a block of one answer is no change, and the callback hears why."""
    pages: dict[str, Any] = {f"/{number}": html(text_of(number)) for number in range(8)}
    site.pages = dict(pages)
    urls = tuple(map(site.url, pages))
    Asked.reasons.clear()
    for _ in range(3):
        await crawl(Asked, store_path, FULL, urls=urls)
    assert set(Asked.reasons) == {None}
    asked: Counter[str] = Counter()

    def once(request: ServerRequest) -> bytes:
        path = request.path.decode()
        asked[path] += 1
        if asked[path] == 1:
            return challenge(request)
        assert len(site.log) > len(pages)
        return pages[path].encode()

    site.pages.update(dict.fromkeys(blocked, once))
    site.log.clear()
    await crawl(Asked, store_path, FULL, urls=urls)
    assert asked == dict.fromkeys(blocked, 2)
    assert set(Asked.reasons) == {None, "a challenge of Cloudflare"}
    assert outcomes(store_path, 4) == {path: ["unchanged"] for path in pages}


def busy(request: ServerRequest) -> bytes:
    request.setResponseCode(503)
    return b"later"


@pytest.mark.parametrize(
    "block", [WALL, busy, *(pytest.param(one, marks=pytest.mark.slow) for one in (teaser, incident))]
)
async def test_pages_wait_no_longer_when_their_site_answers_again(
    site: Site, store_path: Path, block: Any
) -> None:
    """Though only some of them were asked for while it refused, and the others never failed; none changed."""
    pages: dict[str, Any] = {f"/{number}": html(text_of(number)) for number in range(20)}
    urls, settings = tuple(map(site.url, pages)), {**FULL, "GP4C_BUDGET": 0.9, "GP4C_WARMUP_VISITS": 1}
    good = []
    for cycle in range(1, 10):
        site.pages = pages if cycle < 3 or cycle > 7 else dict.fromkeys(pages, block)
        await crawl(Pages, store_path, settings, urls=urls)
        ends = [one for ends in outcomes(store_path, cycle).values() for one in ends]
        good.append(ends.count("unchanged"))
        assert "changed" not in ends, cycle
    assert good[7] < good[8] == 18, good


@pytest.mark.parametrize(("pages", "answers"), [(20, 8), (150, 10), (1000, 50)])
def test_all_pages_have_their_turn_at_a_site_of_few_answers(pages: int, answers: int) -> None:
    """Levels of equal size would leave out most pages of a large site for ever."""
    shown: set[int] = set()
    for cycle in range(2, 3 + 2 * pages // answers):
        levels = [turn_level(page, cycle) for page in range(pages)]
        shown.update(sorted(range(pages), key=levels.__getitem__, reverse=True)[:answers])
    assert len(shown) == pages


async def test_a_site_of_few_answers_shows_other_pages_in_each_cycle(site: Site, store_path: Path) -> None:
    """In the spider's order the same pages would be asked for first, and others never."""
    shown: list[set[str]] = []

    def answer(request: ServerRequest) -> bytes:
        path = request.path.decode()
        if len(shown[-1]) >= 8:
            return busy(request)
        shown[-1].add(path)
        return html(text_of(int(path[1:] or 99)), site.pages if path == "/" else ()).encode()

    site.pages = {f"/{number}": answer for number in range(20)} | {"/": answer}
    for _ in range(8):
        shown.append(set())
        await crawl(LinkFollower, store_path, FULL, url=site.url())
    assert set.union(*shown) == site.pages.keys()


async def test_a_part_of_a_site_that_is_refused_for_ever_waits_ever_longer(
    site: Site, store_path: Path
) -> None:
    """Whenever the other part answers; it has answered in the cycles before, too."""
    site.pages = {f"/{number}": html(text_of(number)) for number in range(20)}
    urls, settings = tuple(map(site.url, site.pages)), {**FULL, "GP4C_WARMUP_VISITS": 1}
    asked = []
    for cycle in range(1, 13):
        if cycle == 3:
            site.pages |= dict.fromkeys([f"/{number}" for number in range(10)], busy)
        site.log.clear()
        await crawl(Pages, store_path, {**settings, "GP4C_BUDGET": 0.9}, urls=urls)
        asked.append(sum(len(path) == 2 for _, path in site.log))
    assert sum(asked[7:]) <= 14, asked  # five of them, whenever they are due


async def test_deleted_pages_that_lead_home_settle(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once they are believed they stay the home page, and nobody takes the site for one that refuses."""
    site.pages = {f"/{number}": html(text_of(number)) for number in range(8)}
    site.pages["/"] = html(text_of(99), list(site.pages))
    lost, ends = ("/5", "/6", "/7"), []
    for cycle in range(1, 10):
        if cycle == 4:
            site.pages |= dict.fromkeys(lost, lambda request: request.redirect(b"/") or b"")
        await crawl(LinkFollower, store_path, {**FULL, "GP4C_BELIEVE_AFTER": 2}, url=site.url("/"))
        ends.append({end for path in lost for end in outcomes(store_path, cycle)[path]})
    assert ends[3:] == [{"doubtful"}, {"doubtful"}, *[{"excluded"}] * 4]
    assert "is left alone" not in caplog.text


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        (429, "Fri, 31 Dec 2999 23:59:59 GMT"),
        (None, None),
        pytest.param(429, None, marks=pytest.mark.slow),
        pytest.param(500, None, marks=pytest.mark.slow),
    ],
)
async def test_a_site_that_refuses_gives_its_visits_to_others(
    status: int | None, wait: str | None, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets 5 or 6 requests, and none in the next cycle if it asks for that; without a status it hangs up.

    A status that says nothing of a whole site refuses it where its pages answered before.
    """
    site = Site(hosts=("127.0.0.1", "127.0.0.2"))
    try:
        paths = [f"/{number}" for number in range(40)]
        site.pages = {path: html(text_of(number)) for number, path in enumerate(paths)}
        urls = [site.url(path, host) for host in ("127.0.0.1", "127.0.0.2") for path in paths]
        crawl_settings = {**FULL, "GP4C_BUDGET": 0.5, "GP4C_WARMUP_VISITS": 1, "GP4C_DISCOVERY": 0.0}
        for _ in range(2):
            await crawl(Pages, store_path, crawl_settings, urls=tuple(urls))
        hosts: list[str] = []

        def refusing(request: ServerRequest) -> bytes | None:
            hosts.append(request.getRequestHostname().decode())
            if hosts[-1] != "127.0.0.1":
                return html(text_of(int(request.path[1:]))).encode()
            if status is None:
                request.transport.abortConnection()
                return None
            request.setResponseCode(status)
            if wait is not None:
                request.setHeader("Retry-After", wait)
            return b"slow down"

        site.pages = dict.fromkeys(site.pages, refusing)
        for _ in range(2):
            hosts.clear()
            with caplog.at_level(logging.WARNING):
                await crawl(Pages, store_path, crawl_settings, urls=())
        host = f"127.0.0.1:{site.port}"
        assert f"{host} is left alone for the rest of the cycle" in caplog.text
        line = f"Left alone, as their last answers refused the crawl: {host} until"
        assert (line in caplog.text) == bool(wait)
        with Store(store_path, readonly=True) as store:
            record = store.cycles()[2]
        until_s = record["left_alone"][host]
        assert (until_s > time.time() + 3000) == bool(wait)
        assert until_s < time.time() + 86_401
        errors = record["outcomes"]["error"]
        # The sixth may leave before the errback of the fifth, which might ask again, has ended.
        assert errors in (5, 6)
        assert record["visited"] == 40
        visits = Counter(hosts)
        assert visits["127.0.0.1"] in ((0,) if wait else (5, 6))
        assert visits.total() == 40
    finally:
        await site.close()


async def test_pages_that_lead_to_themselves_are_fetched_once_and_judged(
    site: Site, store_path: Path
) -> None:
    """A refresh is the page; a redirect may bring cookies once, and is an error the second time.

    So is one that counts in its query, and one that goes on for ever. Of a ring of refreshes, two are
    followed, and the page is compared.
    """
    refresh = (
        '<html><head><meta http-equiv="refresh" content="1; url=%s"></head><body>news of today</body></html>'
    )
    site.pages = {"/live": refresh % "/live", "/away": refresh % "/news", "/news": html(text_of(1))}

    def loop(request: ServerRequest) -> bytes:
        if request.path == b"/cookie" and request.getCookie(b"seen"):
            return html(text_of(2)).encode()
        request.setHeader("Set-Cookie", "seen=1")
        request.redirect(request.path)
        return b""

    def counting(request: ServerRequest) -> bytes:
        request.redirect(b"/count?n=%d" % (int(request.args.get(b"n", [b"0"])[0]) + 1))
        return b""

    site.pages |= {"/cookie": loop, "/loop": loop, "/count": counting}
    site.pages |= {f"/ring{n}": refresh % f"/ring{(n + 1) % 5}" for n in range(5)}

    def maze(request: ServerRequest) -> bytes:
        request.redirect(b"/maze/%d" % len(site.log))
        return b""

    site.pages |= {f"/maze{end}": maze for end in ("", *(f"/{number}" for number in range(99)))}
    paths = ("/live", "/away", "/cookie", "/loop", "/count", "/ring0", "/maze")
    await crawl(Pages, store_path, FULL, urls=tuple(map(site.url, paths)))
    expected = {"/live": ["first"], "/away": ["first"], "/cookie": ["first"], "/ring0": ["first"]}
    errors = {path: ["error"] for path in ("/loop", "/count", "/maze")}
    assert outcomes(store_path, 1) == {**expected, **errors}
    assert Counter(re.sub(r"(?<=/maze).*|\?.*", "", path) for _, path in site.log) == {
        "/maze": 11,
        "/count": 5,
        "/live": 1,
        "/away": 1,
        "/news": 1,
        "/cookie": 2,
        "/loop": 2,
        "/ring0": 2,
        "/ring1": 1,
        "/ring2": 1,
    }

    def ordered(request: ServerRequest) -> bytes:
        if request.uri == b"/query?a=1&b=2":
            return html(text_of(3)).encode()
        request.redirect(b"/query?a=1&b=2")
        return b""

    site.pages |= {"/query": ordered, "/": html("links", ["/cookie", "/query?b=2&a=1"])}
    await crawl(LinkFollower, store_path / "linked", FULL, url=site.url())
    ends = {"/": ["first"], "/cookie": ["first"], "/query?b=2&a=1": ["first"]}
    assert outcomes(store_path / "linked", 1) == ends


@pytest.mark.parametrize("status", [503, 429])
async def test_a_robots_txt_that_is_out_of_order_allows_nothing(
    status: int, site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is fetched as long as it is answered 5xx or 429, and all after that (RFC 9309)."""
    site.pages = {"/0": html(text_of(0))}

    def broken(request: ServerRequest) -> bytes:
        request.setResponseCode(status)
        return b"out of order"

    site.pages["/robots.txt"] = broken
    crawl_settings = {**FULL, "ROBOTSTXT_OBEY": True}
    with caplog.at_level(logging.WARNING):
        await crawl(Pages, store_path, crawl_settings, urls=(site.url("/0"),))
    assert site.fetched() == {"/robots.txt"}
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    (shown,) = re.findall(r"^last run +(Nothing of .*)$", page, re.MULTILINE)
    netloc = site.url("/").split("/")[2]
    assert shown.replace("example.org", netloc).replace("503", str(status)) in caplog.text
    assert "refused the crawl" in caplog.text
    site.pages["/robots.txt"] = b"User-agent: *\nDisallow:\n"
    await crawl(Pages, store_path, crawl_settings, urls=(site.url("/0"),))
    assert outcomes(store_path, 2) == {"/0": ["first"]}
    site.pages["/robots.txt"] = b"User-agent: *\nDisallow: /\n"
    await crawl(Pages, store_path, crawl_settings, urls=(site.url("/0"),))
    assert "/0 was read before, and is excluded now: Forbidden by robots.txt" in caplog.text


@pytest.mark.parametrize(("clock_ahead_s", "requests"), [(0.0, 4), (3e8, 6)])
async def test_a_site_of_two_pages_is_left_alone_as_long_as_it_asks(
    site: Site,
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    clock_ahead_s: float,
    requests: int,
) -> None:
    """Though it never answers five times in a row; not for years by a clock that was ahead for a cycle."""
    site.pages = {path: html(text_of(number)) for number, path in enumerate(("/0", "/1"))}
    urls = tuple(map(site.url, site.pages))
    await crawl(Pages, store_path, FULL, urls=urls)

    def refusing(request: ServerRequest) -> bytes:
        request.setResponseCode(429)
        request.setHeader("Retry-After", "3600.5")
        return b"slow down"

    site.pages = dict.fromkeys(site.pages, refusing)
    with caplog.at_level(logging.WARNING):
        with monkeypatch.context() as patch:
            clock = time.time
            patch.setattr(time, "time", lambda: clock() + clock_ahead_s)
            await crawl(Pages, store_path, FULL, urls=urls)
        for _ in range(2):
            await crawl(Pages, store_path, FULL, urls=urls)
    assert len(site.log) == requests
    assert "as its Retry-After asks" in caplog.text


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("120", 120.0),
        ("3600.5", 3600.5),
        ("999999999999", 86_400.0),
        ("Fri, 27 Nov 2026 00:02:00 GMT", 120.0),
        ("Friday, 27-Nov-26 00:02:00 GMT", 120.0),
        ("Fri Nov 27 00:02:00 2026", 120.0),
        ("Thu, 26 Nov 2026 00:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("soon", 0.0),
        (None, 0.0),
    ],
)
def test_waits_that_servers_ask_for(value: str | None, wait_s: float) -> None:
    """Numbers and the three forms of dates (RFC 9110, 5.6.7 and 10.2.3); at most a day."""
    now_s = 1_795_737_600.0
    until_s = retry_after(None if value is None else value.encode(), now_s)
    assert until_s == (now_s + wait_s if wait_s else 0.0)


async def test_a_policy_that_samples_ends_where_all_samples_are_doubted(site: Site, store_path: Path) -> None:
    """Nobody waits for doubtful answers: the policy was asked for its next round for ever."""
    paths = [f"/{number}" for number in range(6)]
    settings = {"GP4C_POLICY": "groups", "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1}
    for day in range(1, 4):
        busy = html("please wait, this server is busy at the moment " * 3)
        site.pages = {path: busy if day == 3 else html(f"{path} of {day} " * 20) for path in paths}
        crawler = await crawl(Pages, store_path, settings, site=site)
        assert crawler.stats.get_value("finish_reason") == "finished"
