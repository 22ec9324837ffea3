"""``scrapy gp4c status``: how many pages there are, and how the last cycles went."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from scrapy_gp4c.commands.text_tables import print_table
from scrapy_gp4c.crawling.estimates import describe
from scrapy_gp4c.page_state.classes import stages
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, OUTCOMES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "pages and last cycles of a spider's store"
HEADER = ("cycle", "started", "finished", "planned", "visited", "changed", "change rate", "score function")


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "--cycles", type=int, default=10, metavar="N", help="last cycles to show (default: 10)"
    )


def run(project: Project, options: Namespace) -> None:
    """Print the status."""
    with project.open_store() as store:
        counts = page_counts(store, project.settings)
        print(f"store           {store.path} ({store.store_id})")
        print(f"pages           {store.pages:,}")
        for name, count in counts.items():
            print(f"  {name:<14}{count:,}")
        cycles = store.cycles()
        if estimated := next((record for record in reversed(cycles) if record.get("panel")), None):
            print(f"cycle {estimated['cycle']}{describe(estimated['panel'])}")
        records = cycles[-options.cycles :] if options.cycles > 0 else []
        if records:
            print()
            print_table([HEADER, *(_row(store, record) for record in records)])


def page_counts(store: PageStore, settings: Settings) -> dict[str, int]:
    """Count the pages by what the policy does with them; they sum up to the known pages."""
    counts: Counter[str] = Counter()
    for _, block in store.blocks():
        stage = stages(block, settings.warmup_visits, settings.gone_after)
        counts["never fetched"] += int(stage.unfetched.sum())
        counts["in warm-up"] += int(stage.warming.sum())
        counts["ranked"] += int(stage.settled.sum())
        counts["gone"] += int(stage.gone.sum())
    counts["never fetched"] += store.pages - store.merged_pages  # found in the open cycle
    return {name: counts[name] for name in ("never fetched", "in warm-up", "ranked", "gone")}


def _row(store: PageStore, record: CycleRecord) -> tuple[str, ...]:
    if record["cycle"] == store.open_cycle:
        outcomes = np.bincount(store.open_visits()["outcome"], minlength=len(OUTCOMES))
        judged = int(outcomes[list(JUDGED)].sum())
        changed = int(outcomes[CHANGED])
        record = {
            **record,
            "visited": int(outcomes.sum()),
            "changed": changed,
            "change_rate": changed / judged if judged else None,
        }
    rate = record.get("change_rate")
    return (
        str(record["cycle"]),
        _time(record.get("started")),
        _time(record["finished"]) if "finished" in record else "unfinished",
        _number(record.get("planned")),
        _number(record.get("visited")),
        _number(record.get("changed")),
        "-" if rate is None else f"{rate:.3f}",
        str(record.get("score_function", "-")),
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
