"""LMDB file of a store: opening, locks, transactions, checksummed tables, LMDB errors as StoreErrors.

LMDB maps its file into memory, so that a truncated file would end the process with SIGBUS: the file's length
is compared with its header before LMDB opens it. Nothing here deletes or overwrites what it finds.

All tables but `ids` have checksums. A value is followed by the 4 lowest bytes of the XXH3 hash of its bytes,
seeded with its table and key. So a value under another key or in another table is wrong as well. A value
counts as absent only if the entries on both sides of its key are right: an altered key would be one of them.

Requests are kept as JSON in which single bytes stand for frequent texts, such as ``{"url":"https://``. These
bytes do not occur in UTF-8.
"""

import errno
import json
import mmap
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import filelock
import lmdb
import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError, StoreInUseError
from scrapy_gp4c.store.atomic_files import explained, sync

DATA: Final = "data.mdb"

_FULL_BYTES: Final = 2**20
"""Free space below which a failed write is taken for a full disk; some may have been freed since."""

_DAMAGE: Final = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PageNotFoundError,
    lmdb.IncompatibleError, lmdb.NotFoundError, lmdb.BadTxnError,
)  # fmt: skip


def damaged(path: Path, what: str) -> StoreDamagedError:
    """Return the error for a damaged store at `path`; ``what``: damage, such as "ids 7: it is missing"."""
    error = StoreDamagedError(
        f"the store {path} is damaged: {what}. Bring back a backup "
        "(`scrapy gp4c store restore SPIDER BACKUP`), or what can still be read (`scrapy gp4c store "
        "restore SPIDER --from-damaged`). Nothing was changed."
    )
    error.what = what
    return error


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn every LMDB error of the block into the StoreError that `store_error` makes of it."""
    try:
        yield
    except lmdb.Error as error:
        raise store_error(path, error) from error


def store_error(path: Path, error: Exception) -> StoreError:
    """Return the StoreError for an LMDB error: StoreFullError, StoreDamagedError or StoreError itself."""
    full = isinstance(error, lmdb.MapFullError | lmdb.DiskError)
    # LMDB panics when a header could not be written: this process can do nothing more with the store.
    faulty = isinstance(error, lmdb.PanicError) or os.strerror(errno.EIO) in str(error)
    if not full:
        texts = (os.strerror(code) for code in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
        full = any(text in str(error) for text in texts) or (faulty and _has_no_room(path))
    if full:
        return StoreFullError(
            f"no room to write to the store {path} ({error}). What was committed is still readable: free "
            "disk space (or raise the quota) and run again, or move the directory and set GP4C_STORE."
        )
    if isinstance(error, _DAMAGE):
        return damaged(path, str(error))
    remedy = "Check the disk (dmesg) and the quota" if faulty else "Check its owner and GP4C_STORE"
    if os.strerror(errno.ENOMEM) in str(error):
        remedy = "Allow this process more address space (ulimit -v)"
    return StoreError(f"the store {path} cannot be used: {error}. {remedy}.")


def _has_no_room(path: Path) -> bool:
    """Whether the disk is full or a limit of file sizes reached, which LMDB may report as EIO."""
    try:
        free_bytes = shutil.disk_usage(path).free
        with suppress(ImportError):
            import resource  # only where there are such limits

            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            if limit != resource.RLIM_INFINITY:
                free_bytes = min(free_bytes, limit - (path / DATA).stat().st_size)
    except OSError:
        return False
    return free_bytes < _FULL_BYTES


def read_only_error(path: Path) -> StoreError:
    """Return the error for writing to a store that was opened for reading."""
    return StoreError(f"the store {path} was opened for reading only.")


def in_use(path: Path, holder: str) -> StoreInUseError:
    """Return the error for opening a store that `holder`, such as "process 12", writes to."""
    return StoreInUseError(
        f"the store {path} is in use by {holder}: one crawl at a time can write to it. Wait until it "
        "ends, or set GP4C_STORE to another directory for this crawl."
    )


VERSION: Final = 1
"""The one version of LMDB's file format whose header `read_header` understands."""
_MAGIC: Final = 0xBEEFC0DE
_PAGE_BYTES: Final = [2**power for power in range(9, 17)]
_META: Final = struct.Struct("=16xII16xI92xQQ")
"""Meta page of LMDB 0.9 (mdb.c): magic, version, page size, last page, transaction."""


