"""Crawls whose pages are downloaded by fetchers, in processes of their own, over a real Dask cluster."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.trouble.fleet import ManyMachines
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.fetched_crawl import HOSTS, PAGES

pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]
LIMIT_S = 120
MODULE = "tests.support.fetched_crawl"
COPIES = "callbacks of two fetchers have changed copies of the same data"


class Web:
    """Hosts on loopback, whose even pages change from day to day; keeps what it was asked, and when."""

    def __init__(self) -> None:
        self.day, self.requests = 0, list[tuple[float, str, str]]()
        web = self

        class Handler(BaseHTTPRequestHandler):
            """Answers one request."""

            def do_GET(self) -> None:
                host = self.headers["Host"].partition(":")[0]
                web.requests.append((time.monotonic(), host, self.path))
                status, body = web.page(self.path, host)
                self.send_response(status)
                if status == 301:
                    self.send_header("Location", body.decode())
                if self.path == "/":
                    self.send_header("Set-Cookie", "session=7")
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                user = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.send_response(200)
                self.send_header("Set-Cookie", f"session={user}{web.day}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def page(self, path: str, host: str) -> tuple[int, bytes]:
        """Status, and body or where the page has moved to."""
        if path == "/":
            links = "".join(f'<a href="/p{number}">page {number}</a> ' for number in range(PAGES))
            return 200, f"<p>home</p>{links}".encode()
        if path == "/sitemap.xml":
            host = f"http://127.0.0.1:{self.server.server_address[1]}"
            date = f"<lastmod>2026-01-0{self.day + 1}</lastmod>"
            dates = "".join(f"<url><loc>{host}/p{number}</loc>{date}</url>" for number in (0, 1))
            return 200, f"<urlset>{dates}</urlset>".encode()
        if path == "/p5":
            return 404, b""
        number = int(path.removeprefix("/p") if path.startswith("/p") else -1)
        version = self.day if number % 2 == 0 else 0
        words = " ".join(f"word{number}x{version}x{position}" for position in range(30))
        return 200, f"<p>{words}</p>".encode()


class TroubledWeb(Web):
    """Pages that vanish, move, refuse, are blocked, and change in parts alone."""

    moves = True
    """Whether a host moves."""

    def page(self, path: str, host: str) -> tuple[int, bytes]:
        """Status, and body or where the page has moved to."""
        port, day = self.server.server_address[1], self.day
        if host == "127.0.0.3" and day == 2 and self.moves:
            return 301, f"http://127.0.0.4:{port}{path}".encode()
        if path == "/p5":
            return (404, b"") if day == 1 else super().page("/p1", host)
        if path == "/p6":
            return 301, b"/p7"
        if path == "/p16" and host == "127.0.0.1":
            return 301, f"http://127.0.0.2:{port}/p17".encode()
        if path in ("/p8", "/p9") and day == 1:
            return 200, b"<html><p>One moment</p><script>window._cf_chl_opt = {}</script></html>"
        if path == "/p12" and day == 1:
            return 503, b"busy"
        status, body = super().page(path, host)
        body += f'<p class="ad">advertisement {"x" * day} of day {day} {host}</p>'.encode()
        if path == "/p11":
            body = body.replace(b"word11x0x29", b"word11x%dx29" % day)
        return status, body


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield the web of a test."""
    served = Web()
    yield served
    served.server.shutdown()


