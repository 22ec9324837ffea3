"""Which pairs of pages count as changed? Before and after an edit, labelled by what a person would say.

Run: ``python -m benchmarks.page_pairs DIRECTORY``. The directory has ``index.json`` (a list of objects with
name, lang, type, edit, ext and changed) and a folder per pair with ``before.EXT`` and ``after.EXT``. With a
file of contents instead (docs/lab/histories.md) it draws 1,200 edits, and counts those that each value of
``GP4C_FINGERPRINT`` finds.
docs/lab/fingerprint.md has its table.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse

from benchmarks.common import exit_code, verdict
from scrapy_gp4c.fingerprint import is_changed, read, simhash_words
from scrapy_gp4c.words.normal import normalise
from training.histories.contents import read_contents

THRESHOLD = 3
EDITS, FOUND_EDITS_SHARE = 1200, 0.99
FOUND_SHARE, FALSE_SHARE = 40 / 41, 4 / 22
CLASSES = {
    "html": (HtmlResponse, "text/html"),
    "json": (JsonResponse, "application/json"),
    "xml": (XmlResponse, "application/rss+xml"),
    "csv": (TextResponse, "text/csv"),
    "ndjson": (TextResponse, "application/x-ndjson"),
    "txt": (TextResponse, "text/plain"),
    "md": (TextResponse, "text/markdown"),
    "ics": (TextResponse, "text/calendar"),
    "pdf": (Response, "application/pdf"),
}


def response(path: Path) -> Response:
    """Return a page as a server sends it."""
    kind, content_type = CLASSES.get(path.suffix[1:], (Response, "application/octet-stream"))
    url = f"http://127.0.0.1/{path.name}"
    return kind(url, body=path.read_bytes(), headers={"Content-Type": content_type})


def judge(folder: Path, extension: str) -> bool:
    """Whether a page counts as changed between its two versions."""
    before, after = (
        read(response(folder / f"{when}.{extension}")).fingerprint for when in ("before", "after")
    )
    return is_changed(before, after, THRESHOLD)


def recorded_edits(path: Path) -> int:
    """Print how many edits each fingerprint finds; return 1 if the default misses one."""
    contents = read_contents(path)
    page = contents.page_of_version
    pairs = np.flatnonzero(page[1:] == page[:-1])
    drawn = np.random.default_rng(1).permutation(pairs).tolist()
    edits = []
    for first in drawn:
        before, after = contents.texts[first], contents.texts[first + 1]
        # What the rules forgive (white space, dates) is no edit.
        if before and after and normalise(before).split() != normalise(after).split():
            edits.append([TextResponse("http://127.0.0.1/", body=text.encode()) for text in (before, after)])
        if len(edits) == EDITS:
            break
    shares = {}
    for name, features in (("sketch", None), ("simhash", simhash_words)):
        for bits in (3, 4):
            changed = sum(
                is_changed(*(read(text, features).fingerprint for text in pair), bits) for pair in edits
            )
            shares[name, bits] = changed / len(edits)
            print(f"{name}, GP4C_DISTANCE = {bits}: {changed:,} of {len(edits):,} edits found")
    return exit_code(
        verdict("edits found by the default", shares["sketch", 3], FOUND_EDITS_SHARE, at_least=True)
    )


def main() -> int:
    """Print the table by language and type; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    if directory.is_file():
        return recorded_edits(directory)
    pairs = json.loads((directory / "index.json").read_text())
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    wrong = []
    for pair in pairs:
        judged = judge(directory / pair["name"], pair["ext"])
        counts[pair["lang"], pair["type"], pair["changed"], judged] += 1
        if judged != pair["changed"]:
            wrong.append(f"{'missed' if pair['changed'] else 'false alarm'}: {pair['name']}")
    print("| language | type | changes found | false alarms |\n|---|---|---|---|")
    for language, kind in sorted({key[:2] for key in counts}):
        true_changes, missed, false, right = (
            counts[language, kind, changed, judged]
            for changed, judged in ((True, True), (True, False), (False, True), (False, False))
        )
        print(
            f"| {language} | {kind} | {true_changes} of {true_changes + missed} "
            f"| {false} of {false + right} |"
        )
    changes = sum(number for key, number in counts.items() if key[2])
    still = len(pairs) - changes
    true_changes = sum(number for key, number in counts.items() if key[2] and key[3])
    false = sum(number for key, number in counts.items() if not key[2] and key[3])
    print(f"| all | all | {true_changes} of {changes} | {false} of {still} |")
    print(*wrong, sep="\n")
    holds = verdict(
        "share of changes found",
        true_changes / max(changes, 1),
        min(FOUND_SHARE, 1 - 1 / max(changes, 1)),
        at_least=True,
    )
    return exit_code(
        verdict("share of false alarms", false / max(still, 1), FALSE_SHARE, at_least=False), holds
    )


if __name__ == "__main__":
    sys.exit(main())
