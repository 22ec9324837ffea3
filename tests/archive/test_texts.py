"""The archive of texts: what it keeps, what it lets go, and what it never mixes up."""

import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scrapy_gp4c.archive import texts as archive_texts
from scrapy_gp4c.archive.texts import SAMPLES, Compression, Texts, Version, train
from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.store.opening import ARCHIVE

KEYS = (0, 1, 2**63, 2**64 - 1)
FINGERPRINTS = st.sampled_from([0, 7, 2**64 - 1])
TEXT = st.text(st.characters(), max_size=30)


class Model(RuleBasedStateMachine):
    """The archive against a dictionary of lists, reopened at any moment."""

    @initialize(versions=st.integers(1, 3))
    def begin(self, versions: int) -> None:
        """Begin with an empty archive."""
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, ARCHIVE)
        self.versions = versions
        self.pages: dict[int, list[list[Any]]] = {}
        """Key -> [cycle, fingerprint, latest, before, text], the oldest first."""
        self.texts = Texts(self.path, versions)

    def teardown(self) -> None:
        if hasattr(self, "texts"):
            self.texts.close()
            self.folder.cleanup()

    @rule(
        key=st.sampled_from(KEYS), cycle=st.integers(1, 6), fingerprint=FINGERPRINTS, text=TEXT,
        before=st.none() | st.integers(1, 5),
    )  # fmt: skip
    def keep(self, key: int, cycle: int, fingerprint: int, text: str, before: int | None) -> None:
        """Keep a version: what is of this cycle or later goes, as a run that was killed had left it."""
        self.texts.add(Version(key, cycle, fingerprint, before, text))
        older = [one for one in self.pages.get(key, []) if one[0] < cycle]
        self.pages[key] = [*older, [cycle, fingerprint, fingerprint, before, text]][-self.versions :]

    @rule(key=st.sampled_from(KEYS), cycle=st.integers(1, 6), latest=FINGERPRINTS)
    def move(self, key: int, cycle: int, latest: int) -> None:
        """Note another fingerprint of a version."""
        self.texts.set_latest(key, cycle, latest)
        for one in self.pages.get(key, []):
            if one[0] == cycle:
                one[2] = latest

    @rule(keys=st.lists(st.sampled_from(KEYS)))
    def remove(self, keys: list[int]) -> None:
        self.texts.remove(keys)
        for key in keys:
            self.pages.pop(key, None)

    @rule()
    def reopen(self) -> None:
        self.texts.close()
        self.texts = Texts(self.path, self.versions)

    @invariant()
    def is_as_told(self) -> None:
        """Every version is found by its cycle and latest fingerprint alone; pairs are those noted."""
        if not hasattr(self, "texts"):
            return
        for key in KEYS:
            by_cycle = {one[0]: one for one in self.pages.get(key, [])}
            for cycle in range(1, 7):
                for value in (0, 7, 2**64 - 1):
                    frame = self.texts.frame(key, cycle, value)
                    version = by_cycle.get(cycle)
                    is_it = version is not None and version[2] == value
                    assert (frame is not None) == is_it
                    assert frame is None or self.texts.text(frame) == version[4]
                    pair = self.texts.pair(key, cycle, value)
                    has_both = version is not None and version[1] == value and version[3] in by_cycle
                    assert pair == ((by_cycle[version[3]][4], version[4]) if has_both else None)
        assert self.texts.count() == sum(map(len, self.pages.values()))


Model.TestCase.settings = settings(
    max_examples=25, stateful_step_count=15, suppress_health_check=[HealthCheck.too_slow]
)
TestModel = Model.TestCase


def text_of(number: int, words: int = 300) -> str:
    """A text that does not compress well."""
    return " ".join(f"{(number * 7919 + word) * 2654435761 % 2**40:x}" for word in range(words))


