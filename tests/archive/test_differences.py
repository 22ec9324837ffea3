"""Word diffs: what they say makes the one text of the other, whatever the texts."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.archive import differences as module
from scrapy_gp4c.archive.differences import (
    MOST_WORDS,
    Hunk,
    Segment,
    coloured,
    differences,
    differing_words,
    shown,
    text_of,
    words_of,
)

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "dd", "\n", "ü"]), max_size=60).map(" ".join)


def words(hunks: list[Hunk], without: str) -> list[str]:
    """The words of hunks, without those of a sign."""
    return [word for hunk in hunks for sign, part in hunk.segments if sign != without for word in part]


@given(TEXTS, TEXTS)
def test_with_all_context_both_texts_are_in_it(before: str, after: str) -> None:
    """Without the new words it is the old text, and the other way round; equal words have no difference."""
    hunks = differences(before, after, context=1000)
    if before.split() == after.split():
        assert hunks == []
        return
    assert len(hunks) == 1
    assert words(hunks, "+") == before.split()
    assert words(hunks, "-") == after.split()


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_hunks_are_where_they_say(before: str, after: str, context: int) -> None:
    """Each stands at its place in the text after, apart from the next, with at most so many words around."""
    end = 0
    for hunk in differences(before, after, context):
        removed = words([hunk], "-")
        start = hunk.position - 1
        assert after.split()[start : start + len(removed)] == removed
        assert start >= end
        end = start + len(removed)
        assert {part.sign for part in hunk.segments} & {"-", "+"}
        assert all(part.words for part in hunk.segments)
        for part in (hunk.segments[0], hunk.segments[-1]):
            assert part.sign != " " or len(part.words) <= context


def test_what_is_shown() -> None:
    """As ``git diff --word-diff`` has it, in colour where that is wanted."""
    before = " ".join(f"word{number}" for number in range(50))
    after = before.replace("word20", "other words").replace("word45 ", "")
    hunks = differences(before, after, context=2)
    assert list(shown(hunks)) == [
        "@@ 19 @@ word18 word19 [-word20-] {+other words+} word21 word22",
        "@@ 45 @@ word43 word44 [-word45-] word46 word47",
    ]
    (first, _) = map(coloured, shown(hunks))
    assert "\033[31m[-word20-]\033[0m \033[32m{+other words+}\033[0m" in first
    (line,) = shown(differences("a", "a \x1b[2Jb"))
    assert line == "@@ 1 @@ a {+%1B[2Jb+}"


def test_opening_marks_of_a_page_cost_no_square() -> None:
    """A line of them, whose square would take minutes, has no marked word but the last."""
    for mark, word in (("[- ", "[-a-]"), ("{+ ", "{+a+}")):
        assert coloured(mark * 150_000 + word).count("\033[0m") == 1


def test_texts_that_have_nothing_in_common_cost_no_square() -> None:
    """Beyond some thousand words between common ends, all is replaced; the ends are found all the same."""
    old = " ".join(["same", *(f"old{number}" for number in range(MOST_WORDS)), "end"])
    new = " ".join(["same", *(f"new{number}" for number in range(MOST_WORDS)), "end"])
    (hunk,) = differences(old, new)
    assert [part.sign for part in hunk.segments] == [" ", "-", "+", " "]
    assert hunk.segments[0] == Segment(" ", ("same",))
    assert len(hunk.segments[1].words) == len(hunk.segments[2].words) == MOST_WORDS
    assert module.CONTEXT_WORDS > 1


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=40),
    st.lists(st.sampled_from("abcdefgh"), max_size=40),
    st.integers(0, 80),
)
def test_long_texts_are_cut_at_anchors(old: list[str], new: list[str], most_words: int) -> None:
    """The steps cover both texts in order; equal stretches are equal, whatever counts as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_WORDS", most_words)
        patch.setattr(module, "MOST_COMPARED_WORDS", most_words)
        patch.setattr(module, "MOST_ANCHORED_WORDS", most_words)
        codes = module._opcodes(old, new)
    ends = (0, 0)
    for tag, a, b, c, d in codes:
        assert (a, c) == ends
        assert (tag == "equal") == (old[a:b] == new[c:d] and b > a)
        ends = b, d
    assert ends == (len(old), len(new))


