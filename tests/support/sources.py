"""The project's own sources, for tests that hold the rules of the house: files, modules, syntax trees."""

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("scrapy_gp4c", "training")
"""Packages in a wheel."""


def sources(*folders: str) -> dict[str, Path]:
    """Modules of the folders: dotted name -> file; a package is its ``__init__``."""
    modules = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            modules[dotted.removesuffix(".__init__")] = path
    return modules


MODULES: Final = sources(*PACKAGES)


@cache
def tree(path: Path) -> ast.Module:
    """Syntax tree of a source."""
    gc.disable()  # else it looks through all that is parsed, for half of the time
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a source's syntax tree."""
    return list(ast.walk(tree(path)))
