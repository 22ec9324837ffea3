"""Workers of one crawl, a PostgreSQL, and what goes wrong with them; what is left afterwards is compared.

What a worker has acknowledged it writes to a file before it does anything else, and a trigger of the server's
own looks at each append: neither relies on what is to be shown.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.crawl_status import CrawlStatus
from scrapy_gp4c.distributed import administration, catching_up, closing, leases, rounds, schema, shared_run
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import LedgerAwayError
from scrapy_gp4c.distributed.flushing import MOST_WAITING, Flusher
from scrapy_gp4c.distributed.log import Flush
from scrapy_gp4c.distributed.segments import unpack
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, open_store
from scrapy_gp4c.store.shards.placing import shard_of_url
from tests.support import workers
from tests.support.postgres import PGBOUNCER, Server, pgbouncer
from tests.support.proxy import Proxy

NAMES: Final = ("a", "b", "c")
SHARDS: Final = 8
PHASES: Final[dict[str, tuple[Any, str]]] = {
    "cut": (rounds, "plan"),
    "fold": (closing, "close"),
    "snapshot": (closing, "copy"),
    "rebuild": (catching_up, "_rebuild"),
}
"""What a worker does -> the module and function that do it."""
LAST_DAY: Final = 400
"""Of the web, on which its pages change no more."""
HANGS_S: Final = 120.0
"""A cycle that is not over so long after the last fault never will be."""
TAKEN: Final = np.dtype([("cycle", "<u4"), ("time", "<f8"), ("fingerprint", "<u8")])
"""Of an acknowledged visit; no two have the same time and fingerprint."""
WATCH: Final = """
CREATE TABLE public.refused (shard integer, seq integer, token bigint, expected bigint);
CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.refused SELECT NEW.shard, NEW.seq, NEW.token, s.token
        FROM gp4c.shard AS s WHERE s.shard = NEW.shard AND s.token <> NEW.token;
    RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT ON gp4c.log FOR EACH ROW EXECUTE FUNCTION public.watch();
"""


class Found(NamedTuple):
    """What was compared, and what was found wrong with it."""

    compared: Counter[str]
    wrong: list[str]


class Web(workers.TreeWeb):
    """Pages that all of a crawl's workers ask for, and when they did."""

    def __init__(self, pages: int) -> None:
        """Serve from loopback."""
        super().__init__(pages, days=LAST_DAY)
        self.born = 1 + (self.born - 1) // 20  # else most would come when all is over
        self._server.handle_error = lambda *_: None  # who asked was killed
        self.requests: list[tuple[float, int]] = []
        """Time by the monotonic clock, and page."""

    def answer(self, path: str, known: str | None) -> workers.Answer:
        """Text of a page today, of each fifth one after a redirect to another host."""
        number, _, hop = path.strip("/").partition("/")
        if number.isdigit() and not hop:
            page = int(number)
            self.requests.append((time.monotonic(), page))
            if page % 5 == 4 and self.born[page] <= self.day:
                elsewhere = f"http://127.0.0.{self.host[page] % workers.HOSTS + 1}:{self.port}/{page}/1"
                return workers.Answer(302, {"Location": elsewhere}, "")
        return super().answer(f"/{number}", known)

    def shard(self, page: int) -> int:
        """Shard of a page."""
        return shard_of_url(self.url(page), SHARDS)


