"""Who may import whom (DESIGN section 3), read from the sources themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIVE, OFFLINE = (
    {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    for package in ("scrapy_gp4c", "training")
)

PURE = {"errors", "primitives", "expression", "terminals", "score"}
"""Shared with training: they know neither Scrapy nor LMDB."""
STORE = {"columns", "environment", "fold", "pages", "store", "tables", "verify"}
"""The store: LMDB, but nothing of Scrapy."""
ENGINE = {"__init__", "middleware", "scheduler"}
"""What is plugged into Scrapy's engine; with the commands, the only ones to import its parts."""
HARMLESS = {"scrapy", "scrapy.http", "scrapy.http.request", "scrapy.settings", "scrapy.utils"}
"""Requests, responses, settings and helpers: what any module but the pure ones and the store may use."""


def imports(path: Path) -> set[str]:
    """Return the modules that a source imports when it runs: those for type checkers alone do not count."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def imports_of(path: Path, package: str) -> set[str]:
    """Return the imports from one package."""
    return {name for name in imports(path) if name == package or name.startswith(package + ".")}


@pytest.mark.parametrize("name", sorted(LIVE))
def test_the_live_side_never_imports_training_or_deap(name: str) -> None:
    """A crawler's machine needs no learning libraries."""
    for package in ("training", "deap", "joblib", "numba", "scipy", "matplotlib", "rich"):
        assert not imports_of(LIVE[name], package)


@pytest.mark.parametrize("name", sorted(PURE | STORE))
def test_pure_modules_and_store_do_not_know_scrapy(name: str) -> None:
    """Training can use them where Scrapy is not installed; only the store's modules may import LMDB."""
    path = LIVE[f"scrapy_gp4c.{name}"]
    for package in ("scrapy", "twisted"):
        assert not imports_of(path, package)
    ours = {found.split(".")[1] for found in imports_of(path, "scrapy_gp4c") if "." in found}
    if name in PURE:
        assert not imports_of(path, "lmdb")
        assert ours <= PURE
    else:
        assert ours <= PURE | STORE


@pytest.mark.parametrize("name", sorted(LIVE))
def test_lmdb_is_the_stores_own_affair(name: str) -> None:
    """No module outside the store touches LMDB."""
    if name.removeprefix("scrapy_gp4c.") not in STORE:
        assert not imports_of(LIVE[name], "lmdb")


@pytest.mark.parametrize("name", sorted(LIVE))
def test_only_the_plugged_in_modules_import_scrapys_engine_parts(name: str) -> None:
    """Core, commands, extensions, signals and Twisted are for scheduler, middleware, add-on and commands."""
    module = name.removeprefix("scrapy_gp4c.")
    if module in ENGINE or name == "scrapy_gp4c.__init__" or module.startswith("commands."):
        return
    engine_parts = {
        found
        for found in imports_of(LIVE[name], "scrapy")
        if not any(found == allowed or found.startswith(allowed + ".") for allowed in HARMLESS - {"scrapy"})
        and found not in ("scrapy", "scrapy.Request", "scrapy.Spider")
    }
    assert not engine_parts
    assert not imports_of(LIVE[name], "twisted")


@pytest.mark.parametrize("name", sorted(OFFLINE))
def test_training_shares_pure_modules_and_the_store_alone(name: str) -> None:
    """Learning reads what crawls recorded; it never imports a part of the crawler."""
    ours = {found.split(".")[1] for found in imports_of(OFFLINE[name], "scrapy_gp4c") if "." in found}
    assert ours <= PURE | STORE | {"__version__"}
    assert not imports_of(OFFLINE[name], "scrapy")


def test_only_training_imports_deap() -> None:
    """DEAP has one importer in the repository's packages."""
    importers = {path.parent.name for path in ROOT.glob("*/*.py") if imports_of(path, "deap")}
    assert importers <= {"training", "tests", "benchmarks"}


@pytest.mark.parametrize("path", [*LIVE.values(), *OFFLINE.values()], ids=lambda path: path.stem)
def test_imports_are_absolute(path: Path) -> None:
    """So that the rules above see them all."""
    assert not [name for name in imports(path) if name.startswith(".")]


@pytest.mark.parametrize("name", sorted(PURE))
def test_there_is_something_to_hold(name: str) -> None:
    """The modules that the rules speak of exist."""
    assert f"scrapy_gp4c.{name}" in LIVE