@pytest.mark.parametrize("pages", [300, 1500])
def test_the_file_never_grows_beyond_its_bound(tmp_path: Path, pages: int) -> None:
    """Old versions go first, then the texts of pages not renewed for long; the last one is there."""
    path, most = tmp_path / ARCHIVE, 2**20
    with Texts(path, 3, most) as texts:
        for number in range(1500):
            key = number % pages
            texts.add(Version(key, number, number, None, text_of(number)))
            assert path.stat().st_size <= most
            assert texts.frame(key, number, number) is not None
        assert texts.count() > 300
    with closing(sqlite3.connect(path)) as file:
        cycles = [one for (one,) in file.execute("SELECT cycle FROM texts ORDER BY cycle")]
        assert cycles[-1] == 1499
        assert cycles[-300:] == list(range(1200, 1500))
        assert pages == 300 or cycles == list(range(cycles[0], 1500))


def test_a_text_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    """And takes no other one with it for good."""
    with Texts(tmp_path / ARCHIVE, 2, 2**20) as texts:
        texts.add(Version(1, 1, 1, None, text_of(1, 400_000)))
        assert texts.count() == 0
        texts.add(Version(1, 2, 1, None, "small"))
        assert texts.count() == 1


def test_texts_of_a_site_share_a_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is trained on the first, kept, and needed by nobody who opens the file again; one is enough."""
    monkeypatch.setattr(archive_texts, "SAMPLES", 40)
    common = text_of(0, 120)
    path = tmp_path / ARCHIVE
    with Texts(path) as texts:
        for number in range(41):
            texts.add(Version(number, 1, 1, None, f"{common} {text_of(number + 1, 10)}"))
        if texts._training is not None:  # a thread trains meanwhile, and may be done
            texts._training._trained.result()
        texts.add(Version(99, 1, 1, None, common))
        assert texts._training is None
        small = len(texts.frame(99, 1, 1) or b"")
    assert small < 0.2 * len(Compression([]).compressed(common))
    with Texts(path) as texts, Texts(path, readonly=True) as beside:
        assert texts._training is None
        for opened in (texts, beside):
            frames = [opened.frame(number, 1, 1) for number in (0, 99)]
            assert [opened.text(frame)[: len(common)] for frame in frames if frame] == [common, common]
        texts.add(Version(100, 1, 1, None, common))
        assert len(texts.frame(100, 1, 1) or b"") == small


def test_texts_with_nothing_in_common_have_no_dictionary() -> None:
    """zstd finds none in so little, which is no error."""
    assert train([b""] * SAMPLES) is None


@given(st.binary(max_size=60), st.integers(0, 59), st.integers(1, 255))
@example(b"", 4, 4)  # the flag of the checksum
@example(b"", 5, 132)  # a size of 0
def test_a_damaged_frame_is_never_a_text(extra: bytes, position: int, flip: int) -> None:
    """Flipped bits and foreign bytes are told, or change nothing."""
    compressed = Compression([])
    text = "a text that is long enough to be compressed " * 3
    frame = bytearray(compressed.compressed(text))
    position %= len(frame)
    frame[position] ^= flip
    with suppress(ValueError):  # a few bits have no meaning
        assert compressed.text(bytes(frame)) == text
    huge = b"\x28\xb5\x2f\xfd\xe4" + (2**40).to_bytes(8, "little") + b"\1\0\0"
    for bad in (extra, huge, "no bytes", 3):
        with pytest.raises(ValueError, match=r"no text can be read|announces"):
            compressed.text(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no dictionary can be read"):
        compressed.use(bytes.fromhex("37a430ec00112233445566"))


def test_files_that_are_no_archive_are_left_alone(tmp_path: Path) -> None:
    """Missing, foreign, newer, damaged: one error each that says what helps."""
    path = tmp_path / ARCHIVE
    with pytest.raises(ArchiveError, match="GP4C_ARCHIVE = True"):
        Texts(path, readonly=True)
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE x (y)")
    with pytest.raises(ArchiveError, match="another program"):
        Texts(path)
    path.unlink()
    Texts(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(ArchiveError, match=r"format 99.*Delete it"):
        Texts(path)
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(ArchiveError, match=r"is damaged: .*Delete it"):
        Texts(path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArchiveError, match="archive of texts"):
        Texts(tmp_path / "folder")


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is created then but an empty file."""
    monkeypatch.setattr(archive_texts, "_missing", ImportError("No module named 'zstandard'"))
    with pytest.raises(ArchiveError, match=r"pip install 'scrapy-gp4c\[archive\]'"):
        Texts(tmp_path / ARCHIVE)
