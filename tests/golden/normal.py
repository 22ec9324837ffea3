"""Golden values: what makes two runs comparable, how they are compared, and the files that hold them."""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
PLAIN_BYTES = 12_000
"""Golden files above this size are kept compressed."""
RELATIVE = 1e-9
"""Floats may differ by this: means and intervals are not rounded alike by every version of NumPy."""
MOST_SHOWN = 8
NEW = {"policy", "rounds", "discovery", "discovery_function", "discovery_clock", "hub", "new_by_hubs"}
"""Keys of cycles that later versions have added: plans of several rounds, what made them, discovery."""

NEW_STATS = re.compile(
    r"gp4c/(changed|judged|known|pages/.*|panel/(judged|(changed_share|freshness)_(low|high)))"
)
"""Statistics of a crawl that later versions have added: every number that `status` shows."""
CHECKED = "INFO Store stores/"
"""The line by which later versions say what of a store they have checked."""
COMPILING = re.compile(r"(?m)^Compiling the replay engine .*\n?")
"""Said where compiled code is not there yet: once on a machine."""

TIMES = {"started", "finished", "created", "total_s", "wall_s", "replay_s"}
VOLATILE = TIMES | {"versions"}
"""Keys whose values tell when, how fast and with what a document was made: only their types are kept."""

DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])")
_TEXT_RULES = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d|Z)?"), "<time>"),
    (re.compile(r"\b\d+:\d\d:\d\d\b"), "<duration>"),
    (re.compile(r"(?m)^(store\s+\S+) \([0-9a-f]+\)$"), r"\1 (<id>)"),
)
_GROWING = (
    (re.compile(r"there are: n, X, t, [\w, ]+"), "there are: <terminals>"),
    (re.compile(r"score function: random, age, [^;]+"), "score function: <names>"),
    (re.compile(r"\n\(nor one of oracle[^)]*\)"), ""),
    (re.compile(r"new: first visit; [^<\"]*asked for by the spider"), "<kinds>"),
    (re.compile(r"\n\.diff [^\n]*"), ""),
    (re.compile(r"\n(?:\S+: [\d,]+ pages [^\n]*: scrapy gp4c forget [^\n]*\n)+"), ""),
)
"""What grows: lists, styles, and hosts visited in vain. Golden texts have it as it was."""


def normal_text(text: str) -> str:
    """A text without times and store ids."""
    for pattern, replacement in (*_TEXT_RULES, *_GROWING):
        text = pattern.sub(replacement, text)
    return COMPILING.sub("", text)


def normal(content: Any) -> Any:
    """A JSON document without times, versions and store ids."""
    if isinstance(content, dict):
        if "cuts" in content:  # one of every round by now, and beside it what the policy might choose
            cuts = content["cuts"] or [None]
            content = {**content, "cut": cuts[0]}
            content = {key: value for key, value in content.items() if key not in ("cuts", "budget")}
        return {
            key: f"<{type(value).__name__}>" if key in VOLATILE else normal(value)
            for key, value in content.items()
            if key not in NEW
            and not NEW_STATS.fullmatch(key)
            and not (key == "new" and "outcomes" in content)
        }
    if isinstance(content, list):
        return [normal(value) for value in content if not str(value).startswith(CHECKED)]
    return normal_text(content) if isinstance(content, str) else content


def normal_export(text: str) -> list[Any]:
    """An exported history: its header as a document, then its lines."""
    header, *lines = text.splitlines()
    return [normal(json.loads(header.removeprefix("# "))), *map(_without_growth, lines)]


def _without_growth(line: str) -> str:
    """A line of an export without what it says of growth, and of claims of sites, by now."""
    line = re.sub(r'"(entered|found_by|brought)": (\d+|"start"|\[[^\]]*\])(, )?', "", line)
    line = re.sub(r'"(claims|seen_min)": (\[\[.*?\]\]|[\d.e-]+)(, )?', "", line)
    return line.replace(", }", "}")


def normal_html(text: str) -> str:
    """A report without times and versions: one element a line, so that a difference is found."""
    text = re.sub(
        r"(?s)Time of learning.*?</table>",
        lambda found: re.sub(r">\d+\.\d+</td>", "><s></td>", found.group()),
        text,
    )
    text = re.sub(
        r"\b(Python|NumPy|numpy|SciPy|scipy|DEAP|deap|python|scrapy-gp4c) \d[\w.]*", r"\1 <version>", text
    )
    return normal_text(re.sub(r">\s*<", ">\n<", text))


