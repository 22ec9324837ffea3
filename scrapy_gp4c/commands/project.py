"""A Scrapy project as commands need it: a spider's settings, its store, and keys of its pages."""

from functools import cached_property
from pathlib import Path
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.settings import Settings as ScrapySettings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.project import inside_project

from scrapy_gp4c.crawling.requests import IDENTIFYING, check_stored, page_key
from scrapy_gp4c.crawling.store_owner import owner_of
from scrapy_gp4c.errors import SettingsError, StoreError, UnknownPageError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import USUAL, Sizes, Store, open_store
from scrapy_gp4c.store.records import StoredRequest


class Project:
    """A spider of the project with the settings that its crawl would have, and access to its store."""

    def __init__(self, settings: ScrapySettings, spider_name: str) -> None:
        """Load the spider's class for its own settings; raises SettingsError."""
        loader = get_spider_loader(settings)
        if not loader.list() and not inside_project():
            raise SettingsError("there is no Scrapy project here: go to the directory that has scrapy.cfg")
        if spider_name not in loader.list():
            raise SettingsError(
                f"there is no spider {spider_name!r}; the project's spiders are: "
                f"{', '.join(sorted(loader.list())) or 'none'}"
            )
        self.scrapy_settings = settings
        self.spider_class = loader.load(spider_name)
        self._crawler = Crawler(self.spider_class, settings)
        # Before the add-on's settings: with fetchers, the owner of the crawl has no delay.
        self.delay_s = self._crawler.settings.getfloat("DOWNLOAD_DELAY")
        self._crawler.addons.load_settings(self._crawler.settings)
        self.settings = Settings.load(self._crawler.settings)
        self.credentials = Credentials(self.settings.secret_params)
        self._name = spider_name
        fingerprinter = load_object(self._crawler.settings["REQUEST_FINGERPRINTER_CLASS"])
        self._fingerprint = build_from_crawler(fingerprinter, self._crawler).fingerprint

    @cached_property
    def store_path(self) -> Path:
        """Directory of the spider's store, computed when first read, as a fetcher has none."""
        path = self.settings.store_path(self._name)
        return path if path.exists() or len(self._others) != 1 else self._others[0]

    @cached_property
    def _others(self) -> list[Path]:
        """Other stores of the spider: of crawls with arguments, or where the spider changed its name."""
        paths = self.settings.store_paths()
        return [path for path in paths if owner_of(path).get("command_name") == self._name]

    def open_store(self, *, readonly: bool = True) -> Store:
        """Open the spider's store; readers work beside a running crawl."""
        if readonly and not self.store_path.exists() and len(self._others) > 1:
            raise StoreError(
                f"the spider has {len(self._others)} stores: choose one of them by -s GP4C_STORE=PATH: "
                + ", ".join(map(str, self._others))
            )
        return open_store(self.store_path, readonly=readonly, sizes=self.sizes)

    sizes: Sizes = USUAL
    """Batch sizes of the store."""

    def key(self, url: str) -> int:
        """Return the page key of a URL; raises UnknownPageError for text that is no URL."""
        try:
            return self.page({"url": url})[0]
        except ValueError as error:
            raise UnknownPageError(
                f"{url!r} is no URL of a page, such as https://example.com/a: {error}"
            ) from None

    def page(self, stored: StoredRequest) -> tuple[int, StoredRequest]:
        """Return key and normalised form, without secrets, of a stored request; raises ValueError if bad."""
        check_stored(stored)
        url = Request(stored["url"]).url
        scheme, _, address = url.partition("://")
        if scheme not in ("http", "https") or not address.partition("/")[0]:
            raise ValueError(f"expected an http or https URL; found {stored['url']!r}")
        stored = self.credentials.stripped({**stored, "url": url})
        names = [name for name in (*IDENTIFYING, "headers") if name in stored]
        arguments: Any = {name: stored[name] for name in names}
        return page_key(self._fingerprint(Request(stored["url"], **arguments))), stored
