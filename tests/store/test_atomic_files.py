"""Files that are there whole or not at all, and what is no file."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scrapy_gp4c.store.atomic_files import probe, replacing


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    """A full device is an error and stays a device; a pipe gets the content; neither by a new name."""
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    for name in (Path("/dev/full"), full):
        with pytest.raises(OSError, match="No space left"), replacing(name) as file:
            file.write(b"text")
        probe(name)
        assert stat.S_ISCHR(name.stat().st_mode)
    assert full.is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as file:
        file.write(b"text")
    reader.join(timeout=10)
    assert got == [b"text"]
    assert sorted(os.listdir(tmp_path)) == ["full", "pipe"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    """The link stays, its target is replaced, with the mode that it had, or made where there is none."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link, target = tmp_path / "link", folder / "target"
    link.symlink_to(target)
    for content in (b"new", b"replaced"):
        probe(link)
        with replacing(link) as file:
            file.write(content)
        assert link.is_symlink()
        assert target.read_bytes() == content
        target.chmod(0o600)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(folder) == ["target"]


def test_standard_output_stays_what_it_is(tmp_path: Path) -> None:
    """Written through /dev/stdout, a regular file keeps its identity: others have it open too."""
    code = (
        "from scrapy_gp4c.store.atomic_files import replacing\n"
        "with replacing('/dev/stdout') as file: file.write(b'text')\n"
    )
    path = tmp_path / "out"
    with path.open("wb") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, check=True, timeout=60)
        assert os.fstat(output.fileno()).st_ino == path.stat().st_ino
    assert path.read_bytes() == b"text"
    assert os.listdir(tmp_path) == ["out"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever ends the block, the old content is there and nothing else."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write to the directory lays a link by the name of the file to come: its target stays."""
    victim, target = tmp_path / "victim", tmp_path / "feed.json"
    victim.write_bytes(b"precious")
    (tmp_path / f".feed.json.{os.getpid()}.tmp").symlink_to(victim)
    with replacing(target) as file:
        file.write(b"feed")
    assert (victim.read_bytes(), target.read_bytes(), target.is_symlink()) == (b"precious", b"feed", False)
    assert sorted(os.listdir(tmp_path)) == ["feed.json", "victim"]
