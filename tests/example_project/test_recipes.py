"""The recipes of docs/recipes.md, end to end: each prints or sends what its text says."""

import csv
import email.policy
import io
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c import visit
from tests.commands.test_commands import in_process, make_project
from tests.notices.test_sending import MailServer, mail_server
from tests.support.loopback import Site, crawl, html, path_of, stats
from tests.support.sources import ROOT

__all__ = ["mail_server"]
pytestmark = pytest.mark.slow


def recipe(title: str) -> dict[str, Any]:
    """Settings of a recipe, as the page has them."""
    text = (ROOT / "docs" / "recipes.md").read_text()
    (section,) = re.findall(rf"## {title}\n(.*?)(?=\n## |\Z)", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    settings: dict[str, Any] = names["custom_settings"]
    return settings


class Following(Spider):
    """Follows all links, and yields what a page says."""

    name = "news"
    start_urls: ClassVar[list[str]] = []

    def parse(self, response: Any) -> Iterator[Any]:
        """Yield the page and its links."""
        yield {"url": path_of(response.url), "changed": visit(response).changed}
        yield from response.follow_all(css="a")


class World:
    """A site, a store whose clock goes on by a fixed time per cycle, and the commands on it."""

    def __init__(
        self, site: Site, store: Path, project_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        self.site, self._store, self._directory = site, store, project_directory
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self._now_s = 1_700_000_000.0
        clock = SimpleNamespace(time=lambda: self._now_s)
        for module in ("cycle", "promises"):
            monkeypatch.setattr(f"scrapy_gp4c.crawling.{module}.time", clock)

    async def cycle(self, settings: dict[str, Any], hours: float, spider: type[Spider] = Following) -> Any:
        """Run a cycle, and let time pass until the next; returns its crawler."""
        self.site.log.clear()
        crawler = await crawl(spider, self._store, settings)
        self._now_s += hours * 3600.0
        return crawler

    def run(self, settings: dict[str, Any], action: str, *words: str) -> str:
        """Output of a command."""
        project = make_project(self._directory, self._store, self._monkeypatch, settings)
        self._capsys.readouterr()
        in_process(project, action, *words)
        printed = self._capsys.readouterr()
        return f"{printed.out}{printed.err}"


@pytest.fixture
def world(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> World:
    """A site, and a crawl of it."""
    return World(site, store_path, project_directory, monkeypatch, capsys)


@pytest_twisted.ensureDeferred
async def test_news(world: World) -> None:
    """Sections are visited every half hour; new articles are found there and listed."""
    settings, site = recipe("News"), world.site
    articles = [f"/article/{number}" for number in range(30)]
    site.pages.update({path: html(f"the article {path}, which stays as it is") for path in articles})
    site.pages["/section/city"] = html("city", links=articles)
    Following.start_urls = [site.url("/section/city")]
    await world.cycle(settings, 0.25)
    visits = []
    for quarter in range(8):
        if quarter == 5:
            site.pages["/article/late"] = html("late news")
            site.pages["/section/city"] = html("city now", links=[*articles, "/article/late"])
        await world.cycle(settings, 0.25)
        visits.append("/section/city" in site.fetched())
        if "/article/late" in site.fetched():
            break
    assert all(one or other for one, other in pairwise(visits))
    assert site.url("/article/late") in world.run(settings, "changes", "--new")


@pytest_twisted.ensureDeferred
async def test_prices(world: World) -> None:
    """A changed price is a line with both prices; advertisements are none, and callbacks are not called."""
    settings, site = recipe("Prices"), world.site
    paths = [f"/product/{number}" for number in range(3)]
    Following.start_urls = [site.url(path) for path in paths]
    for day in range(4):
        for path in paths:
            price = "12.90" if day == 3 and path == "/product/1" else "10.90"
            site.pages[path] = (
                f"<html><body><h1>A lamp</h1><span class='price'>{price} EUR</span>"
                f"<p>{'many words about lamps ' * 50}</p><p>buy {day} soaps</p></body></html>"
            )
        crawler = await world.cycle({**settings, "GP4C_BUDGET": 1.0}, 6)
        if day in (1, 2):
            assert crawler.stats.get_value("item_scraped_count", 0) == 0
    assert crawler.stats.get_value("item_scraped_count") == 1
    printed = world.run(settings, "changes", "--last", "1", "--diff", "--csv")
    (row,) = csv.DictReader(io.StringIO(printed))
    assert path_of(row["url"]) == "/product/1"
    assert "[-10.90-] {+12.90+} eur" in row["diff"].lower()


@pytest_twisted.ensureDeferred
async def test_terms_of_service(world: World, mail_server: MailServer) -> None:
    """All pages every day, and a mail with the words that changed."""
    settings, site = {**recipe("Terms of service"), "GP4C_NOTIFY": [mail_server.url]}, world.site
    paths = [f"/{name}/terms" for name in "abcdefgh"]
    Following.start_urls = [site.url(path) for path in paths]
    site.pages.update(
        {path: html(f"You may cancel {path} within 30 days of the purchase.") for path in paths}
    )
    for day in range(5):
        if day == 4:
            site.pages["/c/terms"] = html("You may cancel /c/terms within 14 days of the purchase.")
        await world.cycle(settings, 24)
        assert set(paths) <= site.fetched()
    (text,) = mail_server.mails
    mail = email.message_from_string(text, policy=email.policy.default)
    assert mail["Subject"] == "news: 1 changed"
    words = mail.get_content()
    assert site.url("/c/terms") in words
    assert "[-30-] {+14+} days" in words
    assert "[-30-] {+14+} days" in world.run(settings, "changes", "--since", "2020-01-01", "--diff")


@pytest_twisted.ensureDeferred
async def test_a_link_checker(world: World) -> None:
    """Broken links with the page that has them; what breaks and what answers again, as it happens."""
    settings, site = {**recipe("A link checker"), "GP4C_BUDGET": 1.0, "GP4C_GONE_AFTER": 2}, world.site
    site.pages.update({path: html(f"page {path}") for path in ("/a", "/b")})
    site.pages["/"] = html("start", links=["/a", "/b", "/broken"])
    Following.start_urls = [site.url("/")]
    await world.cycle(settings, 24)
    (broken,) = json.loads(world.run(settings, "failing", "--json"))["pages"]
    assert (broken["url"], broken["outcome"]) == (site.url("/broken"), "gone")
    assert broken["found_on"] == site.url("/")
    assert (broken["status"], broken["error"]) == (404, None)
    assert broken["since"] is not None
    page_a = site.pages.pop("/a")
    await world.cycle(settings, 24)
    assert site.url("/a") in world.run(settings, "changes", "--failing", "--back")
    await world.cycle(settings, 24)
    site.pages["/a"] = page_a
    for _ in range(4):
        await world.cycle(settings, 24)
        if site.url("/a") in world.run(settings, "changes", "--failing", "--back"):
            break
    assert "back" in world.run(settings, "changes", "--failing", "--back", "--match", "/a")
    failing = [page["url"] for page in json.loads(world.run(settings, "failing", "--json"))["pages"]]
    assert failing == [site.url("/broken")]


@pytest_twisted.ensureDeferred
async def test_a_list_of_urls(world: World, tmp_path: Path) -> None:
    """Imported URLs are fetched and handed to the callback, at most so many new ones a cycle."""
    settings, site = {**recipe("A list of URLs"), "GP4C_NEW_PAGES": 4}, world.site
    paths = [f"/listed/{number}" for number in range(6)]
    site.pages.update({path: html(f"page {path}") for path in paths})

    class Listed(Spider):
        name = "news"
        start_urls: ClassVar[list[str]] = []

        def parse(self, response: Any) -> Iterator[Any]:
            yield {"url": response.url}

    urls = tmp_path / "urls.txt"
    urls.write_text("".join(site.url(path) + "\n" for path in paths))
    assert "6" in world.run(settings, "import", str(urls), "--callback", "parse")
    first = await world.cycle(settings, 1, Listed)
    assert len(site.fetched() - {"/robots.txt"}) == 4
    assert first.stats.get_value("item_scraped_count") == 4
    await world.cycle(settings, 1, Listed)
    assert stats(first)["visited"] == 4
    assert len(site.fetched() & set(paths)) >= 2
