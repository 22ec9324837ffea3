"""The search index: staging, taking in, measuring, and everything that can be wrong with its file."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import QueryLogError, SearchIndexError
from scrapy_gp4c.search import index as index_module
from scrapy_gp4c.search.gains import Refreshes, impacts, refit
from scrapy_gp4c.search.index import (
    NOTHING,
    Arrival,
    Counts,
    SearchIndex,
    compared,
    counts_of,
    digest,
    joined_counts,
    search,
    unpacked,
)
from scrapy_gp4c.search.measuring import Postings
from scrapy_gp4c.search.queries import Workload, parse_query_log
from scrapy_gp4c.store.opening import SEARCH_INDEX as FILE

LOG = ("red\t5", "green blue\t3", "blue\t1")
TEXTS = {0: "red green red", 1: "blue blue green", 2: "red blue", 3: "yellow", 4: ""}


def workload(*lines: str) -> Workload:
    return parse_query_log(lines or LOG, "log")


def arrival(page: int, words: str, known: int | None = None) -> Arrival:
    """A text whose fingerprint is a hash of it."""
    return Arrival(page, 2**63 + page, fingerprint(words), known, words.encode())


def fingerprint(words: str) -> int:
    """Another number for another text."""
    return int.from_bytes(words.encode().ljust(8)[:8], "big") ^ len(words)


def filled_index(directory: Path) -> SearchIndex:
    """An index with the texts of cycle 1."""
    made = SearchIndex(directory / FILE, "store", workload(), "tfidf")
    for page, words in TEXTS.items():
        made.stage(arrival(page, words))
    made.commit(1)
    made.apply(1, TEXTS, [], 7)
    return made


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SearchIndex]:
    """An index with the texts of cycle 1."""
    made = filled_index(tmp_path)
    yield made
    made.close()


def expected(old: str | None, new: str | None, scoring: str = "tfidf") -> np.float32:
    """What a text gains that takes the place of another, by its definition."""
    known = [count(words.split(), workload().number) for words in TEXTS.values()]
    one = compared([(NOTHING, state) for state in known])
    postings = Postings(one[1], one[4], one[5])
    learnt = refit(
        scoring, workload().term_frequency, postings, len(known), np.mean([state.length for state in known])
    )
    both = [NOTHING if words is None else count(words.split(), workload().number) for words in (old, new)]
    pair, term, tf, length, new_tf, new_length = compared([(both[0], both[1])])
    gained = impacts(
        learnt, Refreshes(pair, Postings(term, tf, length), Postings(term, new_tf, new_length)), 1
    )
    return np.float32(gained[0])


def test_a_text_gains_what_the_estimator_says(index: SearchIndex) -> None:
    """By the ranks of the last refit; first texts cannot be measured before there is one."""
    index.stage(arrival(3, "red red blue", fingerprint("yellow")))
    index.stage(arrival(9, "green green"))
    index.commit(2)
    result = index.apply(2, [3, 9], [0], 7)
    assert result.page.tolist() == [0, 3, 9]
    assert result.ppm.tolist() == [
        expected(TEXTS[0], None),
        expected("yellow", "red red blue"),
        expected(None, "green green"),
    ]
    assert result.ppm.min() > 0.0


def test_taking_in_twice_adds_nothing(index: SearchIndex) -> None:
    """As after a kill between the index's transaction and the store's."""
    index.stage(arrival(2, "green", fingerprint("red blue")))
    index.commit(2)
    once = index.apply(2, [2], [], 7)
    again = index.apply(2, [2], [], 7)
    assert (again.page.tolist(), again.ppm.tolist()) == (once.page.tolist(), once.ppm.tolist())
    assert index.cycle == 2


def test_visits_that_came_later_gain_besides(index: SearchIndex) -> None:
    """A cycle that goes on after it was taken in: serial gains telescope."""
    for words, known in (("green", "red blue"), ("red red", "green")):
        index.stage(arrival(2, words, fingerprint(known)))
        index.commit(2)
        result = index.apply(2, [2], [], 7)
    assert result.ppm.tolist() == pytest.approx(
        [expected("red blue", "green") + expected("green", "red red")]
    )


def test_only_visits_of_the_cycle_count(index: SearchIndex) -> None:
    """What was staged and has no visit, or is of a cycle before, is dropped."""
    index.stage(arrival(0, "blue", fingerprint(TEXTS[0])))
    index.commit(2)
    index.stage(arrival(1, "red", fingerprint(TEXTS[1])))
    index.commit(3)
    assert index.apply(3, [0], [], 7).page.tolist() == []
    assert index.holds(1, 2**63 + 1, fingerprint(TEXTS[1]))
    assert index.apply(3, [0, 1], [], 7).page.tolist() == []


def test_a_text_that_is_not_the_copys_measures_nothing(index: SearchIndex) -> None:
    """Of another fingerprint, or of a page with another key; from then on it is held."""
    index.stage(arrival(0, "blue", known=77))
    index.stage(Arrival(1, 5, fingerprint("green"), fingerprint(TEXTS[1]), b"green"))
    index.commit(2)
    assert index.apply(2, [0, 1], [], 7).page.tolist() == []
    assert index.holds(0, 2**63, fingerprint("blue"))
    assert index.holds(1, 5, fingerprint("green"))
    assert not index.holds(1, 2**63 + 1, fingerprint("green"))
    assert not index.holds(0, 2**63, 77)
    assert not index.holds(8, 1, 1)


def test_gone_pages_leave_and_may_come_back(index: SearchIndex, tmp_path: Path) -> None:
    """Others rise; coming back is measured from nothing."""
    assert index.apply(2, [], [2, 8], 7).ppm.tolist() == [expected("red blue", None)]
    assert not index.holds(2, 2**63 + 2, fingerprint("red blue"))
    assert search(tmp_path / FILE, "red", "tfidf", 9).matches == 1
    index.stage(arrival(2, "red blue", fingerprint("red blue")))
    index.commit(3)
    assert index.apply(3, [2], [], 7).ppm.tolist() == [expected(None, "red blue")]
    index.forget_gone([2, 99])
    assert not index.holds(2, 2**63 + 2, fingerprint("red blue"))


def test_what_is_measured_by_survives_and_is_learnt_anew_in_time(index: SearchIndex, tmp_path: Path) -> None:
    """The same numbers after opening anew; after so many cycles, those of the texts of then."""
    index.close()
    ppm, said = [], ["blue blue green", "red", "green green red", "blue blue green"]
    for cycle in (2, 3, 4):
        opened = SearchIndex(tmp_path / FILE, "store", workload(), "tfidf")
        opened.stage(arrival(1, said[cycle - 1], fingerprint(said[cycle - 2])))
        opened.commit(cycle)
        ppm += opened.apply(cycle, [1], [], refit_cycles=2).ppm.tolist()
        opened.close()
    assert ppm[:2] == [expected(said[0], said[1]), expected(said[1], said[2])]
    assert ppm[2] != expected(said[2], said[3])


def test_another_log_counts_the_texts_that_are_there(index: SearchIndex, tmp_path: Path) -> None:
    """At once, as if it had been there from the beginning; so does another scoring."""
    for lines, scoring in ((("yellow\t1", "green red\t2"), "tfidf"), (LOG, "bm25")):
        index.close()
        index = SearchIndex(tmp_path / FILE, "store", workload(*lines), scoring)
        fresh = SearchIndex(tmp_path / f"{scoring}.sqlite", "store", workload(*lines), scoring)
        for page, words in TEXTS.items():
            fresh.stage(arrival(page, words))
        fresh.commit(1)
        fresh.apply(1, TEXTS, [], 7)
        gained = []
        for one in (index, fresh):
            one.stage(arrival(0, "green yellow", fingerprint(TEXTS[0])))
            one.commit(2)
            gained.append(one.apply(2, [0], [], 7).ppm.tolist())
        assert gained[0] == gained[1] != []
        fresh.close()
        index.stage(arrival(0, TEXTS[0], fingerprint("green yellow")))
        index.commit(3)
        index.apply(3, [0], [], 1)
    index.close()


def test_what_is_staged_when_the_log_changes_is_counted_anew(index: SearchIndex, tmp_path: Path) -> None:
    """A cycle that was begun with one log and ends with another measures by the new one."""
    index.stage(arrival(1, "yellow yellow red", fingerprint(TEXTS[1])))
    index.commit(2)
    index.close()
    other = SearchIndex(tmp_path / FILE, "store", workload("yellow\t1", "blue\t1"), "tfidf")
    ppm = other.apply(2, [1], [], 7).ppm.tolist()
    assert len(ppm) == 1
    other.stage(arrival(1, TEXTS[1], fingerprint("yellow yellow red")))
    other.commit(3)
    other.apply(3, [1], [], 99)
    other.stage(arrival(1, "yellow yellow red", fingerprint(TEXTS[1])))
    other.commit(4)
    assert other.apply(4, [1], [], 99).ppm.tolist() == ppm
    assert ppm[0] > 0.0
    other.close()


def test_a_log_is_known_by_its_content() -> None:
    """Its queries, how often they are asked, which numbers their terms have, and the scoring."""
    same = parse_query_log(["red\t10", "green blue\t6", "", "???\t4", "blue\t2"], "elsewhere")
    assert digest(workload(*LOG), "tfidf") == digest(same, "tfidf")
    others = [workload("red\t4", *LOG[1:]), workload(*LOG[::-1]), workload(*LOG[:2])]
    names = [digest(workload(*LOG), scoring) for scoring in ("bm25", "tfidf")]
    assert len({*names, *(digest(one, "tfidf") for one in others)}) == 5


# --- searching


def test_answers_have_all_words_best_first(index: SearchIndex, tmp_path: Path) -> None:
    """By the scoring functions; words of no query of the log too; equal scores by page."""
    answer = search(tmp_path / FILE, "Red!", "tfidf", 10)
    assert (answer.terms, answer.pages, answer.matches) == (("red",), 5, 2)
    idf = 1 + np.log(5 / 3)
    scores = {0: idf * np.sqrt(2) / np.sqrt(3), 2: idf / np.sqrt(2)}
    assert {hit.page: hit.score for hit in answer.hits} == pytest.approx(scores)
    assert [hit.page for hit in answer.hits] == [0, 2]
    assert [hit.page for hit in search(tmp_path / FILE, "green blue", "bm25", 10).hits] == [1]
    assert [hit.page for hit in search(tmp_path / FILE, "yellow", "bm25", 10).hits] == [3]
    assert search(tmp_path / FILE, "yellow red", "tfidf", 10).hits == []
    assert search(tmp_path / FILE, "purple", "tfidf", 10).matches == 0
    assert len(search(tmp_path / FILE, "blue", "tfidf", 1).hits) == 1


def test_a_query_without_words_is_refused(index: SearchIndex, tmp_path: Path) -> None:
    """As is a store without an index."""
    with pytest.raises(QueryLogError, match=r"found no letter or digit in '\?!'"):
        search(tmp_path / FILE, "?!", "tfidf", 10)
    with pytest.raises(SearchIndexError, match=r"no search index .*GP4C_QUERY_LOG"):
        search(tmp_path / "elsewhere" / FILE, "red", "tfidf", 10)


# --- what can be wrong with the file


def test_an_index_that_cannot_be_used_is_refused(index: SearchIndex, tmp_path: Path) -> None:
    """Page numbers of another store mean other pages; a lost part of the estimator is damage."""
    index.close()
    with pytest.raises(SearchIndexError, match=r"belongs to another store. Delete it"):
        SearchIndex(tmp_path / FILE, "another", workload(), "tfidf")
    with closing(sqlite3.connect(tmp_path / FILE)) as one:
        one.execute("UPDATE about SET value = zeroblob(8) WHERE name = 'score'")
        one.commit()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(SearchIndexError, match=r"its statistics are not of its query log.*Delete it"):
        SearchIndex(tmp_path / FILE, "store", workload(), "tfidf")
    assert (tmp_path / FILE).read_bytes() == before


def test_a_locked_index_is_one_error(
    index: SearchIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone else is in the middle of writing: what was staged is kept for the next commit."""
    index._connection.execute("PRAGMA busy_timeout = 10")
    index.stage(arrival(0, "blue", fingerprint(TEXTS[0])))
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SearchIndexError, match=r"is locked by another process"):
            index.commit(2)
    index.commit(2)
    assert index.apply(2, [0], [], 7).page.tolist() == [0]


