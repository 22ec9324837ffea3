"""``scrapy gp4c text``: which text of a page is compared, and which is left out or masked."""

from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from scrapy import Request
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.utils.misc import load_object

from scrapy_gp4c.archive.differences import differences, text_of
from scrapy_gp4c.commands.action import JSON, Action, option, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.messages import NO_TEXT
from scrapy_gp4c.crawling.promises import rule_of_request
from scrapy_gp4c.errors import FetchError
from scrapy_gp4c.fingerprint import NOT_WATCHED_REASON, compared_part, has_text, read, watched_features
from scrapy_gp4c.fingerprint.answers import answer
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.rules import PageRule
from scrapy_gp4c.words.masking import MASK
from scrapy_gp4c.words.normal import plain_form, readable


@dataclass(frozen=True)
class LeftOutText:
    """A part of a page's text that is not compared, and why."""

    reason: str
    words: int
    text: str


@dataclass(frozen=True)
class ComparedText:
    """Text of a page that is compared between visits, and the parts that are not."""

    url: str
    status: int
    kind: str
    """html, json, csv, xml, pdf, text, bytes, or features for the user's own."""
    rule: str | None
    """Rule of GP4C_RULES that says which parts are compared; None: all are."""
    words: int
    masked: int
    """Number of masked times, dates, tokens and counters."""
    is_cut: bool
    """Whether the text is so long that only its head is compared."""
    has_text: bool
    text: str
    """Compared text in normal form, with masked parts in ``[-`` and ``-]``."""
    left_out: list[LeftOutText]


def _run(project: Project, options: Namespace) -> ComparedText:
    return compare(project, _fetch(project, options.url))


def compare(project: Project, response: Response) -> ComparedText:
    """Return which text of a response is compared, by the project's settings."""
    rule = _rule(project, response.request.url if response.request else response.url)
    compared = compared_part(response, project.settings.features, rule.watch, rule.ignore)
    features = compared.features
    reading = read(compared.response, features, with_text=True)
    content = answer(compared.response).content
    if compared.features is watched_features:
        marked = plain_form(content.text)
    elif features is not None:
        marked = "\n".join(features(compared.response))
    else:
        marked = marked_text(content.text, reading.normal or "").replace(MASK, "[-masked-]")
    return ComparedText(
        response.url,
        response.status,
        reading.kind,
        rule.name if rule.watch or rule.ignore else None,
        reading.words,
        reading.masked,
        reading.is_cut,
        has_text(reading.fingerprint),
        marked,
        []
        if features is not None
        else [LeftOutText(text.reason, text.words, readable(text.text)) for text in content.left_out],
    )


def marked_text(text: str, normal: str) -> str:
    """Return the words of `text`, those that are masked in its form `normal` in ``[-`` and ``-]``."""
    plain = plain_form(text)
    hunks = differences(plain, normal, len(plain))
    if not hunks:
        return text_of(plain.split())
    words = []
    for sign, segment in hunks[0].segments:
        if sign != "+":
            words.append(" ".join(segment) if sign == " " else f"[-{' '.join(segment)}-]")
    return text_of(words)


def _rule(project: Project, url: str) -> PageRule:
    """Return the page rule of a URL, with the meta of its request in the store, if there is one."""
    key, stored = project.page({"url": url})
    if project.store_path.exists():
        with project.open_store() as store:
            page = store.find(key)
            stored = stored if page is None else store.request(page)
    return rule_of_request(project.settings.rules, stored)


def _fetch(project: Project, url: str) -> Response:
    """Fetch a page with the project's downloader but without this add-on, so that nothing is recorded."""
    project.key(url)  # else the URL's error would be one of the start, in the log
    responses: list[Response] = []
    failures: list[Any] = []
    settings = project.scrapy_settings.copy()
    addons = settings.getdict("ADDONS")
    ours = [name for name in addons if load_object(name).__module__.startswith("scrapy_gp4c.")]
    others = {name: priority for name, priority in addons.items() if name not in ours}
    settings.set("ADDONS", others, "cmdline")
    settings.set("HTTPERROR_ALLOW_ALL", True, "cmdline")

    async def start(spider: Any) -> AsyncIterator[Request]:
        yield Request(url, responses.append, errback=failures.append, dont_filter=True)

    process = CrawlerProcess(settings)
    process.crawl(type("PageSpider", (project.spider_class,), {"start": start}))
    process.start()
    if not responses:
        reason = failures[0].getErrorMessage() if failures else "no answer"
        raise FetchError(f"cannot fetch {url}: {reason}")
    return responses[0]


def _show(compared: ComparedText, options: Namespace) -> None:
    words = counted(compared.words, "word")
    say(f"{compared.url}: {compared.kind}, {words} compared, {compared.masked:,} masked")
    if compared.rule is not None:
        say(f"by {compared.rule} of GP4C_RULES")
    if not 200 <= compared.status < 300:
        say(f"the answer is {compared.status}: a visit would compare nothing of it")
    elif not compared.has_text:
        missing = f"{NOT_WATCHED_REASON}: correct the rule; a crawl takes such an answer for doubtful"
        say(NO_TEXT if compared.rule is None else missing)
    if compared.is_cut:
        say("only the head of this long page is compared")
    say()
    for line in compared.text.split("\n"):
        say(line)
    for one in compared.left_out:
        say()
        say(f"left out, {one.reason}, {counted(one.words, 'word')}:")
        say(" ".join(one.text.split()))


TEXT = Action(
    "the text of a page that is compared, and what is left out or masked",
    _run,
    [option("url", metavar="URL", help="page to fetch, as the spider would; nothing is recorded"), JSON],
    ComparedText,
    _show,
)
