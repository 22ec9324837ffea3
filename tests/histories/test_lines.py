"""Lines without end: a small gzip file that unpacks to one costs an error, and no memory."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scrapy_gp4c.errors import HistoryError
from training.histories import formats
from training.histories.contents import read_contents
from training.histories.formats import read_file


@pytest.mark.parametrize("read", [read_file, read_contents])
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any], packed: bool
) -> None:
    """It names the line, whatever the reader and however the file is packed."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 2**16)
    text = b"01" * 2**16
    path = tmp_path / "history"
    path.write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(HistoryError, match="history, line 1: expected at most 65,536 bytes; found more"):
        read(path)


def test_no_more_is_read_than_a_line_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever follows, nothing is."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 100)

    class Endless(io.RawIOBase):
        read_bytes = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"1" * len(buffer)
            Endless.read_bytes += len(buffer)
            return len(buffer)

    with pytest.raises(HistoryError, match="line 1: expected at most 100 bytes"):
        list(formats.lines(Path("endless"), io.BufferedReader(Endless(), 64)))
    assert Endless.read_bytes < 1000


def test_lines_as_long_as_they_may_be_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without an end."""
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 4)
    assert list(formats.lines(Path("f"), io.BytesIO(b"abc\n\nabcd"))) == [b"abc\n", b"\n", b"abcd"]
