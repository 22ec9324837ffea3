"""The house: how long, how wide and how vague code may be, read from the sources themselves."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.house import test_limits
from tests.support.sources import FUNCTION, MODULES, length, tree

MODULE_LINES: Final = 300
LINES_OF: Final = {"scrapy_gp4c.scheduler": 200}
"""Module -> its own limit of lines; training's commands have `COMMAND_LINES`."""
COMMAND_LINES: Final = 120
FUNCTION_LINES: Final = 60
KERNEL_LINES: Final = 70
PARAMETERS: Final = 7
PARAMETERS_OF: Final = {
    "training.replaying.replay.replay": 9,
    "training.comparing.evaluation.evaluate": 9,
}
LOOSE_DICTS: Final = 20
"""Annotations ``dict[str, Any]`` and ``Mapping[str, Any]``: JSON's edge needs a few."""
EQUAL_LINES: Final = 6
KERNELS: Final = "training.replaying.kernels"
"""Compiled loops take one array a parameter."""


def most_lines(module: str) -> int:
    """Limit of a module's lines."""
    command = module.startswith("training.") and module.count(".") == 1 and MODULES[module].stem != "__init__"
    return LINES_OF.get(module, COMMAND_LINES if command else MODULE_LINES)


Broken = dict[str, object]
"""What breaks a limit -> how."""


class Function(NamedTuple):
    """A function or method of ours."""

    name: str
    """Dotted, from the package on."""
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def kernel(self) -> bool:
        """Whether it is a compiled loop."""
        return self.name.startswith(KERNELS)

    @property
    def lines(self) -> int:
        """Lines from its ``def`` to its end."""
        return (self.node.end_lineno or 0) - self.node.lineno + 1

    @property
    def parameters(self) -> int:
        """Parameters that a caller sees: all but ``self`` and ``cls``."""
        given = self.node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        return sum(one is not None and one.arg not in ("self", "cls") for one in named)


def functions() -> Iterator[Function]:
    """All functions of the packages, those within others too."""

    def within(name: str, node: ast.AST) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (*FUNCTION, ast.ClassDef)):
                inner = f"{name}.{child.name}"
            if isinstance(child, FUNCTION):
                yield Function(inner, child)
            yield from within(inner, child)

    for module, path in MODULES.items():
        yield from within(module, tree(path))


def loose_dicts() -> dict[str, list[int]]:
    """Module -> lines with an annotation of `dict` or `Mapping` from `str` to `Any`."""
    found = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Subscript) and ast.unparse(node) in (
                "dict[str, Any]",
                "Mapping[str, Any]",
                "MutableMapping[str, Any]",
            ):
                found[module].append(node.lineno)
    return dict(found)


def borrowed(module: str) -> Iterator[tuple[str, int]]:
    """Private names of other modules that a module uses, and the lines where it does."""
    aliases: dict[str, str] = {}
    top = tree(MODULES[module])
    for node in ast.walk(top):
        if isinstance(node, ast.Import):
            aliases.update((one.asname or one.name, one.name) for one in node.names if one.name in MODULES)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                if f"{node.module}.{one.name}" in MODULES:
                    aliases[one.asname or one.name] = f"{node.module}.{one.name}"
                elif node.module in MODULES and private(one.name):
                    yield f"{node.module}.{one.name}", node.lineno
    for node in ast.walk(top):
        if isinstance(node, ast.Attribute) and private(node.attr):
            owner = aliases.get(ast.unparse(node.value))
            if owner is not None:
                yield f"{owner}.{node.attr}", node.lineno


def private(name: str) -> bool:
    """Tell whether a name is a module's own."""
    return name.startswith("_") and not name.startswith("__")


class Place(NamedTuple):
    """Where lines begin."""

    module: str
    line: int


def repeated() -> list[tuple[Place, Place]]:
    """Pairs of places from which on `EQUAL_LINES` lines of code are the same; each stretch once."""
    windows = defaultdict(list)
    for module in MODULES:
        code = lines_of_code(module)
        for start in range(len(code) - EQUAL_LINES + 1):
            window = code[start : start + EQUAL_LINES]
            windows[tuple(text for _, text in window)].append((Place(module, window[0][0]), start))
    found, seen = [], set()
    for places in windows.values():
        for (one, start), (other, other_start) in pairwise(places):
            seen.add((one.module, start, other.module, other_start))
            if (one.module, start - 1, other.module, other_start - 1) not in seen:
                found.append((one, other))
    return found


