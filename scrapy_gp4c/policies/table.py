"""The policies by name, and reading a policy from its text: ``top_k``, ``rounds(rounds=4)``, a dotted path.

A text is parsed with ``ast`` against the table and never executed; what a dotted path names is imported, so
that one may come from settings and command lines, never from a store.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.policy import Policy, PolicySettings
from scrapy_gp4c.policies.rounds import Rounds
from scrapy_gp4c.policies.top_k import TopK
from scrapy_gp4c.scoring.dotted_path import NotCallableError, is_dotted, load_callable

DEFAULT: Final = "top_k"
MAX_LENGTH: Final = 1000


class Parameter(NamedTuple):
    """A whole number that a policy takes."""

    default: int
    low: int
    high: int


class Entry(NamedTuple):
    """A policy of the table."""

    make: Callable[..., Policy]
    """``make(settings, **parameters)``."""
    parameters: dict[str, Parameter]
    meaning: str


POLICIES: Final[dict[str, Entry]] = {
    "top_k": Entry(TopK, {}, "the pages with the highest scores"),
    "rounds": Entry(
        Rounds, {"rounds": Parameter(4, 1, 1000)}, "the same in equal parts, scoring anew before each"
    ),
}
"""Name -> policy."""


class PolicyChoice(NamedTuple):
    """A policy as it was given, ready to be made."""

    text: str
    """As given: the cycle's record keeps it."""
    make: Callable[[PolicySettings], Policy]


def load(given: str, *, trusted: bool = True) -> PolicyChoice:
    """Read a policy's text: a name of `POLICIES`, with arguments if it takes any, or a dotted path.

    A dotted path names ``f(PolicySettings) -> Policy``; unless ``trusted`` it is refused. Raises PolicyError
    that names what was given and what would be accepted.
    """
    if not isinstance(given, str) or not given.strip() or len(given) > MAX_LENGTH:
        raise PolicyError(f"a policy is {_accepted()}; found {str(given)[:80]!r}")
    text = given.strip()
    if is_dotted(text):
        if not trusted:
            raise PolicyError(f"the policy {text!r} is a dotted path, which only settings may name")
        return PolicyChoice(text, _from_path(text))
    name, arguments = _parse(text)
    entry = POLICIES[name]
    for argument, value in arguments.items():
        parameter = entry.parameters.get(argument)
        if parameter is None:
            known = ", ".join(entry.parameters) or "no parameters"
            raise PolicyError(f"the policy {text!r} has no parameter {argument!r}; {name} has {known}")
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not parameter.low <= value <= parameter.high
        ):
            raise PolicyError(
                f"the policy {text!r} takes for {argument} a whole number from {parameter.low} to "
                f"{parameter.high}; found {value!r}"
            )
    return PolicyChoice(text, lambda settings: entry.make(settings, **arguments))


def _accepted() -> str:
    return f"one of {', '.join(_usage(name) for name in POLICIES)}, or a dotted path"


def _usage(name: str) -> str:
    parameters = ", ".join(f"{key}={value.default}" for key, value in POLICIES[name].parameters.items())
    return f"{name}({parameters})" if parameters else name


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of ``name`` or ``name(key=number, ...)``."""
    refused = PolicyError(f"a policy is {_accepted()}; found {text[:80]!r}")
    try:
        node = ast.parse(text, mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name) or call.args or call.func.id not in POLICIES:
            raise refused
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise refused from None
    if None in arguments or len(arguments) < len(call.keywords):
        raise refused
    return call.func.id, {str(name): value for name, value in arguments.items()}


def _from_path(path: str) -> Callable[[PolicySettings], Policy]:
    try:
        factory = load_callable(path)
    except ImportError as error:
        raise PolicyError(f"cannot load the policy {path!r}: {error}") from error
    except NotCallableError as error:
        raise PolicyError(f"the policy {path!r} is a {error}, not callable") from None

    def make(settings: PolicySettings) -> Policy:
        policy: Policy = factory(settings)
        rounds = getattr(policy, "rounds", None)
        fits = callable(getattr(policy, "plan", None)) and isinstance(getattr(policy, "name", None), str)
        if not fits or not isinstance(rounds, int) or rounds < 1:
            raise PolicyError(
                f"{path} must return a policy: an object with name (text), rounds (at least 1) and "
                f"plan(round, evidence); it returned {policy!r}"
            )
        return policy

    return make


TOP_K: Final = load(DEFAULT)
"""The papers' policy."""
