"""Table of all policies, and reading a policy from its text: ``top_k``, ``rounds(rounds=4)``, a dotted path.

A text is parsed with ``ast`` against the table and never executed. A dotted path is imported, so it is
accepted from settings and command lines, never from a store.
"""

import ast
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from scrapy_gp4c.errors import PolicyError, did_you_mean
from scrapy_gp4c.page_state.groupings import LEVELS, Name
from scrapy_gp4c.policies.base import Policy, PolicySettings
from scrapy_gp4c.policies.sampling import (
    BY_HISTORY,
    BY_SCORE,
    HISTORY_COLUMNS,
    PHIS,
    ByGroups,
    Follow,
    FollowParameters,
    Greedy,
    RandomNodes,
    RoundRobin,
)
from scrapy_gp4c.policies.top_k import Rounds, TopK
from scrapy_gp4c.scoring import discovery, hints, measured, sizes, terminals, weights
from scrapy_gp4c.scoring.functions import ScoreFunction, is_dotted, load_callable

DEFAULT: Final = "top_k"
MAX_LENGTH: Final = 1000


class Parameter(NamedTuple):
    """Description of a policy's parameter: its default, and which numbers, names or booleans it accepts."""

    default: object
    """Default; None and booleans are accepted only if the default is one."""
    numbers: tuple[float, float] | None = None
    """Least and greatest number; only whole numbers if these are ints. None: no number."""
    names: Sequence[str] = ()
    """Accepted texts."""

    def accepts(self, value: Any) -> bool:
        """Whether the parameter may have this value."""
        if value is None or isinstance(value, bool):
            return type(value) is type(self.default)
        if self.numbers is None or isinstance(value, str):
            return isinstance(value, str) and value in self.names
        low, high = self.numbers
        return isinstance(value, int if isinstance(low, int) else int | float) and low <= value <= high

    @property
    def expected(self) -> str:
        """Accepted values in words, for errors."""
        if isinstance(self.default, bool):
            return "True or False"
        texts, names = list[str](), list(map(repr, self.names))
        if self.numbers is not None:
            low, high = self.numbers
            kind = "a whole number" if isinstance(low, int) else "a number"
            texts.append(f"{kind} from {low:.0f} to {high:.0f}")
        if names:
            texts.append(" or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}")
        return ", or ".join([*texts, *(["None"] if self.default is None else [])])


class PolicyEntry(NamedTuple):
    """A row of `POLICIES`: how a policy is made, its parameters and meaning, and which columns it reads."""

    make: Callable[..., Policy]
    """``make(settings, **parameters)``."""
    parameters: dict[str, Parameter]
    meaning: str
    source: str = "scrapy-gp4c"
    scored: bool = False
    """Whether it chooses by a score function."""
    columns: tuple[str, ...] = ()
    """Page columns that the policy reads, besides those of the score function."""
    near: Name | None = None
    """Grouping that the policy needs whatever its parameters are."""


ROUNDS: Final = Parameter(4, (1, 1000))
LEVEL: Final = Parameter("site", names=LEVELS)
SAMPLE: Final = Parameter(None, (1, 10**9))
IN_FLIGHT: Final = Parameter(16, (1, 10**6))
TAN: Final = "Tan et al. 2007"
CHO_NTOULAS: Final = "Cho & Ntoulas 2002"


def _following(name: str, near: Name, d: int, meaning: str) -> PolicyEntry:
    def make(settings: PolicySettings, **arguments: Any) -> Policy:
        return Follow(settings, FollowParameters(name, near, **{"d": d, **arguments}))

    parameters = {
        "d": Parameter(d, (-100, 100)),
        "phi": Parameter("change", (0.0, 1.0), tuple(PHIS)),
        "gate": Parameter(False),
        "clock": Parameter("cycles", names=terminals.CLOCKS),
        "in_flight": IN_FLIGHT,
    }
    return PolicyEntry(make, parameters, meaning, TAN, columns=HISTORY_COLUMNS, near=near)


def _rounds(settings: PolicySettings, rounds: int = 4, **arguments: Any) -> Policy:
    return Rounds(settings, rounds, **arguments)


POLICIES: Final[dict[str, PolicyEntry]] = {
    "top_k": PolicyEntry(TopK, {}, "the pages with the highest scores", "Santos et al. 2013", scored=True),
    "rounds": PolicyEntry(
        _rounds,
        {"rounds": ROUNDS, "sample": Parameter(0.0, (0.0, 1.0)), "level": LEVEL},
        "a sample of all groups, then the highest scores in equal parts, scoring anew before each",
        scored=True,
    ),
    "rns": PolicyEntry(RandomNodes, {}, "random node sampling: any pages", TAN),
    "rr": PolicyEntry(RoundRobin, {}, "round robin: all pages in turn", TAN, columns=("last_cycle",)),
    "gsb": PolicyEntry(
        Greedy,
        {"level": LEVEL, "sample": SAMPLE},
        "equal samples of all groups, then whole groups, those with most changed samples first",
        CHO_NTOULAS,
    ),
    "lb": _following("lb", "links", 3, "any page; after a change, those that it links to, and its siblings"),
    "db": _following("db", "tree", 1, "any page; after a change, those in directories nearby"),
    "cb": _following("cb", "cluster", 0, "any page; after a change, those in its cluster"),
    "groups": PolicyEntry(
        ByGroups,
        {
            "level": LEVEL,
            "order": Parameter("aad", names=(BY_SCORE, *terminals.NAMES)),
            "sample": SAMPLE,
            "threshold": Parameter(0.5, (0.0, 1.0)),
            "in_flight": IN_FLIGHT,
        },
        "group after group by what is known of its pages: a sample, then the rest if that changed",
        "Tan & Mitra 2010",
    ),
}


