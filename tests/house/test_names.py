"""The house: no test was lost when the house was rebuilt, and tests keep up with the code."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.sources import FUNCTION, MODULES, ROOT, length, sources, tree

BEFORE: Final = Path(__file__).with_name("test_functions_f82bcb1.txt")
"""Names of the test functions before the rooms, one per line, as often as there were."""
TEST_LINES: Final = 0.85
"""Lines of tests per line of the packages, at least."""

TESTS: Final = sources("tests")


def test_every_test_function_is_still_there() -> None:
    """Tests may move from module to module; none may vanish or lose its name."""
    before = Counter(BEFORE.read_text(encoding="utf-8").split())
    now = Counter(
        node.name
        for path in TESTS.values()
        for node in ast.walk(tree(path))
        if isinstance(node, FUNCTION) and node.name.startswith("test_")
    )
    assert before.total() == 538
    assert before - now == Counter()


def test_tests_keep_up_with_the_code() -> None:
    """85 lines of tests for 100 of code, or more."""
    tests, code = (sum(map(length, modules.values())) for modules in (TESTS, MODULES))
    assert tests / code >= TEST_LINES


def test_tests_are_in_the_rooms_of_what_they_test() -> None:
    """A folder of tests is named after a room, or holds what all rooms share."""
    rooms = {path.name for path in ROOT.glob("scrapy_gp4c/*/")} | {
        path.name for path in ROOT.glob("training/*/")
    }
    shared = {"house", "golden", "support", "training", "benchmarks", "example_project"}
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/*.py")}
    assert folders <= rooms | shared
