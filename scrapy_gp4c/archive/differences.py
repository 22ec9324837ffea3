"""Differences of two texts, word by word, with some words of context."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

CONTEXT_WORDS: Final = 8
MOST_WORDS: Final = 8_000
"""Longest differing stretch, both sides together, that difflib compares: its time grows with the square."""
_BEFORE: Final = {" ": "", "-": "[-", "+": "{+"}
_BEHIND: Final = {" ": "", "-": "-]", "+": "+}"}
_MARKED: Final = re.compile(r"\[-.*?-\]|\{\+.*?\+\}")
_COLOURS: Final = {"-": "\033[31m", "+": "\033[32m"}
_PLAIN: Final = "\033[0m"


class Segment(NamedTuple):
    """Words in a row that are common, removed or added."""

    sign: str
    """``-`` for removed words, ``+`` for added ones, a blank for common ones."""
    words: tuple[str, ...]


class Hunk(NamedTuple):
    """Difference, or several close to each other, with its context."""

    position: int
    """Number of the first word in the later text, from 1 on."""
    segments: tuple[Segment, ...]


def differences(before: str, after: str, context: int = CONTEXT_WORDS) -> list[Hunk]:
    """Return the differences of two texts; none if they have the same words, whatever the white space."""
    old, new = before.split(), after.split()
    hunks = []
    for group in _grouped(_opcodes(old, new), context):
        segments = [
            segment
            for tag, a, b, c, d in group
            for segment in (
                [Segment(" ", tuple(new[c:d]))]
                if tag == "equal"
                else [Segment("-", tuple(old[a:b])), Segment("+", tuple(new[c:d]))]
            )
        ]
        hunks.append(Hunk(group[0][3] + 1, tuple(segment for segment in segments if segment.words)))
    return hunks


Opcode = tuple[str, int, int, int, int]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Edit steps between word lists: `difflib` on the stretch between a common head and tail."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
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
    """Groups of edit steps, without long equal stretches."""
    matcher: Any = SequenceMatcher(None, "", "")
    matcher.opcodes = codes
    yield from matcher.get_grouped_opcodes(context)


def shown(hunks: Iterable[Hunk]) -> Iterator[str]:
    """Yield a line per hunk as ``git diff --word-diff`` has them: ``@@ 12 @@ a [-gone-] {+new+} word``."""
    for hunk in hunks:
        segments = [f"{_BEFORE[sign]}{' '.join(words)}{_BEHIND[sign]}" for sign, words in hunk.segments]
        yield f"@@ {hunk.position} @@ {' '.join(map(_printable, segments))}"


def coloured(line: str) -> str:
    """Return a line of `shown` in the colours of a terminal."""
    return _MARKED.sub(lambda match: f"{_COLOURS[match[0][1]]}{match[0]}{_PLAIN}", line)


def _printable(text: str) -> str:
    """Text without control characters, which would steer the terminal: pages are foreign."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
