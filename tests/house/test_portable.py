"""The house: modules can be imported on every operating system, and match alike in every Python."""

import ast
import re
import subprocess
import sys
from typing import Final

from tests.support.sources import MODULES, tree

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
"""What a module of Python lacks there."""


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
        for node in ast.walk(tree(MODULES[module]))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.attr in MISSING_ON_WINDOWS.get(node.value.id, ())
    }
    assert results == set()


def test_a_crawl_begins_without_them() -> None:
    """Imported where our own code finds none of these modules; the libraries know for themselves."""
    code = (
        "import builtins, sys; real = builtins.__import__\n"
        "def find(name, globals=None, *rest, **more):\n"
        "    asks = (globals or {}).get('__name__', '')\n"
        f"    if name.partition('.')[0] in {ONE_SYSTEM!r} and asks.startswith('scrapy_gp4c'):\n"
        "        raise ImportError(name)\n"
        "    return real(name, globals, *rest, **more)\n"
        "builtins.__import__ = find\n"
        "import scrapy_gp4c.scheduler, scrapy_gp4c.middleware, scrapy_gp4c.commands"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 misreads ``(...)*+``: numbers had other masks, and a secret stayed in a URL."""
    possessive = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
    texts = [
        (module, node.value)
        for module, path in MODULES.items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    ]
    as_text = [(module, one if isinstance(one, str) else one.decode("latin-1")) for module, one in texts]
    assert not [(module, one) for module, one in as_text if possessive.search(one)]
