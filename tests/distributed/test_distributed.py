"""The room as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.sources import MODULES


@pytest.mark.parametrize("library", ["psycopg", "fsspec"])
def test_a_missing_library_is_told(library: str) -> None:
    """With the extra to install; all else works without it."""
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import scrapy_gp4c.scheduler, scrapy_gp4c.commands\n"
        "from scrapy_gp4c.errors import SettingsError\n"
        "try:\n    import scrapy_gp4c.distributed.ledger\n"
        "except SettingsError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"needs the library {library}" in done.stdout
    assert "pip install 'scrapy-gp4c[distributed]'" in done.stdout


def test_no_worker_asks_its_wall_clock() -> None:
    """Times are the server's, or those of clocks that nobody sets."""
    room = {name: path for name, path in MODULES.items() if name.startswith("scrapy_gp4c.distributed")}
    assert len(room) > 10
    for name, path in room.items():
        text = path.read_text(encoding="utf-8")
        assert "time.time(" not in text, name
        assert "datetime" not in text, name
        for own in ("def now()", "lease.now()", "clock.now()"):
            text = text.replace(own, "")
        assert "now()" not in text, name
