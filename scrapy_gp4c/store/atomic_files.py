"""Atomic replacement of files (complete or not at all, even after a crash); OSErrors become StoreErrors."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scrapy_gp4c.errors import StoreError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends.

    After a crash `path` has the old or the new content, complete. If the block raises, the temporary file is
    removed. A symbolic link stays and its target is replaced. A device or pipe (``/dev/stdout``) is written
    directly. Raises OSError.
    """
    target, mode = _target(path)
    if target is None:
        with open(path, "wb") as file:
            yield file
        return
    temporary = _temporary(target)
    temporary.unlink(missing_ok=True)  # of a killed process, or a link that somebody laid in its way
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                temporary.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes) -> None:
    """Write `content` to a file atomically, as `replacing` does; create missing directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def probe(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless `replacing` could write at `path`; a trial file is created and removed."""
    target, _ = _target(path)
    if target is None:
        os.close(os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0)))
        return
    with open(_temporary(target), "xb"):
        pass
    _temporary(target).unlink()


@contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError with the text "`what`: reason. `remedy`."."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{what}: {error.strerror}. {remedy}") from error


def sync(path: Path) -> None:
    """Force a file's content, or a directory's names, to the disk (fsync)."""
    if os.name == "nt" and path.is_dir():  # which nobody can open there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _target(path: str | os.PathLike[str]) -> tuple[Path | None, int | None]:
    """Return the path that symbolic links lead to, and the file's mode (None: there is no file).

    (None, None): a device or pipe, which must not be replaced by a file.
    """
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    # A name in these stands for a descriptor of the process, of a regular file maybe, which others have too.
    if not stat.S_ISREG(mode) or folder == "/dev" or folder.startswith("/proc/"):
        return None, None
    return Path(os.path.realpath(path)), stat.S_IMODE(mode)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")