class PolicyChoice(NamedTuple):
    """A policy that was read from its text, and can be made once there are `PolicySettings`."""

    text: str
    """Text of the setting, as the cycle's record keeps it."""
    make: Callable[[PolicySettings], Policy]
    scored: bool = True
    """Whether it chooses by a score function."""
    columns: tuple[str, ...] | None = None
    """Columns that the policy reads besides those of its score function; None: unknown, perhaps all."""
    near: tuple[Name, ...] = ()
    """Groupings that it needs; "links" also if it reads the popularity of pages."""


def load(value: str, *, trusted: bool = True) -> PolicyChoice:
    """Read a policy's text: a name of `POLICIES`, with arguments if it takes any, or a dotted path.

    A dotted path names a function ``f(PolicySettings) -> Policy``; unless ``trusted`` it is refused. Raises
    PolicyError, which names the text and all accepted ones.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LENGTH:
        raise PolicyError(f"a policy is {_accepted()}; found {str(value)[:80]!r}")
    text = value.strip()
    if is_dotted(text):
        if not trusted:
            raise PolicyError(f"the policy {text!r} is a dotted path, which only settings may name")
        return PolicyChoice(text, _from_path(text))
    parsed = parse(text, POLICIES)
    if parsed is None:
        near = did_you_mean(text.partition("(")[0], POLICIES)
        raise PolicyError(f"a policy is {_accepted()}; found {text[:80]!r}{near}")
    name, arguments = parsed
    entry = POLICIES[name]
    check_arguments(text, name, entry.parameters, arguments)
    return PolicyChoice(
        text,
        partial(entry.make, **arguments),  # a lambda could not travel to other processes
        *_choice_fields(name, {key: one.default for key, one in entry.parameters.items()} | arguments),
    )


def check_arguments(
    text: str, name: str, parameters: Mapping[str, Parameter], arguments: Mapping[str, object]
) -> None:
    """Raise PolicyError for an argument that is not in `parameters`, or whose value is not accepted.

    ``text``, ``name``: text and name of the policy, for the error.
    """
    for argument, value in arguments.items():
        parameter = parameters.get(argument)
        if parameter is None:
            known = ", ".join(parameters) or "no parameters"
            near = did_you_mean(argument, parameters)
            raise PolicyError(f"the policy {text!r} has no parameter {argument!r}{near}; {name} has {known}")
        if not parameter.accepts(value):
            raise PolicyError(
                f"the policy {text!r} takes for {argument} {parameter.expected}; found {value!r}"
            )


def _accepted() -> str:
    return f"one of {', '.join(_usage(name) for name in POLICIES)}, or a dotted path"


def _usage(name: str) -> str:
    parameters = ", ".join(f"{key}={value.default!r}" for key, value in POLICIES[name].parameters.items())
    return f"{name}({parameters})" if parameters else name


def parse(text: str, names: Container[str]) -> tuple[str, dict[str, Any]] | None:
    """Split ``name`` or ``name(key=literal, ...)`` into name and arguments; None for any other text."""
    try:
        node = ast.parse(text, mode="eval").body
        call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
        if not isinstance(call.func, ast.Name) or call.args or call.func.id not in names:
            return None
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    if None in arguments or len(arguments) < len(call.keywords):
        return None
    return call.func.id, {str(name): value for name, value in arguments.items()}


def _choice_fields(name: str, arguments: dict[str, object]) -> tuple[bool, tuple[str, ...], tuple[Name, ...]]:
    """Return fields `scored`, `columns` and `near` of `PolicyChoice` for a policy with these arguments."""
    entry = POLICIES[name]
    columns, order = entry.columns, arguments.get("order")
    if "phi" in arguments and arguments["phi"] not in BY_HISTORY:
        columns = ()
    if isinstance(order, str) and order != BY_SCORE:
        # By either clock: which one says the score function.
        columns += tuple(name for clock in terminals.CLOCKS for name in terminals.columns_of((order,), clock))
    near: tuple[Name, ...] = ()
    if entry.near is not None:
        near = (entry.near,)
    elif "level" in arguments and arguments.get("sample") != 0:
        near = tuple(level for level in LEVELS if level == arguments["level"])
    if arguments.get("phi") == "pra":
        near += () if "links" in near else ("links",)  # popularity follows from them
    return entry.scored or order == BY_SCORE, columns, near


def columns_read(function: ScoreFunction | None, policy: PolicyChoice) -> tuple[str, ...]:
    """Return the page columns that policy and score function read; all if either is a user's own code."""
    function_columns = () if function is None else function.columns
    if policy.columns is None or (function is not None and function.callable is not None):
        optional = (discovery, sizes, measured, hints, weights)
        names = (name for module in optional for name in module.COLUMNS)
        return tuple(dict.fromkeys((*terminals.STATE, *names, *terminals.ROUND, *function_columns)))
    return tuple(dict.fromkeys((*policy.columns, *(function_columns if policy.scored else ()))))


def _from_path(path: str) -> Callable[[PolicySettings], Policy]:
    factory = load_callable(path, "policy", PolicyError)

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
"""The papers' policy, also the default."""
