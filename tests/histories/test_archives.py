"""NumPy formats that say they are larger than memory, or are."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from training.histories import formats
from training.histories.reading import read_history


def npz() -> bytes:
    """A small history."""
    content = io.BytesIO()
    np.savez_compressed(content, changed=np.eye(4, 5, dtype=bool), site=np.arange(5))
    return content.getvalue()


def test_an_archive_is_read_in_gzip_too(tmp_path: Path) -> None:
    """As the formats of lines are."""
    (tmp_path / "h.npz").write_bytes(npz())
    (tmp_path / "h.npz.gz").write_bytes(gzip.compress(npz()))
    one, other = (read_history(tmp_path / name) for name in ("h.npz", "h.npz.gz"))
    assert one.changed.tolist() == other.changed.tolist()


def test_an_archive_in_gzip_has_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unpacked into memory; one that is not is read from the file."""
    monkeypatch.setattr(formats, "MAX_ARCHIVE_BYTES", 100)
    (tmp_path / "h.npz").write_bytes(npz())
    assert read_history(tmp_path / "h.npz").pages == 5
    (tmp_path / "h.npz.gz").write_bytes(gzip.compress(npz()))
    with pytest.raises(HistoryError, match="at most 100 bytes inside gzip; found more"):
        read_history(tmp_path / "h.npz.gz")


def test_arrays_larger_than_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both figures; where a machine does not tell its memory, they are read."""
    (tmp_path / "h.npz").write_bytes(npz())
    monkeypatch.setattr(formats, "memory_bytes", lambda: 200)
    with pytest.raises(
        HistoryError, match=r"h.npz: its arrays take \d+ bytes, and this machine has 200 bytes"
    ):
        read_history(tmp_path / "h.npz")
    monkeypatch.setattr(formats, "memory_bytes", lambda: None)
    assert read_history(tmp_path / "h.npz").pages == 5


def test_an_array_that_only_says_it_is_large_is_refused(tmp_path: Path) -> None:
    """Its header is a claim; what follows are a few bytes."""
    head = io.BytesIO()
    shape = (2**20, 2**24)
    np.lib.format.write_array_header_1_0(head, {"descr": "|b1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive:
        archive.writestr("changed.npy", head.getvalue() + b"\0" * 10)
    with pytest.raises(HistoryError, match=r"h.npz.*expected arrays changed"):
        read_history(tmp_path / "h.npz")


def test_a_machine_tells_its_memory_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no such call."""
    assert formats.memory_bytes() is None or formats.memory_bytes() > 2**20
    monkeypatch.delattr(formats.os, "sysconf", raising=False)
    assert formats.memory_bytes() is None
