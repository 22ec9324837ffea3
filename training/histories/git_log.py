"""Calls of git: the first-parent line, the files of a commit, differences.

Plumbing commands only, so that no configuration of the user changes their output. They read commits and
trees, never file contents: a clone made with ``--filter=blob:none --no-checkout`` is enough. No program that
a repository's configuration, attributes or hooks name is run, and nothing is fetched.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError

_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",  # none: a missing object is an error, not a call of the repository's remote
    "GIT_NO_LAZY_FETCH": "1",
}
_GIT: Final = (
    *("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}", "-c", "log.showSignature=false", "-c", "diff.external="),
)
"""Options before each git command; they are stronger than the repository's configuration."""
_NO_PROGRAMS: Final = ("--no-ext-diff", "--no-textconv")
_REDIRECTING: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")
"""Environment variables that would make git read another repository; git sets them in hooks."""


class FirstParentLine(NamedTuple):
    """First-parent line of a repository, oldest commit first."""

    commits: list[str]
    times: npt.NDArray[np.int64]
    """Committer times of the commits, sorted: a wrong clock moves no other commit by more than a place."""


class FileDifference(NamedTuple):
    """Path of a file that differs between two commits, and how."""

    path: bytes
    status: str
    """Letters of git diff: M modified, A added, D deleted, T another kind of object."""
    same_content: bool
    """Whether only the file mode differs."""


def check_repository(path: Path) -> None:
    """Raise HistoryError unless `path` is the top directory of a git repository."""
    if not path.is_dir():
        raise HistoryError(f"{path} is no directory; expected a clone of a git repository")
    above = _git(path, "rev-parse", "--show-cdup").decode().strip()
    if above:
        raise HistoryError(
            f"{path} is a directory inside a git repository, not its top; give {path / above} with "
            "--include for the part of it that is meant"
        )


def is_shallow(path: Path) -> bool:
    """Whether the repository is a shallow clone, which lacks older commits."""
    return _git(path, "rev-parse", "--is-shallow-repository").strip() == b"true"


def subjects(path: Path, commits: Sequence[str]) -> list[str]:
    """First lines of the commits' messages."""
    command = ("log", "--no-walk=unsorted", "--stdin", "--no-show-signature", "--no-color", "--format=%s")
    rows = (
        _git(path, *command, *_NO_PROGRAMS, standard_input="\n".join(commits))
        .decode("utf-8", "replace")
        .split("\n")
    )
    return rows[: len(commits)]


def first_parent_line(path: Path) -> FirstParentLine:
    """Read the first-parent line that ends at HEAD; HistoryError if there is no commit."""
    rows = _git(path, "rev-list", "--first-parent", "--reverse", "--timestamp", "HEAD").split(b"\n")
    pairs = [row.split() for row in rows if row]
    times = np.fromiter((int(time) for time, _ in pairs), np.int64, len(pairs))
    return FirstParentLine([commit.decode() for _, commit in pairs], np.sort(times))


def files(path: Path, commit: str) -> Iterator[bytes]:
    """Paths of the regular files in a commit: no symbolic links, no submodules."""
    for entry in _git(path, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        if entry.startswith(b"100"):
            yield entry.split(b"\t", 1)[1]


def differences(
    path: Path, pairs: Sequence[tuple[str, str]], advance: Callable[[], object]
) -> Iterator[tuple[int, FileDifference]]:
    """Yield each file that differs between two commits, with the position of their pair (new, old).

    One git process streams them; `advance` is called at each pair. A rename is a deletion and an addition.
    """
    command = [*_GIT, "-C", str(path), "diff-tree", "--stdin", "--always", "-r", "-z", "--raw"]
    command += ["--no-renames", "--no-abbrev", "--ignore-submodules", *_NO_PROGRAMS]
    with tempfile.TemporaryFile() as pair_file, tempfile.TemporaryFile() as complaints:
        pair_file.writelines(f"{new} {old}\n".encode() for new, old in pairs)
        pair_file.seek(0)
        process = subprocess.Popen(
            command, stdin=pair_file, stdout=subprocess.PIPE, stderr=complaints, env=_environment()
        )
        assert process.stdout is not None
        try:
            number, tokens = -1, _tokens(process.stdout)
            for token in tokens:
                if token.startswith(b":"):
                    _, _, old_blob, new_blob, status = token.split(b" ")
                    yield number, FileDifference(next(tokens), chr(status[0]), old_blob == new_blob)
                else:
                    number += 1
                    advance()
            if process.wait() or number + 1 != len(pairs):
                complaints.seek(0)
                raise _failed(path, complaints.read())
        finally:
            process.kill()  # a reader that stops early must leave no process behind
            process.wait()
            process.stdout.close()


def _tokens(stream: IO[bytes]) -> Iterator[bytes]:
    unfinished = b""
    while chunk := stream.read(1 << 20):
        *complete, unfinished = (unfinished + chunk).split(b"\0")
        yield from complete


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _REDIRECTING} | _ENVIRONMENT


def _git(path: Path, *arguments: str, standard_input: str = "") -> bytes:
    try:
        done = subprocess.run(
            [*_GIT, "-C", str(path), *arguments],
            capture_output=True,
            input=standard_input.encode(),
            env=_environment(),
        )
    except FileNotFoundError:
        raise HistoryError("the program git is not installed, or not on the PATH; install it") from None
    if done.returncode:
        raise _failed(path, done.stderr)
    return done.stdout


def _failed(path: Path, complaint: bytes) -> HistoryError:
    message = " ".join(complaint.decode("utf-8", "replace").split()) or "it gave no reason"
    return HistoryError(f"cannot read {path} as a git repository; git says: {message}")
