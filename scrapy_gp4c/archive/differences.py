"""How two texts differ, word by word, with some words around each difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

CONTEXT_WORDS: Final = 8
MOST_WORDS: Final = 8_000
"""Of the part that differs, on both sides together: beyond, it counts as replaced as a whole, since finding
what is common takes time that grows with the square."""
_BEFORE: Final = {" ": "", "-": "[-", "+": "{+"}
_BEHIND: Final = {" ": "", "-": "-]", "+": "+}"}
_MARKED: Final = re.compile(r"\[-.*?-\]|\{\+.*?\+\}")
_COLOURS: Final = {"-": "\033[31m", "+": "\033[32m"}
_PLAIN: Final = "\033[0m"


class Part(NamedTuple):
    """Some words in a row."""

    sign: str
    """``-``: they are gone, ``+``: they are new, a blank: they are in both texts."""
    words: tuple[str, ...]


class Hunk(NamedTuple):
    """A difference, or several close to each other, with what is around."""

    place: int
    """Number of its first word in the text after, from 1 on."""
    parts: tuple[Part, ...]


def differences(before: str, after: str, context: int = CONTEXT_WORDS) -> list[Hunk]:
    """Return where two texts differ; white space does not count. None: they have the same words."""
    old, new = before.split(), after.split()
    hunks = []
    for group in _grouped(_opcodes(old, new), context):
        parts = [
            part
            for tag, a, b, c, d in group
            for part in (
                [Part(" ", tuple(new[c:d]))]
                if tag == "equal"
                else [Part("-", tuple(old[a:b])), Part("+", tuple(new[c:d]))]
            )
        ]
        hunks.append(Hunk(group[0][3] + 1, tuple(part for part in parts if part.words)))
    return hunks


Opcode = tuple[str, int, int, int, int]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """What makes the new words of the old ones: `difflib` on what is between a common beginning and end."""
    least = min(len(old), len(new))
    head = next((at for at in range(least) if old[at] != new[at]), least)
    tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
    a, b, c, d = head, len(old) - tail, head, len(new) - tail
    codes: list[Opcode] = [("equal", 0, a, 0, c)] if head else []
    if b - a + d - c > MOST_WORDS:
        codes.append(("replace", a, b, c, d))
    elif (a, c) != (b, d):
        inner = SequenceMatcher(None, old[a:b], new[c:d]).get_opcodes()
        codes += [(tag, a + i, a + j, c + k, c + m) for tag, i, j, k, m in inner]
    if tail:
        codes.append(("equal", b, len(old), d, len(new)))
    return codes


def _grouped(codes: list[Opcode], context: int) -> Iterator[list[Opcode]]:
    """Cut long equal stretches."""
    matcher: Any = SequenceMatcher(None, "", "")
    matcher.opcodes = codes
    yield from matcher.get_grouped_opcodes(context)


def shown(hunks: Iterable[Hunk]) -> Iterator[str]:
    """Yield a line per hunk as ``git diff --word-diff`` has them: ``@@ 12 @@ a [-gone-] {+new+} word``."""
    for hunk in hunks:
        parts = [f"{_BEFORE[sign]}{' '.join(words)}{_BEHIND[sign]}" for sign, words in hunk.parts]
        yield f"@@ {hunk.place} @@ {' '.join(map(_printable, parts))}"


def coloured(line: str) -> str:
    """A line of `shown` in the colours of a terminal."""
    return _MARKED.sub(lambda found: f"{_COLOURS[found[0][1]]}{found[0]}{_PLAIN}", line)


def _printable(text: str) -> str:
    """Text without what would steer a terminal: pages are foreign."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