def test_a_full_disk_is_one_error_and_loses_nothing(index: SearchIndex) -> None:
    """What no page is left for is kept, and goes with the next commit."""
    pages = index._connection.execute("PRAGMA page_count").fetchone()[0]
    index._connection.execute(f"PRAGMA max_page_count = {pages}")
    index.stage(arrival(0, "blue " * 99_999, fingerprint(TEXTS[0])))
    with pytest.raises(SearchIndexError, match=r"no room to write .*free disk space"):
        index.commit(2)
    index._connection.execute("PRAGMA max_page_count = 99999")
    index.commit(2)
    assert index.apply(2, [0], [], 7).page.tolist() == [0]


def test_an_sqlite_without_fts5_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version, and what to do."""
    tables = index_module.FILE.tables.replace("fts5", "fts99")
    monkeypatch.setattr(index_module, "FILE", index_module.FILE._replace(tables=tables))
    with pytest.raises(SearchIndexError, match=r"SQLite \([0-9.]+\) has no FTS5.*unset GP4C_QUERY_LOG"):
        index_module.FILE.connect(tmp_path / FILE)


def test_the_file_is_its_owners_alone(index: SearchIndex, tmp_path: Path) -> None:
    """As the store is, whatever SQLite puts beside it."""
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.keys() >= {FILE, f"{FILE}-wal"}
    assert set(modes.values()) == {0o600}


WORDS = st.lists(st.sampled_from("abcdefg"), max_size=12)
NUMBER = {"c": 0, "a": 1, "g": 2, "e": 3}
TOKENS = st.lists(
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=3)
    | st.sampled_from(["eightabc", "eightabcd", "eightabce", "überlang", "überlange", "ab", "abc"]),
    max_size=12,
)


def count(words: list[str], number: dict[str, int]) -> Counts:
    """Count the terms of ``number`` in a text of these words."""
    return counts_of(" ".join(words).encode(), {term.encode(): at for term, at in number.items()})


@given(WORDS)
def test_counts_are_those_of_the_terms_that_are_asked_for(words: list[str]) -> None:
    """Ascending by number, with the length of the whole text; packed and back the same."""
    result = count(words, NUMBER)
    expected = {NUMBER[word]: times for word, times in Counter(words).items() if word in NUMBER}
    assert dict(zip(result.term.tolist(), result.tf.tolist(), strict=True)) == expected
    assert result.term.tolist() == sorted(expected)
    assert result.length == len(words)
    again = unpacked(result.packed(), result.length)
    assert (again.term.tolist(), again.tf.tolist()) == (result.term.tolist(), result.tf.tolist())


@given(TOKENS, TOKENS)
def test_words_of_any_length_and_script_are_told_apart(terms: list[str], words: list[str]) -> None:
    """Those of up to eight bytes, and longer ones that begin alike; with terms that are nowhere, or none."""
    number = {term: position for position, term in enumerate(dict.fromkeys(terms))}
    words = [*words, *terms[:3]]
    result = count(words, number)
    expected = {number[word]: times for word, times in Counter(words).items() if word in number}
    assert dict(zip(result.term.tolist(), result.tf.tolist(), strict=True)) == expected
    assert result.length == len(words)
    assert result.term.dtype == result.tf.dtype == np.int32


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_pairs_have_each_term_of_either_text_once(pairs: list[tuple[list[str], list[str]]]) -> None:
    """With its tf in both, 0 where it is not, and the lengths."""
    known = [(count(one, NUMBER), count(other, NUMBER)) for one, other in pairs]
    result = set(zip(*(column.tolist() for column in compared(known)), strict=True))
    expected = {
        (number, NUMBER[term], one.count(term), len(one), other.count(term), len(other))
        for number, (one, other) in enumerate(pairs)
        for term in set(one + other) & NUMBER.keys()
    }
    assert result == expected
    assert all(np.diff(column).min(initial=0) >= 0 for column in compared(known)[:1])


@given(st.lists(WORDS, max_size=5))
def test_texts_together_have_all_occurrences(texts: list[list[str]]) -> None:
    """Text after text, each with its own length."""
    known = [count(words, NUMBER) for words in texts]
    term, tf, length = joined_counts([(one.packed(), one.length) for one in known])
    assert term.tolist() == [number for one in known for number in one.term.tolist()]
    assert tf.tolist() == [times for one in known for times in one.tf.tolist()]
    assert length.tolist() == [one.length for one in known for _ in one.term]


def test_a_page_that_is_not_there_has_nothing() -> None:
    """Neither terms nor length."""
    assert (len(NOTHING.term), len(NOTHING.tf), NOTHING.length) == (0, 0, 0)
