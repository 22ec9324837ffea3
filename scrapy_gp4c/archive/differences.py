"""Differences of two texts, word by word, with some words of context.

In scripts without blanks between words (Thai, Lao, Burmese, Khmer, kana, Han) each letter counts as a word.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, NamedTuple

from scrapy_gp4c.foreign_text import printable

CONTEXT_WORDS: Final = 8
MOST_WORDS: Final = 1_500
"""Longest differing stretch, both sides together, for difflib: its time grows with the square, or worse."""
LONG_CHARACTERS: Final = 2**18
"""Characters of two texts together beyond which common head and tail are not split into words."""
CONTEXT_CHARACTERS: Final = 1_000
"""Characters of a common head and tail that are split all the same, as context."""
MOST_SPLIT_WORDS: Final = 100_000
"""Words into which a text is split; a megabyte of Han would be a million."""
MOST_ANCHORED_WORDS: Final = 30_000
"""Words of a differing stretch, on either side, in which anchors are looked for."""
MOST_COMPARED_WORDS: Final = 12_000
"""Words of differing stretches (each counts at least four) after which all that follows is one difference."""
_BEFORE: Final = {" ": "", "-": "[-", "+": "{+"}
_BEHIND: Final = {" ": "", "-": "-]", "+": "+}"}
_MARKED: Final = re.compile(r"\[-(?:(?!\[-).)*?-\]|\{\+(?:(?!\{\+).)*?\+\}")
"""Marked words, ``[-gone-]`` or ``{+new+}``; linear time on text full of opening marks."""
_COLOURS: Final = {"-": "\033[31m", "+": "\033[32m"}
_PLAIN: Final = "\033[0m"

_UNSPACED: Final = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u309f\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_KATAKANA: Final = "\u30a0-\u30ff\u31f0-\u31ff"  # whole runs: words from other languages
_MARKS: Final = (
    "\u0e31\u0e33-\u0e3a\u0e45\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1060"
    "\u17b4-\u17d3\u3099\u309a\ufe00-\ufe0f"
)
_WORD: Final = re.compile(rf"[{_UNSPACED}][{_MARKS}]*|[{_KATAKANA}]+|[^\s{_UNSPACED}{_KATAKANA}]+")
_TOUCHING: Final = rf"[{_UNSPACED}{_KATAKANA}\u3000-\u303f\uff00-\uffef]"
"""Letters and punctuation of scripts that put no blank between words."""
_NO_BLANK: Final = re.compile(f"(?<={_TOUCHING}) (?={_TOUCHING})")


def words_of(text: str) -> list[str]:
    """Split a text into words at blanks, or into letters where a script has no blanks between words.

    All text after the first `MOST_SPLIT_WORDS` words is one more word.
    """
    matches = _WORD.finditer(text)
    words = [match[0] for match in islice(matches, MOST_SPLIT_WORDS)]
    following = next(matches, None)
    return words if following is None else [*words, text[following.start() :]]


def text_of(words: Sequence[str]) -> str:
    """Join words to a text, with blanks where their script has blanks."""
    text = " ".join(words)
    return text if text.isascii() else _NO_BLANK.sub("", text)


def differing_words(before: str, after: str) -> int:
    """Count the words in which two texts differ; a replaced word counts once."""
    if before == after:
        return 0
    if len(before) + len(after) > LONG_CHARACTERS:
        _, before, after = _without_ends(before, after)
    old, new = words_of(before), words_of(after)
    steps = [step for step in _opcodes(old, new) if step[0] != "equal"]
    return sum(max(count_words(*old[a:b]), count_words(*new[c:d])) for _, a, b, c, d in steps)


def count_words(*texts: str) -> int:
    """Return the number of words of all `texts` together."""
    return sum(1 for text in texts for _ in _WORD.finditer(text))


class Segment(NamedTuple):
    """Consecutive words that are all common, removed or added."""

    sign: str
    """``-`` for removed words, ``+`` for added ones, a blank for common ones."""
    words: tuple[str, ...]


class Hunk(NamedTuple):
    """Some differences that are close to each other, with common words around them."""

    position: int
    """Number of the first word in the later text, from 1 on."""
    segments: tuple[Segment, ...]


def differences(before: str, after: str, context: int = CONTEXT_WORDS) -> list[Hunk]:
    """Return the differences of two texts, with `context` common words around each; [] if there are none."""
    if before == after:
        return []  # words of a megabyte of Han take a hundred
    first = 1
    if len(before) + len(after) > LONG_CHARACTERS:
        head, before, after = _without_ends(before, after)
        first += count_words(head)
    old, new = words_of(before), words_of(after)
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
        hunks.append(Hunk(group[0][3] + first, tuple(segment for segment in segments if segment.words)))
    return hunks


def _without_ends(before: str, after: str) -> tuple[str, str, str]:
    """Return the head that two texts share, and each text without that head and the tail that they share.

    Up to `CONTEXT_CHARACTERS` at either end (and on to a blank) stay in the two texts instead, as context.
    """
    shorter = min(len(before), len(after))
    head = bisect_left(range(shorter), True, key=lambda n: before[: n + 1] != after[: n + 1])
    tail = bisect_left(
        range(shorter - head),
        True,
        key=lambda n: before[len(before) - n - 1 :] != after[len(after) - n - 1 :],
    )
    head, tail = max(0, head - CONTEXT_CHARACTERS), max(0, tail - CONTEXT_CHARACTERS)
    head = before.rfind(" ", max(0, head - CONTEXT_CHARACTERS), head) + 1 or head
    return before[:head], before[head : len(before) - tail], after[head : len(after) - tail]


Opcode = tuple[str, int, int, int, int]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return `difflib` opcodes from `old` to `new`: common ends at once, the rest by `_inner_opcodes`."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    a, b, c, d = head, len(old) - tail, head, len(new) - tail
    codes: list[Opcode] = [("equal", 0, a, 0, c)] if head else []
    codes += [(tag, a + i, a + j, c + k, c + m) for tag, i, j, k, m in _inner_opcodes(old[a:b], new[c:d])]
    if tail:
        codes.append(("equal", b, len(old), d, len(new)))
    return codes


def _inner_opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return `difflib` opcodes that turn words `old` into `new`, in linear time, as anchors cut long lists.

    Anchors are words that each side has once, in the longest order that both share: the idea of Bram Cohen's
    patience diff. A long stretch without anchors counts as replaced; see `MOST_COMPARED_WORDS`.
    """
    if len(old) + len(new) <= MOST_WORDS:
        return [*SequenceMatcher(None, old, new).get_opcodes()]
    codes: list[Opcode] = []
    i = k = compared = 0
    for j, m in [*_anchors(old[:MOST_ANCHORED_WORDS], new[:MOST_ANCHORED_WORDS]), (len(old), len(new))]:
        if compared > MOST_COMPARED_WORDS:
            codes.append(("replace", i, len(old), k, len(new)))
            break
        before, after = old[i:j], new[k:m]
        size = len(before) + len(after)
        if before == after or size > MOST_WORDS or set(before).isdisjoint(after):
            compared += 4 * (before != after)
            codes.append(("equal" if before == after else "replace", i, j, k, m))
        else:
            compared += size
            steps = SequenceMatcher(None, before, after).get_opcodes()
            codes += [(tag, a + i, b + i, c + k, d + k) for tag, a, b, c, d in steps]
        if j < len(old) and m < len(new):
            codes.append(("equal", j, j + 1, m, m + 1))
        i, k = j + 1, m + 1
    return _joined(codes)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return position pairs of words that both lists have once: the longest sequence that ascends in both."""
    counts_old, counts_new = Counter(old), Counter(new)
    position = {word: m for m, word in enumerate(new) if counts_new[word] == 1}
    pairs = [(j, position[word]) for j, word in enumerate(old) if counts_old[word] == 1 and word in position]
    ends: list[int] = []  # by length, the smallest end of a sequence in `new`, and the pair that ends it
    last: list[int] = []
    before: list[int] = []
    for number, (_, m) in enumerate(pairs):
        length = bisect_left(ends, m)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(m)
            last.append(number)
        else:
            ends[length], last[length] = m, number
    chain = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _joined(codes: list[Opcode]) -> list[Opcode]:
    """Merge consecutive "equal" opcodes and drop empty ones."""
    joined: list[Opcode] = []
    for code in codes:
        tag, a, b, c, d = code
        if a == b and c == d:
            continue
        if joined and tag == joined[-1][0] == "equal":
            joined[-1] = (tag, joined[-1][1], b, joined[-1][3], d)
        else:
            joined.append(code)
    return joined


def _grouped(codes: list[Opcode], context: int) -> Iterator[list[Opcode]]:
    """Yield groups of opcodes with at most `context` equal words around each, as `difflib` groups them."""
    matcher: Any = SequenceMatcher(None, "", "")
    matcher.opcodes = codes
    yield from matcher.get_grouped_opcodes(context)


def shown(hunks: Iterable[Hunk]) -> Iterator[str]:
    """Yield a line for each hunk, like ``git diff --word-diff``: ``@@ 12 @@ a [-gone-] {+new+} word``."""
    for hunk in hunks:
        segments = [f"{_BEFORE[sign]}{text_of(words)}{_BEHIND[sign]}" for sign, words in hunk.segments]
        yield f"@@ {hunk.position} @@ {' '.join(map(printable, segments))}"


def coloured(line: str) -> str:
    """Return a line of `shown` with the escape codes of a terminal's colours."""
    return _MARKED.sub(lambda match: f"{_COLOURS[match[0][1]]}{match[0]}{_PLAIN}", line)