def test_many_stretches_of_few_words_cost_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first of those between anchors are compared word by word; what follows is one difference."""
    compared: list[int] = []
    matcher = module.SequenceMatcher

    def counting(isjunk: None, before: list[str], after: list[str]) -> object:
        compared.append(len(before) + len(after))
        return matcher(isjunk, before, after)

    monkeypatch.setattr(module, "SequenceMatcher", counting)
    old, new = (
        " ".join(f"anchor{n} same {piece}" for n in range(1_000)) for piece in ("a b " * 90, "b a a " * 60)
    )
    assert differing_words(old + " end", new + " end") > 100_000
    assert 0 < sum(compared) <= module.MOST_COMPARED_WORDS + 2 * MOST_WORDS
    compared.clear()
    old, new = (" ".join(f"anchor{n} {piece}{n}" for n in range(1_000)) for piece in "ab")
    assert differing_words(old, new) == 1_000
    assert compared == [], "stretches without a common word need no comparison"
    old, new = (" ".join(f"anchor{n} {piece}{n}" for n in range(8_000)) for piece in "ab")
    assert differing_words(old, new) > 8_000, "5,000 stretches, and all that follows"


@given(st.lists(st.sampled_from("ab漢字")), st.lists(st.sampled_from("ab漢字")), st.integers(0, 60))
def test_ends_of_long_texts_are_not_split(before: list[str], after: list[str], ends: int) -> None:
    """The differences are the same as those of all words; what follows many words is one difference."""
    end = ["漢 b"] * ends
    old, new = (" ".join([*end, *words, *end]) for words in (before, after))
    with pytest.MonkeyPatch.context() as patch:
        expected, count = differences(old, new, 2), differing_words(old, new)
        patch.setattr(module, "LONG_CHARACTERS", 0)
        patch.setattr(module, "CONTEXT_CHARACTERS", 40)
        assert differences(old, new, 2) == expected
        assert differing_words(old, new) == count
        patch.setattr(module, "MOST_SPLIT_WORDS", 3)
        assert bool(differences(old, new, 2)) == bool(expected)


def test_a_long_text_of_han_takes_little_memory() -> None:
    """Each letter is a word, of which only those between the common ends are split."""
    text = "".join(chr(0x4E00 + number % 20_000) for number in range(2**18))
    other = text[: 2**17] + "新聞" + text[2**17 :]
    tracemalloc.start()
    (hunk,) = differences(text, other)
    assert differing_words(text, other) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert hunk.position == 2**17 - module.CONTEXT_WORDS + 1
    assert peak < 5e6


def test_anchors_are_looked_for_in_so_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words beyond the bound are one difference, however long a hostile page is."""
    monkeypatch.setattr(module, "MOST_ANCHORED_WORDS", 2 * MOST_WORDS)
    old, new = (["a", *(f"word{n}" for n in range(8 * MOST_WORDS)), end] for end in ("b", "c"))
    new[0] = "d"
    first, last = differences(" ".join(old), " ".join(new))
    assert [len(segment.words) for segment in first.segments] == [1, 1, module.CONTEXT_WORDS]
    assert len(last.segments[-1].words) == 6 * MOST_WORDS + 2


def test_the_same_text_costs_no_memory() -> None:
    """Its words are not looked at: in Han each letter is one."""
    text = "漢字" * 50_000
    tracemalloc.start()
    try:
        assert differences(text, text) == []
        assert differing_words(text, text) == 0
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_what_follows_a_new_chapter_is_compared() -> None:
    """A long stretch that only one side has is not what ends the comparison."""
    chapter = " ".join(["new"] * 2 * module.MOST_COMPARED_WORDS)
    old = " ".join(f"word{number}" for number in range(MOST_WORDS))
    new = old.replace("word9 ", f"word9 {chapter} ").replace("word1400", "other")
    assert [len(hunk.segments) for hunk in differences(old, new)] == [3, 4]


def test_a_change_in_a_long_text_is_shown_in_its_place() -> None:
    """Of 20,000 words every hundredth changed: as many places are shown, not one replacement of all."""
    old = [f"word{number}" for number in range(20_000)]
    new = [word + "x" * (number % 100 == 0) for number, word in enumerate(old)]
    assert len(differences(" ".join(old), " ".join(new))) == 200


def test_scripts_without_blanks_are_compared_letter_by_letter() -> None:
    """A paragraph in which one word changed is not new as a whole; it is shown as it is written."""
    cases = [
        ("当店の青いランプは3990円です。", "3990", "3490"),
        ("这盏蓝灯的价格是百元，今天发货", "蓝", "红"),
        ("โคมไฟสีน้ำเงิน", "ี", "ือ"),
        ("파란 램프 가격", "램프", "등"),
    ]
    for before, gone, new in cases:
        after = before.replace(gone, new)
        (hunk,) = differences(before, after, context=1000)
        old = [word for sign, words in hunk.segments for word in words if sign != "+"]
        assert text_of(old) == text_of(words_of(before))
        assert text_of(words_of(before)).replace(" ", "") == before.replace(" ", "")
        assert 1 <= differing_words(before, after) <= 2
    (line,) = shown(differences(cases[0][0], cases[0][0].replace("3990", "3490")))
    assert "[-3990-] {+3490+}" in line
    assert "青いランプ" in line


@given(TEXTS, TEXTS)
def test_as_many_words_differ_as_are_not_common(before: str, after: str) -> None:
    """None of equal words; never more than both texts have."""
    count = differing_words(before, after)
    assert (count == 0) == (before.split() == after.split())
    assert count <= len(before.split()) + len(after.split())
