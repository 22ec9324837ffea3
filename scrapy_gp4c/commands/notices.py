"""``scrapy gp4c feed``, ``notify`` and ``metrics``: write a feed, send test messages, print metrics."""

import time
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from scrapy_gp4c.commands.action import Action, option, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.notifying import open_texts, recent_events
from scrapy_gp4c.crawling.reports import mean_age_cycles, page_counts
from scrapy_gp4c.errors import NoticeError, SettingsError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.notices.events import PageEvent
from scrapy_gp4c.notices.feeds import write_feed
from scrapy_gp4c.notices.metrics import metrics
from scrapy_gp4c.notices.outbox import Outbox
from scrapy_gp4c.notices.sending import deliver
from scrapy_gp4c.store.records import CycleRecord


def _feed(project: Project, options: Namespace) -> None:
    name = project.spider_class.name
    with project.open_store() as store, open_texts(store) as texts:
        events = recent_events(store, project.settings, name, texts.diff)
        entries = write_feed(Path(options.output), name, store.store_id, events)
    say(f"Feed: {options.output} ({counted(entries, 'entry', 'entries')})")
    if texts.problem is not None:
        raise texts.problem


FEED = Action(
    "write a feed of the newest changes: JSON Feed or Atom",
    _feed,
    [option("-o", "--output", metavar="FILE", default="changes.xml", help="(default: changes.xml)")],
)


def _notify(project: Project, options: Namespace) -> None:
    """Send what waits, or a test message; NoticeError where a receiver does not get its message."""
    settings, daily = project.settings, 0
    if not (settings.notify or settings.on_change):
        raise SettingsError("there is no receiver: set GP4C_NOTIFY or GP4C_ON_CHANGE")
    if options.test:
        with TemporaryDirectory() as directory:
            outbox = Outbox(Path(directory))
            event = PageEvent(
                "changed", "https://example.org/a-test", project.spider_class.name, 1, time.time(), None,
                "changed", 64, 1, ("@@ 1 @@ this is a [-quiet-] {+changed+} page",),
            )  # fmt: skip
            always = [receiver.for_test() for receiver in settings.notify]
            outbox.put(1, always, [event], command=bool(settings.on_change))
            problems = deliver(outbox, always, settings.on_change, is_test=True)
    else:
        outbox = Outbox(project.store_path)
        problems = deliver(outbox, settings.notify, settings.on_change)
        daily = len(list(outbox.waiting()))
    if problems:
        raise NoticeError("\n".join(problems))
    receivers = counted(len(settings.notify) + bool(settings.on_change), "receiver")
    if daily:
        say(f"{counted(daily, 'notice')} will be sent by the first run of another day")
    else:
        say(f"{'A test message was sent to' if options.test else 'Nothing waits for'} {receivers}")


NOTIFY = Action(
    "send the notices that wait; --test: send a test message",
    _notify,
    [option("--test", action="store_true", help="send a made-up change to every receiver")],
)


def _metrics(project: Project, options: Namespace) -> None:
    with project.open_store() as store:
        finished = [record for record in store.cycles() if record["cycle"] <= store.last_cycle]
        record: CycleRecord = finished[-1] if finished else {}
        counts = page_counts(store, project.settings)
        text = metrics(project.spider_class.name, record, counts, mean_age_cycles(store))
    for line in text.decode().splitlines():
        say(line)


METRICS = Action("print figures of the last cycle for Prometheus", _metrics)