class NoLmdbFileError(Exception):
    """Raised without argument for a file that is not LMDB's, and with a text for a damaged LMDB file."""


class Header(NamedTuple):
    """Fields of one of the two meta pages at the begin of an LMDB file; the newer one is valid."""

    offset: int
    version: int
    page_bytes: int
    last_page: int
    transaction: int

    @property
    def bytes(self) -> int:
        """Minimum length of the file, by its last page."""
        return (self.last_page + 1) * self.page_bytes


def read_header(file: BinaryIO) -> Header:
    """Read the newer meta page of an LMDB file, also while a writer changes it; ``file``: opened unbuffered.

    Raises NoLmdbFileError, with a text where the file is LMDB's but ends too early or has a damaged header.
    """
    before: list[Header] = []
    while True:
        metas = _metas(file)
        if metas[0].version != VERSION:
            return metas[0]
        older, newer = sorted(metas, key=lambda meta: (meta.transaction, -meta.offset))
        if newer.transaction - older.transaction <= 1 and newer.transaction % 2 == (newer.offset > 0):
            return newer
        # A writer that commits between the reading of one page and of the other leaves two that do not fit.
        if metas == before:
            raise NoLmdbFileError("has a damaged header")
        before = metas


def _metas(file: BinaryIO) -> list[Header]:
    """Read both meta pages, or only the first one of a file of another LMDB version."""
    metas: list[Header] = []
    while len(metas) < 2:
        offset = metas[0].page_bytes if metas else 0
        file.seek(offset)
        head = file.read(_META.size)
        if len(head) < _META.size:
            # A disk that was full when the first crawl began leaves one page.
            ended = f"ends after {os.fstat(file.fileno()).st_size} bytes"
            raise NoLmdbFileError(f"{ended} (if no crawl of it ever ended well, remove {DATA})")
        magic, version, page_bytes, last_page, transaction = _META.unpack(head)
        if magic != _MAGIC:
            raise NoLmdbFileError(*(["has a damaged header"] if metas else []))
        metas.append(Header(offset, version, page_bytes, last_page, transaction))
        if version != VERSION:
            break
        if page_bytes not in _PAGE_BYTES or page_bytes != metas[0].page_bytes:
            raise NoLmdbFileError("has a damaged header")
    return metas


WRITER_LOCK: Final = "writer.lock"
READERS: Final = "lock.mdb"
SEARCH_INDEX: Final = "search.sqlite"
"""Name of the search index in the store's directory, which a crawl with ``GP4C_QUERY_LOG`` writes."""
INDEX_FILES: Final = tuple(SEARCH_INDEX + end for end in ("", "-wal", "-shm"))
ARCHIVE: Final = "texts.sqlite"
"""Name of the archive of texts in the store's directory, which a crawl with ``GP4C_ARCHIVE`` writes."""
OUR_FILES: Final = {
    *(DATA, READERS, WRITER_LOCK, *INDEX_FILES),
    *(ARCHIVE + end for end in ("", "-wal", "-shm")),
    # Of earlier crawls, when a store begins anew:
    *("owner.json", "warnings.json", "fetchers.json", "unflushed.json", "feed_events.json"),
    "outbox",  # notices that wait are sent all the same
}

_OWNERS: Final = stat.S_IRUSR | stat.S_IWUSR
_ANOTHER: Final = "Set GP4C_STORE to another directory, or move this one away."


def check_directory(path: Path, readonly: bool) -> None:
    """Check a store's directory before LMDB opens it; unless `readonly`, create that of a new store.

    Raises StoreDamagedError for a directory of other files or a truncated store; StoreError where there is
    no store to read, or no access.
    """
    data = path / DATA
    with explained(f"cannot open the store {path}", "Check its owner and GP4C_STORE."):
        if path.exists() and not path.is_dir():
            raise StoreDamagedError(f"the store {path} must be a directory; found a file. {_ANOTHER}")
        if not data.exists() or data.stat().st_size == 0:
            strangers = sorted(set(os.listdir(path)) - OUR_FILES) if path.exists() else []
            if strangers:
                raise StoreDamagedError(
                    f"the directory {path} holds no page store but other files ({strangers[0]!r}, ...). "
                    f"{_ANOTHER}"
                )
            if readonly:
                raise StoreError(
                    f"there is no page store in {path} yet: run the spider once, or check GP4C_STORE."
                )
            _create_directory(path)
            return
        _check_data(path, data)