def crawl(given: dict[str, Any], log: Path) -> None:
    """Crawl once as a worker that may be told to die in some phase, and notes what was acknowledged.

    ``given``: settings; of a worker whose clock is wrong ``clock_s``, of one that may keep fewer visits that
    the ledger lacks ``most_waiting``.
    """
    place = log.with_suffix("")
    file = os.open(place.with_suffix(".acknowledged"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    write = Flusher._write

    def noted(flusher: Any) -> None:
        if flusher._waiting is not None:
            os.write(file, _rows(flusher._waiting))
        write(flusher)

    Flusher._write = noted  # type: ignore[method-assign]
    offset_s, wall_clock = given.pop("clock_s", 0.0), time.time
    time.time = lambda: wall_clock() + offset_s
    shared_run.MOST_WAITING = given.pop("most_waiting", MOST_WAITING)  # type: ignore[misc]
    for phase, (module, name) in PHASES.items():
        setattr(module, name, _deadly(phase, getattr(module, name), place.with_suffix(".armed")))
    workers.crawl(given, log)


def _rows(what: Flush) -> bytes:
    parts = [np.empty(0, TAKEN)]
    for one in what.segments:
        visits = unpack(one.body)[0]
        parts.append(np.empty(len(visits), TAKEN))
        parts[-1]["cycle"] = what.cycle
        parts[-1]["time"], parts[-1]["fingerprint"] = visits["time"], visits["fingerprint"]
    return np.concatenate(parts).tobytes()


def _deadly(phase: str, work: Callable[..., Any], armed: Path) -> Callable[..., Any]:
    """What dies some time after it has begun, if it is told to."""

    def phased(*given: Any, **named: Any) -> Any:
        with suppress(OSError):
            wanted, delay_s = armed.read_text().split()
            if wanted == phase:
                armed.unlink()
                threading.Timer(float(delay_s), os.kill, (os.getpid(), signal.SIGKILL)).start()
        return work(*given, **named)

    return phased


class Crawl:
    """Three workers, a web, and a ledger behind a proxy for each of them."""

    def __init__(
        self, folder: Path, lease_s: float, pages: int = 300, server: Server | None = None, **given: Any
    ) -> None:
        """Begin with an empty ledger and no worker.

        ``server``: None: one of its own; ``given``: settings of the workers.
        """
        self.folder, self.lease_s, self._given = folder, lease_s, given
        self._closing = ExitStack()
        self.server = server or Server()
        if server is None:
            self._closing.callback(self.server.stop)
        self.database = self.server.database()
        owner = Connection(self.server.dsn(self.database))
        schema.create(owner, SHARDS)
        owner.close()
        self.server.execute(WATCH, self.database)
        self.web = Web(pages)
        self._closing.callback(self.web.close)
        self.proxies = {name: self._closing.enter_context(Proxy(self.server.port)) for name in NAMES}
        self.settings = Settings.load(
            ScrapySettings({"GP4C_LEDGER": self.server.dsn(self.database), "GP4C_CYCLE_S": 1.0})
        )
        self.ledger = administration.ledger_of(self.settings)
        self._closing.callback(self.ledger.close)
        self.processes: dict[str, BaseProcess] = {}
        self._again_s = dict.fromkeys(NAMES, 0.0)
        self.ends: Counter[int] = Counter()
        """Exit code -> processes."""
        self.unparked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.processes.values():
            one.kill()
            one.join()
        self._closing.close()

    def behind_pgbouncer(self, behind: bool) -> None:
        """Let the workers connect through PgBouncer from now on, or not."""
        if behind and not hasattr(self, "_pooled"):
            self._pooled = self._closing.enter_context(pgbouncer(self.server)) if PGBOUNCER else 0
        for proxy in self.proxies.values():
            proxy.target = self._pooled if behind and self._pooled else self.server.port
            proxy.cut()

    # --- workers

    def start(self, name: str, **given: Any) -> BaseProcess:
        """Start a worker."""
        dsn = self.server.dsn(self.database, port=self.proxies[name].port)
        own = {
            "GP4C_LEDGER": dsn,
            "GP4C_WORKER": name,
            "GP4C_LEASE_S": self.lease_s,
            "GP4C_CYCLE_S": 1.0,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
            **self._given,
            **given,
        }
        told = workers.settings(self.web, self.folder / name, **own)
        self.processes[name] = workers.start(told, self.folder / f"{name}.log", crawl)
        return self.processes[name]

    def log(self, name: str) -> str:
        """What a worker has logged."""
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def critical(self, name: str) -> list[str]:
        """What it has said of why it could not go on."""
        return [line for line in self.log(name).splitlines() if " CRITICAL: " in line]

    def holders(self) -> dict[int, str | None]:
        """Who holds which shard."""
        return dict(self.server.execute("SELECT shard, holder FROM gp4c.shard", self.database))

    @property
    def running(self) -> list[str]:
        """Workers whose processes live."""
        return [name for name, one in self.processes.items() if one.is_alive()]

    def status(self) -> CrawlStatus | None:
        """Of the crawl; None while the ledger is away."""
        try:
            return administration.status(self.ledger, self.settings)
        except LedgerAwayError:
            return None

    def supervise(self, *, more: bool) -> CrawlStatus | None:
        """Start whose help is wanted, as their `join` would; ``more``: the next cycle, too."""
        for name, one in list(self.processes.items()):
            if not one.is_alive():
                one.join()
                self.ends[one.exitcode or 0] += 1
                self._again_s[name] = time.monotonic() + (0.5 if one.exitcode else 0.0)
                del self.processes[name]
        found = self.status()
        if found is None:
            return None
        for shard in found.parked:
            self.ledger.call(leases.unpark, shard)
            self.unparked += 1
        if administration.is_wanted(found) and (more or found.open or not found.complete):
            self.web.day = min(self.web.day + (not found.open), LAST_DAY)
            for name in NAMES:
                if name not in self.processes and time.monotonic() >= self._again_s[name]:
                    self.start(name)
        return found

    def until(self, what: Callable[[CrawlStatus], bool], within_s: float, *, more: bool = True) -> bool:
        """Supervise until the crawl stands like this; False if it does not in time."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            found = self.supervise(more=more)
            if found is not None and what(found):
                return True
            time.sleep(0.05)
        return False

    def arm(self, name: str, phase: str, delay_s: float) -> None:
        """Let a worker kill itself so long after it has begun a phase."""
        (self.folder / f"{name}.armed").write_text(f"{phase} {delay_s}")

    def disarm(self) -> None:
        """Let nobody do so."""
        for name in NAMES:
            (self.folder / f"{name}.armed").unlink(missing_ok=True)

    # --- what is left

    def check(self) -> Found:
        """Let the cycle end, and compare the ledger, the collected store and what was acknowledged."""
        self.disarm()
        compared: Counter[str] = Counter()
        if not self.until(lambda found: not found.open and found.complete, HANGS_S, more=False):
            return Found(compared, [f"the cycle does not end within {HANGS_S:.0f} s: {self.status()}"])
        for one in list(self.processes.values()):
            one.join(HANGS_S)
        self.supervise(more=False)
        old = self.server.execute("SELECT * FROM public.refused", self.database)
        wrong = [f"an append under an old token: {row}" for row in old]
        place = self.folder / "collected"
        shutil.rmtree(place, ignore_errors=True)
        administration.collect(self.ledger, self.settings, place, USUAL)
        with open_store(place) as store:
            wrong += [f"verify: {problem}" for problem in store.verify()]
            for record in store.cycles():
                wrong += compared_cycle(store, record, compared)
            wrong += self._compared_acknowledged(store, compared)
        for name in NAMES:
            _, _, traceback = self.log(name).partition("Traceback")
            if traceback:
                wrong.append(f"a traceback in the log of {name}: {traceback[:2000]}")
        return Found(compared, wrong)

    def _compared_acknowledged(self, store: Any, compared: Counter[str]) -> Iterator[str]:
        found: Counter[tuple[int, float, int]] = Counter()
        for cycle, part in store.visits(1, store.last_cycle):
            found.update((cycle, *row) for row in part[["time", "fingerprint"]].tolist())
        told = [
            np.fromfile(self.folder / f"{name}.acknowledged", TAKEN).tolist()
            for name in NAMES
            if (self.folder / f"{name}.acknowledged").exists()
        ]
        for visit in (visit for rows in told for visit in rows):
            compared["acknowledged visits"] += 1
            if found[visit] != 1:
                yield f"an acknowledged visit is there {found[visit]} times: {visit}"


def compared_cycle(store: Any, record: Any, compared: Counter[str]) -> Iterator[str]:
    """Compare the visits of a cycle with its plan."""
    cycle = record["cycle"]
    parts = [part for _, part in store.visits(cycle, cycle)]
    pages = np.concatenate([part["page"] for part in parts] or [np.empty(0, np.uint32)])
    kinds = np.concatenate([part["kind"] for part in parts] or [np.empty(0, np.uint8)])
    compared["cycles"] += 1
    compared["planned pages"] += record["planned"]
    if len(np.unique(pages)) != len(pages):
        yield f"cycle {cycle} has several outcomes of {len(pages) - len(np.unique(pages))} pages"
    of_plan = int(np.count_nonzero(kinds != KINDS.index("new")))
    planned = record["planned"] - record["plan"]["new"]
    if of_plan != planned or len(kinds) - of_plan < record["plan"]["new"]:
        yield f"cycle {cycle} has outcomes of {of_plan} of {planned} planned pages"
