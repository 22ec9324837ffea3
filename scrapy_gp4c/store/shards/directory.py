"""A directory of shards: what it is called by, whether it is complete, and where its shards are."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.store.shards.placing import MOST_SHARDS
from scrapy_gp4c.store.whole_files import replacing, sync

SHARDS_FILE: Final = "shards.json"
FORMAT: Final = "gp4c-shards/1"
_NAME: Final = re.compile(r"[0-9]{4}")


class ShardsFile(NamedTuple):
    """What `shards.json` says."""

    shards: int
    store_id: str
    """Of the store that they make up; each has one of its own besides."""
    complete: bool
    """False: a kill ended its making."""


def is_sharded(directory: Path) -> bool:
    """Tell whether a directory holds shards, complete or not."""
    return (directory / SHARDS_FILE).exists()


def shard_path(directory: Path, number: int) -> Path:
    """Directory of a shard."""
    return directory / f"{number:04d}"


def read_shards_file(directory: Path) -> ShardsFile:
    """Return what a directory of shards says of itself.

    Raises StoreError where there is none or it is not complete, StoreDamagedError for another file.
    """
    path = directory / SHARDS_FILE
    try:
        told = json.loads(path.read_text("utf-8"))
        found = ShardsFile(told["shards"], told["store_id"], told["complete"])
        sound = told["format"] == FORMAT and type(found.shards) is int and 1 <= found.shards <= MOST_SHARDS
    except FileNotFoundError:
        raise StoreError(
            f"there are no shards in {directory}: expected the file {SHARDS_FILE}, which makes a directory "
            "one of shards; found none. Give the directory that a store was split into."
        ) from None
    except (ValueError, KeyError, TypeError, OSError):
        sound = False
    if not sound:
        raise StoreDamagedError(
            f"expected {path} to be of the format {FORMAT}; found something else. Split the store anew, into "
            "another directory."
        )
    if not found.complete:
        raise StoreError(
            f"the shards in {directory} are not complete: what made them was interrupted. Split the store "
            "anew, which removes what is left of them; the store itself is as it was."
        )
    return found


def write_shards_file(directory: Path, told: ShardsFile) -> None:
    """Replace what a directory of shards says of itself; on the disk when this returns."""
    with replacing(directory / SHARDS_FILE) as file:
        file.write(json.dumps({"format": FORMAT, **told._asdict()}).encode() + b"\n")
    sync(directory)


def clear_for_shards(directory: Path, ours: set[str]) -> None:
    """Make a directory, or empty one that a kill left incomplete; ``ours``: names of files of a store.

    Raises StoreError where there is anything else.
    """
    directory.mkdir(0o700, parents=True, exist_ok=True)
    try:
        if is_sharded(directory):
            read_shards_file(directory)
        found = os.listdir(directory)
    except StoreDamagedError:
        raise
    except StoreError:  # incomplete
        found = [name for name in os.listdir(directory) if name != SHARDS_FILE and name not in ours]
        for name in list(found):
            if _NAME.fullmatch(name) and not set(os.listdir(directory / name)) - ours:
                shutil.rmtree(directory / name)
                found.remove(name)
    if found:
        raise StoreError(
            f"expected {directory} to be empty, or not there; found {sorted(found)[0]!r}. Give another "
            "directory."
        )