def _create_directory(path: Path) -> None:
    """Create a directory with mode 700, because requests may hold secrets; an existing one stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(_OWNERS | stat.S_IXUSR)
        path.chmod(_OWNERS | stat.S_IXUSR)


def _create_file(path: Path) -> None:
    """Create an empty file at `path` with mode 600, whatever the umask; an existing file stays as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNERS))
        path.chmod(_OWNERS)


def _check_data(path: Path, data: Path) -> None:
    """Raise StoreDamagedError for a file that is not LMDB's, or shorter than its header says."""
    with data.open("rb", buffering=0) as file:
        try:
            header = read_header(file)
        except NoLmdbFileError as error:
            if error.args:
                raise damaged(path, f"{DATA} {error}") from None
            raise StoreDamagedError(f"{data} is not the file of a page store. {_ANOTHER}") from None
        file_bytes = os.fstat(file.fileno()).st_size
    if header.version == VERSION and file_bytes < header.bytes:
        # LMDB does not write pages at the end that one transaction allocated and freed: such a file is sound.
        problem = read_all_pages(path)
        if problem and _LEAK not in problem:
            raise damaged(
                path,
                f"{DATA} is truncated: expected {header.bytes:,} bytes, found {file_bytes:,} ({problem})",
            )


_HEADROOM_BYTES: Final = 2**28
"""Free address space that `Environment` ensures before a write transaction: more than any writes."""
_READER: Final = """
import sys
import lmdb
environment = lmdb.open(sys.argv[1], readonly=True, create=False, max_dbs=64, map_size=int(sys.argv[2]))
environment.copyfd(1, compact=True)
"""
_LEAK: Final = "MDB_INCOMPATIBLE"
"""LMDB's error after a copy of all pages in use, if its list of free pages lacks some unused ones."""


