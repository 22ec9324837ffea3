"""A crawl without pages, of which many can be run: ``monitored_crawl STORE LOG SECONDS``."""

import os
import signal
import sys
import time

from scrapy_gp4c.store.opening import open_store


def crawl(store_path: str, log: str, seconds: str) -> None:
    """Run a cycle or continue the open one; log process id and cycle when the store opens and closes."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the cycle stays open, as at a shutdown
    with open_store(store_path) as store, open(log, "a", encoding="utf-8") as report:
        cycle = store.open_cycle or store.begin_cycle({"started": time.time()})
        print(f"{os.getpid()} {cycle} begins", file=report, flush=True)
        time.sleep(float(seconds))
        store.finish_cycle({"finished": time.time(), "visited": 1, "changed": 1, "change_rate": 1.0})
        print(f"{os.getpid()} {cycle} ends", file=report, flush=True)


if __name__ == "__main__":
    crawl(*sys.argv[1:])
