"""Where objects lie: in the ledger and behind URLs, by one suite; no message has a secret of the URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import LedgerDamagedError, LedgerError
from scrapy_gp4c.distributed.objects import CHUNK, Place
from scrapy_gp4c.distributed.places import IN_LEDGER, Blobs, Remote, place_of
from scrapy_gp4c.errors import SettingsError
from tests.support.postgres import NEEDS_POSTGRES

PLACES = ("ledger", "file", "memory")


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Makes a place of a kind."""

    def make(kind: str) -> Place:
        if kind == "ledger":
            return place_of(None, request.getfixturevalue("ledger"))
        url = f"file://{tmp_path}/objects" if kind == "file" else f"memory://{uuid4().hex}"
        calls: Any = None
        return place_of(url, calls)

    return make


def kinds() -> Any:
    """All kinds of places, as parameters."""
    marks = {"ledger": NEEDS_POSTGRES}
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=marks.get(kind, ())) for kind in PLACES]
    )  # fmt: skip


@kinds()
def test_objects_are_what_was_written(made: Callable[[str], Place], kind: str) -> None:
    """Of any number of chunks, also none; written again, the last counts; deleted, there is none."""
    place = made(kind)
    whole, rest = bytes(range(256)) * (CHUNK // 256), b"rest"
    for number, chunks in enumerate(([], [rest], [whole], [whole, whole, rest])):
        place.write(f"gp4c/7/{number}", iter(chunks))
    assert [b"".join(place.read(f"gp4c/7/{number}")) for number in range(4)] == [
        b"", rest, whole, whole + whole + rest,
    ]  # fmt: skip
    place.write("gp4c/7/3", iter([rest]))
    assert b"".join(place.read("gp4c/7/3")) == rest
    place.delete("gp4c/7/3")
    place.delete("gp4c/7/3")
    with pytest.raises(LedgerDamagedError, match="object gp4c/7/3 is missing at"):
        b"".join(place.read("gp4c/7/3"))


@kinds()
def test_names_are_those_of_a_folder(made: Callable[[str], Place], kind: str) -> None:
    """Not of one whose name merely begins so; none is an empty folder."""
    place = made(kind)
    for name in ("gp4c/7/one", "gp4c/7/other", "gp4c/70/one"):
        place.write(name, iter([b"x"]))
    assert sorted(place.names("gp4c/7/")) == ["gp4c/7/one", "gp4c/7/other"]
    assert place.names("gp4c/9/") == []


@NEEDS_POSTGRES
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=5))
def test_blobs_keep_any_bytes(ledger: Connection, chunks: list[bytes]) -> None:
    """Chunk by chunk."""
    place = Blobs(ledger)
    place.write("any", iter(chunks))
    assert list(place.read("any")) == (chunks or [b""])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nowhere://me:hush@host/folder", "nowhere://"),
        ("nowhere://host/folder?token=hush", "nowhere://host/folder"),
    ],
)
def test_urls_that_cannot_be_used_hide_their_secrets(url: str, shown: str) -> None:
    """One error that names what it expected."""
    with pytest.raises(SettingsError) as told:
        Remote(url)
    assert "expected a URL that fsspec knows" in str(told.value)
    assert shown in str(told.value)
    assert "hush" not in str(told.value)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """What, where and why; a half-written object is nobody's."""
    (tmp_path / "file").write_text("no folder")
    place = Remote(f"file://{tmp_path}/file")
    with pytest.raises(LedgerError, match=r"object gp4c/7/one at file://.* cannot be written: .*Error"):
        place.write("gp4c/7/one", iter([b"x"]))
    assert place_of(None, None).label == IN_LEDGER  # type: ignore[arg-type] # no link is needed
