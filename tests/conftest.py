"""Fixtures of the crawl tests."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import pytest_twisted

if TYPE_CHECKING:
    from tests.support.loopback import Site

# A shell lets what it starts in the background ignore Ctrl-C, and children inherit that: those of the tests
# are to be interrupted all the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files of tests are in memory where there is room: a small crawl waits for a disk for a third of its time.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir():
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize >= 4 * 2**30 and not room.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked anew


# Every run takes the same examples, as all that is random comes from a seed; `make fuzz` looks for new ones.
hypothesis.settings.register_profile("quick", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=150)
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage neither while modules are imported nor, later, among what they have made."""
    # It looks through all that is imported, for each line of the stack: soon done as long as that is little.
    importlib.import_module("scrapy.core.downloader.contextfactory")

    gc.disable()
    outcome = yield
    gc.freeze()
    gc.enable()
    return outcome


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the reactor run every test that is a coroutine."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        pytest_twisted.ensureDeferred(item.obj)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Append seconds and processor seconds of every test to the file that ``GP4C_TEST_TIMES`` names."""
    path, times, start_s = os.environ.get("GP4C_TEST_TIMES"), os.times(), time.monotonic()
    outcome = yield
    if path:
        processor_s = sum(now - before for now, before in zip(os.times()[:4], times[:4], strict=True))
        with open(path, "a") as file:
            file.write(f"{time.monotonic() - start_s:.2f}\t{processor_s:.2f}\t{item.nodeid}\n")
    return outcome


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes of tests a processor: tests of crawls mostly wait."""
    return 2 * (os.cpu_count() or 1)


SPIDERS = """
import scrapy

class News(scrapy.Spider):
    name = "news"
    custom_settings = {"GP4C_WARMUP_VISITS": 1}
    def parse_article(self, response): pass

class Other(scrapy.Spider):
    name = "other"
"""


@pytest.fixture(scope="module")
def project_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Scrapy project with two spiders."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "scrapy.cfg").write_text("[settings]\ndefault = monitored_site.settings\n")
    package = directory / "monitored_site"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("SPIDER_MODULES = ['monitored_site.spiders']\n")
    (package / "spiders.py").write_text(SPIDERS)
    return directory


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield an empty site on 127.0.0.1; fill its `pages`."""
    from tests.support.loopback import (
        Listed,  # imports the reactor, which pytest-twisted installs after this file
        Site,
    )

    Listed.start_urls = []  # a test before this one has set them
    served = Site()
    yield served
    pytest_twisted.blockon(served.close())


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Directory for the store of a test."""
    return tmp_path / "store"
