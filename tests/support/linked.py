"""Contents in which related pages change together and link to each other: good for sampling policies."""

import json
from pathlib import Path

import numpy as np

TOPICS = ("bread flour yeast oven", "star orbit comet moon", "sail mast keel rope")


def write_linked(path: Path, pages: int = 60, weeks: int = 17, seed: int = 1) -> Path:
    """Write a file of contents of three topics on two sites; pages of a topic change together."""
    rng = np.random.default_rng(seed)
    sweeps = rng.random((weeks + 1, len(TOPICS))) < 0.3
    lines = []
    for number in range(pages):
        topic = number % len(TOPICS)
        name = f"{'deep/' if number % 2 else ''}page{number}.md"
        near = (number + 2 * len(TOPICS)) % pages
        link = f"[near](/{'deep/' if near % 2 else ''}page{near}.md) [first](/page0.md)"
        versions = {"0": f"{TOPICS[topic]} {link}"}
        for week in range(1, weeks + 1):
            if sweeps[week, topic] and rng.random() < 0.8:
                versions[str(week)] = f"{TOPICS[topic]} in week {week} {link}"
        lines.append({"site": ("a.org", "b.com")[number >= pages // 2], "page": name, "versions": versions})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
