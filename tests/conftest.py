"""Fixtures of the crawl tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_twisted

if TYPE_CHECKING:
    from tests.support.loopback import Site

# A shell lets what it starts in the background ignore Ctrl-C, and children inherit that: those of the tests
# are to be interrupted all the same.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield an empty site on 127.0.0.1; fill its `pages`."""
    from tests.support.loopback import (
        Site,  # imports the reactor, which pytest-twisted installs after this file
    )

    served = Site()
    yield served
    pytest_twisted.blockon(served.close())


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Directory for the store of a test."""
    return tmp_path / "store"