def read_all_pages(path: Path) -> str:
    """Let LMDB read all B-tree pages in use of the store at `path`; return what went wrong, or "".

    A child process reads them: a damaged or missing page may end it with a signal.
    """
    size = max((path / DATA).stat().st_size * 2, 2**30)
    command = [sys.executable, "-c", _READER, str(path), str(size)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # A pipe: writing to /dev/null touches no page of a large value.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.read(2**20):
            pass
        message = process.stderr.read().decode("utf-8", "replace")
    if process.returncode < 0:
        return f"reading it ends with {signal.Signals(-process.returncode).name}"
    return message.strip().rpartition("\n")[2][:200] if process.returncode else ""


MAP_BYTES: Final = 2**40
"""Address space (not disk) for a store's memory map; where the system refuses it, a smaller map grows."""


def open_environment(path: Path, readonly: bool) -> Any:
    """Open the LMDB environment in a directory that `check_directory` accepted."""
    with suppress(OSError):  # LMDB reports them
        for name in (READERS,) if readonly else (READERS, DATA):
            _create_file(path / name)
    used = (path / DATA).stat().st_size if (path / DATA).exists() else 0
    sizes = [MAP_BYTES >> shift for shift in range(0, 20, 2) if MAP_BYTES >> shift >= 2 * used]
    with translated(path):
        for size in sizes or [4 * used]:
            try:
                environment = lmdb.open(
                    str(path),
                    mode=_OWNERS,
                    map_size=size,
                    metasync=False,
                    readonly=readonly,
                    create=not readonly,
                    max_dbs=32,
                )
                break
            except lmdb.MemoryError as error:
                refused = error
        else:
            raise refused
        environment.reader_check()
        return environment


class WriterLock:
    """Lock on the file `writer.lock` that one process at a time holds to write to a store.

    The constructor raises StoreInUseError, which names the holder. The lock ends with its process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path / WRITER_LOCK
        with explained(f"cannot write to the store {path}", "Check its owner and GP4C_STORE."):
            while not self._take(path):
                pass

    def _take(self, path: Path) -> bool:
        """Take the lock; False if the file was removed meanwhile, so that others would lock a new file."""
        _create_file(self._path)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, _OWNERS)
        if not filelock.lock_descriptor(self._file, blocking=False):
            os.lseek(self._file, 1, os.SEEK_SET)  # Windows locks the first byte
            holder = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise in_use(path, f"process {holder}")
        if not os.fstat(self._file).st_nlink:
            os.close(self._file)
            return False
        os.ftruncate(self._file, 0)
        os.write(self._file, f" {os.getpid()}\n".encode())
        return True

    def release(self, *, remove: bool = False) -> None:
        """Release the lock; ``remove``: delete its file too, as after the creation of a store failed."""
        if remove:
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def put_in_place(path: Path, data: Path) -> None:
    """Replace the LMDB file of the store at `path` atomically by file `data`, keeping owner and mode.

    ``data``: on the same disk. The caller holds the store's `WriterLock`.
    """
    replaced = path / DATA
    if replaced.exists():
        status = replaced.stat()
        data.chmod(stat.S_IMODE(status.st_mode))
        with suppress(OSError, AttributeError):  # root may have come for the file's owner; others may not
            shutil.chown(data, status.st_uid, status.st_gid)
    sync(data)
    os.replace(data, replaced)
    (path / READERS).unlink(missing_ok=True)  # its readers look at the file that was
    sync(path)


_open: "dict[str, Environment]" = {}
"""Real path -> environment that this process has open: LMDB allows one per file and process."""


class Environment:
    """An open LMDB file of a store and, for a writer, its `WriterLock`.

    ``path``: the store's directory; ``lmdb``: LMDB's ``Environment``, None once closed.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool) -> None:
        """Open or create the file; raises StoreInUseError, StoreDamagedError or another StoreError."""
        self.path = Path(path)
        self.readonly = readonly
        self.lmdb: Any = None
        self._real = os.path.realpath(self.path)
        if self._real in _open:
            raise in_use(self.path, "this process")
        check_directory(self.path, readonly)
        self._lock = None if readonly else WriterLock(self.path)
        try:
            self.lmdb = open_environment(self.path, readonly)
        except BaseException:
            self.close()
            raise
        _open[self._real] = self

    def sync(self) -> None:
        """Flush the last commit's header, which LMDB (without ``metasync``) leaves to the next commit."""
        if self.lmdb is not None and not self.readonly:
            with translated(self.path):
                self.lmdb.sync(True)

    def replace_with(self, data: Path) -> None:
        """Replace this LMDB file atomically by file `data` of the same disk, and open it; keeps the lock."""
        self.lmdb.close()
        self.lmdb = None
        put_in_place(self.path, data)
        self.lmdb = open_environment(self.path, self.readonly)

    def close(self) -> None:
        """Sync and close the file and release the writer's lock; a second call does nothing."""
        if _open.get(self._real) is self:
            del _open[self._real]
        try:
            self.sync()
        finally:
            environment, self.lmdb = self.lmdb, None
            if environment is not None:
                environment.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    @contextmanager
    def transaction(self, *, write: bool = False, buffers: bool = False) -> Iterator[Any]:
        """Open an LMDB transaction, undone if the block raises; LMDB's errors become StoreErrors.

        ``buffers``: LMDB hands out memoryviews in place of copied bytes.
        """
        if write and self.readonly:
            raise read_only_error(self.path)
        with translated(self.path):
            if write:
                self._grow()
            try:
                opened = self.lmdb.begin(write=write, buffers=buffers)
            except lmdb.MapResizedError:  # the writer's process has grown the map
                self.lmdb.set_mapsize(0)
                opened = self.lmdb.begin(write=write, buffers=buffers)
            with opened as txn:
                yield txn

    def _grow(self) -> None:
        """Enlarge the map before a write transaction if it is nearly full, and the system allows it."""
        map_info = self.lmdb.info()
        used = map_info["last_pgno"] * self.lmdb.stat()["psize"]
        needed = used + max(used, _HEADROOM_BYTES)
        # LMDB gives the old map up first, and cannot go on where it does not get a new one.
        if needed > map_info["map_size"] and _is_granted(2 * needed):
            self.lmdb.set_mapsize(2 * needed)


