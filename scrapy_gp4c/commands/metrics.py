"""``scrapy gp4c metrics``: figures of the last cycle in the text format of Prometheus."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import say
from scrapy_gp4c.crawling.reports import page_counts
from scrapy_gp4c.notices.metrics import metrics

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project
    from scrapy_gp4c.store.records import CycleRecord

HELP = "print figures of the last cycle for Prometheus"


def add_options(parser: ArgumentParser) -> None:
    """This action has no options of its own."""


def run(project: Project, options: Namespace) -> None:
    """Print the metrics. Raises SettingsError where prometheus-client is missing."""
    del options
    with project.open_store() as store:
        finished = [record for record in store.cycles() if record["cycle"] <= store.last_cycle]
        record: CycleRecord = finished[-1] if finished else {}
        text = metrics(project.spider_class.name, record, page_counts(store, project.settings))
    for line in text.decode().splitlines():
        say(line)
