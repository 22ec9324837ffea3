"""The house: which room may import which, read from the sources themselves, wherever the import stands."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.sources import MODULES, tree

ARROWS: Final[dict[str, str]] = {
    "scoring": "",
    "words": "",
    "search": "words",
    "fingerprint": "words",
    "archive": "",
    "page_state": "scoring",
    "policies": "page_state scoring",
    "store": "page_state scoring",
    "notices": "page_state store",
    "settings": "notices page_state policies scoring store",
    "crawling": "archive notices scoring fingerprint page_state policies store settings search words",
    "fetching": "crawling fingerprint settings",
    "the top": "crawling fingerprint notices settings",
    "commands": "archive notices crawling fetching fingerprint words settings store page_state scoring "
    "search",
    "histories": "store page_state scoring",
    "clustering": "histories page_state scoring store words",
    "replaying": "histories policies page_state scoring search words",
    "evolution": "replaying histories policies scoring store",
    "comparing": "evolution replaying histories policies store scoring",
    "reporting": "archive comparing evolution replaying store page_state scoring",
    "papers": "reporting comparing evolution replaying histories policies scoring search",
    "training's commands": "papers reporting comparing evolution replaying clustering histories scoring "
    "search store",
}
"""Room -> the rooms that it imports; see `EVERYBODYS`, too."""

EVERYBODYS: Final = (
    "scrapy_gp4c.arrays",
    "scrapy_gp4c.errors",
    "scrapy_gp4c.foreign_text",
    "scrapy_gp4c.signals",
    "scrapy_gp4c.sqlite_files",
)
"""Modules without imports of rooms that every room may use."""
LIBRARIES: Final[dict[str, set[str]]] = {
    "scrapy": {"the top", "settings", "crawling", "commands", "fingerprint", "fetching"},
    "twisted": {"the top", "crawling", "fetching"},
    "lmdb": {"store"},
    "zstandard": {"archive"},
    "deap": {"evolution"},
    "sklearn": {"clustering"},
    "numba": {"replaying"},
    "scipy": {"clustering", "comparing", "papers", "replaying", "reporting"},
    "matplotlib": {"papers", "reporting", "training's commands"},
    "rich": {"comparing", "papers", "reporting", "training's commands"},
    "jinja2": {"reporting"},
}
"""Library -> the only rooms that import it."""
TOP: Final = ("", "addon", "middleware", "robots_txt", "scheduler")
"""Modules of the top."""


def room_of(module: str) -> str:
    package, _, rest = module.partition(".")
    if package == "scrapy_gp4c" and rest in TOP:
        return "the top"
    first = rest.partition(".")[0]
    return "training's commands" if package == "training" and first not in ARROWS else first


def imports(path: Path) -> set[str]:
    """All that a source imports: at its top, in functions, and for type checkers alone."""
    results: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            results.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            results.update(f"{module}.{alias.name}" for alias in node.names)
            if not all(f"{module}.{alias.name}" in MODULES for alias in node.names):
                results.add(module)
    return results


@cache
def all_imports() -> dict[str, set[str]]:
    """Module -> all that it imports; not read where tests are only collected, as every worker does."""
    return {module: imports(path) for module, path in MODULES.items()}


@cache
def ours() -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports."""
    return {module: imported & MODULES.keys() for module, imported in all_imports().items()}


def arrows() -> dict[tuple[str, str], list[str]]:
    """All imports between rooms: (room, imported room) -> the imports."""
    imported: dict[tuple[str, str], list[str]] = {}
    for module, targets in ours().items():
        for target in targets:
            pair = room_of(module), room_of(target)
            if pair[0] != pair[1] and target not in EVERYBODYS:
                imported.setdefault(pair, []).append(f"{module} -> {target}")
    return imported


ALLOWED: Final = {(room, target) for room, targets in ARROWS.items() for target in targets.split()}


def test_rooms_import_only_those_that_they_may() -> None:
    """One direction: a new arrow is a decision, to be made in `ARROWS`."""
    assert {pair: imported for pair, imported in arrows().items() if pair not in ALLOWED} == {}


def test_every_arrow_is_used() -> None:
    """Arrows and rooms of the picture are all in the code."""
    assert ALLOWED - arrows().keys() == set()


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
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
        {other for other in imported if node in reach.get(other, ())}
        for node, imported in reach.items()
        if node in imported
    ]


def test_no_rooms_and_no_modules_import_in_a_circle() -> None:
    """Imports in functions and those for type checkers count."""
    rooms: dict[str, set[str]] = {}
    for one, other in arrows():
        rooms.setdefault(one, set()).add(other)
    assert circles(rooms) == []
    assert circles(ours()) == []


def test_libraries_have_their_rooms() -> None:
    """Scrapy belongs to the crawling side, LMDB to the store, libraries of learning to training."""
    users = {
        (library, room_of(module))
        for library in LIBRARIES
        for module, names in all_imports().items()
        if uses(names, library)
    }
    assert {(library, room) for library, room in users if room not in LIBRARIES[library]} == set()


def uses(imported: set[str], library: str) -> bool:
    """Tell whether imports include a library or a part of it."""
    return any(name == library or name.startswith(library + ".") for name in imported)


def test_lmdb_is_the_stores_own_affair() -> None:
    """Nobody outside the LMDB store sees a transaction."""
    users = {module for module, imported in all_imports().items() if uses(imported, "lmdb")}
    assert users <= {module for module in MODULES if module.startswith("scrapy_gp4c.store.lmdb_store.")}


def test_imports_are_absolute() -> None:
    """The rules above see absolute imports alone."""
    relative = {
        (module, name) for module in MODULES for name in all_imports()[module] if name.startswith(".")
    }
    assert relative == set()
