"""Objects: one suite for all places where they may lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scrapy_gp4c.distributed import objects
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import FencedError, LedgerDamagedError, LedgerError
from scrapy_gp4c.distributed.objects import CHUNK, Owned, Place, Stored
from scrapy_gp4c.distributed.places import Blobs, Remote, place_of
from scrapy_gp4c.errors import SettingsError
from tests.support.ledgers import joined, killed, taken

PLACES = ("blobs", "folder", "memory")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, ledger: Connection, tmp_path: Path) -> Place:
    """One of the places."""
    urls = {"blobs": None, "folder": f"file://{tmp_path}/objects", "memory": f"memory://{tmp_path}"}
    return place_of(urls[request.param], ledger)


@pytest.fixture
def owned(ledger: Connection) -> Owned:
    """Shard 1, held by a worker."""
    return Owned(1, taken(ledger, joined(ledger), 1).token)


def file_of(folder: Path, content: bytes) -> Path:
    """A file of this content."""
    path = folder / "given"
    path.write_bytes(content)
    return path


def corrupt(place: Place, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change an object where it lies, as a disk would."""
    content = change(b"".join(place.read(name)))
    place.write(name, (content[start : start + CHUNK] for start in range(0, len(content), CHUNK)))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7])
def test_what_was_stored_comes_back(
    ledger: Connection, place: Place, owned: Owned, tmp_path: Path, size: int
) -> None:
    """Of any size, empty and big ones too."""
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    stored = objects.put(ledger, place, owned, "snapshot", 3, file_of(tmp_path, content))
    assert ledger.call(objects.registered, 1) == [stored]
    assert ledger.call(objects.registered) == [stored]
    assert ledger.call(objects.registered, 2) == []
    objects.get(place, stored, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert stored[1:6] == (1, "snapshot", 3, owned.token, size)


def test_the_same_again_is_the_same(ledger: Connection, place: Place, owned: Owned, tmp_path: Path) -> None:
    """As after an answer that was lost; other contents are another object."""
    path = file_of(tmp_path, b"one")
    first = objects.put(ledger, place, owned, "cycle", 3, path)
    assert objects.put(ledger, place, owned, "cycle", 3, path) == first
    second = objects.put(ledger, place, owned, "cycle", 3, file_of(tmp_path, b"two"))
    assert ledger.call(objects.registered, 1) == [first, second]
    objects.get(place, first, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"one"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda content: content[:-1], "found 2097151"),
        (lambda content: content[:CHUNK], "found 1048576"),
        (lambda content: content + b"x", "found more"),
        (lambda content: content[:99] + b"x" + content[100:], "found 2097152 others"),
    ],
)
def test_a_damaged_object_is_named(
    ledger: Connection,
    place: Place,
    owned: Owned,
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    found: str,
) -> None:
    """Torn, grown or changed: no file is left of it, nor is one that was there before replaced."""
    stored = objects.put(ledger, place, owned, "cycle", 3, file_of(tmp_path, bytes(2 * CHUNK)))
    corrupt(place, stored.name, change)
    back = tmp_path / "back"
    back.write_bytes(b"before")
    with pytest.raises(LedgerDamagedError, match=f"object {stored.name} at .* is damaged: .*{found}"):
        objects.get(place, stored, back)
    assert back.read_bytes() == b"before"
    assert {path.name for path in tmp_path.iterdir()} <= {"back", "given", "objects"}


def test_a_missing_object_is_named(ledger: Connection, place: Place, owned: Owned, tmp_path: Path) -> None:
    """And deleting what is not there is no trouble."""
    stored = objects.put(ledger, place, owned, "cycle", 3, file_of(tmp_path, b"one"))
    for _ in range(2):
        place.delete(stored.name)
    with pytest.raises(LedgerDamagedError, match=f"object {stored.name} is missing at"):
        objects.get(place, stored, tmp_path / "back")


class Torn:
    """A place that dies with its worker in the middle of an object."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.label = place.label

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write half of it."""
        self._place.write(name, [next(chunks)])
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> object:
        return getattr(self._place, name)