def crawl(
    web: Web, folder: Path, fetchers: int, spider: str = "Pages", **settings: Any
) -> subprocess.Popen[str]:
    """Begin a crawl with so many fetchers; none: in one process."""
    folder.mkdir(exist_ok=True)
    crawl_settings = {
        "port": web.server.server_address[1],
        "spider": spider,
        "settings": {
            "GP4C_STORE": str(folder / "store"), "ITEMS": str(folder / "items"),
            "GP4C_FETCHERS": fetchers or None, **settings,
        },
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.support.fetched_crawl", json.dumps(crawl_settings)]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, text=True, start_new_session=True)


def wait_for(web: Web, requests: int, folder: Path) -> None:
    """Wait until the web was asked so often."""
    end_s = time.monotonic() + LIMIT_S
    while len(web.requests) < requests:
        assert time.monotonic() < end_s, (folder / "log").read_text()
        time.sleep(0.05)


def ended(process: subprocess.Popen[str], folder: Path) -> None:
    """Wait for a crawl to finish."""
    try:
        assert process.wait(LIMIT_S) == 0, (folder / "log").read_text()
    finally:
        process.kill()


def visits_of(folder: Path) -> list[dict[str, tuple[str, str, int]]]:
    """By cycle: URL without port -> outcome, kind, distance."""
    with Store(folder / "store", readonly=True) as store:
        assert store.verify() == []
        assert store.open_cycle is None
        paths = [request["url"].replace("http://", "") for request in store.requests(range(store.pages))]
        names = [path.partition(":")[0] + "/" + path.partition("/")[2] for path in paths]
        cycles: list[dict[str, tuple[str, str, int]]] = [{} for _ in range(store.last_cycle)]
        for cycle, visits in store.visits():
            for visit in visits:
                name = names[visit["page"]]
                assert name not in cycles[cycle - 1], "one outcome a cycle"
                kind = KINDS[visit["kind"]]
                cycles[cycle - 1][name] = (OUTCOMES[visit["outcome"]], kind, int(visit["distance"]))
        return cycles


def items_of(folder: Path) -> Counter[str]:
    """Items by their text, without ports."""
    lines = (folder / "items").read_text().splitlines()
    items = [json.loads(line) for line in lines]
    for item in items:
        host, _, path = item["url"].removeprefix("http://").partition("/")
        item["url"] = host.partition(":")[0] + "/" + path
    return Counter(json.dumps(item) for item in items)


@pytest.mark.slow
def test_fetchers_leave_what_one_process_leaves(web: Web, tmp_path: Path) -> None:
    """Visits, outcomes and items of two cycles; a failed callback, and a 404."""
    for fetchers in (0, 2):
        for web.day in (0, 1):
            folder = tmp_path / str(fetchers)
            ended(crawl(web, folder, fetchers, SPIDER_MIDDLEWARES={f"{MODULE}.Adding": 500}), folder)
    alone, fetched = visits_of(tmp_path / "0"), visits_of(tmp_path / "2")
    different = [dict(one.items() ^ other.items()) for one, other in zip(alone, fetched, strict=True)]
    assert different == [{}, {}], (tmp_path / "2" / "log").read_text()[-5000:]
    assert [path for _, _, path in web.requests].count("/added") == 4  # the start is the owner's alone
    assert {name for name, (outcome, *_) in fetched[1].items() if outcome == "changed"} == {
        f"127.0.0.{host}/p{number}" for host in range(1, HOSTS + 1) for number in range(0, PAGES, 2)
    }
    assert fetched[0]["127.0.0.1/p5"][0] == "gone"
    assert items_of(tmp_path / "0") == items_of(tmp_path / "2")
    log = (tmp_path / "2" / "log").read_text()
    assert "CallbackError: RuntimeError: the callback of page 3 fails" in log
    assert "CallbackError" in log


@pytest.mark.slow
def test_features_and_commands_work_with_fetchers_as_without(web: Web, tmp_path: Path) -> None:
    """A policy that samples, search, archive, hints, a JOBDIR, caps, verdicts, backups."""
    queries = tmp_path / "queries.tsv"
    queries.write_text("word1x0x1\t5\nword2x1x2 word4x1x1\t3\n")
    for fetchers in (0, 2):
        folder = tmp_path / str(fetchers)
        for web.day in (0, 1, 2):
            settings = {
                "GP4C_POLICY": "db", "GP4C_BUDGET": 1.0, "GP4C_QUERY_LOG": str(queries),
                "GP4C_ARCHIVE": True, "JOBDIR": str(folder / "job"), "GP4C_NEW_PAGES": 50,
                "GP4C_BACKUP": f"file://{folder}/backups",
                "GP4C_ITEMS_AT": "fetchers" if fetchers else "owner",
            }  # fmt: skip
            ended(crawl(web, folder, fetchers, "Curious", **settings), folder)
    alone, fetched = (visits_of(tmp_path / name) for name in "02")
    assert [len(cycle) for cycle in alone[:2]] == [len(cycle) for cycle in fetched[:2]]
    # Which pages are samples is a matter of time: so is the copy that a page differs from, and the cycle
    # that first asks for one that is gone.
    last = [
        {name: outcome for name, (outcome, *_) in cycles[2].items() if not name.endswith("/p5")}
        for cycles in (alone, fetched)
    ]
    assert last[0] == last[1]
    newest: list[Counter[str]] = []
    for name in "02":
        # Without copy, distance and cookie: which page was sampled before, or is asked for behind the one
        # that sets the cookie, is a matter of time, too.
        items = [json.loads(item) for item in items_of(tmp_path / name).elements()]
        items = [item for item in items if "x2x" in item["text"]]
        newest.append(Counter(json.dumps({**item, "info": item["info"][:2]}) for item in items))
        for _, _, _, previous, diff, _ in (item["info"] for item in items if item["info"][1]):
            assert previous is None or f"[-{previous}-]" in diff
    assert newest[0] == newest[1]
    assert newest[0]
    assert any("[-word" in item for item in items_of(tmp_path / "2"))
    store = tmp_path / "2" / "store"
    assert len(list((tmp_path / "2" / "backups").iterdir())) == 3
    project = ManyMachines(tmp_path / "project", ["tests.support.fetched_crawl"])
    url = f"http://127.0.0.1:{web.server.server_address[1]}/p0"
    words = ["status", "pages", "changes", "failing", "plan", "store verify", "export", "stores", "report"]
    actions = [[word] for word in words] + [["why", url], ["history", url], ["search", "word1x0x1"]]
    actions += [
        ["store restore", f"file://{tmp_path}/2/backups"],
        ["store backup", str(tmp_path / "more")],
        ["store compact"],
    ]
    for number, (action, *rest) in enumerate(actions):
        common = ("-s", f"GP4C_STORE={store}", "-s", f"GP4C_QUERY_LOG={queries}", "-s", "GP4C_FETCHERS=2")
        done = project.start(f"{number}", "scrapy", "gp4c", *action.split(), "curious", *rest, *common)
        assert done.wait(LIMIT_S) == 0, (action, project.log(f"{number}")[-2000:])


@pytest.mark.slow
def test_a_callback_that_downloads_on_a_fetcher_is_not_skipped(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page is as it was, what it downloads is not; the spider's own settings are its owner's."""
    monkeypatch.setenv("FEED_OF_TEST", str(tmp_path / "feed"))
    for web.day in (0, 1, 2):
        ended(crawl(web, tmp_path, 1, "Downloading", GP4C_SKIP_UNCHANGED=True, GP4C_BUDGET=1.0), tmp_path)
    texts = [json.loads(item)["text"].split()[0] for item in items_of(tmp_path).elements()]
    assert sorted(texts) == ["word0x0x0", "word0x1x0", "word0x2x0"]
    assert "word0x2x0" in (tmp_path / "feed").read_text()


@pytest.mark.slow
def test_fetchers_run_any_callback_and_owners_get_their_downloads(web: Web, tmp_path: Path) -> None:
    """Lambdas, generators, selectors, shared items, notes, downloads of pipelines; a lock is an error."""
    log = tmp_path / "log"
    for web.day in (0, 1):
        pipelines = {f"{MODULE}.Stocked": 0, f"{MODULE}.Written": 1}
        settings = {"GP4C_BUDGET": 1.0, "GP4C_REDELIVER": 2, "ITEM_PIPELINES": pipelines}
        ended(crawl(web, tmp_path, 1, "LocalClosures", **settings), tmp_path)
    items = {json.dumps(item) for item in map(json.loads, items_of(tmp_path))}
    assert len(items) == 14  # two of them of the start
    for pages in ('"/p16 /p18"', '"/p17 /p19"'):  # of a callback, and of the start
        assert len([item for item in items if pages in item]) == 2
    assert (tmp_path / "items.closed").read_text() == '[6, "something", 3.5]\n' * 2
    for day in (0, 1):
        texts = {(item["info"], item["text"].split()[0]) for item in map(json.loads, items)}
        assert {("kilos", f"word2x{day}x0"), ("pieces", f"word6x{day}x0"), ("end", f"word8x{day}x0")} <= texts
        assert ("home", f"word14x{day}x0") in texts
    assert {json.loads(item)["stock"] for item in items} == {"word10x0x0", "word10x1x0"}
    text = log.read_text()
    assert text.count("Closing spider (enough)") == 2
    assert "Run Failed" not in text  # no fetcher is asked for a crawl that it has closed
    assert "counts as delivered" not in text  # the page that has closed the spider before has done so again
    assert [path for _, _, path in web.requests].count("/p1") == 2 * 3  # Scrapy retries twice
    assert text.count("the fetcher has asked for it at once") == 2
    assert COPIES not in text  # one fetcher has all
    assert text.count("it cannot be sent to a fetcher: TypeError: cannot pickle '_thread.lock' object") == 2


@pytest.mark.slow
def test_copies_that_fetchers_fill_are_one_warning(web: Web, tmp_path: Path) -> None:
    """An item of three hosts, which two fetchers have, is never complete."""
    ended(crawl(web, tmp_path, 2, "Filling"), tmp_path)
    assert (tmp_path / "log").read_text().count(COPIES) == 1
    assert not (tmp_path / "items").exists()


@pytest.mark.slow
def test_items_keep_their_downloads_while_the_crawl_closes(web: Web, tmp_path: Path) -> None:
    """The host's delay lets the download of a pipeline wait until the owner sends no further page."""
    pipelines = {f"{MODULE}.Stocked": 0, f"{MODULE}.Written": 1}
    ended(crawl(web, tmp_path, 1, "Closing", DOWNLOAD_DELAY=2, ITEM_PIPELINES=pipelines), tmp_path)
    assert "Closing spider (enough)" in (tmp_path / "log").read_text()
    assert [json.loads(item)["stock"] for item in items_of(tmp_path)] == ["word10x0x0"]


@pytest.mark.slow
def test_owners_alone_ask_for_what_an_idle_spider_wants(web: Web, tmp_path: Path) -> None:
    """A fetcher is idle from its start on; what it asked for would reach nobody."""
    ended(crawl(web, tmp_path, 1, "Waiting"), tmp_path)
    assert [json.loads(item)["text"].split()[0] for item in items_of(tmp_path)].count("word0x0x0") == 1


class ShorterWeb(Web):
    """A page that loses most of its text on the last day."""

    def page(self, path: str, host: str) -> tuple[int, bytes]:
        """Status and body."""
        size = 60 if self.day == 2 and path == "/p1" else 400
        words = [f"word{path}x{position}" for position in range(size)]
        return 200, f"<p>{' '.join(words)}</p>".encode()


@pytest.mark.slow
def test_a_second_answer_with_the_text_of_the_first_makes_no_items_twice(
    tmp_path: Path,
) -> None:
    """The page is asked for once more, as it lost most of its text, and its item comes once a day."""
    web = ShorterWeb()
    for web.day in (0, 1, 2):
        ended(crawl(web, tmp_path, 1, "Plain", GP4C_BUDGET=1.0), tmp_path)
    web.server.shutdown()
    assert len(web.requests) == 3 * 5 + 1
    assert sorted(items_of(tmp_path).values()) == [1, 2, 3, 3, 3, 3]


class StoppingWeb(Web):
    """Stops the process that asks for a page, for longer than its owner waits for it."""

    folder: Path

    def page(self, path: str, host: str) -> tuple[int, bytes]:
        """Stop the process of the first request."""
        if path == "/p14" and len(self.requests) == 2:
            process = json.loads((self.folder / "items.sent").read_text().splitlines()[-1])[-1]
            os.kill(process, signal.SIGSTOP)
            threading.Timer(12, os.kill, (process, signal.SIGCONT)).start()
        return super().page(path, host)


@pytest.mark.slow
def test_a_page_that_was_given_up_is_fetched_again_with_all_that_its_callback_asks_for(
    tmp_path: Path,
) -> None:
    """Its fetcher was stopped as it sent a request by itself; what callbacks had noted there is not lost."""
    web = StoppingWeb()
    web.folder = tmp_path
    ended(crawl(web, tmp_path, 1, "Blocking"), tmp_path)
    web.server.shutdown()
    log = (tmp_path / "log").read_text()
    assert "does not answer" in log
    assert "'lists': 2," in log  # the fetcher answers before its reactor does
    assert [path for _, _, path in web.requests] == ["/", "/p14"] * 2
    assert [json.loads(item)["info"] for item in items_of(tmp_path)] == ["home"]
    assert (tmp_path / "items.closed").read_text() == '[1, "something", 3.5]\n'


def told_of(folder: Path, name: str) -> Counter[str]:
    """Lines of a file without times, and without kinds of visits that are a matter of time.

    Nor do they say whether a new page is another's twin: a fetcher does not know.
    """
    timed = re.compile(
        r'"(previous_)?time": [0-9.a-z]+, |"(sample|neighbour|ranked|promised)"|"outcome": "(first|excluded)"'
    )
    return Counter(timed.sub("", line) for line in (folder / name).read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"GP4C_SKIP_UNCHANGED": True, "GP4C_POLICY": "db", "GP4C_FEATURES": f"{MODULE}.features"},
    ],
    ids=["texts", "features"],
)
def test_what_a_visit_means_is_the_same_with_fetchers(tmp_path: Path, others: dict[str, Any]) -> None:
    """Rules, doubt, moves, verdicts, events as signals, items and lines of a command; three days."""
    rules = [
        {"match": "*/p10", "ignore": ".ad"}, {"match": "*/p11", "distance": "words:3", "ignore": ".ad"},
        {"match": "*/p13", "never": True}, {"match": "*/p15", "min_interval": 3},
        {"match": {"tag": "odd"}, "ignore": ".ad"}, {"match": "*/p14", "watch": "h1"},
    ]  # fmt: skip
    web = TroubledWeb()
    # Lists whose links may differ come first where pages are skipped: requests of a batch then miss the move.
    web.moves = not others
    for fetchers in (0, 2):
        folder = tmp_path / str(fetchers)
        for web.day in (0, 1, 2):
            settings = {
                "GP4C_RULES": rules, "GP4C_ARCHIVE": True, "GP4C_CHANGE_ITEMS": True, "GP4C_GONE_AFTER": 1,
                "GP4C_BUDGET": 1.0, "GP4C_ON_CHANGE": f"dd of={folder}/lines oflag=append conv=notrunc",
                "FEEDS": {f"{folder}/feed{web.day}": {"format": "jsonlines"}}, **others,
            }  # fmt: skip
            ended(crawl(web, folder, fetchers, "Signalled", **settings), folder)
    web.server.shutdown()
    one, many = tmp_path / "0", tmp_path / "2"
    days = [
        [{page: (outcome, bits) for page, (outcome, _, bits) in pages.items()} for pages in visits_of(folder)]
        for folder in (one, many)
    ]
    assert days[0] == days[1]
    assert not [page for day in days[1][1:] for page in day if page.endswith("1/p15")]
    for name in ("items", "items.events", "lines", "feed0", "feed1", "feed2"):
        assert told_of(one, name) == told_of(many, name)


