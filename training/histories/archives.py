"""NumPy archives of others: a few MB may unpack to arrays of many GB, or say so, which is told before."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError

MOST_BYTES: Final = 2**32
"""Of an archive that is packed once more: it is unpacked into memory."""


def memory_bytes() -> int | None:
    """The memory of this machine; None where it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def read_arrays(path: Path, file: IO[bytes], needed: str) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an npz archive, which may come out of gzip.

    ``needed``: what an error says was expected. Raises HistoryError for what is no archive, and for one that
    is larger than memory.
    """
    content: IO[bytes] = file
    if not file.seekable() or isinstance(getattr(file, "raw", None), gzip.GzipFile):
        packed = file.read(MOST_BYTES + 1)
        if len(packed) > MOST_BYTES:
            raise HistoryError(
                f"{path}: expected an archive of at most {MOST_BYTES:,} bytes inside gzip; found more. "
                "Unpack it with gunzip first: an .npz archive is packed as it is."
            )
        content = io.BytesIO(packed)
    try:
        with zipfile.ZipFile(content) as archive:
            size = sum(one.file_size for one in archive.infolist())
        memory = memory_bytes()
        if memory is not None and size > memory:
            raise HistoryError(
                f"{path}: its arrays take {size:,} bytes, and this machine has {memory:,} bytes of memory; "
                f"{needed}. Is it a history?"
            )
        content.seek(0)
        with np.load(content, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except MemoryError as error:
        raise HistoryError(
            f"{path}: an array says that it is larger than memory ({error}); {needed}"
        ) from error
    except (
        ValueError,
        zipfile.BadZipFile,
        KeyError,
        NotImplementedError,
        RuntimeError,
        OverflowError,
    ) as error:
        raise HistoryError(f"{path} is no readable .npz archive: {error}; {needed}") from error
