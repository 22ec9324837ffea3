"""Judge score functions on recorded page-change histories, and learn better ones."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final

EXTRAS: Final = {
    **dict.fromkeys(("deap", "jinja2", "matplotlib", "numba", "rich", "scipy"), "train"),
    "sklearn": "cluster",
    "zstandard": "archive",
    "distributed": "dask",
}
"""Library -> the extra that installs it."""


def _name_extra(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and name in EXTRAS:
        print(f"{name} is not installed: pip install 'scrapy-gp4c[{EXTRAS[name]}]'", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


if sys.argv[0] == "-m":  # so it is while Python looks for the module of a command
    sys.excepthook = _name_extra