@pytest.mark.slow
def test_fetchers_share_the_sessions_of_a_crawl(web: Web, tmp_path: Path) -> None:
    """Each page is asked for with what the login of its user has set today, whoever fetches it."""
    for web.day in range(2):
        path = tmp_path / f"items{web.day}"
        ended(crawl(web, tmp_path, 2, "SignedIn", GP4C_BUDGET=1.0, ITEMS=str(path)), tmp_path)
        items = [json.loads(line) for line in path.read_text().splitlines()]
        sessions = {(item["text"], item["info"]) for item in items}
        assert sessions == {(user, f"session={user}{web.day}") for user in ("ada", "bob")}
        assert len({item["url"] for item in items}) == len(items) == PAGES - 1  # one is gone


@pytest.mark.slow
def test_a_killed_fetcher_costs_no_page_and_no_host_its_delay(web: Web, tmp_path: Path) -> None:
    """After kill -9 another fetches the batch again: one outcome a page, every item, each host in peace."""
    delay_s = 0.5
    crawling = crawl(web, tmp_path, 2, DOWNLOAD_DELAY=delay_s)
    wait_for(web, 12, tmp_path)
    owner = psutil.Process(crawling.pid)
    fetchers = [child for child in owner.children() if any("spawn_main" in one for one in child.cmdline())]
    assert len(fetchers) == 2
    busy = max(fetchers, key=lambda fetcher: fetcher.cpu_times().user)
    os.kill(busy.pid, signal.SIGKILL)
    ended(crawling, tmp_path)
    (cycle,) = visits_of(tmp_path)
    paths = ["", *(f"p{number}" for number in range(PAGES))]
    pages = {f"127.0.0.{host}/{path}" for host in range(1, HOSTS + 1) for path in paths}
    assert cycle.keys() == pages
    assert Counter(outcome for outcome, *_ in cycle.values()) == {
        "first": HOSTS * PAGES, "gone": HOSTS,
    }  # fmt: skip
    items = items_of(tmp_path)
    assert {json.loads(text)["url"] for text in items} == {page for page in pages if not page.endswith("/p5")}
    assert set(items.values()) == {1}
    times = defaultdict(list)
    for line in (tmp_path / "items.sent").read_text().splitlines():
        sent_s, host, _, fetcher = json.loads(line)
        times[host].append((sent_s, fetcher))
    for sent in times.values():
        for (earlier_s, one), (later_s, other) in pairwise(sent):
            assert one == other or later_s - earlier_s > 0.8 * delay_s, "within one, it is Scrapy's affair"
    fetched = {(host, path) for _, host, path in web.requests}
    assert {f"{host}{path}" for host, path in fetched} >= pages


