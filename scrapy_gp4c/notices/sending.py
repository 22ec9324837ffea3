"""Sending of messages in a child process, so that a slow receiver does not delay the crawl.

The child, ``python -m scrapy_gp4c.notices.sending``, reads a JSON list of jobs, one for each receiver, from
standard input. It writes lines of JSON: position of a job, number of its messages sent so far, error or null.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.notices.outbox import COMMAND, MAX_MESSAGES, Outbox, QueuedMessage
from scrapy_gp4c.notices.receivers import MAX_EACH, Message, Receiver

LIMIT_S: Final = 10.0
"""Time limit of each receiver; all receive at the same time."""
NO_ANSWER: Final = "no answer within {:g} s"
_START_S: Final = 20.0
"""Time for the process to start and to load Apprise."""
_PACKAGES: Final = str(Path(__file__).parents[2])


def deliver(
    outbox: Outbox, receivers: Sequence[Receiver], command: str | None, *, is_test: bool = False
) -> list[str]:
    """Send the messages in the outbox; returns a line for each problem, without secrets.

    Blocks for at most half a minute: call it in a thread, or when the crawl is over. Messages that could not
    be sent stay for the next run, as the lines say unless `is_test`. ``command``: of ``GP4C_ON_CHANGE``.
    """
    keys = [receiver.key for receiver in receivers] + ([COMMAND] if command else [])
    problems = []
    unknown, oldest = outbox.drop(keys)
    if unreadable := outbox.unreadable():
        problems.append(
            f"{counted(unreadable, 'notice')} in {outbox.path} cannot be read: mend the permissions of these "
            "files, or delete them"
        )
    if unknown:
        problems.append(
            f"dropped: {counted(unknown, 'notice')} to receivers that the settings no longer have"
        )
    if oldest:
        problems.append(
            f"dropped: {counted(oldest, 'notice')}, the oldest of more than {MAX_MESSAGES:,} that wait for a "
            "receiver: mend or remove the one that fails"
        )
    jobs: list[tuple[Receiver | None, list[QueuedMessage]]] = [(one, outbox.due(one)) for one in receivers]
    if command:
        jobs.append((None, [one for one in outbox.waiting() if one.message.receiver == COMMAND]))
    jobs = [(receiver, messages) for receiver, messages in jobs if messages]
    if not jobs:
        return problems
    if any(receiver for receiver, _ in jobs) and find_spec("apprise") is None:
        problems.append("No notices are sent: Apprise is missing. pip install 'scrapy-gp4c[notify]'")
        jobs = [(receiver, messages) for receiver, messages in jobs if receiver is None]
    packed_jobs: list[dict[str, Any]] = [
        {
            "url": None if receiver is None else receiver.url,
            "command": command if receiver is None else None,
            "messages": [message._asdict() for message in _merged(receiver, messages)],
        }
        for receiver, messages in jobs
    ]
    errors: list[str | None] = [NO_ANSWER.format(LIMIT_S)] * len(jobs)
    counts = [0] * len(jobs)
    for number, sent, error in _run(packed_jobs):
        receiver, messages = jobs[number]
        # A daily receiver gets one message for all.
        is_done = error is None or sent == len(packed_jobs[number]["messages"])
        before, counts[number] = counts[number], len(messages) if is_done else sent
        # At once: a kill while another receiver takes its time would send them once more.
        outbox.delete_sent(receiver, messages[before : counts[number]])
        errors[number] = None if is_done else error
    for (receiver, messages), error, sent in zip(jobs, errors, counts, strict=True):
        if error is not None:
            name = "The command of GP4C_ON_CHANGE" if receiver is None else f"The receiver {receiver.name}"
            waiting = counted(len(messages) - sent, "notice")
            again = "" if is_test else f": {waiting} will be sent again by the next run"
            problems.append(f"{name} failed ({error}){again}")
    return problems


def _merged(receiver: Receiver | None, messages: list[QueuedMessage]) -> list[Message]:
    """Return the messages to send; those to a daily receiver are joined to one."""
    if receiver is None or receiver.digest != "daily" or len(messages) < 2:
        return [message.message for message in messages]
    first = messages[0].message
    spider = first.title.partition(": ")[0]
    bodies = [
        # The default template begins with the summary, which is the title, too.
        one.body
        if one.body.startswith(one.title.removeprefix(f"{spider}: "))
        else f"{one.title}\n\n{one.body}"
        for _, one in messages
    ]
    title = f"{spider}: {counted(len(messages), 'cycle')} with events"
    return [first._replace(title=title, body="\n\n".join(bodies))]


def _run(packed_jobs: list[dict[str, Any]]) -> Iterator[tuple[int, int, str | None]]:
    """Run the child process; yield its lines, see the module, as it writes them."""
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy_gp4c.notices.sending"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    timer = threading.Timer(LIMIT_S + _START_S, process.kill)
    timer.start()
    try:
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(OSError), process.stdin:  # it may have ended
                process.stdin.write(json.dumps(packed_jobs))
            for line in process.stdout:
                with suppress(ValueError, TypeError):
                    number, sent, error = json.loads(line)
                    yield number, sent, error
    finally:
        timer.cancel()


def run_command(command: str, lines: str) -> str | None:
    """Run a shell command with `lines` as its standard input; returns an error in words, or None.

    Files are used instead of pipes, which a background process of the command would hold open.
    """
    with TemporaryFile() as stdin, TemporaryFile() as stderr:
        stdin.write(lines.encode(errors="replace"))
        stdin.seek(0)
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        limit_s = LIMIT_S * 0.9  # so that it is stopped before this process ends
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            kill_group = getattr(os, "killpg", None)  # Windows has none
            if kill_group is None:
                process.kill()
            else:
                kill_group(process.pid, 9)
            return f"stopped after {limit_s:g} s: start in the background what takes longer"
        stderr.seek(0)
        words = stderr.read().decode(errors="replace").strip().splitlines()[-1:] or [""]
        return f"exit code {code} {words[0]}".strip()[:200] if code else None


def _send(job: dict[str, Any], report: Callable[[int], None]) -> str | None:
    """Send the messages of one job; calls `report` with the number sent so far; returns an error or None."""
    messages = [Message(**message) for message in job["messages"]]
    if job["command"] is not None:
        return run_command(job["command"], "".join(message.body for message in messages))
    import apprise

    # Apprise waits for 4 s: a receiver that answered later got the same message by every run.
    apprise.URLBase.socket_read_timeout = LIMIT_S * 0.9
    # Apprise pauses for 5.5 s between messages to services without a rate limit: a run sent only two mails.
    apprise.NotifyBase.request_rate_per_sec = LIMIT_S / MAX_EACH
    asset = apprise.AppriseAsset()
    asset.http_redirects = False  # they become a GET, whose answer 200 counted as a message that was sent
    receiver = apprise.Apprise(asset=asset)
    if not receiver.add(job["url"]):
        return "Apprise does not take this address: correct it in GP4C_NOTIFY"
    for sent, message in enumerate(messages, 1):
        # Without a format a mail took the text for HTML: one line, and markup of pages was live.
        if not receiver.notify(title=message.title, body=message.body, body_format=apprise.NotifyFormat.TEXT):
            return "the receiver did not accept the message in time, or redirects to another address"
        report(sent)
    return None


def _send_all(jobs: list[dict[str, Any]]) -> None:
    """Run all jobs in threads until `LIMIT_S`, and write a JSON line after each message and each job."""
    lock = threading.Lock()

    def work(number: int, job: dict[str, Any]) -> None:
        done = 0

        def report(sent: int, error: str | None = NO_ANSWER.format(LIMIT_S)) -> None:
            nonlocal done
            done = sent
            with lock:
                print(json.dumps([number, sent, error]), flush=True)

        try:
            error = _send(job, report)
        except Exception as raised:
            error = type(raised).__name__  # its text may hold the address with its password
        report(done, error)

    threads = [
        threading.Thread(target=work, args=(number, job), daemon=True) for number, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))


if __name__ == "__main__":
    _send_all(json.load(sys.stdin))
    os._exit(0)  # threads that still wait for a receiver are given up
