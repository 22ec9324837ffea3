"""Values of settings, as a project's file or a command line gives them: conversion and checks."""

import json
import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from parsel import Selector, css2xpath
from scrapy.utils.misc import load_object

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.notices.receivers import Receiver, read_receivers
from scrapy_gp4c.page_state.rules import PageRule, read_rules
from scrapy_gp4c.policies.base import read_budget

RECEIVERS: Final = "a list of addresses that Apprise knows, or of dicts with an address as `url`"
LOADING: Final = (ImportError, AttributeError, NameError)
"""Errors of `load_object` for a dotted path that leads nowhere."""


class Setting(NamedTuple):
    """One row of the table of settings: default, expected values, and how a value is read."""

    default: Any
    expected: str
    """Description of a valid value, for the error message."""
    read: Callable[[Any], Any]
    """Converts and checks a value; raises ValueError or TypeError when it is not as expected."""


def count(value: Any, low: int, high: float = math.inf) -> int:
    """Read a whole number from `low` to `high`; raises ValueError, also for 1.0, which may mean all pages."""
    number = int(value) if isinstance(value, str) else value  # command-line settings arrive as text
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise ValueError
    return number


def whole_number(default: int, expected: str, low: int, high: float = math.inf) -> Setting:
    return Setting(default, expected, lambda value: count(value, low, high))


def share(value: Any, low: float = 0.0) -> float:
    """Read a share from `low` to 1; raises ValueError."""
    number = float(value)
    if isinstance(value, bool) or not low <= number <= 1.0:
        raise ValueError
    return number


def budget(value: Any) -> int | float:
    """Read a budget: a whole number without a decimal point is a count of pages, any other a share."""
    if isinstance(value, bool):
        raise ValueError
    budget = read_budget(value) if isinstance(value, str) else value
    if isinstance(budget, int):
        return count(budget, 1, 2**32 - 1)
    budget_share = share(budget)
    if budget_share == 0.0:
        raise ValueError
    return budget_share


def flag(value: Any) -> bool:
    """Read True or False, also from a text; raises LookupError."""
    return {"1": True, "0": False, "true": True, "false": False}[str(value).strip().lower()]


OFF: Final = Setting(False, "True or False", flag)
"""A switch that is off unless it is set."""


def path(value: Any) -> str | None:
    """Read a path as text, or None; raises TypeError, or ValueError for one that no file can have."""
    if value is not None and not isinstance(value, str | Path):
        raise TypeError
    return optional_text(str(value)) if value else None


def path_template(value: Any) -> str | None:
    """Read a path that may contain {spider} and {args}; raises ValueError for other placeholders."""
    template = path(value)
    if template is not None and re.search(r"\{(?!spider\}|args\})[^}]*\}|%\(|\$|://", template):
        raise ValueError
    return template and os.path.expanduser(template)


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of values that may be None, also as the text ``None``."""
    return lambda value: None if value is None or value in ("", "None") else read(value)


def one_of(default: str, other: str) -> Setting:
    """Return the row of a setting whose value is the name `default` or the name `other`."""
    return Setting(default, f"{default!r} or {other!r}", {default: default, other: other}.__getitem__)


def names(value: Any) -> tuple[str, ...]:
    """Read a list of names, also from a text with blanks or commas between them; raises TypeError."""
    names = re.split(r"[,\s]+", value) if isinstance(value, str) else value
    if value is None or not all(isinstance(name, str) for name in names):
        raise TypeError
    return tuple(name for name in names if name)


def loaded_callable(value: Any) -> Callable[..., Any] | None:
    """Read a callable, given as such or by a dotted path, or None; raises TypeError or one of `LOADING`."""
    if value is None or value == "":
        return None
    loaded: Callable[..., Any] = load_object(value)
    if not callable(loaded):
        raise TypeError
    return loaded


def _from_json(value: Any) -> Any:
    """Return the value of a JSON list or dict given as text, as on the command line; others unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("the text looks like JSON and is none: check its quotes and brackets") from None
    return value


def receivers(value: Any) -> tuple[Receiver, ...]:
    """Read receivers of notices. Raises SettingsError, without the value, which may have a password."""
    try:
        return read_receivers(_from_json(value))
    except (ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"expected {RECEIVERS}; {error}") from None


def rules(value: Any) -> tuple[PageRule, ...]:
    """Read the rules of `GP4C_RULES`; raises SettingsError, which names the wrong rule."""
    try:
        loaded = read_rules(_from_json(value))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return tuple(
        replace(rule, watch=_xpaths(rule, rule.watch), ignore=_xpaths(rule, rule.ignore)) for rule in loaded
    )


def _xpaths(rule: PageRule, queries: tuple[str, ...]) -> tuple[str, ...]:
    """Convert a rule's selectors to XPaths; one is CSS unless it begins with /, ./, ( or ``xpath:``.

    Raises SettingsError for a selector that is neither.
    """
    xpaths = []
    for query in queries:
        is_xpath = query.lstrip().startswith(("/", "./", "(", "xpath:"))
        try:
            xpaths.append(query.strip().removeprefix("xpath:") if is_xpath else css2xpath(query))
            Selector(text="<p/>").xpath(xpaths[-1])
        except Exception as error:  # those of cssselect, lxml and parsel
            raise SettingsError(
                f"{rule.name}: {query!r} is neither a CSS selector nor an XPath ({error}): correct it"
            ) from None
    return tuple(xpaths)


def optional_text(value: Any) -> str | None:
    """Read a text, or None; raises TypeError, or ValueError for one with NUL."""
    if value is not None and not isinstance(value, str):
        raise TypeError
    if value and "\0" in value:
        raise ValueError
    return value or None


def command(value: Any) -> str | None:
    """Read a command line, or None; raises TypeError, or ValueError for unbalanced quotes."""
    text = optional_text(value)
    return text if text and shlex.split(text) else None


def fetchers(value: Any) -> int | str:
    """Read a number of fetchers, or the address of Dask's scheduler; raises ValueError or TypeError."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else optional_text(value)
    assert text is not None
    return text if text.startswith(("tls://", "tcp://")) else count(text, 1, 1000)


def check_private(address: int | str | None, *, is_insecure: bool) -> None:
    """Raise SettingsError for Dask's scheduler on another machine without TLS, unless `is_insecure`."""
    is_loopback = str(address).startswith(("tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:"))
    if str(address).startswith("tcp://") and not (is_loopback or is_insecure):
        raise SettingsError(
            f"GP4C_FETCHERS = {address!r} has no TLS, and whoever can talk to a scheduler runs code on all "
            "its machines. Use tls://, or set GP4C_FETCHERS_INSECURE = True in a network of your own."
        )


def mode(value: Any) -> int:
    """Read permissions of a directory, from a number or an octal text. Raises ValueError."""
    number = int(value.removeprefix("0o"), 8) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0o700 <= number <= 0o777:
        raise ValueError
    return number