def _is_granted(size: int) -> bool:
    """Whether the system grants this process `size` bytes of address space, by mapping and freeing them."""
    try:
        mmap.mmap(-1, size, access=mmap.ACCESS_READ).close()
    except (OSError, OverflowError):
        return False
    return True


U32: Final = struct.Struct(">I")
U32_PAIR: Final = struct.Struct(">II")
"""Keys of tables by (cycle, number): big-endian, so that they sort."""
KEY: Final = struct.Struct(">Q")
SUM_BYTES: Final = 4
PLAIN_TABLE: Final = "ids"
"""Table without checksums: the columns of pages have the same keys."""
PLAIN_KEY: Final = b"schema"
"""Key of the schema in the table `meta`; its value has no checksum, so that any version can read it."""

TABLES: Final = (
    "meta", "ids", "urls", "validators", "log", "new", "visits", "cycles", "plans", "columns", "groups",
    "group_visits", "first_urls", "notes", "copies", "gains", "refresh_values", "descriptions", "clusters",
    "hints", "claims", "trust", "weights", "shadows", "answers", "links",
)  # fmt: skip
"""Tables of a store. A new one goes to the end: positions are part of the seeds of checksums."""
_PLACES: Final = {name: position for position, name in enumerate(TABLES)}

_CONTENT: Final = itemgetter(slice(None, -SUM_BYTES))
_SUM: Final = itemgetter(slice(-SUM_BYTES, None))
_PRIME: Final = 2**32 - 5
_LOWEST: Final = 2**32 - 1
_JSON: Final = json.JSONEncoder(separators=(",", ":"))
_READ_JSON: Final = msgspec.json.Decoder().decode


def encode(content: Any) -> bytes:
    """Encode `content` as compact JSON."""
    return _JSON.encode(content).encode()


def decode(content: bytes) -> Any:
    """Decode JSON as `json.loads` does, but twice as fast; raises ValueError for invalid JSON.

    NaN, infinities and lone surrogates, which the faster decoder refuses, are left to `json.loads`.
    """
    try:
        return _READ_JSON(content)
    except ValueError:
        return json.loads(content)


def split(buffer: bytes, size: int) -> list[bytes]:
    """Cut a buffer into a list of pieces of `size` bytes."""
    return np.frombuffer(buffer, f"V{size}").tolist()


def seed_of(table: str, key: bytes) -> int:
    """Return the seed of a value's checksum, which differs by table and key.

    It is the table's position in `TABLES` times 2^32, plus the key as big-endian number modulo a prime.
    """
    return _PLACES[table] << 32 | int.from_bytes(key, "big") % _PRIME


def checksum(seed: int, value: bytes | memoryview) -> int:
    """Return the lowest 32 bits of the XXH3 hash of a value, seeded by `seed_of`."""
    return xxh3_64_intdigest(value, seed) & _LOWEST


def with_checksum(seed: int, value: bytes) -> bytes:
    """Return a value followed by its checksum, 4 bytes."""
    return value + checksum(seed, value).to_bytes(SUM_BYTES, "little")


def is_intact(seed: int, value: bytes | memoryview) -> bool:
    """Whether a value ends with its checksum."""
    return checksum(seed, value[:-SUM_BYTES]) == int.from_bytes(value[-SUM_BYTES:], "little")


