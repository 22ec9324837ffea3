"""State of a learning run on disk, for ``--resume`` after a kill.

It is one JSON file, replaced atomically after every generation. It names all that the learning run depends
on; opening the checkpoint of another run is an error.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.store.atomic_files import probe, replacing
from training.evolution.evolve import EvolutionState, Json

FORMAT: Final = "gp4c-checkpoint/1"
NAME: Final = "checkpoint.json"


def write_atomically(path: Path, content: Any, indent: int | None = None) -> None:
    """Write `content` as JSON to a temporary file, which then replaces the one at `path`.

    Raises LearningError when the file cannot be written.
    """
    try:
        with replacing(path) as file:
            file.write(f"{json.dumps(content, indent=indent)}\n".encode())
    except OSError as error:
        raise LearningError(f"cannot write {str(path)!r}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Raise LearningError unless a file can be made at this path; leaves nothing behind."""
    if path.is_dir():
        raise LearningError(f"cannot write {str(path)!r}: it is a directory; give the path of a file")
    try:
        probe(path)
    except OSError as error:
        raise LearningError(
            f"cannot write {str(path)!r}: {error.strerror}; give a path in a directory that can be written"
        ) from error


class Checkpoint:
    """Checkpoint file of one learning run: the state of each of its evolutions, in a directory of its own."""

    def __init__(self, directory: Path, identity: Mapping[str, object]) -> None:
        """``identity``: everything that the result depends on, as plain JSON types; touches no file yet."""
        self.states: list[EvolutionState] | None = None
        """States that were opened or saved last, one per evolution; None: nothing was saved yet."""
        self._directory = directory
        self._path = directory / NAME
        self._identity = json.loads(json.dumps(identity))

    def open(self, resume: bool) -> list[EvolutionState] | None:
        """Make the directory, and return the saved states, one per evolution; None if there is no checkpoint.

        Raises LearningError for a directory that cannot be used, a damaged checkpoint, one of a learning run
        with another `identity`, or any checkpoint if ``resume`` is False.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LearningError(
                f"cannot make the checkpoint directory {str(self._directory)!r}: {error.strerror}"
            ) from error
        check_writable(self._path)
        if not self._path.exists():
            return None
        if not resume:
            raise LearningError(
                f"{str(self._directory)!r} holds the checkpoint of a run that did not finish: continue it "
                "with --resume, delete it, or give another directory with --checkpoint"
            )
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f'expected "format": {FORMAT!r}, found {content["format"]!r}')
            states = msgspec.convert(content["states"], list[EvolutionState])
            saved: Json = content["run"]
            if not isinstance(saved, dict):
                raise ValueError(f'expected an object as "run", found {saved!r}')
        except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise LearningError(
                f"{str(self._path)!r} is not a checkpoint that can be read ({error}); delete it to start anew"
            ) from error
        different = [
            f"{name} is {saved.get(name)!r} there and {self._identity.get(name)!r} here"
            for name in dict.fromkeys((*self._identity, *saved))
            if saved.get(name) != self._identity.get(name)
        ]
        if different:
            raise LearningError(
                f"the checkpoint in {str(self._directory)!r} belongs to another run: "
                f"{'; '.join(different)}. Repeat its choices or give another directory with --checkpoint"
            )
        self.states = states
        return states

    def save(self, states: list[EvolutionState]) -> None:
        content = {"format": FORMAT, "run": self._identity, "states": msgspec.to_builtins(states)}
        write_atomically(self._path, content)
        self.states = states

    def remove(self) -> None:
        """Remove the file, and the directory if nothing else is in it: learning is complete."""
        self._path.unlink(missing_ok=True)
        try:
            self._directory.rmdir()
        except OSError:
            return
