"""How long `training.from_git` takes on a long history: python -m benchmarks.from_git [--commits N].

Makes a repository with ``git fast-import`` (no file of it is checked out) and times two windows: the
usual one, and one that reports every commit (``--mass-share`` near 0), the most work there can be.
"""

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

from training.histories.git_history import CycleWindow, read_repository

DAY_S = 86_400
START_S = 1_700_000_000 // DAY_S * DAY_S


def make_repository(path: Path, commits: int, pages: int, days: int, seed: int = 0) -> None:
    """A repository of `pages` pages whose `commits` commits, each of 1-5 pages, spread over `days` days."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    rng = random.Random(seed)
    with subprocess.Popen(
        ["git", "-C", str(path), "fast-import", "--quiet"], stdin=subprocess.PIPE
    ) as importer:
        assert importer.stdin is not None
        for number in range(commits + 1):
            when = START_S - DAY_S if number == 0 else START_S + (number - 1) * days * DAY_S // commits
            touched = (
                range(pages) if number == 0 else {rng.randrange(pages) for _ in range(rng.randint(1, 5))}
            )
            lines = [f"commit refs/heads/master\ncommitter a <a@example.org> {when} +0000\ndata 1\nc\n"]
            for page in touched:
                text = f"{number} {page}"
                lines.append(
                    f"M 100644 inline s{page % 50}/d{page % 997}/p{page}\ndata {len(text)}\n{text}\n"
                )
            importer.stdin.write("".join(lines).encode())
        importer.stdin.close()
    if importer.returncode:
        raise SystemExit("git fast-import failed")


def main() -> None:
    """Time both windows and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=50_000)
    parser.add_argument("--pages", type=int, default=20_000)
    options = parser.parse_args()
    days = 57
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pages"
        make_repository(path, options.commits, options.pages, days)
        window = CycleWindow(days, DAY_S, START_S + days * DAY_S)
        for name, share in (("mass commits of 20% of pages", 0.2), ("every commit reported", 1e-9)):
            start_s = time.perf_counter()
            pages_read = read_repository(path, window, mass_share=share)
            took_s = time.perf_counter() - start_s
            print(
                f"{name}: {took_s:.1f} s for {options.commits:,} commits, {pages_read.changed.shape[1]:,} "
                f"pages, {days} cycles, {pages_read.changed.mean():.2%} changed per cycle, "
                f"{len(pages_read.mass_commits):,} commits reported"
            )


if __name__ == "__main__":
    main()