def help_entries(text: str) -> list[str]:
    """The parts of a help text: usage, descriptions and options, with plain spaces.

    The usage is split into its words and bracketed options, so that a new option adds an entry.
    """
    text = re.sub(r"change_rate,\s+ndcg,[\w,\s]+, or a dotted path", "<metrics>, or a dotted path", text)
    text = text.replace("of joblib: loky, dask, ray", "of joblib: loky, dask")  # no test ever ran Ray
    text = re.sub(r"basic, all, or a list such as n,X,t \([^)]*\)", "<terminals>", text)
    text = re.sub(r"\{score,[\w,]+\}", "{sorts}", text)
    usage, _, rest = re.sub(r"\{status,[\w,]+\}", "{actions}", text).partition("\n\n")
    entries = [" ".join(part.split()) for part in re.findall(r"\[[^\]]*\]|\S+", usage)]
    for line in rest.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent <= 4:
            entries.append("")
        if line.strip():
            entries[-1] = f"{entries[-1]} {' '.join(line.split())}".strip()
    # Since Python 3.13 the placeholder of an option with two names comes once.
    return [re.sub(r"(-\w) (\S+), (--[\w-]+) \2", r"\1, \3 \2", entry) for entry in entries]


def in_order(wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    """Those of `wanted` that do not come, in this order, among `found`."""
    rest = list(found)
    missing = []
    for entry in wanted:
        if entry in rest:
            del rest[: rest.index(entry) + 1]
        else:
            missing.append(entry)
    return missing


def differences(actual: Any, golden: Any, where: str = "") -> Iterator[str]:
    """Yield where two documents differ: floats beyond rounding, all else at all."""
    if isinstance(golden, dict) and isinstance(actual, dict):
        for key in [*golden, *(key for key in actual if key not in golden)]:
            if key not in actual or key not in golden:
                yield f"{where}.{key}: {'missing' if key in golden else 'not expected'}"
            else:
                yield from differences(actual[key], golden[key], f"{where}.{key}")
    elif isinstance(golden, list) and isinstance(actual, list):
        if len(golden) != len(actual):
            yield f"{where}: {len(actual)} entries instead of {len(golden)}"
        for number, (ours, theirs) in enumerate(zip(actual, golden, strict=False)):
            yield from differences(ours, theirs, f"{where}[{number}]")
    elif isinstance(golden, str) and isinstance(actual, str):
        if not same_text(actual, golden):
            yield from text_differences(actual, golden, where)
    elif isinstance(golden, float) and isinstance(actual, float):
        if not math.isclose(actual, golden, rel_tol=RELATIVE, abs_tol=1e-12):
            yield f"{where}: {actual!r} instead of {golden!r}"
    elif type(golden) is not type(actual) or golden != actual:
        yield f"{where}: {actual!r} instead of {golden!r}"


def same_text(actual: str, golden: str) -> bool:
    """Tell whether two texts are the same but for rounding of the decimal numbers in them."""
    if actual == golden:
        return True
    if DECIMAL.sub("#", actual) != DECIMAL.sub("#", golden):
        return False
    pairs = zip(DECIMAL.findall(actual), DECIMAL.findall(golden), strict=True)
    return all(_same_number(ours, theirs) for ours, theirs in pairs)


def _same_number(actual: str, golden: str) -> bool:
    if actual == golden or math.isclose(float(actual), float(golden), rel_tol=RELATIVE, abs_tol=1e-12):
        return True
    digits = [len(text.partition("e")[0].partition(".")[2]) for text in (actual, golden)]
    if digits[0] != digits[1] or digits[0] < 3 or "e" in actual + golden:
        return False
    # Rounded for the eye: half a unit may go either way. A value of 16 digits is not.
    return digits[0] <= 6 and abs(float(actual) - float(golden)) < 1.01 * 10.0 ** -digits[0]


def text_differences(actual: str, golden: str, where: str) -> Iterator[str]:
    """Yield the lines of two texts that differ."""
    ours, theirs = actual.splitlines(), golden.splitlines()
    if len(ours) != len(theirs):
        yield f"{where}: {len(ours)} lines instead of {len(theirs)}"
    for number, (line, wanted) in enumerate(zip(ours, theirs, strict=False), 1):
        if not same_text(line, wanted):
            yield f"{where}, line {number}: {line[:400]!r} instead of {wanted[:400]!r}"


def check(actual: Any, golden: Any) -> None:
    """Assert that two documents are the same; the message shows the first differences."""
    # Through JSON, as the golden one came: tuples are lists, keys are texts.
    found = list(differences(json.loads(json.dumps(actual)), golden))
    shown = "\n".join(found[:MOST_SHOWN])
    assert not found, f"{len(found)} differences:\n{shown}"


def save(name: str, content: Any) -> None:
    """Write a golden document, compressed where it is large."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    for suffix in (".json", ".json.xz"):
        (DATA / f"{name}{suffix}").unlink(missing_ok=True)
    if len(text) > PLAIN_BYTES:
        (DATA / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        (DATA / f"{name}.json").write_text(text, encoding="utf-8")


def load(name: str) -> Any:
    """Read a golden document; rules for texts may be younger than it."""
    plain = DATA / f"{name}.json"
    raw = plain.read_bytes() if plain.exists() else lzma.decompress((DATA / f"{name}.json.xz").read_bytes())
    return _texts(json.loads(raw))


def _texts(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _texts(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_texts(value) for value in content]
    if isinstance(content, str):
        for pattern, replacement in _GROWING:
            content = pattern.sub(replacement, content)
    return content
