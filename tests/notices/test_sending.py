"""Sending: real SMTP and HTTP servers get what waits; nothing is lost while they are down."""

import asyncio
import email.policy
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from scrapy_gp4c.notices import outbox as outbox_module
from scrapy_gp4c.notices import sending
from scrapy_gp4c.notices.outbox import Outbox
from scrapy_gp4c.notices.receivers import Receiver, read_receivers
from scrapy_gp4c.notices.sending import deliver, run_command
from tests.notices.test_receivers import event


class Hook:
    """A web server that takes messages; it can answer errors, or wait."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.status, self.wait_s, self.most = 200, 0.0, 1_000
        self.may_answer: Callable[[], bool] = lambda: True
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(hook.wait_s)
                while not hook.may_answer():
                    time.sleep(0.01)
                status = hook.status if len(hook.received) < hook.most else 503
                if status == 200:
                    hook.received.append(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/login")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                del words

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"json://user:secret@127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A running hook."""
    served = Hook()
    yield served
    served.server.shutdown()
    served.server.server_close()


class MailServer:
    """A mail server that takes messages; it can answer errors, or wait."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.answer, self.wait_s = "250 OK", 0.0
        mail_server = self

        class Handler:
            async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:  # noqa: N802
                await asyncio.sleep(mail_server.wait_s)
                if mail_server.answer == "250 OK":
                    mail_server.mails.append(envelope.content.decode())
                return mail_server.answer

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.controller = Controller(
            Handler(),
            hostname="127.0.0.1",
            port=port,
            authenticator=lambda *_: AuthResult(success=True),
            auth_require_tls=False,
        )
        words = "from=a@example.org&to=b@example.org&smtp=127.0.0.1&mode=insecure"
        self.url = f"mailto://user:secret@127.0.0.1:{port}?{words}"


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    """A running mail server."""
    served = MailServer()
    served.controller.start()
    yield served
    served.controller.stop()


def put(store: Path, receivers: tuple[Receiver, ...], cycle: int = 3, command: bool = False) -> Outbox:
    """An outbox with the messages of two events."""
    store.mkdir(exist_ok=True)
    outbox = Outbox(store)
    outbox.put(cycle, receivers, [event(), event("gone", "http://h/b")], command)
    return outbox


def test_a_web_server_gets_a_digest(tmp_path: Path, hook: Hook) -> None:
    """Once: what was sent does not wait any more, and the server may take some seconds."""
    hook.wait_s = 4.5  # by Apprise's own limit of 4 s that was no answer
    receivers = read_receivers(hook.url)
    outbox = put(tmp_path / "store", receivers)
    assert deliver(outbox, receivers, None) == deliver(outbox, receivers, None) == []
    (message,) = hook.received
    assert message["title"] == "news: 1 changed, 1 gone"
    assert "http://h/b" in message["message"]
    assert list(outbox.waiting()) == []


def test_a_mail_server_gets_a_mail(tmp_path: Path, mail_server: MailServer) -> None:
    """Over SMTP, as a person would get it: lines are lines, and markup of a page is no markup of the mail."""
    receivers = read_receivers([{"url": mail_server.url}])
    store = tmp_path / "store"
    store.mkdir(0o700)
    outbox = Outbox(store)
    outbox.put(3, receivers, [event(diff=("[-<b>old</b>-] {+\u05e9\ud800+}",)), event("gone")], False)
    assert outbox.path.stat().st_mode & 0o077 == 0
    assert deliver(outbox, receivers, None) == []
    mail = email.message_from_string(mail_server.mails[0], policy=email.policy.default)
    assert mail["Subject"] == "news: 1 changed, 1 gone"
    text = mail.get_body(("plain",)).get_content()
    assert "changed: http://h/a\n    [-<b>old</b>-] {+\u05e9?+}\ngone: http://h/a" in text.replace("\r", "")
    html = mail.get_body(("html",))
    assert html is None or "<b>" not in html.get_content()


@pytest.mark.parametrize(
    ("status", "answer"), [(302, "550 no"), pytest.param(500, "451 later", marks=pytest.mark.slow)]
)
def test_a_receiver_that_fails_gets_the_message_by_the_next_run(
    tmp_path: Path, hook: Hook, mail_server: MailServer, status: int, answer: str
) -> None:
    """One line without the password; others get theirs at once; cycles that follow do not replace it.

    Of a redirect, requests follows the address without the message.
    """
    hook.status, mail_server.answer = status, answer
    closed = [
        "json://127.0.0.1:9/closed",
        "mailto://127.0.0.1:9?to=b@example.org&mode=insecure",
        "nobody://h",
    ]
    receivers = read_receivers([hook.url, mail_server.url, *closed])
    outbox = put(tmp_path / "store", receivers)
    problems = deliver(outbox, receivers, None)
    assert [line.count("1 notice will be sent again by the next run") for line in problems] == [1] * 5
    assert "does not take this address: correct it in GP4C_NOTIFY" in problems[4]
    assert not [line for line in problems if "secret" in line]
    hook.status, mail_server.answer = 200, "250 OK"
    for cycle in (4, 5):
        put(tmp_path / "store", receivers, cycle)
    deliver(outbox, receivers, None)
    assert len(hook.received) == len(mail_server.mails) == 3
    assert {one.message.receiver for one in outbox.waiting()} == {one.key for one in receivers[2:]}


def test_a_slow_receiver_delays_nobody(
    tmp_path: Path, hook: Hook, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time it is given up; the command has had its lines meanwhile."""
    hook.wait_s = mail_server.wait_s = 30.0
    monkeypatch.setattr(sending, "LIMIT_S", 1.0)
    monkeypatch.setattr(sending, "_START_S", 4.0)
    receivers = read_receivers([hook.url, mail_server.url])
    outbox = put(tmp_path / "store", receivers, command=True)
    target = tmp_path / "lines"
    problems = deliver(outbox, receivers, f"tee {target}")  # begins within the limit on a busy machine, too
    assert hook.received == mail_server.mails == [], "they are still waiting"
    assert len(problems) == 2
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(line["kind"], line["url"]) for line in lines] == [
        ("changed", "http://h/a"),
        ("gone", "http://h/b"),
    ]
    assert len(list(outbox.waiting())) == 2


