"""Private names stay in their modules, and a class name stands in one module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import test_private_names
from tests.support.sources import MODULES, nodes


def borrowed_names() -> Iterator[tuple[str, str, int]]:
    """Uses of private names of other modules: module, name, line."""
    for module, path in MODULES.items():
        aliases: dict[str, str] = {}
        for node in nodes(path):
            if isinstance(node, ast.Import):
                aliases |= {one.asname or one.name: one.name for one in node.names if one.name in MODULES}
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for one in node.names:
                    dotted = f"{node.module}.{one.name}"
                    if dotted in MODULES:
                        aliases[one.asname or one.name] = dotted
                    elif node.module in MODULES and is_private(one.name):
                        yield module, dotted, node.lineno
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = aliases.get(ast.unparse(node.value))
                if owner is not None:
                    yield module, f"{owner}.{node.attr}", node.lineno


def is_private(name: str) -> bool:
    """Whether a name belongs to its module alone."""
    return name.startswith("_") and not name.startswith("__")


def test_private_names_stay_in_their_modules() -> None:
    """No module imports or reads a private name of another module of the project."""
    assert list(borrowed_names()) == []


def test_a_class_name_stands_in_one_module() -> None:
    """No two modules of the packages have a class of the same name."""
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_a_borrowed_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to borrow are found; a module's own and foreign libraries' private names are fine."""
    (tmp_path / "lender.py").write_text("_a = _b = c = 1\n")
    (tmp_path / "taker.py").write_text(
        "import os\nimport lender as l\nfrom lender import _a, c\n_d = os._exit\nl._b + c.__class__ + _a\n"
    )
    modules = {name: tmp_path / f"{name}.py" for name in ("lender", "taker")}
    monkeypatch.setattr(test_private_names, "MODULES", modules)
    assert list(borrowed_names()) == [("taker", "lender._a", 3), ("taker", "lender._b", 5)]
