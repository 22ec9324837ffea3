"""Archive of a store: the last versions of every page as compressed text, in a SQLite file.

A version has its page's key, the cycle of its first visit and the fingerprint of its last visit. A reader
names all three and gets that text or none, so that neither a killed crawl nor a restored store mixes up
versions. A crawl writes a version before it records the visit.

Texts are zstd frames. Their dictionary is trained on the first texts: pages of a site have much in common
that no single page repeats. A frame names its dictionary, so that every dictionary is kept.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Self

from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.sqlite_files import SqliteKind

try:
    import zstandard
except ImportError as error:  # raised by whoever needs it, with what to install
    _missing: ImportError | None = error
else:
    _missing = None

LEVEL: Final = 3
DICTIONARY_BYTES: Final = 65_536
SAMPLES: Final = 256
"""Texts that the dictionary is trained on; earlier frames have no dictionary."""
SAMPLE_BYTES: Final = 2**21
"""Bytes of all samples together: bounds the time of training."""
MAX_SAMPLE_BYTES: Final = 32_768
MAX_TEXT_BYTES: Final = 2**26
"""Longest text; a frame that announces more is damaged."""
_BATCH: Final = 32
_RESERVE_BYTES: Final = 65_536
"""Spare room for the pages of the file that one more text touches."""
_SIGN: Final = 2**63
"""Offset of keys and fingerprints in the file, because SQLite's integers are signed."""
# `older`: ids of texts that are not their page's newest. AUTOINCREMENT never repeats an id, so that an id
# whose text is gone does no harm there.
_TABLES: Final = """
CREATE TABLE texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL, cycle INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL, latest INTEGER NOT NULL, before INTEGER, text BLOB NOT NULL);
CREATE UNIQUE INDEX by_page ON texts (key, cycle);
CREATE TABLE older (id INTEGER PRIMARY KEY);
CREATE TABLE dictionaries (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""
FILE: Final = SqliteKind(
    "archive of texts",
    ArchiveError,
    application=int.from_bytes(b"gp4t", "big"),
    version=1,
    tables=_TABLES,
    how_made="set GP4C_ARCHIVE = True, and the crawl keeps texts.",
    synchronous="NORMAL",  # a power cut may cost the last versions, no other one
)


class Version(NamedTuple):
    """A version of a page: what it said from one change to the next."""

    key: int
    """Key of the page, uint64."""
    cycle: int
    """Cycle of the version's first visit."""
    fingerprint: int
    """Fingerprint of the text, uint64."""
    before: int | None
    """Cycle of the previous version, if the archive has it."""
    text: str


