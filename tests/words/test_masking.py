"""Tests of the masks' time: linear in the length of any text, by the patterns' form and by what they cost."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hostile_texts import HOSTILE, Hostile
from scrapy_gp4c.words import masking
from scrapy_gp4c.words.masking import MASK, mask
from scrapy_gp4c.words.normal import normalise

SIZE = 2**17
CPU_SECONDS = 10  # a text of SIZE takes 0.1 s now; with the square of its length it took minutes
PIECES = re.split(
    r"\|",
    "1|9|,|.|:|-|/|+|=|_|a|f|é|١|１|\t| |  |2026|10:10|january|mon|views|took|vor|ago|minutes|csrf|sid|of|at"
    "|年|1700000000|abcdef|\u0301|\ufdfa",
)
PIECE_LISTS = st.lists(st.sampled_from(PIECES), max_size=6)


@contextmanager
def cpu_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after so many seconds of this process's own time, whatever else the machine does."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def unbounded(tree: Any, depth: int = 0) -> Iterator[tuple[bool, int]]:
    """Yield of each repeat without a bound whether it is possessive, and in how many others it stands."""
    for operator, argument in tree:
        inner = depth
        is_atomic = operator is code.ATOMIC_GROUP and len(argument) == 1
        if is_atomic:  # a repeat in an atomic group of its own is possessive, too
            operator, argument = argument[0]
        if operator in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT) and (
            argument[1] is code.MAXREPEAT
        ):
            yield is_atomic or operator is code.POSSESSIVE_REPEAT, depth
            inner += 1
        yield from parts(argument, inner)


def parts(argument: Any, depth: int) -> Iterator[tuple[bool, int]]:
    """Yield the same of all that stands in an operator's argument."""
    if isinstance(argument, parser.SubPattern):
        yield from unbounded(argument, depth)
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from parts(part, depth)


def test_no_pattern_goes_back_over_what_it_took() -> None:
    """Every repeat without a bound is possessive, or ends its pattern: nothing can fail after it."""
    compiled = {name: value for name, value in vars(masking).items() if isinstance(value, re.Pattern)}
    assert len(compiled) >= 5
    for name, pattern in compiled.items():
        tree = parser.parse(pattern.pattern, pattern.flags)
        loose = [depth for possessive, depth in unbounded(tree) if not possessive]
        ends = tree[-1][0] is code.MAX_REPEAT and tree[-1][1][1] is code.MAXREPEAT
        assert loose == ([0] if ends else []), name


def test_no_try_at_a_number_takes_in_a_whole_list() -> None:
    """What begins with a digit is tried at each number of a list: it repeats numbers up to a bound."""
    tree = parser.parse(vars(masking)["_DIGIT_FIRST"])
    assert {depth for _, depth in unbounded(tree)} == {0}


@pytest.mark.parametrize("pattern", [r"(?:\d+,)*x", r"\s*,?\s*x", r"(?:a|\d+)x"])
def test_a_loose_repeat_is_found(pattern: str) -> None:
    """The check of the patterns sees a repeat wherever it stands."""
    assert not all(possessive for possessive, _ in unbounded(parser.parse(pattern)))


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_end(hostile: Hostile) -> None:
    """No list of numbers, dates, blanks or marks takes the square of its length."""
    with cpu_limit(CPU_SECONDS):
        normalise(hostile.text(SIZE))


@given(PIECE_LISTS, PIECE_LISTS.filter(bool))
def test_any_repeated_piece_ends(head: list[str], pieces: list[str]) -> None:
    """Whatever is repeated, the time stays linear."""
    with cpu_limit(CPU_SECONDS):
        normalise(Hostile("".join(head), "".join(pieces)).text(SIZE))


@pytest.mark.parametrize(
    ("name", "masked"),
    [
        ("JSON, integers", None),
        ("JSON, floats", None),
        ("version numbers", None),
        ("digit, comma", None),
        ("run time of a list", None),
        ("views of a list", MASK + ","),
        ("times, commas", None),
        ("a time, digits", MASK),
    ],
)
def test_hostile_texts_are_masked_as_short_ones(name: str, masked: str | None) -> None:
    """A list of numbers stays as it is, however long; what is masked at its head is masked."""
    text = HOSTILE[name].text(SIZE)
    assert mask(text) == (text if masked is None else masked)


def test_numbers_behind_too_many_others_count() -> None:
    """Masks are sought in a bounded length around numbers; what stands behind is compared as it is."""
    masked = mask("10:10:10, " * 2**15 + "word " * 99 + "10:10:10")
    assert masked.count(MASK) == 1
    assert masked.endswith("10:10:10")
    assert masked.count("10:10:10") == pytest.approx(2**15 - 2**18 / 10, abs=5)


@pytest.mark.parametrize("blanks", [" ", "\t\t", " " * 9])
@pytest.mark.parametrize("between", ["at", ",", ", um", "-", "t", "a las", "("])
def test_a_clock_is_part_of_its_date_whatever_the_blanks(blanks: str, between: str) -> None:
    """Date, blanks, a word, blanks, clock: one sign."""
    for date in ("2026-01-01", "january 1, 2026", "fri, 1 mai 2026"):
        assert mask(f"x {date}{blanks}{between}{blanks}10:10 y").replace(f",{MASK}", MASK) == f"x {MASK} y"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("1,234,567,890 views", MASK),
        ("2026-01-01,17 views", MASK),
        ("x1,234 views", f"x1,{MASK}"),
        ("views: 1,2,3,4,5,6,7,8,9,10,11,12", MASK),
        ("x1 views: ٣", f"x1 {MASK}"),
        ("took 1.5 ms", f"took {MASK}"),
        ("sid my_csrf_token=a1", f"sid my_{MASK}"),
    ],
)
def test_numbers_with_a_unit_are_masked_as_before(text: str, masked: str) -> None:
    """The bounds of the patterns lie beyond any number that a page states."""
    assert mask(text) == masked


def test_words_of_tables_come_back_wherever_they_stand() -> None:
    """Behind a digit a unit stayed a sign of the table, and words behind it were swapped."""
    assert (
        mask("5min by train, 5std in march 2026, 7sek april") == f"5min by train, 5std in {MASK}, 7sek april"
    )
    assert mask("takes 5min by updated 12:34") != mask("takes 5std by updated 12:34")


class _Watched(str):
    """Text that counts how often it is looked through."""

    looks = 0

    def __contains__(self, word: str) -> bool:
        self.looks += 1
        return super().__contains__(word)


def test_a_text_is_looked_through_as_often_whatever_its_length() -> None:
    """Signs of prose are sought once in a text, not at each of its numbers."""
    short, long = (_Watched("a may 7 of many other words, a 7 of more, " * times) for times in (1, 50))
    assert mask(short) in mask(long)
    assert short.looks == long.looks
