"""JSON output of all commands."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from scrapy_gp4c.foreign_text import printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def add_json(add: Callable[..., object]) -> None:
    """Add ``--json``; ``add``: ``add_argument`` of a parser or group."""
    add("--json", action="store_true", help="print one JSON document instead")


def say(text: object = "", file: TextIO | None = None) -> None:
    """Print a line; control characters in it are percent-encoded, because a terminal obeys them."""
    print(printable(str(text)), file=file)


def print_json(document: DataclassInstance) -> None:
    """Print a record as JSON; a number that is not finite as null."""
    plain = _plain(dataclasses.asdict(document))
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    if any(printable(line) != line for line in text.split("\n")):  # JSON itself quotes few controls
        text = json.dumps(plain, indent=1, allow_nan=False)
    sys.stdout.write(text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
