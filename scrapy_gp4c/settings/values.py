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
    """One row of the table."""

    default: Any
    expected: str
    """Description of a valid value, for the error message."""
    read: Callable[[Any], Any]
    """Convert and check a value; raises ValueError or TypeError when it is not as expected."""


def count(value: Any, low: int, high: float = math.inf) -> int:
    """A whole number from `low` to `high`; raises ValueError."""
    number = int(value) if isinstance(value, str) else value  # command-line settings arrive as text
    if isinstance(number, bool) or number != int(number) or not low <= number <= high:
        raise ValueError
    return int(number)


def whole_number(default: int, expected: str, low: int, high: float = math.inf) -> Setting:
    return Setting(default, expected, lambda value: count(value, low, high))


def share(value: Any, low: float = 0.0) -> float:
    """A share from `low` to 1; raises ValueError."""
    number = float(value)
    if isinstance(value, bool) or not low <= number <= 1.0:
        raise ValueError
    return number


def budget(value: Any) -> int | float:
    """A whole number without a decimal point is a count of pages; anything else is a share."""
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
    """True or False, as text too; raises LookupError."""
    return {"1": True, "0": False, "true": True, "false": False}[str(value).strip().lower()]


OFF: Final = Setting(False, "True or False", flag)
"""A switch that is off unless it is set."""


def path(value: Any) -> str | None:
    """A path as text, or None; raises TypeError, or ValueError for one that no file can have."""
    if value is not None and not isinstance(value, str | Path):
        raise TypeError
    return optional_text(str(value)) if value else None


def path_template(value: Any) -> str | None:
    """Path of a store or file, in which {spider} and {args} alone stand for something; raises ValueError."""
    template = path(value)
    if template is not None and re.search(r"\{(?!spider\}|args\})[^}]*\}|%\(|\$|://", template):
        raise ValueError
    return template and os.path.expanduser(template)


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reader of a value that may be None, also as text."""
    return lambda value: None if value is None or value in ("", "None") else read(value)


def one_of(default: str, other: str) -> Setting:
    """Setting that is one of two names."""
    return Setting(default, f"{default!r} or {other!r}", {default: default, other: other}.__getitem__)


def names(value: Any) -> tuple[str, ...]:
    """Names with blanks or commas between; raises TypeError."""
    names = re.split(r"[,\s]+", value) if isinstance(value, str) else value
    if value is None or not all(isinstance(name, str) for name in names):
        raise TypeError
    return tuple(name for name in names if name)


def loaded_callable(value: Any) -> Callable[..., Any] | None:
    """Object at a dotted path, or None; raises TypeError and the errors of `LOADING`."""
    if value is None or value == "":
        return None
    loaded: Callable[..., Any] = load_object(value)
    if not callable(loaded):
        raise TypeError
    return loaded


def _from_json(value: Any) -> Any:
    """Value of a JSON list or dict given as text, as on the command line; other values unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("the text looks like JSON and is none: check its quotes and brackets") from None
    return value


def receivers(value: Any) -> tuple[Receiver, ...]:
    """Receivers of notices. Raises SettingsError, which does not show the value: it may have a password."""
    try:
        return read_receivers(_from_json(value))
    except (ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"expected {RECEIVERS}; {error}") from None


def rules(value: Any) -> tuple[PageRule, ...]:
    """Rules about pages; raises SettingsError, which names the rule."""
    try:
        loaded = read_rules(_from_json(value))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    return tuple(
        replace(rule, watch=_xpaths(rule, rule.watch), ignore=_xpaths(rule, rule.ignore)) for rule in loaded
    )


def _xpaths(rule: PageRule, queries: tuple[str, ...]) -> tuple[str, ...]:
    """CSS selectors and XPaths as XPaths. Raises SettingsError."""
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
    """A text, or None; raises TypeError, or ValueError for one with NUL, which no path or command has."""
    if value is not None and not isinstance(value, str):
        raise TypeError
    if value and "\0" in value:
        raise ValueError
    return value or None


def command(value: Any) -> str | None:
    """A command line, or None; raises ValueError for one that no shell could take apart, or TypeError."""
    text = optional_text(value)
    return text if text and shlex.split(text) else None


def fetchers(value: Any) -> int | str:
    """A count of fetchers, or the address of their scheduler; raises ValueError or TypeError."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else optional_text(value)
    assert text is not None
    return text if text.startswith(("tls://", "tcp://")) else count(text, 1, 1000)


def check_private(address: int | str | None, *, is_insecure: bool) -> None:
    """Raise SettingsError for a scheduler of another machine without TLS: whoever talks to it runs code."""
    is_loopback = str(address).startswith(("tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:"))
    if str(address).startswith("tcp://") and not (is_loopback or is_insecure):
        raise SettingsError(
            f"GP4C_FETCHERS = {address!r} has no TLS, and whoever can talk to a scheduler runs code on all "
            "its machines. Use tls://, or set GP4C_FETCHERS_INSECURE = True in a network of your own."
        )


def mode(value: Any) -> int:
    """Permissions of a directory; a text is octal. Raises ValueError."""
    number = int(value.removeprefix("0o"), 8) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0o700 <= number <= 0o777:
        raise ValueError
    return number
