"""Revisit, in every cycle, the pages of a Scrapy crawl that most likely changed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_gp4c import errors
    from scrapy_gp4c.addon import Addon
    from scrapy_gp4c.crawling.cycle import visit
    from scrapy_gp4c.crawling.visits import Unchanged
    from scrapy_gp4c.notices.events import PageChange

__version__ = "1.0.0rc1"
__all__ = ["Addon", "PageChange", "Unchanged", "__version__", "errors", "visit"]


_MODULES = {
    "Addon": "scrapy_gp4c.addon",
    "PageChange": "scrapy_gp4c.notices.events",
    "Unchanged": "scrapy_gp4c.crawling.visits",
    "visit": "scrapy_gp4c.crawling.cycle",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `training` and the commands need neither Scrapy's engine nor its reactor.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name == "errors":
        return import_module("scrapy_gp4c.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
