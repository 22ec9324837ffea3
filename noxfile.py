"""The versions that are claimed: `make matrix` runs the tests with each that this machine has."""

from __future__ import annotations

import re
from configparser import ConfigParser

import nox

nox.options.error_on_missing_interpreters = False
nox.options.default_venv_backend = "venv"

FAST = (
    "tests/test_addon.py", "tests/test_scheduler.py", "tests/test_robots_txt.py",
    "tests/crawling/test_deliveries.py", "tests/crawling/test_middlewares_of_others.py",
    "tests/crawling/test_scrapy_internals.py", "tests/crawling/test_spiders_of_others.py",
    "tests/crawling/test_spiders_requests.py", "tests/crawling/test_store_owner.py",
)  # fmt: skip
"""Tests of what depends on Scrapy."""
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-twisted", "zstandard")


def lowest() -> list[str]:
    """The lowest versions of all requirements."""
    config = ConfigParser()
    config.read("setup.cfg")
    return re.sub(r">=", "==", config["options"]["install_requires"]).split()


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def newest(session: nox.Session) -> None:
    """All fast tests with the newest versions."""
    session.install("-e", ".[test]")
    session.run("pytest", "-m", "not slow", "-n", "auto", "--dist", "loadfile")


@nox.session(python="3.11")
@nox.parametrize("scrapy", MINORS := ("2.15.0", "2.16.0", "2.17.0", "2.18.0", "2.19.0"))
def versions(session: nox.Session, scrapy: str) -> None:
    """Tests of what depends on Scrapy, with each of its minor versions."""
    session.install("-e", ".", f"scrapy=={scrapy}", *TOOLS)
    session.run("pytest", "-m", "not slow", *FAST)


@nox.session(python="3.11")
def pinned(session: nox.Session) -> None:
    """The same with the lowest versions of all requirements."""
    session.install("-e", ".", *lowest(), *TOOLS)
    session.run("pytest", "-m", "not slow", *FAST)
