"""Backups of a crawl's store while it runs and at its end, in a process of their own (``GP4C_BACKUP``).

A process may open a store's file once only. ``python -m scrapy_gp4c.crawling.backups STORE TARGET``.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, Final

from scrapy_gp4c.crawling.scrapy_internals import awaitable
from scrapy_gp4c.errors import Gp4cError, StoreError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import backup

logger = foreign_safe_logger(__name__)
_NAME = r"-\d{8}-\d{6}"
INTERVAL_S: Final = 3_600.0
"""Seconds between two backups while a cycle runs; one more is made at its end."""
KEPT: Final = 3
"""Number of a store's newest backups that are kept: the last one may contain yesterday's mistake."""


class Backups:
    """Backups of one run."""

    def __init__(self, path: Path, settings: Settings, extra: Mapping[str, Any]) -> None:
        self._words = [str(path), settings.backup or ""]
        self._is_on = settings.backup is not None
        self._extra = extra
        self._begun_s = monotonic()
        self._process: subprocess.Popen[str] | None = None

    def look(self) -> None:
        """Begin a backup where one is due."""
        if self._process is not None and self._process.poll() is not None:
            self._end(self._process)
        if self._is_on and self._process is None and monotonic() - self._begun_s >= INTERVAL_S:
            self._begun_s = monotonic()
            self._process = self._start()

    async def finish(self) -> None:
        """Make the last backup, in a thread, after the store is closed."""
        if self._is_on:
            thread = ThreadPoolExecutor(1, "gp4c-backup")
            await awaitable(thread.submit(self._make_last))
            thread.shutdown(wait=False)

    def _make_last(self) -> None:
        if self._process is not None:
            self._end(self._process)
        self._end(self._start())

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scrapy_gp4c.crawling.backups", *self._words]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def _end(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate()
        self._process = None
        if process.returncode:
            reason = errors.strip().rstrip(".").splitlines()[-1:] or [f"status {process.returncode}"]
            logger.error(
                "No backup in GP4C_BACKUP = %s: %s. The next one is tried as if this were made.",
                self._words[1],
                reason[0],
                extra=self._extra,
            )
        else:
            logger.info("The store is backed up in %s", self._words[1], extra=self._extra)


def back_up(path: Path, target: str) -> None:
    """Back a store up into a directory, or a place that fsspec knows; there a backup is one file."""
    if "://" not in target:
        backup(path, Path(target), KEPT)
        return
    files, location = _location(target)
    with tempfile.TemporaryDirectory() as folder:
        made = backup(path, Path(folder), None)
        files.makedirs(location, exist_ok=True)
        unfinished = f"{location}/{made.name}.part"
        files.put_file(str(made / "data.mdb"), unfinished)
        files.mv(unfinished, f"{location}/{made.name}.mdb")  # only a complete file gets its name
    pattern = re.compile(re.escape(made.name[:-16]) + _NAME + r"\.mdb")
    for old in sorted(_names(files, location, pattern))[:-KEPT]:
        files.rm(f"{location}/{old}")


def fetch_backup(target: str, store_name: str, folder: Path) -> Path:
    """Return the directory of a backup: `target` itself, or the newest backup of `store_name` in `target`.

    ``folder``: directory for a copy of a remote backup. Raises StoreError where there is no backup.
    """
    pattern = re.compile(re.escape(store_name) + _NAME + r"(\.mdb)?")
    if "://" not in target:
        if (Path(target) / "data.mdb").exists():
            return Path(target)
        if not Path(target).is_dir():
            raise StoreError(f"expected a backup, or a directory of backups; found no directory {target}")
        names = sorted(path.name for path in Path(target).iterdir() if pattern.fullmatch(path.name))
        if not names:
            raise StoreError(f"expected backups of {store_name} in {target}; found none")
        return Path(target) / names[-1]
    files, location = _location(target)
    if not location.endswith(".mdb"):
        names = sorted(_names(files, location, pattern))
        if not names:
            raise StoreError(f"expected backups of {store_name} in {target}; found none")
        location = f"{location}/{names[-1]}"
    copy = folder / Path(location).stem
    copy.mkdir()
    files.get_file(location, str(copy / "data.mdb"))
    return copy


def _location(target: str) -> tuple[Any, str]:
    try:
        fsspec: Any = import_module("fsspec")
        files, location = fsspec.core.url_to_fs(target)
    except (ImportError, ValueError) as error:
        raise StoreError(
            f"GP4C_BACKUP = {target!r} needs fsspec and its library for such places: {error}"
        ) from error
    return files, location.rstrip("/")


def _names(files: Any, location: str, pattern: re.Pattern[str]) -> list[str]:
    names = [Path(entry).name for entry in files.ls(location, detail=False)] if files.exists(location) else []
    return [name for name in names if pattern.fullmatch(name)]


if __name__ == "__main__":
    try:
        back_up(Path(sys.argv[1]), sys.argv[2])
    except (Gp4cError, OSError) as backup_error:
        sys.exit(f"{backup_error}")
