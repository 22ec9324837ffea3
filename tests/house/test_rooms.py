"""The house: which room may import which, and that every module can be imported on every system."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.sources import MODULES, nodes, tree

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
    for node in nodes(path):
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


ONE_SYSTEM: Final = {
    "_posixsubprocess", "_winapi", "crypt", "curses", "fcntl", "grp", "msvcrt", "nis", "ossaudiodev", "posix",
    "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios", "tty", "winreg", "winsound",
}  # fmt: skip
"""Modules of Python that Windows, or all others, lack."""
MISSING_ON_WINDOWS: Final = {
    "os": {
        "chown", "fchmod", "fork", "forkpty", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "pread",
        "pwrite", "setsid", "statvfs", "sched_getaffinity", "sysconf", "uname", "wait4", "O_CLOEXEC",
    },
    "signal": {"SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "alarm", "setitimer", "pthread_kill"},
}  # fmt: skip
"""Module of Python -> its names that Windows lacks."""


def at_import(module: str) -> list[ast.stmt]:
    """Statements of a module that are executed when it is imported."""
    results: list[ast.stmt] = []
    todo: list[ast.AST] = [tree(MODULES[module])]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                todo.append(node)
                if isinstance(node, ast.stmt):
                    results.append(node)
    return results


def test_no_module_imports_what_one_system_alone_has() -> None:
    """A crawler's machine may run Windows or macOS; in a function, such an import may be guarded."""
    names = {
        (module, alias)
        for module in MODULES
        for node in at_import(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (
            [one.name for one in node.names] if isinstance(node, ast.Import) else [str(node.module)]
        )
    }
    assert not {(module, name) for module, name in names if name.partition(".")[0] in ONE_SYSTEM}


def test_the_crawling_side_uses_nothing_that_windows_lacks() -> None:
    """Names of ``os`` and ``signal``, in functions too: what a crawl calls must be there."""
    results = {
        (module, f"{node.value.id}.{node.attr}")
        for module in MODULES
        if module.startswith("scrapy_gp4c")
        for node in nodes(MODULES[module])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.attr in MISSING_ON_WINDOWS.get(node.value.id, ())
    }
    assert results == set()


def test_a_crawl_begins_without_them() -> None:
    """Imported where our own code finds none of these modules; the libraries know for themselves.

    Nor are Dask and fetching imported: no command worked without cloudpickle.
    """
    code = (
        "import builtins, sys; real = builtins.__import__\n"
        "def find(name, globals=None, *rest, **more):\n"
        "    asks = (globals or {}).get('__name__', '')\n"
        f"    if name.partition('.')[0] in {ONE_SYSTEM!r} and asks.startswith('scrapy_gp4c'):\n"
        "        raise ImportError(name)\n"
        "    return real(name, globals, *rest, **more)\n"
        "builtins.__import__ = find\n"
        "import scrapy_gp4c.scheduler, scrapy_gp4c.middleware, scrapy_gp4c.commands.actions\n"
        "assert not {'dask', 'distributed', 'cloudpickle', 'scrapy_gp4c.fetching'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 misreads ``(...)*+``: numbers had other masks, and a secret stayed in a URL."""
    possessive = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
    texts = [
        (module, node.value)
        for module, path in MODULES.items()
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    ]
    as_text = [(module, one if isinstance(one, str) else one.decode("latin-1")) for module, one in texts]
    assert not [(module, one) for module, one in as_text if possessive.search(one)]
