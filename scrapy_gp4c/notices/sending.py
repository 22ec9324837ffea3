"""Sending of messages: one process beside the crawl, so that a slow receiver delays nothing.

``python -m scrapy_gp4c.notices.sending`` is that process. It reads one JSON document from standard input and
writes a line for each receiver: its number, and the error or null.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from scrapy_gp4c.notices.outbox import COMMAND, Outbox, QueuedMessage
from scrapy_gp4c.notices.receivers import Message, Receiver

LIMIT_S: Final = 10.0
"""Time that each receiver has, all at once."""
_START_S: Final = 20.0
"""Time for the process to start and to load Apprise."""
_PACKAGES: Final = str(Path(__file__).parents[2])


def deliver(outbox: Outbox, receivers: Sequence[Receiver], command: str | None) -> list[str]:
    """Send what waits in the outbox; returns a line for each problem, without secrets.

    Blocks for at most half a minute: call it in a thread, or when the crawl is over. What could not be sent
    waits for the next run.
    """
    keys = [receiver.key for receiver in receivers] + ([COMMAND] if command else [])
    problems = []
    if dropped := outbox.drop(keys):
        problems.append(f"{dropped:,} notices to receivers that GP4C_NOTIFY no longer has are dropped")
    jobs: list[tuple[Receiver | None, list[QueuedMessage]]] = [(one, outbox.due(one)) for one in receivers]
    if command:
        jobs.append((None, [one for one in outbox.waiting() if one.message.receiver == COMMAND]))
    jobs = [(receiver, messages) for receiver, messages in jobs if messages]
    if not jobs:
        return problems
    if any(receiver for receiver, _ in jobs) and find_spec("apprise") is None:
        problems.append("No notices are sent: Apprise is missing. pip install 'scrapy-gp4c[notify]'")
        jobs = [(receiver, messages) for receiver, messages in jobs if receiver is None]
    work = [
        {
            "url": None if receiver is None else receiver.url,
            "command": command if receiver is None else None,
            "messages": [message._asdict() for message in _merged(receiver, messages)],
        }
        for receiver, messages in jobs
    ]
    results = _run(work)
    for number, (receiver, messages) in enumerate(jobs):
        error = results.get(number, f"no answer within {LIMIT_S:g} s")
        if error is None:
            outbox.sent(receiver, messages)
        else:
            name = "The command of GP4C_ON_CHANGE" if receiver is None else f"The receiver {receiver.name}"
            count = f"{len(messages):,} notice{'s' if len(messages) > 1 else ''}"
            problems.append(f"{name} failed ({error}): {count} will be sent again by the next run")
    return problems


def _merged(receiver: Receiver | None, messages: list[QueuedMessage]) -> list[Message]:
    """The messages to send: a daily receiver gets one for all."""
    if receiver is None or receiver.digest != "daily" or len(messages) < 2:
        return [one.message for one in messages]
    first = messages[0].message
    return [first._replace(body="\n\n".join(f"{m.title}\n\n{m.body}" for _, m in messages))]


def _run(work: list[dict[str, Any]]) -> dict[int, str | None]:
    """Results by number of the job; a job without a result got no answer in time."""
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy_gp4c.notices.sending"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    try:
        output, _ = process.communicate(json.dumps(work), timeout=LIMIT_S + _START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    results: dict[int, str | None] = {}
    for line in output.splitlines():
        with suppress(ValueError, TypeError):
            number, error = json.loads(line)
            results[number] = error
    return results


def _send(job: dict[str, Any]) -> str | None:
    """Send the messages of one job; an error in words, None if all were sent."""
    messages = [Message(**message) for message in job["messages"]]
    if job["command"] is not None:
        done = subprocess.run(
            shlex.split(job["command"]),
            input="".join(message.body for message in messages),
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        words = done.stderr.strip().splitlines()[-1:] or [""]
        return f"exit code {done.returncode} {words[0]}".strip()[:200] if done.returncode else None
    import apprise

    receiver = apprise.Apprise()
    if not receiver.add(job["url"]):
        return "Apprise does not know such an address"
    for message in messages:
        if not receiver.notify(title=message.title, body=message.body):
            return "the receiver did not accept the message"
    return None


def _work_off(jobs: list[dict[str, Any]]) -> None:
    """Send all jobs at once; write a line for each that ends in time."""
    lock = threading.Lock()

    def work(number: int, job: dict[str, Any]) -> None:
        try:
            error = _send(job)
        except Exception as raised:
            error = type(raised).__name__  # its text may hold the address with its password
        with lock:
            print(json.dumps([number, error]), flush=True)

    threads = [
        threading.Thread(target=work, args=(number, job), daemon=True) for number, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))


if __name__ == "__main__":
    _work_off(json.load(sys.stdin))
    os._exit(0)  # threads that still wait for a receiver are given up
