"""A monitor of small crawls, to be killed and started again: ``monitored STORE LOG CYCLES SECONDS``."""

import signal
import sys
from pathlib import Path

from scrapy_gp4c.commands.monitor import (
    Listener,
    Monitor,
    MonitoredCycle,
    Process,
    RealClock,
    Schedule,
    WakeUps,
)
from scrapy_gp4c.store.opening import open_store


class ImpatientClock(RealClock):
    """Clock that waits at most 20 ms, so that the monitor looks often."""

    def wait(self, wake_ups: WakeUps, seconds: float) -> None:
        super().wait(wake_ups, min(seconds, 0.02))


class Printer(Listener):
    """Prints the record of each crawl."""

    def ended(self, cycle: MonitoredCycle) -> None:
        print(cycle, flush=True)


def monitor(store_path: str, log: str, cycles: str, seconds: str) -> int:
    """Monitor until the store has ``cycles`` finished cycles; each crawl takes ``seconds``."""
    command = [sys.executable, "-m", "tests.support.monitored_crawl", store_path, log, seconds]
    running = Monitor(
        Path(store_path),
        lambda: Process(command),
        Schedule(0.05),
        Printer(0.05, 0.0, False),
        ImpatientClock(),
    )
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    done = 0
    if Path(store_path, "data.mdb").exists():
        with open_store(store_path, readonly=True) as store:
            done = store.last_cycle
    return running.run(int(cycles) - done)


if __name__ == "__main__":
    sys.exit(monitor(*sys.argv[1:]))
