"""Whose store it is: paths by spider and arguments, owners, permissions, one line for what is wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider, version_info
from scrapy.crawler import Crawler
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.store_owner import owner_of, spider_arguments
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.notices.feeds import FEED_EVENTS
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import Credentials
from tests.support.loopback import ADDONS, Listed, Site, crawl, html, outcomes

SPIDERS = """
import scrapy

class Shop(scrapy.Spider):
    name = "shop"
    def parse(self, response): pass

class News(Shop):
    name = "news"

class Named(Shop):
    name = "named"
    def __init__(self, site="x", **arguments):
        super().__init__(**arguments)
        self.name = f"named_{site}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two spiders, but no scrapy.cfg."""
    package = tmp_path / "shops"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "spiders.py").write_text(SPIDERS)
    (package / "settings.py").write_text(
        'SPIDER_MODULES = ["shops.spiders"]\nADDONS = {"scrapy_gp4c.Addon": 500}\n'
        "TELNETCONSOLE_ENABLED = False\n"
    )
    return tmp_path


def run(project: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a scrapy command in a directory; exit code and output."""
    crawl_settings = {**os.environ, "PYTHONPATH": f"{project}:{Path(__file__).parents[2]}", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", *arguments],
        cwd=project, env=crawl_settings, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def with_config(project: Path) -> Path:
    """The same with a scrapy.cfg."""
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shops.settings\n")
    return project


@pytest.mark.slow
def test_the_path_has_spider_and_arguments(project: Path) -> None:
    """One store for each country, another for none; not for what is shared."""
    with_config(project)
    for arguments in ([], ["-a", "country=de"], ["-a", "country=a/b"], ["-a", "country=de", "-a", "level=3"]):
        code, output = run(project, "crawl", "shop", "-s", "GP4C_SHARED_ARGS=level", *arguments)
        assert code == 0, output
    names = sorted(path.name for path in (project / ".scrapy" / "gp4c").iterdir())
    assert names == ["shop", "shop,country=a%2Fb", "shop,country=de"]
    assert owner_of(project / ".scrapy" / "gp4c" / "shop,country=a%2Fb")["arguments"] == {"country": "a/b"}


@pytest.mark.slow
def test_without_a_project_it_is_in_the_state_of_the_user(project: Path) -> None:
    """As in a container or an egg of scrapyd; the log says where, and there is no traceback."""
    environment = {"SCRAPY_SETTINGS_MODULE": "shops.settings", "XDG_STATE_HOME": str(project / "state")}
    code, output = run(project, "crawl", "shop", **environment)
    assert code == 0, output
    assert (project / "state" / "scrapy-gp4c" / "shop" / "data.mdb").exists()
    assert f"Store {project / 'state' / 'scrapy-gp4c' / 'shop'}" in output
    assert "Traceback" not in output
    environment["XDG_STATE_HOME"] = ""
    assert run(project, "crawl", "shop", **environment)[0] == 0
    assert (project / ".scrapy" / "gp4c" / "shop" / "data.mdb").exists()


@pytest.mark.slow
def test_the_store_of_another_spider_is_one_line(project: Path) -> None:
    """A store names its owner to a second spider, and to another project's spider of the same name.

    Two projects of one Scrapyd share its directory, and most have a spider of a usual name.
    """
    with_config(project)
    code, output = run(project, "crawl", "shop", "-s", "GP4C_STORE=one", "-s", "BOT_NAME=first")
    assert code == 0
    assert f"Store {project / 'one'}: " in output  # absolute, as the directory of a service may be any
    for name, bot_name, names in (
        ("news", "first", "the spider 'shop', and this is 'news'"),
        ("shop", "second", "the spider 'shop' of 'first', and this is 'shop' of 'second'"),
    ):
        _, output = run(project, "crawl", name, "-s", "GP4C_STORE=one", "-s", f"BOT_NAME={bot_name}")
        assert [names in line for line in output.splitlines() if "CRITICAL" in line] == [True]
        assert "Traceback" not in output or version_info < (2, 19)
    assert run(project, "crawl", "shop", "-s", "GP4C_STORE=one")[0] == 0  # a script has no project
    for name in ("shop", "news"):
        assert run(project, "crawl", name, "-s", "GP4C_STORE=all/{spider}")[0] == 0
    assert sorted(path.name for path in (project / "all").iterdir()) == ["news", "shop"]


@pytest.mark.slow
def test_a_wrong_setting_is_told_once(project: Path) -> None:
    """In one line, without a traceback."""
    with_config(project)
    code, output = run(project, "crawl", "shop", "-s", "GP4C_BUGDET=0.1")
    assert code != 0
    assert output.count("did you mean GP4C_BUDGET?") == 1
    assert "Traceback" not in output


@pytest.mark.slow
def test_a_project_that_is_read_only_is_one_line(project: Path) -> None:
    """As in a container, where nobody has made the directory of Scrapy's data."""
    with_config(project)
    with (project / "scrapy.cfg").open("a") as file:
        file.write("[datadir]\ndefault = /proc/nowhere\n")
    code, output = run(project, "crawl", "shop")
    assert code != 0
    assert "cannot make /proc/nowhere: " in output
    assert "Set GP4C_STORE to" in output
    assert "Traceback" not in output or version_info < (2, 19)


@pytest.mark.parametrize("path", ["/data/{name}", "%(name)s", "$HOME/gp4c", "s3://bucket/{spider}"])
def test_a_path_in_which_something_else_would_stand_for_a_value(path: str) -> None:
    """It would be one directory with a strange name, for all spiders."""
    with pytest.raises(SettingsError, match=r"only \{spider\} and \{args\} are replaced"):
        Settings.load(ScrapySettings({"GP4C_STORE": path}))


async def test_a_store_for_a_group(store_path: Path, tmp_path: Path) -> None:
    """Its directory and files have the permissions that an operator wants, those of the last run, too."""
    umask = os.umask(0o077)
    try:
        for _ in range(2):  # the second one makes the file of the feed's events
            settings = {"GP4C_STORE_MODE": "0o770", "GP4C_FEED": str(tmp_path / "feed.json")}
            await crawl(Plain, store_path, settings)
    finally:
        os.umask(umask)
    assert store_path.stat().st_mode & 0o777 == 0o770
    assert {one.name: oct(one.stat().st_mode & 0o777) for one in store_path.iterdir()} == {
        one.name: "0o660" for one in store_path.iterdir()
    }
    assert (store_path / FEED_EVENTS).exists()


def test_long_names_and_arguments_are_shortened() -> None:
    """And still told apart; escaped, a name in Chinese has nine times its characters."""
    settings = Settings.load(ScrapySettings({"GP4C_STORE": "~/{spider}/{args}"}))
    paths = {settings.store_path("店" * 40 + end, {"urls": "x" * 300 + end}) for end in "ab"}
    assert len(paths) == len({path.parent for path in paths}) == 2
    assert all(len(name) < 130 for path in paths for name in path.parts)
    assert all(path.is_relative_to(Path.home()) for path in paths)


class Plain(Spider):
    """A spider that gets its arguments as attributes."""

    name = "plain"
    start_urls = ("data:,",)
    found: Any = None

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        self = super().from_crawler(crawler, *args, **kwargs)
        self.started = time.time()
        return self

    def parse(self, response: Any) -> None:
        self.spider_arguments = spider_arguments(self, Credentials())


class OwnSpider(Plain):
    """A spider with parameters of its own, one of which it does not keep."""

    name = "own"

    def __init__(self, country: str = "de", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.computed = "no argument"
        self.topic = kwargs.get("topic", f"of {time.time()}")


class Bare(Spider):
    """A spider without a name of its own, which does not keep its crawler."""

    start_urls = ("data:,",)

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        self = cls(*args, **kwargs)
        self.settings = crawler.settings
        return self

    def parse(self, response: Any) -> None:
        self.spider_arguments = spider_arguments(self, Credentials())


async def test_arguments_of_spiders(store_path: Path) -> None:
    """Arguments of spiders with an ``__init__`` and without; what their code computes makes no other store.

    Nor does a token, which is another in each run, and is written nowhere.
    """
    for kind, arguments, expected in (
        (OwnSpider, {}, {}),
        (OwnSpider, {"country": "de"}, {}),
        (OwnSpider, {"country": "fr", "topic": "x"}, {"country": "fr", "topic": "x"}),
        (Plain, {"page": "3", "_job": "17"}, {"page": "3"}),
        (Plain, {"page": "3", "api_token": "s3cret"}, {"page": "3"}),
    ):
        crawler = await crawl(kind, store_path / kind.name, **arguments)
        assert crawler.spider.spider_arguments == expected
    crawler = Crawler(OwnSpider, {"ADDONS": ADDONS, "GP4C_STORE": f"{store_path}/own"})
    await crawler.crawl("es")
    assert crawler.spider.spider_arguments == {"country": "es"}
    crawler = Crawler(Bare, {"ADDONS": ADDONS, "GP4C_STORE": f"{store_path}/bare"})
    await crawler.crawl("bare", page="3")
    assert crawler.spider.spider_arguments == {"page": "3"}


async def test_an_argument_of_today_is_one_warning(
    store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each date would have a store of its own, which knows no page; countries may have one each."""
    for arguments, is_told in (
        ({"date": "2026-01-31", "country": "de"}, False),
        ({"date": "2026-01-31", "country": "fr"}, False),
        ({"date": "2026-02-01", "country": "fr"}, True),
        ({"date": "2026-02-01", "country": "fr"}, True),
    ):
        caplog.clear()
        await crawl(Plain, store_path / "{spider}-{args}", **arguments)
        assert ("add it to GP4C_SHARED_ARGS" in caplog.text) is is_told


class Skipping(Spider):
    """Hears of unchanged pages by its errback."""

    name = "skipping"
    site: Site

    async def start(self) -> Any:
        from scrapy import Request

        self.seen: list[str] = []
        yield Request(self.site.url("/"), errback=self.failed, meta={"playwright_page": Closing(self.seen)})
        yield Request(self.site.url("/2"), meta={"playwright_page": Closing(self.seen)})

    def parse(self, response: Any) -> None:
        self.seen.append(response.meta["gp4c"]["outcome"])

    def failed(self, failure: Any) -> None:
        self.seen.append(failure.type.__name__)


class Closing:
    """A page of a browser."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    async def close(self) -> None:
        self._seen.append("closed")


async def test_a_skipped_page_releases_what_it_holds(site: Site, store_path: Path) -> None:
    """By the errback, or where there is none by closing the browser's page."""
    site.pages = {"/": html("a page"), "/2": html("another page")}
    settings = {"GP4C_SKIP_UNCHANGED": True, "GP4C_BUDGET": 1.0}
    await crawl(Skipping, store_path, settings, site=site)
    crawler = await crawl(Skipping, store_path, settings, site=site)
    assert sorted(crawler.spider.seen) == ["Unchanged", "closed"]
    assert crawler.stats.get_value("log_count/ERROR") is None


async def test_a_page_that_the_cache_has_validated_is_not_modified(
    site: Site, store_path: Path, tmp_path: Path
) -> None:
    """By a server that answered 304 to Scrapy's own cache."""

    def page(request: Any) -> bytes:
        if request.getHeader("If-None-Match") == '"1"':
            request.setResponseCode(304)
            return b""
        request.setHeader("ETag", '"1"')
        request.setHeader("Cache-Control", "max-age=0")
        return html("a page").encode()

    site.pages["/"] = page
    settings = {
        "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache"), "GP4C_BUDGET": 1.0,
        "HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy",
    }  # fmt: skip

    class Cached(Listed):
        name = "cached"
        start_urls = (site.url("/"),)

    for cycle, outcome in ((1, "first"), (2, "not_modified"), (3, "not_modified")):
        await crawl(Cached, store_path, settings)
        assert outcomes(store_path, cycle) == {"/": [outcome]}


@pytest.mark.slow
def test_the_stores_of_a_project_are_listed(project: Path) -> None:
    """With the spider and the arguments of each; a spider's only store is found without naming them.

    So is that of a spider that has set its name itself.
    """
    with_config(project)
    assert run(project, "crawl", "shop", "-a", "country=de")[0] == 0
    assert run(project, "crawl", "news")[0] == 0
    code, output = run(project, "gp4c", "stores")
    assert code == 0, output
    assert ["shop", "country=de"] in [line.split()[:2] for line in output.splitlines()]
    assert "news" in output
    code, output = run(project, "gp4c", "status", "shop")
    assert code == 0, output
    assert "arguments       country=de" in output
    assert run(project, "crawl", "named")[0] == 0
    code, output = run(project, "gp4c", "status", "named")
    assert code == 0, output
    assert "named_x" in output
    assert run(project, "crawl", "named", "-a", "site=de")[0] == 0
    code, output = run(project, "gp4c", "status", "named")
    assert code == 1
    assert "the spider has 2 stores: choose one" in output