class Texts:
    """Archive of versions as text, open for writing (by the crawl that writes to the store) or reading."""

    def __init__(
        self, path: Path, versions: int = 1, most_bytes: int | None = None, *, readonly: bool = False
    ) -> None:
        """Open or create the archive's file; raises ArchiveError.

        ``versions``: number of versions kept of each page; ``most_bytes``: largest size of the file, None: no
        limit.
        """
        self.path, self._versions, self._most_bytes = path, versions, most_bytes
        self._connection = FILE.connect(path, readonly=readonly)
        self._training: Training | None = None
        try:
            with FILE.translated(path):
                rows = self._connection.execute("SELECT content FROM dictionaries ORDER BY rowid").fetchall()
                self._page_bytes = self._connection.execute("PRAGMA page_size").fetchone()[0]
                self._compression = Compression([content for (content,) in rows])
        except BaseException:
            self._connection.close()
            raise
        if not (readonly or rows):
            self._training = Training()

    def close(self) -> None:
        if self._training is not None:
            self._training.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- reading

    def frame(self, key: int, cycle: int, latest: int) -> bytes | None:
        """Return a version's compressed text by page `key`, first cycle and last fingerprint, or None."""
        with FILE.translated(self.path):
            row = self._connection.execute(
                "SELECT text FROM texts WHERE key = ? AND cycle = ? AND latest = ?",
                (key - _SIGN, cycle, latest - _SIGN),
            ).fetchone()
        return None if row is None else row[0]

    def text(self, frame: bytes) -> str:
        """Decompress a frame of this archive; raises ArchiveError if it is damaged."""
        try:
            return self._compression.text(frame)
        except ValueError as error:
            raise FILE.unusable(self.path, f"is damaged: {error}") from error

    def pair(self, key: int, cycle: int, fingerprint: int) -> tuple[str, str] | None:
        """Return the texts before and after the change that a visit found; None if either is missing."""
        with FILE.translated(self.path):
            rows = self._connection.execute(
                "SELECT old.text, new.text FROM texts new JOIN texts old ON old.key = new.key "
                "AND old.cycle = new.before WHERE new.key = ? AND new.cycle = ? AND new.fingerprint = ?",
                (key - _SIGN, cycle, fingerprint - _SIGN),
            ).fetchone()
        return None if rows is None else (self.text(rows[0]), self.text(rows[1]))

    def count(self) -> int:
        """Return the number of versions of all pages."""
        with FILE.translated(self.path):
            return int(self._connection.execute("SELECT count(*) FROM texts").fetchone()[0])

    def check(self) -> None:
        """Read the whole file and all texts; raises ArchiveError if anything is damaged."""
        with FILE.translated(self.path):
            (first, *_) = self._connection.execute("PRAGMA quick_check").fetchone()
            if first != "ok":
                raise FILE.unusable(self.path, f"is damaged: {first}")
            for (frame,) in self._connection.execute("SELECT text FROM texts"):
                self.text(frame)

    # --- writing

    def add(self, version: Version) -> None:
        """Add a version if the file's limit has room for it; remove the oldest ones beyond the limits."""
        if self._training is not None and (trained := self._training.take()) is not None:
            self._keep_dictionary(trained)
        frame = self._compression.compressed(version.text)
        if self._training is not None:
            self._training.add(version.text)
        key, fingerprint = version.key - _SIGN, version.fingerprint - _SIGN
        execute = self._connection.execute
        with FILE.transaction(self._connection, self.path):
            execute("DELETE FROM texts WHERE key = ? AND cycle >= ?", (key, version.cycle))
            if not self._make_room(len(frame)):
                return
            older = execute("SELECT id FROM texts WHERE key = ? ORDER BY cycle DESC", (key,)).fetchall()
            for row in older[self._versions - 1 :]:
                execute("DELETE FROM texts WHERE id = ?", row)
                execute("DELETE FROM older WHERE id = ?", row)
            for row in older[: min(1, self._versions - 1)]:
                execute("INSERT OR IGNORE INTO older VALUES (?)", row)
            execute(
                "INSERT INTO texts (key, cycle, fingerprint, latest, before, text) VALUES (?, ?, ?, ?, ?, ?)",
                (key, version.cycle, fingerprint, fingerprint, version.before, frame),
            )

    def set_latest(self, key: int, cycle: int, latest: int) -> None:
        """Set the last fingerprint of the version since `cycle` to `latest`, by a visit without a change."""
        with FILE.transaction(self._connection, self.path):
            self._connection.execute(
                "UPDATE texts SET latest = ? WHERE key = ? AND cycle = ?",
                (latest - _SIGN, key - _SIGN, cycle),
            )

    def remove(self, keys: Iterable[int]) -> None:
        """Remove all versions of pages, by their keys."""
        remaining = iter(keys)
        while batch := [(key - _SIGN,) for key in islice(remaining, 4096)]:
            with FILE.transaction(self._connection, self.path):
                self._connection.executemany("DELETE FROM texts WHERE key = ?", batch)

    def _make_room(self, size: int) -> bool:
        """Remove old versions until ``size`` more bytes fit, each page's newest at last; False: no room."""
        if self._most_bytes is None:
            return True
        for table in ("older", "texts"):
            while self._used_bytes() + size + _RESERVE_BYTES > self._most_bytes:
                rows = self._connection.execute(
                    f"SELECT id FROM {table} ORDER BY id LIMIT ?", (_BATCH,)
                ).fetchall()
                if not rows:
                    break
                self._connection.executemany("DELETE FROM texts WHERE id = ?", rows)
                self._connection.executemany("DELETE FROM older WHERE id = ?", rows)
            else:
                return True
        return False

    def _used_bytes(self) -> int:
        pages, free = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        return int((pages - free) * self._page_bytes)

    def _keep_dictionary(self, content: bytes) -> None:
        with FILE.transaction(self._connection, self.path):
            self._connection.execute("INSERT INTO dictionaries (content) VALUES (?)", (content,))
        self._compression.use(content)
        self._training = None


