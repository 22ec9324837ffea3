"""Judge score functions on recorded page-change histories, and learn better ones."""

import sys
from types import TracebackType
from typing import Final

program = "python -m training."
"""Words before a command's name in its help; `scrapy gp4c` puts its own here."""
EXTRAS: Final = {
    **dict.fromkeys(("deap", "jinja2", "matplotlib", "numba", "rich", "scipy"), "train"),
    "sklearn": "cluster",
    "zstandard": "archive",
    "distributed": "dask",
}
"""Library -> the extra that installs it."""


def remedy_of(error: ModuleNotFoundError) -> str | None:
    """Line with the pip command for the missing library, if it is one of `EXTRAS`; else None."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    return f"{name} is not installed: pip install 'scrapy-gp4c[{EXTRAS[name]}]'"


def _name_extra(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    remedy = remedy_of(error) if isinstance(error, ModuleNotFoundError) else None
    if remedy is None:
        sys.__excepthook__(kind, error, traceback)
    else:
        print(remedy, file=sys.stderr)


if sys.argv[0] == "-m":  # true while Python looks for the module of a command
    sys.excepthook = _name_extra
