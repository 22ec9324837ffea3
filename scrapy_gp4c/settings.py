"""Every ``GP4C_*`` setting: default, unit, meaning, validation; one frozen dataclass.

`TABLE` is the single list of settings: docs/settings.md documents each (a test holds that), and `Settings`
has one field for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.utils.misc import load_object
from scrapy.utils.project import data_path

from scrapy_gp4c.errors import Gp4cError, SettingsError
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.budget import budget_pages, read_budget
from scrapy_gp4c.scoring import functions

if TYPE_CHECKING:
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

DEFAULT_SCORE_FUNCTION: Final = "t * (X + 0.5)"
LOADING: Final = (ImportError, AttributeError, NameError)
"""What `load_object` raises for a dotted path that leads nowhere."""


class Setting(NamedTuple):
    """One row of the table."""

    default: Any
    expected: str
    """What a valid value is, for the error message."""
    read: Callable[[Any], Any]
    """Convert and check a value; raises ValueError or TypeError when it is not as expected."""
    meaning: str


def _count(value: Any, low: int, high: float = math.inf) -> int:
    number = int(value) if isinstance(value, str) else value  # command-line settings arrive as text
    if isinstance(number, bool) or number != int(number) or not low <= number <= high:
        raise ValueError
    return int(number)


def _share(value: Any, low: float = 0.0) -> float:
    number = float(value)
    if isinstance(value, bool) or not low <= number <= 1.0:
        raise ValueError
    return number


def _budget(value: Any) -> int | float:
    """A whole number without a decimal point is a count of pages; anything else is a share."""
    if isinstance(value, bool):
        raise ValueError
    budget = read_budget(value) if isinstance(value, str) else value
    if isinstance(budget, int):
        return _count(budget, 1)
    share = _share(budget)
    if share == 0.0:
        raise ValueError
    return share


def _flag(value: Any) -> bool:
    return {"1": True, "0": False, "true": True, "false": False}[str(value).strip().lower()]


def _path(value: Any) -> str | None:
    if value is not None and not isinstance(value, str | Path):
        raise TypeError
    return str(value) if value else None


def _optional_count(value: Any) -> int | None:
    return None if value is None or value in ("", "None") else _count(value, 0)


def _callable(value: Any) -> Callable[..., Any] | None:
    if value is None or value == "":
        return None
    loaded: Callable[..., Any] = load_object(value)
    if not callable(loaded):
        raise TypeError
    return loaded


TABLE: Final[dict[str, Setting]] = {
    "GP4C_STORE": Setting(
        None,
        "a directory path, or None for .scrapy/gp4c/<spider name>",
        _path,
        "directory of the page store",
    ),
    "GP4C_SCORE_FUNCTION": Setting(
        DEFAULT_SCORE_FUNCTION,
        "the name of a score function, an expression, the path of a score file, or a dotted path",
        functions.load,
        "ranks the pages that may be revisited",
    ),
    "GP4C_POLICY": Setting(
        table.DEFAULT,
        "the name of a policy, with its parameters, or a dotted path",
        table.load,
        "chooses the pages that are revisited, in one or several rounds",
    ),
    "GP4C_BUDGET": Setting(
        0.05,
        "a share of the known pages above 0.0 and at most 1.0 (float), or a count of at least 1 (int)",
        _budget,
        "revisits per cycle",
    ),
    "GP4C_NEW_PAGES": Setting(
        None, "a count of pages, or None for no cap", _optional_count, "cap on first visits per cycle"
    ),
    "GP4C_WARMUP_VISITS": Setting(
        2,
        "a count from 0 to 1000",
        lambda value: _count(value, 0, 1000),
        "judged visits that every page gets, outside the budget, before it is ranked",
    ),
    "GP4C_PANEL": Setting(
        0.0,
        "a share of the known pages from 0.0 to 1.0",
        _share,
        "share of pages visited in every cycle whatever their score",
    ),
    "GP4C_DISTANCE": Setting(
        3,
        "a number of bits from 1 to 64",
        lambda value: _count(value, 1, 64),
        "Hamming distance of two fingerprints from which on a page counts as changed",
    ),
    "GP4C_SKIP_UNCHANGED": Setting(
        False,
        "True or False",
        _flag,
        "send validators (ETag, Last-Modified) and do not call callbacks for unchanged pages",
    ),
    "GP4C_GONE_AFTER": Setting(
        3,
        "a count from 1 to 255",
        lambda value: _count(value, 1, 255),
        "`gone` outcomes (404, 410) in a row after which a page is no longer visited",
    ),
    "GP4C_FEATURES": Setting(
        None,
        "the dotted path of a callable features(response) -> list[str], or None for the page's text",
        _callable,
        "what the fingerprint is made of",
    ),
    "GP4C_SEED": Setting(
        0,
        "a whole number from 0 to 2**63",
        lambda value: _count(value, 0, 2**63),
        "decides ties between equal scores",
    ),
}


@dataclass(frozen=True)
class Settings:
    """The validated ``GP4C_*`` settings of one crawl."""

    store: str | None
    score_function: functions.ScoreFunction
    policy: table.PolicyChoice
    budget: int | float
    new_pages: int | None
    warmup_visits: int
    panel: float
    distance_bits: int
    skip_unchanged: bool
    gone_after: int
    features: Callable[[Response], list[str]] | None
    seed: int

    @classmethod
    def load(cls, settings: BaseSettings) -> Settings:
        """Read and check every setting; raises SettingsError that names the setting and the remedy."""
        values = []
        for name, setting in TABLE.items():
            given = settings.get(name, setting.default)
            try:
                values.append(setting.read(given))
            except Gp4cError as error:
                raise SettingsError(f"{name}: {error}") from None
            except (ValueError, TypeError, LookupError, OverflowError, *LOADING) as error:
                reason = f" ({error})" if isinstance(error, LOADING) else ""
                raise SettingsError(
                    f"{name} must be {setting.expected}; found {given!r}{reason}. "
                    f"Correct it in the settings, or remove it for the default {setting.default!r}."
                ) from None
        unknown = {name for name in settings if name.startswith("GP4C_")} - TABLE.keys()
        if unknown:
            raise SettingsError(
                f"there is no setting {', '.join(sorted(unknown))}; the settings are {', '.join(TABLE)}"
            )
        return cls(*values)

    def store_path(self, spider_name: str) -> Path:
        """Directory of the store of this spider."""
        return Path(self.store or data_path(str(Path("gp4c", spider_name))))

    def budget_pages(self, known: int) -> int:
        """Revisits per cycle, k, when `known` pages are known."""
        return budget_pages(self.budget, known)