@pytest.mark.slow
def test_ctrl_c_interrupts_a_crawl_that_the_next_run_resumes(web: Web, tmp_path: Path) -> None:
    """It reaches the fetchers too: they end what is under way, and leave nothing behind."""
    crawling = crawl(web, tmp_path, 2, DOWNLOAD_DELAY=0.3)
    wait_for(web, 12, tmp_path)
    fetchers = psutil.Process(crawling.pid).children()
    os.killpg(crawling.pid, signal.SIGINT)
    ended(crawling, tmp_path)
    assert "the next run resumes it" in (tmp_path / "log").read_text()
    _, running = psutil.wait_procs(fetchers, timeout=20)
    assert not running
    ended(crawl(web, tmp_path, 2), tmp_path)
    cycle = visits_of(tmp_path)[0]
    assert Counter(outcome for outcome, *_ in cycle.values()) == {"first": HOSTS * PAGES, "gone": HOSTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spider", "fetchers", "line"),
    [
        ("Pages", "tcp://127.0.0.1:9", "No fetchers (GP4C_FETCHERS = 'tcp://127.0.0.1:9')"),
        ("OwnersAlone", 2, "No fetcher works: the spider does not open there: RuntimeError: no licence."),
    ],
    ids=["no scheduler", "all refuse"],
)
def test_a_crawl_that_gets_no_fetchers_ends_and_no_page_is_an_error(
    web: Web, tmp_path: Path, spider: str, fetchers: Any, line: str
) -> None:
    """It is one line, and the next run goes on with the cycle."""
    crawling = crawl(web, tmp_path, 0, spider, GP4C_FETCHERS=fetchers)
    crawling.wait(LIMIT_S)
    assert line in (tmp_path / "log").read_text()
    with Store(tmp_path / "store", readonly=True) as store:
        assert store.open_cycle == 1
        assert not len(store.open_visits())
    ended(crawl(web, tmp_path, 0, spider), tmp_path)
    assert Counter(outcome for outcome, *_ in visits_of(tmp_path)[0].values())["first"] == HOSTS * PAGES
