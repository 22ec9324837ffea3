"""Record the golden values: ``python tests/golden/record.py`` in a checkout of the commit to compare with.

The values in ``data/`` were recorded from commit f82bcb1 and are not to be recorded from a later one: they
are how it is told that a later one behaves the same. To record them again, check out f82bcb1, put this
directory into its ``tests/``, install with ``pip install -e '.[test]'`` and run this script. It writes

- stores that were closed, killed in a cycle, killed in a fold and interrupted with a JOBDIR, a checkpoint of
  a killed learning run and two learned score files, which the tests go on from;
- what `scenarios` gives: documents that the tests compare with what it gives in their checkout.

One crawl is recorded from a later commit: with ``GP4C_NEW_PAGES``, f82bcb1 took the pages that wait for their
first visit in the order of their ids, which shards of a crawl could not repeat; now they come by turn of
their site, cycle of discovery and draw. ``python tests/golden/record.py reordered``, run in the checkout of
the commit that changed this, put its values in the place of those of f82bcb1, and left all others alone.

What crawls request was recorded with one line of f82bcb1 mended: there, a plan read in one go had one
priority, and the queue turned its order round. In ``scrapy_gp4c/scheduler.py`` `level` is to be
``self._fed * RANK_LEVELS // max(1, len(self._frontier._plan))``.

With names (those of `DOCUMENTS`) it writes only these documents; ``inputs`` stands for what the tests go on
from. Only for the kills it reaches into the modules of f82bcb1.
"""

from __future__ import annotations

import lzma
import os
import runpy
import shutil
import signal
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import normal
import scenarios

SELF = Path(__file__).resolve()
DOCUMENTS = ("crawls", "stores", "jobdir", "training", "experiment")
KILLED_AFTER_SAVES = 3
KILLED_AFTER_REQUESTS = 130
"""More than the 100 visits after which a store commits; the third cycle of the store has them."""
FOLD_BLOCK_ROWS = 16
KILLED_AFTER_BLOCKS = 4


def pack(source: Path, name: str) -> None:
    """Keep a file compressed in `normal.DATA`."""
    content = lzma.compress(source.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    (normal.DATA / f"{name}.xz").write_bytes(content)


def record_scores(directory: Path) -> None:
    """Learn two score files, one for each clock."""
    longer = [*scenarios.LEARN, "--population", "60", "--generations", "8"]
    jobs = [
        ["synthetic", "weekly", *scenarios.SYNTHETIC, "-o", "weekly.txt"],
        ["learn", "weekly.txt", *longer, "--seed", "4", "-o", "best.json"],
        ["learn", "weekly.txt", *longer, "--seed", "6", "--clock", "cycles", "-o", "crawl-score.json"],
    ]
    for result in scenarios.run_worker(scenarios.HERE / "training_worker.py", jobs, directory):
        assert result["exit"] == 0, result
    for name in ("best.json", "crawl-score.json"):
        shutil.copy(directory / name, normal.DATA)


def record_checkpoint(directory: Path) -> None:
    """Learn until the checkpoint was saved some times, and be killed."""
    jobs = [
        ["synthetic", "weekly", *scenarios.SYNTHETIC, "-o", "weekly.txt"],
        ["learn", *scenarios.RESUMED, "--checkpoint", "checkpoint", "-o", "resumed.json"],
    ]
    assert scenarios.run_worker(SELF, jobs, directory, "kill-learning") is None
    assert not (directory / "resumed.json").exists()
    pack(directory / "checkpoint" / "checkpoint.json", "checkpoint.json")


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose file it is, and when it was written."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def record_stores(directory: Path) -> None:
    """Some cycles; for the killed ones, two and most of a third."""
    killed = scenarios.runs(1, 3, GOLDEN_KILL_AT=KILLED_AFTER_REQUESTS)
    full: Any = {"GP4C_BUDGET": 1.0}  # the killed cycle is one of many visits
    stopped = scenarios.runs(1, 3, GOLDEN_STOP_AT=scenarios.JOBDIR_STOPPED_AFTER, **scenarios.JOBDIR)
    for name, steps in {
        scenarios.WITH_JOBDIR: [*scenarios.runs(2), *stopped],
        "closed": scenarios.runs(scenarios.CLOSED_CYCLES),
        "killed": [*scenarios.runs(2), {"run": {**killed[0]["run"], **full}}],
        "folding": scenarios.runs(3),
    }.items():
        how = "kill-fold" if name == "folding" else "plain"
        one = scenarios.scenario(name, scenarios.STORE_SETTINGS, steps)
        result = scenarios.run_scenarios([one], directory, str(SELF), how)
        assert (result is None) == (name in ("killed", "folding")), name
        pack(directory / "stores" / name / "data.mdb", f"store-{name}")
    with tarfile.open(normal.DATA / "jobdir.tar.xz", "w:xz") as packed:
        packed.add(directory / "jobs" / "golden", "golden", filter=_nobody)


@contextmanager
def as_worker(name: str) -> Any:
    """Become one of the workers: the same arguments, without the first."""
    del sys.argv[1]
    yield
    runpy.run_path(str(SELF.with_name(name)), run_name="__main__")


def kill_learning() -> None:
    """Run `training_worker`, killed after a number of saved checkpoints."""
    from training.checkpoint import Checkpoint

    save = Checkpoint.save
    saves = 0

    def killing(self: Checkpoint, states: list[dict[str, Any]]) -> None:
        nonlocal saves
        save(self, states)
        saves += 1
        if saves == KILLED_AFTER_SAVES:
            os.kill(os.getpid(), signal.SIGKILL)

    with as_worker("training_worker.py"):
        Checkpoint.save = killing  # type: ignore[method-assign]


def kill_fold() -> None:
    """Run `cycle_worker` with small blocks, killed in the fold of the third cycle."""
    with as_worker("cycle_worker.py"):
        from scrapy_gp4c import columns, fold

        columns.BLOCK_ROWS = FOLD_BLOCK_ROWS
        fold.BLOCKS_PER_TRANSACTION = 1
        apply_visits = columns.apply_visits
        folded = 0

        def killing(state: Any, rows: Any, visits: Any, cycle: int) -> None:
            nonlocal folded
            folded += cycle == 3
            if folded > KILLED_AFTER_BLOCKS:
                os.kill(os.getpid(), signal.SIGKILL)
            apply_visits(state, rows, visits, cycle)

        columns.apply_visits = killing


def record(names: list[str]) -> None:
    """Record everything, or what is named."""
    wanted = names or ["inputs", *DOCUMENTS]
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        if "inputs" in wanted:
            record_scores(directory / "scores")
            record_checkpoint(directory / "learning")
            record_stores(directory / "recorded")
        if "reordered" in wanted:
            again = scenarios.produce_reordered(directory / "reordered")
            normal.save("crawls", {**normal.load("crawls"), **again})
        for name in DOCUMENTS:
            if name in wanted:
                normal.save(name, getattr(scenarios, f"produce_{name}")(directory / name))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kill-learning", *_]:
            kill_learning()
        case ["kill-fold", *_]:
            kill_fold()
        case ["plain", *_]:
            with as_worker("cycle_worker.py"):
                pass
        case _:
            record(sys.argv[1:])
