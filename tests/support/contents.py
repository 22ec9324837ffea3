"""Contents for tests: texts of a few pages over a few cycles."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from training.histories.contents import ContentHistory, read_contents

Versions = Mapping[int, str | None]
"""Cycle -> text from then on."""


def write_contents(path: Path, pages: Sequence[Versions], site: str = "docs") -> Path:
    """Write a file of contents; page i is named ``page<i>``."""
    lines = (
        json.dumps({"site": site, "page": f"page{i}", "versions": dict(page)}) for i, page in enumerate(pages)
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def contents_of(tmp_path: Path, pages: Sequence[Versions]) -> ContentHistory:
    """Read what `write_contents` wrote."""
    return read_contents(write_contents(tmp_path / "contents.jsonl", pages))


def random_pages(
    seed: int, pages: int = 8, cycles: int = 6, words: str = "abcde"
) -> list[dict[int, str | None]]:
    """Texts of a few words, with headings; some change often, some never, one goes."""
    rng = np.random.default_rng(seed)

    def text() -> str:
        drawn = rng.choice(list(words), rng.integers(0, 7))
        return f"# {rng.choice(list(words))} {rng.choice(list(words))}\n\n{' '.join(drawn)}\n"

    out: list[dict[int, str | None]] = []
    for number in range(pages):
        versions: dict[int, str | None] = {0: text()}
        for cycle in range(1, cycles + 1):
            if rng.random() < number / pages:
                versions[cycle] = text()
        out.append(versions)
    out[-1][cycles] = None
    return out