def archive_problem(path: Path, *, deep: bool = False) -> str:
    """Return why the archive cannot be read (`deep`: also each text); "" if it can, or does not exist."""
    if not os.path.lexists(path):
        return ""
    try:
        with Texts(path, readonly=True) as texts:
            if deep:
                texts.check()
    except ArchiveError as error:
        return str(error)
    return ""


def require() -> None:
    """Raise ArchiveError, which says what to install, if zstandard is missing."""
    if _missing is not None:
        raise ArchiveError(
            "the archive of texts needs the library zstandard, which is not installed: "
            "pip install 'scrapy-gp4c[archive]', or set GP4C_ARCHIVE = False."
        )


class Compression:
    """Zstd compression with the newest dictionary, and decompression with any of the dictionaries."""

    def __init__(self, dictionaries: Sequence[bytes]) -> None:
        """``dictionaries``: the newest last; raises ArchiveError if zstandard is missing."""
        require()
        self._decompressors = {0: zstandard.ZstdDecompressor()}
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        for content in dictionaries:
            self.use(content)

    def use(self, content: bytes) -> None:
        """Add a dictionary and compress with it from now on; raises ValueError for a damaged one."""
        try:
            dictionary = zstandard.ZstdCompressionDict(content)
            self._compressor = zstandard.ZstdCompressor(
                level=LEVEL, dict_data=dictionary, write_checksum=True
            )
            self._decompressors[dictionary.dict_id()] = zstandard.ZstdDecompressor(dict_data=dictionary)
        except (zstandard.ZstdError, MemoryError) as error:
            raise ValueError(f"no dictionary can be read ({error})") from error

    def compressed(self, text: str) -> bytes:
        """Compress a text to a zstd frame with a checksum."""
        return self._compressor.compress(text.encode("utf-8", "surrogatepass"))

    def text(self, frame: bytes) -> str:
        """Return the text of a frame; raises ValueError if the frame is damaged."""
        try:
            parameters = zstandard.get_frame_parameters(frame)
            if parameters.content_size > MAX_TEXT_BYTES:  # the library would allocate them before it reads
                raise ValueError(f"a text announces {parameters.content_size:,} bytes")
            decompressor = self._decompressors[parameters.dict_id]
            # `decompress` reads no checksum if the size in the header is 0, or the checksum's flag is off.
            reader = decompressor.decompressobj()
            text = reader.decompress(frame)
            if not reader.eof or reader.unused_data:
                raise ValueError("no text can be read (the frame ends elsewhere)")
            return text.decode("utf-8", "surrogatepass")
        except (zstandard.ZstdError, KeyError, TypeError) as error:
            raise ValueError(f"no text can be read ({error})") from error


class Training:
    """Training of a zstd dictionary in a thread; zstd releases Python's lock meanwhile."""

    def __init__(self) -> None:
        self._samples: list[bytes] = []
        self._bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._trained: Future[bytes | None] | None = None

    def add(self, text: str) -> None:
        """Add a text as sample; enough samples start the training."""
        if self._trained is not None:
            return
        sample = text.encode("utf-8", "surrogatepass")[:MAX_SAMPLE_BYTES]
        self._samples.append(sample)
        self._bytes += len(sample)
        if len(self._samples) >= SAMPLES or self._bytes >= SAMPLE_BYTES:
            self._thread = ThreadPoolExecutor(1, "gp4c-archive")
            self._trained = self._thread.submit(train, self._samples)
            self._samples = []

    def take(self) -> bytes | None:
        """Return the trained dictionary, once; None before, after, or where training gave none."""
        if self._trained is None or not self._trained.done():
            return None
        dictionary = self._trained.result()
        self.close()
        return dictionary

    def close(self) -> None:
        """Wait a second or two for a training under way, and drop its thread and dictionary."""
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = self._trained = None


def train(samples: Sequence[bytes]) -> bytes | None:
    """Return a dictionary for texts like `samples`; None if they have too little in common."""
    size = min(DICTIONARY_BYTES, sum(map(len, samples)) // 8)
    try:
        trained: bytes = zstandard.train_dictionary(size, list(samples), k=200, d=8).as_bytes()
    except zstandard.ZstdError:
        return None
    return trained