def test_a_message_is_deleted_when_it_was_sent(tmp_path: Path, hook: Hook) -> None:
    """Not when all receivers are through: a kill in between would send it once more."""
    receivers = read_receivers(hook.url)
    outbox = put(tmp_path / "store", receivers, command=True)
    (path,) = (one.path for one in outbox.waiting() if one.message.receiver == outbox_module.COMMAND)
    hook.may_answer = lambda: not path.exists()
    assert deliver(outbox, receivers, "cat") == []
    assert len(hook.received) == 1


def test_messages_that_were_sent_are_not_sent_again(tmp_path: Path, hook: Hook) -> None:
    """Where a receiver takes some messages of a cycle and refuses the next, the others alone wait."""
    receivers = read_receivers([{"url": hook.url, "digest": "each"}])
    outbox = put(tmp_path / "store", receivers)
    hook.most = 1
    (problem,) = deliver(outbox, receivers, None)
    assert "1 notice will be sent again" in problem
    hook.most = 9
    assert deliver(outbox, receivers, None) == []
    assert [one["title"] for one in hook.received] == ["news: 1 changed", "news: 1 gone"]


def test_a_command_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs is stopped with its children; one that leaves a child in the background has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sending, "LIMIT_S", 1.0)
    problem = run_command("sleep 60 & echo $! > child; wait", "")
    assert problem is not None
    assert "stopped after 0.9 s" in problem
    child = Path(f"/proc/{Path('child').read_text().strip()}/cmdline")
    while child.exists() and child.read_bytes():  # a zombie has no command line
        time.sleep(0.01)
    monkeypatch.setattr(sending, "LIMIT_S", 60.0)
    assert run_command("cat > lines; sleep 2 &", "\N{SNOWMAN}\n") is None
    assert Path("lines").read_text("utf-8") == "\N{SNOWMAN}\n"
    assert "no-such-command" in (run_command("no-such-command", "") or "")


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    """With its exit code and its last line; the events wait."""
    outbox = put(tmp_path / "store", (), command=True)
    script = "import sys; print('no disk', file=sys.stderr); sys.exit(3)"
    (problem,) = deliver(outbox, (), f'{sys.executable} -c "{script}"')
    assert "GP4C_ON_CHANGE failed (exit code 3 no disk)" in problem
    assert len(list(outbox.waiting())) == 1