class Table:
    """A table of an open LMDB file that checks the checksum of every value read.

    Methods that read raise StoreDamagedError, which names table and key. Keys are bytes, values bytes without
    their checksum; `txn` is a transaction of `Environment`.
    """

    __slots__ = ("_path", "_plain", "handle", "name")

    def __init__(self, path: Path, name: str, handle: object) -> None:
        self._path = path
        self.name = name
        self.handle = handle
        self._plain = name == PLAIN_TABLE

    def get(self, txn: Any, key: bytes) -> bytes | None:
        """Read the value under `key`, checking its checksum; None: there is none."""
        value: bytes | None = txn.get(key, db=self.handle)
        if value is None:
            self._check_neighbours(txn, key)
            return None
        return value if self._plain else bytes(self.checked(key, value))

    def view(self, txn: Any, key: bytes, *, trusted: bool = False) -> memoryview:
        """Read a value that must exist, without copying it; ``trusted``: do not check its checksum."""
        value = txn.get(key, db=self.handle)
        if value is None:
            raise self.wrong(key, "it is missing")
        return memoryview(value)[:-SUM_BYTES] if trusted and not self._plain else self.checked(key, value)

    def checked(self, key: bytes, value: bytes | memoryview) -> memoryview:
        """Return a stored value without its checksum; raises StoreDamagedError where that is wrong."""
        if self._plain or key == PLAIN_KEY:
            return memoryview(value)
        if not is_intact(seed_of(self.name, key), value):
            raise self.wrong(key, "its checksum is another")
        return memoryview(value)[:-SUM_BYTES]

    def joined(self, txn: Any, numbers: npt.NDArray[Any], separator: bytes) -> bytes | None:
        """Read the values under the 4-byte keys `numbers`, joined by `separator`; None if any is missing."""
        keys = split(numbers.astype(">u4").tobytes(), U32.size)
        values: list[bytes] = list(map(txn.cursor(self.handle).get, keys))  # `getmulti` copies the keys too
        if None in values:
            return None
        contents = list(map(_CONTENT, values))
        seeds = (numbers.astype(np.int64) % _PRIME + seed_of(self.name, b"")).tolist()
        sums = np.fromiter(map(xxh3_64_intdigest, contents, seeds), np.uint64, len(contents))
        kept_sums = np.frombuffer(b"".join(map(_SUM, values)), "<u4")
        wrong = np.flatnonzero(sums.astype(np.uint32) != kept_sums)
        if len(wrong):
            raise self.wrong(keys[wrong[0]], "its checksum is another")
        return self.of_content(separator.join(contents))

    def to_content(self, value: bytes) -> bytes:
        """Return the form in which a value is stored, without its checksum; subclasses may shorten it."""
        return value

    def of_content(self, content: bytes) -> bytes:
        """Return the value for a form that `to_content` made, or joined values for joined forms."""
        return content

    def put(self, txn: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> None:
        txn.put(key, self._stored(key, value), db=self.handle, overwrite=overwrite)

    def _stored(self, key: bytes, value: bytes) -> bytes:
        return value if self._plain else with_checksum(seed_of(self.name, key), self.to_content(value))

    def put_many(self, txn: Any, items: Iterator[tuple[bytes, bytes]], **options: bool) -> None:
        """Write (key, value) pairs; ``options``: of LMDB's ``putmulti``."""
        rows = ((key, self._stored(key, value)) for key, value in items)
        txn.cursor(self.handle).putmulti(rows, **options)

    def delete(self, txn: Any, key: bytes) -> None:
        txn.delete(key, db=self.handle)

    def drop(self, txn: Any) -> None:
        txn.drop(self.handle, delete=False)

    def entries(self, txn: Any) -> int:
        return txn.stat(self.handle)["entries"]

    def items(
        self, txn: Any, first: bytes = b"", stop: bytes | None = None, *, after: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yield keys and values from key `first` on, up to `stop` (excluded).

        The entries just outside are checked too, so that an altered key at either end is noticed. ``after``:
        start behind this key instead, such as the last one of an earlier call.
        """
        cursor = txn.cursor(self.handle)
        if after is not None and cursor.set_key(after):
            # Not by a search: in a damaged page that may skip keys, and end before the last one.
            is_there = cursor.next()
        else:
            first = first if after is None else after + b"\0"
            if first:
                self._check_neighbours(txn, first)
            is_there = cursor.set_range(first) if first else cursor.first()
        while is_there:
            key = bytes(cursor.key())
            content = self.checked(key, cursor.value())
            if stop is not None and key >= stop:
                return
            yield key, content
            is_there = cursor.next()

    def wrong_keys(self, txn: Any) -> Iterator[bytes]:
        """Yield the keys of all values whose checksum is wrong, or whose key is not above the one before."""
        before, count = b"", 0
        for key, value in txn.cursor(self.handle):
            packed = bytes(key)
            intact = self._plain or packed == PLAIN_KEY or is_intact(seed_of(self.name, packed), value)
            if not intact or packed <= before:
                yield packed
            before, count = packed, count + 1
        if count != (expected := self.entries(txn)):
            raise damaged(self._path, f"{self.name}: expected {expected:,} values, found {count:,}")

    def keys(self, txn: Any) -> list[bytes]:
        return [bytes(key) for key in txn.cursor(self.handle).iternext(values=False)]

    def last(self, txn: Any) -> bytes | None:
        """Read the value with the highest key, or None where the table is empty."""
        cursor = txn.cursor(self.handle)
        return bytes(self.checked(bytes(cursor.key()), cursor.value())) if cursor.last() else None

    def neighbours(self, txn: Any, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the first stored (key, value) at or after `key`, then the last before it, if they exist.

        Raises StoreDamagedError where one is out of order.
        """
        cursor = txn.cursor(self.handle)
        behind = cursor.set_range(key)
        if behind:
            neighbour = bytes(cursor.key())
            if neighbour < key:
                raise self.wrong(neighbour, "it is out of order")
            yield neighbour, cursor.value()
        if cursor.prev() if behind else cursor.last():
            neighbour = bytes(cursor.key())
            if neighbour >= key:
                raise self.wrong(neighbour, "it is out of order")
            yield neighbour, cursor.value()

    def _check_neighbours(self, txn: Any, key: bytes) -> None:
        for neighbour, value in self.neighbours(txn, key):
            self.checked(neighbour, value)

    def wrong(self, key: bytes, why: str) -> StoreDamagedError:
        """Return the StoreDamagedError for the value under `key`; ``why``: text such as "it is missing"."""
        parts: tuple[object, ...] = (key.decode("latin-1"),)
        if self.name != "meta" and len(key) in (U32.size, U32_PAIR.size):
            parts = struct.unpack(f">{len(key) // 4}I", key)
        return damaged(self._path, f"{self.name} {', '.join(map(str, parts))}: {why}")


_BEGINS: Final = (
    b'{"url":"https://www.',
    b'{"url":"http://www.',
    b'{"url":"https://',
    b'{"url":"http://',
)
"""Frequent begins of a request's JSON. The first that fits is taken, so the longer ones come first."""
_MIDDLES: Final = (b'","callback":"parse_', b'","callback":"')
_END: Final = b'"}'
_CODES: Final = tuple(
    (bytes([0xFF - number]), text) for number, text in enumerate((*_BEGINS, *_MIDDLES, _END))
)
"""Pairs of a one-byte code and the text it stands for. Stores contain the codes: append, never change."""
_BEGIN_CODES: Final = _CODES[: len(_BEGINS)]
_MIDDLE_CODES: Final = _CODES[len(_BEGINS) : -1]
_END_CODE: Final = _CODES[-1][0]


def shortened(request: bytes) -> bytes:
    """Return a request's JSON with frequent texts replaced by the one-byte codes of `_CODES`."""
    if not request.isascii():
        return request
    for code, text in _BEGIN_CODES:
        if request.startswith(text):
            request = code + request[len(text) :]
            break
    for code, text in _MIDDLE_CODES:
        request = request.replace(text, code)
    return request[: -len(_END)] + _END_CODE if request.endswith(_END) else request


def in_full(requests: bytes) -> bytes:
    """Return the full JSON of one or many requests that `shortened` made shorter."""
    if requests.isascii():
        return requests
    for code, text in _CODES:
        requests = requests.replace(code, text)
    return requests


class RequestTable(Table):
    """Table `urls` of requests: callers read and write full JSON, stored is the form of `shortened`."""

    __slots__ = ()

    def to_content(self, value: bytes) -> bytes:
        """Return the shortened form of a request's JSON."""
        return shortened(value)

    def of_content(self, content: bytes) -> bytes:
        """Return the full JSON of shortened requests."""
        return in_full(content)

    def checked(self, key: bytes, value: bytes | memoryview) -> memoryview:
        """Return a request's full JSON; raises StoreDamagedError where its checksum is wrong."""
        return memoryview(in_full(bytes(super().checked(key, value))))
