"""The house: which room may import which, read from the sources themselves, wherever the import stands."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.support.sources import MODULES, sources, tree

ARROWS: Final[dict[str, str]] = {
    "scoring": "",
    "words": "",
    "index": "words",
    "fingerprint": "words",
    "archive": "",
    "page_state": "scoring",
    "policies": "page_state scoring",
    "store": "page_state scoring",
    "settings": "policies scoring store index",
    "crawling": "archive scoring fingerprint page_state policies store settings index words",
    "distributed": "crawling page_state policies scoring settings store",
    "the top": "crawling fingerprint settings",
    "commands": "archive crawling settings store page_state scoring index",
    "histories": "store page_state",
    "clustering": "histories page_state scoring words",
    "replaying": "histories policies page_state scoring index words",
    "evolution": "replaying histories policies scoring",
    "comparing": "evolution replaying histories policies store scoring index",
    "reporting": "archive comparing evolution replaying store page_state scoring",
    "training's commands": "reporting comparing evolution replaying clustering histories scoring index",
}
"""Room -> the rooms that it imports; `errors` is everybody's."""

LIBRARIES: Final[dict[str, set[str]]] = {
    "scrapy": {"the top", "settings", "crawling", "commands", "fingerprint", "distributed"},
    "twisted": {"the top", "crawling", "distributed"},
    "lmdb": {"store"},
    "zstandard": {"archive"},
    "deap": {"evolution"},
    "sklearn": {"clustering"},
    "psycopg": {"distributed"},
    "fsspec": {"distributed"},
}
"""Library -> the only rooms that import it."""
TOP: Final = ("", "middleware", "robots_txt", "scheduler", "start")
"""Modules of the top."""
PURE: Final = ("scoring", "page_state", "policies", "words", "index")
"""What crawls and replays share: neither Scrapy nor LMDB."""
LEARNING: Final = ("sklearn", "deap", "joblib", "numba", "scipy", "matplotlib", "rich", "jinja2")
"""What a machine that only crawls need not have."""
ENGINE: Final = ("scrapy.core", "scrapy.signals", "scrapy.crawler", "scrapy.extensions")
"""Scrapy's engine: for the top and the commands."""


def room_of(module: str) -> str:
    """Name of the room that a module is in."""
    package, _, rest = module.partition(".")
    if package == "scrapy_gp4c" and rest in TOP:
        return "the top"
    first = rest.partition(".")[0]
    return "training's commands" if package == "training" and first not in ARROWS else first


def imports(path: Path) -> set[str]:
    """All that a source imports: at its top, in functions, and for type checkers alone."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.update(f"{module}.{alias.name}" for alias in node.names)
            if not all(f"{module}.{alias.name}" in MODULES for alias in node.names):
                found.add(module)
    return found


IMPORTS: Final = {module: imports(path) for module, path in MODULES.items()}
OURS: Final = {module: {name for name in found if name in MODULES} for module, found in IMPORTS.items()}


def arrows() -> dict[tuple[str, str], list[str]]:
    """All imports between rooms: (room, imported room) -> the imports."""
    found: dict[tuple[str, str], list[str]] = {}
    for module, targets in OURS.items():
        for target in targets:
            pair = room_of(module), room_of(target)
            if pair[0] != pair[1] and target != "scrapy_gp4c.errors":
                found.setdefault(pair, []).append(f"{module} -> {target}")
    return found


ALLOWED: Final = {(room, target) for room, targets in ARROWS.items() for target in targets.split()}


def test_rooms_import_only_those_that_they_may() -> None:
    """One direction: a new arrow is a decision, to be made in `ARROWS`."""
    assert {pair: found for pair, found in arrows().items() if pair not in ALLOWED} == {}


def test_every_arrow_is_used() -> None:
    """What the picture shows is there."""
    assert ALLOWED - arrows().keys() == set()


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(graph.get(start, ()))
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += graph.get(node, ())
        return seen

    reach = {node: reached(node) for node in graph}
    return [
        {other for other in found if node in reach.get(other, ())}
        for node, found in reach.items()
        if node in found
    ]


def test_no_rooms_and_no_modules_import_in_a_circle() -> None:
    """Imports in functions and those for type checkers count."""
    rooms: dict[str, set[str]] = {}
    for one, other in arrows():
        rooms.setdefault(one, set()).add(other)
    assert circles(rooms) == []
    assert circles(OURS) == []


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_libraries_have_their_rooms(library: str) -> None:
    """Scrapy is the crawling side's, LMDB the store's, DEAP evolution's, PostgreSQL the ledger's."""
    users = {room_of(module) for module, found in IMPORTS.items() if uses(found, library)}
    assert users <= LIBRARIES[library]


def uses(found: set[str], library: str) -> bool:
    """Tell whether imports include a library or a part of it."""
    return any(name == library or name.startswith(library + ".") for name in found)


def test_lmdb_is_the_stores_own_affair() -> None:
    """Nobody outside the LMDB store sees a transaction."""
    users = {module for module, found in IMPORTS.items() if uses(found, "lmdb")}
    assert users <= {module for module in MODULES if module.startswith("scrapy_gp4c.store.lmdb_store.")}


@pytest.mark.parametrize("room", [*PURE, "store", "archive"])
def test_pure_modules_and_store_do_not_know_scrapy(room: str) -> None:
    """Training can use them where Scrapy is not installed; only the store may import LMDB."""
    for module, found in IMPORTS.items():
        if room_of(module) == room:
            assert not [library for library in ("scrapy", "twisted") if uses(found, library)], module
            assert room == "store" or not uses(found, "lmdb"), module


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("training")))
def test_training_shares_pure_modules_and_the_store_alone(module: str) -> None:
    """Learning reads what crawls recorded; it never imports a part of the crawler."""
    live = {name for name in OURS[module] if uses({name}, "scrapy_gp4c")}
    shared = {name for name in live if room_of(name) in (*PURE, "store", "archive", "errors")}
    assert live - shared <= {"scrapy_gp4c"}  # its version
    assert not uses(IMPORTS[module], "scrapy")


def test_only_training_imports_deap() -> None:
    """DEAP has one importer in the repository."""
    folders = ("scrapy_gp4c", "training", "benchmarks", "example_project", "tests")
    importers = {
        name.partition(".")[0] for name, path in sources(*folders).items() if uses(imports(path), "deap")
    }
    assert importers <= {"training", "tests", "benchmarks"}


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("scrapy_gp4c")))
def test_the_live_side_never_imports_training_or_deap(module: str) -> None:
    """A crawler's machine needs no learning libraries."""
    assert not [library for library in ("training", *LEARNING) if uses(IMPORTS[module], library)]


@pytest.mark.parametrize("room", ["settings", "crawling", "fingerprint"])
def test_only_the_plugged_in_modules_import_scrapys_engine_parts(room: str) -> None:
    """Other rooms know requests, responses and settings."""
    for module, found in IMPORTS.items():
        if room_of(module) == room:
            for part in ENGINE:
                runtime = {name for name in found if name not in ("scrapy.crawler", "scrapy.crawler.Crawler")}
                assert not uses(runtime, part), module


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_are_absolute(module: str) -> None:
    """So that the rules above see them all."""
    assert not [name for name in IMPORTS[module] if name.startswith(".")]


@pytest.mark.parametrize("room", sorted(ARROWS))
def test_there_is_something_to_hold(room: str) -> None:
    """The rooms that the rules speak of exist."""
    assert room in {room_of(module) for module in MODULES}