def test_a_daily_receiver_gets_one_message_a_day(tmp_path: Path, hook: Hook) -> None:
    """The messages of all cycles of the day in one; a group that shares the store can go on with it."""
    receivers = read_receivers([{"url": hook.url, "digest": "daily"}])
    store, umask = tmp_path / "store", os.umask(0o077)
    try:
        store.mkdir()
        store.chmod(0o770)
        outbox = put(store, receivers, cycle=3)
        put(store, receivers, cycle=4)
        hook.status = 500  # the day begins when a message was sent
        assert len(deliver(outbox, receivers, None)) == 1
        assert {path.stat().st_mode & 0o777 for path in outbox.path.iterdir()} == {0o660}
        hook.status = 200
        deliver(outbox, receivers, None)
        assert [path.stat().st_mode & 0o777 for path in outbox.path.iterdir()] == [0o660]
    finally:
        os.umask(umask)
    put(tmp_path / "store", receivers, cycle=5)
    deliver(outbox, receivers, None)
    (message,) = hook.received
    assert message["title"] == "news: 2 cycles with events"  # it named the first cycle's events alone
    assert message["message"].count("1 changed, 1 gone") == 2  # each stood there twice, as title and as body
    assert len(list(outbox.waiting())) == 1


@pytest.mark.parametrize(
    ("last", "now", "is_due"),
    [
        ("2026-11-02 10:00:30", "2026-11-03 10:00:20", True),  # of a daily crawl: it came every other day
        ("2026-11-02 10:00:30", "2026-11-02 23:00:00", False),
        ("2026-11-02 23:50:00", "2026-11-03 00:10:00", False),
        ("2026-11-03 00:05:00", "2026-11-04 00:02:00", True),  # of an hourly crawl
    ],
)
def test_a_day_is_that_of_the_calendar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, now: str, is_due: bool
) -> None:
    """But two messages are half a day apart at least."""
    receivers = read_receivers([{"url": "json://h", "digest": "daily"}])
    outbox = put(tmp_path / "store", receivers)
    monkeypatch.setattr(outbox_module.time, "time", datetime.fromisoformat(last).timestamp)
    outbox.delete_sent(receivers[0], outbox.due(receivers[0]))
    put(tmp_path / "store", receivers, cycle=4)
    monkeypatch.setattr(outbox_module.time, "time", datetime.fromisoformat(now).timestamp)
    assert bool(outbox.due(receivers[0])) == is_due


def test_a_daily_receiver_that_was_told_is_told_no_more_that_day(tmp_path: Path) -> None:
    """Even where a run ends before the messages that it has sent are deleted."""
    receivers = read_receivers([{"url": "json://h", "digest": "daily"}])
    outbox = put(tmp_path / "store", receivers)
    (message,) = outbox.due(receivers[0])
    with pytest.raises(OSError, match="directory"):
        outbox.delete_sent(receivers[0], [message._replace(path=outbox.path)])
    assert list(outbox.waiting()) == [message]
    assert outbox.due(receivers[0]) == []


def test_a_receiver_that_fails_costs_no_other_one_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest messages that are dropped are those of the receiver for whom too many wait."""
    monkeypatch.setattr(outbox_module, "MAX_MESSAGES", 3)
    daily, failing = read_receivers([{"url": "json://daily", "digest": "daily"}, "json://failing"])
    outbox = put(tmp_path / "store", (daily,), cycle=1)
    for cycle in range(2, 7):
        put(tmp_path / "store", (failing,), cycle)
    assert outbox.drop([daily.key, failing.key]) == (0, 2)
    waiting = [one.path.name[:10] for one in outbox.waiting()]
    assert waiting == [f"{cycle:010}" for cycle in (1, 4, 5, 6)]


def test_messages_to_a_receiver_that_is_gone_are_dropped(tmp_path: Path, hook: Hook) -> None:
    """A line counts them, and another the files that cannot be read, which stay."""
    outbox = put(tmp_path / "store", read_receivers(hook.url))
    unreadable = outbox.path / "0000000001-000000.json"
    unreadable.write_text("{")
    stays, dropped = deliver(outbox, (), None)
    assert dropped == "dropped: 1 notice to receivers that the settings no longer have"
    assert "1 notice in" in stays
    assert unreadable.exists()
    assert list(outbox.waiting()) == []