def lines_of_code(module: str) -> list[tuple[int, str]]:
    """Number and text of the lines that say something: no imports, texts on their own, comments, brackets."""
    path = MODULES[module]
    silent: set[int] = set()
    for node in ast.walk(tree(path)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            silent.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return [
        (number, line.strip())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if number not in silent and any(sign.isalnum() for sign in line.partition("#")[0])
    ]


def long_modules() -> Broken:
    """Modules of too many lines."""
    return {
        f"lines of {module}": length(path)
        for module, path in MODULES.items()
        if length(path) > most_lines(module)
    }


def long_functions() -> Broken:
    """Functions of too many lines."""
    return {
        f"lines of {one.name}": one.lines
        for one in functions()
        if one.lines > (KERNEL_LINES if one.kernel else FUNCTION_LINES)
    }


def wide_functions() -> Broken:
    """Functions of too many parameters."""
    return {
        f"parameters of {one.name}": one.parameters
        for one in functions()
        if not one.kernel and one.parameters > PARAMETERS_OF.get(one.name, PARAMETERS)
    }


def borrowed_names() -> Broken:
    """Uses of other modules' private names."""
    return {f"{module} uses {name}": line for module in MODULES for name, line in borrowed(module)}


def repeated_lines() -> Broken:
    """Equal lines, by the modules that they are in."""
    return {
        f"{one.module} repeats {other.module}": f"from lines {one.line} and {other.line} on"
        for one, other in repeated()
    }


def too_many_dicts() -> Broken:
    """The places of all dicts of anything, if there are too many."""
    found = loose_dicts()
    return {"dicts of anything": found} if sum(map(len, found.values())) > LOOSE_DICTS else {}


def hold(check: Callable[[], Broken]) -> None:
    """Fail for what breaks a limit."""
    assert check() == {}


def test_modules_are_short() -> None:
    """A module fits into a head: 300 lines, the scheduler 200, a command of training 120."""
    hold(long_modules)


def test_functions_are_short() -> None:
    """60 lines from ``def`` to the end; kernels, which cannot share out their loops, 70."""
    hold(long_functions)


def test_functions_take_few_parameters() -> None:
    """7; what takes more wants a record. The public `replay` and `evaluate` are the exceptions."""
    hold(wide_functions)


def test_what_has_fields_is_a_record() -> None:
    """At most 20 annotations say `dict[str, Any]` or `Mapping[str, Any]`."""
    hold(too_many_dicts)


def test_private_names_stay_in_their_modules() -> None:
    """Neither ``from module import _name`` nor ``module._name`` of a module of ours."""
    hold(borrowed_names)


def test_no_six_lines_stand_twice() -> None:
    """What is written twice is mended once: a fact has one home."""
    hold(repeated_lines)


def test_a_repeated_stretch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six equal lines are found whatever stands between them; five are none."""
    code = [f"x{number} = {number}" for number in range(6)]
    (tmp_path / "one.py").write_text("import os\n" + "\n".join(code) + "\n")
    (tmp_path / "other.py").write_text("# why\n" + "\n\n# because\n".join(code) + "\n")
    (tmp_path / "five.py").write_text("\n".join(code[:5]) + "\n")
    monkeypatch.setattr(
        test_limits, "MODULES", {name: tmp_path / f"{name}.py" for name in ("one", "other", "five")}
    )
    assert repeated() == [(Place("one", 2), Place("other", 2))]


def test_a_borrowed_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By either way to take it; one's own private names and foreign libraries' are no concern."""
    (tmp_path / "lender.py").write_text("_a = _b = c = 1\n")
    (tmp_path / "taker.py").write_text(
        "import os\nimport lender as l\nfrom lender import _a, c\n_d = os._exit\nl._b + c.__class__ + _a\n"
    )
    monkeypatch.setattr(
        test_limits, "MODULES", {name: tmp_path / f"{name}.py" for name in ("lender", "taker")}
    )
    assert borrowed_names() == {"taker uses lender._a": 3, "taker uses lender._b": 5}