def test_what_is_half_written_is_no_object(
    ledger: Connection, place: Place, owned: Owned, tmp_path: Path
) -> None:
    """It is not registered, the next one of its name is whole, and what is left over goes."""
    path = file_of(tmp_path, bytes(3 * CHUNK))
    with pytest.raises(KeyboardInterrupt):
        objects.put(ledger, Torn(place), owned, "snapshot", 3, path)
    assert ledger.call(objects.registered) == []
    assert objects.clean(ledger, place, owned) == 1
    with pytest.raises(KeyboardInterrupt):
        objects.put(ledger, Torn(place), owned, "snapshot", 3, path)
    stored = objects.put(ledger, place, owned, "snapshot", 3, path)
    objects.get(place, stored, tmp_path / "back")
    assert objects.clean(ledger, place, owned) == 0


def test_who_lost_its_shard_registers_nothing(
    ledger: Connection, place: Place, owned: Owned, tmp_path: Path
) -> None:
    """What it wrote is cleared by its heir, who never deletes what others may still register."""
    ledger.call(lambda tx: tx.execute("UPDATE gp4c.worker SET expires = clock_timestamp() - interval '1 s'"))
    heir = Owned(1, taken(ledger, joined(ledger, "two"), 1).token)
    path = file_of(tmp_path, b"one")
    with pytest.raises(FencedError):
        objects.put(ledger, place, owned, "snapshot", 3, path)
    assert ledger.call(objects.registered) == []
    later = objects.put(ledger, place, heir, "snapshot", 3, path)
    with pytest.raises(FencedError):
        objects.clean(ledger, place, owned)
    assert objects.clean(ledger, place, heir) == 1
    objects.get(place, later, tmp_path / "back")


def test_the_newest_snapshot_and_all_cycles_stay(
    ledger: Connection, place: Place, owned: Owned, tmp_path: Path
) -> None:
    """History is never deleted; other shards' objects are not touched."""
    other = Owned(2, taken(ledger, joined(ledger, "two"), 2).token)
    others = objects.put(ledger, place, other, "snapshot", 1, file_of(tmp_path, b"other"))
    kept: list[Stored] = []
    for cycle in (1, 2, 3):
        path = file_of(tmp_path, b"cycle %d" % cycle)
        kept.append(objects.put(ledger, place, owned, "cycle", cycle, path))
        newest = objects.put(ledger, place, owned, "snapshot", cycle, path)
    assert objects.clean(ledger, place, owned) == 2
    assert ledger.call(objects.registered, 1) == [*kept, newest]
    for stored in (*kept, newest, others):
        objects.get(place, stored, tmp_path / "back")


def test_an_object_of_another_place_is_told(
    ledger: Connection, place: Place, owned: Owned, tmp_path: Path
) -> None:
    """With both places and the setting."""
    stored = objects.put(ledger, place, owned, "cycle", 1, file_of(tmp_path, b"one"))
    elsewhere = Remote(f"file://{tmp_path}/elsewhere")
    with pytest.raises(LedgerDamagedError, match=r"looked for at file://.*/elsewhere: set GP4C_OBJECTS"):
        objects.get(elsewhere, stored, tmp_path / "back")


def test_a_place_that_nobody_knows_is_told() -> None:
    """Without the credentials that its URL may have."""
    with pytest.raises(SettingsError, match="expected a URL that fsspec knows") as raised:
        Remote("nowhere://user:hush@host/folder?token=hush")
    assert "hush" not in str(raised.value)


def test_a_place_that_takes_nothing_is_told(ledger: Connection, owned: Owned, tmp_path: Path) -> None:
    """A file where the folder should be: nothing is registered."""
    (tmp_path / "objects").write_bytes(b"")
    with pytest.raises(LedgerError, match=r"cannot be written: .*Check that place"):
        objects.put(
            ledger, Remote(f"file://{tmp_path}/objects"), owned, "cycle", 1, file_of(tmp_path, b"one")
        )
    assert ledger.call(objects.registered) == []


def test_chunks_are_rows(ledger: Connection, owned: Owned, tmp_path: Path) -> None:
    """Of 1 MiB, in the ledger: no transaction has more."""
    stored = objects.put(ledger, Blobs(ledger), owned, "cycle", 1, file_of(tmp_path, bytes(2 * CHUNK + 1)))
    rows = ledger.call(
        lambda tx: tx.execute("SELECT octet_length(body) FROM gp4c.blob ORDER BY part").fetchall()
    )
    assert rows == [(CHUNK,), (CHUNK,), (1,)]
    assert stored.place == "the ledger"
    killed(ledger, joined(ledger, "two"))
