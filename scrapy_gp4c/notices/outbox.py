"""Outbox of a store: files of messages that are to be sent, which survive a kill.

A message is written before its cycle is finished and deleted once it is sent. After a kill in between the
next run may send it twice, but none is lost. A file has the `Receiver.key`, and no address with a password.
"""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.notices.events import PageEvent
from scrapy_gp4c.notices.receivers import Message, Receiver, messages_of
from scrapy_gp4c.store.atomic_files import write

DIRECTORY: Final = "outbox"
"""Name of the outbox directory in the store's directory."""
COMMAND: Final = "command"
"""Receiver key of messages for the shell command ``GP4C_ON_CHANGE``."""
HALF_DAY_S: Final = 43_200.0
MAX_MESSAGES: Final = 1_000
"""Most messages that wait for one receiver; older ones are dropped, with a warning."""


class QueuedMessage(NamedTuple):
    """A message in the outbox, and its file."""

    path: Path
    message: Message


class Outbox:
    """Messages of one store that wait to be sent."""

    def __init__(self, store_path: Path) -> None:
        self.path = store_path / DIRECTORY

    def put(self, cycle: int, receivers: Iterable[Receiver], events: list[PageEvent], command: bool) -> None:
        """Write the messages about a cycle's events; those that a killed run wrote for the cycle are deleted.

        ``command``: whether to write a message to `COMMAND` too, with a line of JSON for each event.
        """
        for path in self._files():
            if path.name.startswith(f"{cycle:010}-"):
                path.unlink()
        messages = [message for receiver in receivers for message in messages_of(receiver, events)]
        if command and events:
            lines = "".join(event.to_json() + "\n" for event in events)
            messages.append(Message(COMMAND, "", lines))
        for number, message in enumerate(messages):
            text = json.dumps(message._asdict(), ensure_ascii=False)
            self._write(f"{cycle:010}-{number:06}.json", text)

    def _write(self, name: str, text: str) -> None:
        mode = self.path.parent.stat().st_mode & 0o770  # as GP4C_STORE_MODE has it
        if not self.path.exists():
            self.path.mkdir()
            self.path.chmod(mode)
        write(self.path / name, text.encode(errors="replace"))
        (self.path / name).chmod(mode & 0o660)

    def waiting(self) -> Iterator[QueuedMessage]:
        """Yield the messages whose files can be read, oldest first."""
        for path in self._files():
            # A file that cannot be read stays: another user of the store may have written it.
            with suppress(ValueError, TypeError, OSError):
                yield QueuedMessage(path, Message(**json.loads(path.read_text("utf-8"))))

    def unreadable(self) -> int:
        """Number of messages whose files cannot be read."""
        return len(self._files()) - len(list(self.waiting()))

    def due(self, receiver: Receiver) -> list[QueuedMessage]:
        """Return the messages to send to a receiver now; [] for a daily one served today (local time)."""
        now_s, last_s = time.time(), self._last_sent_s(receiver)
        # Within 24 h of the last one, a daily crawl that ended seconds earlier than the day before sent none.
        is_today = time.localtime(now_s)[:3] == time.localtime(last_s)[:3] or now_s - last_s < HALF_DAY_S
        if receiver.digest == "daily" and is_today:
            return []
        return [one for one in self.waiting() if one.message.receiver == receiver.key]

    def drop(self, known: Iterable[str]) -> tuple[int, int]:
        """Delete messages to unknown receivers, and the oldest beyond `MAX_MESSAGES` of each known one.

        ``known``: keys of the receivers in the settings. Returns both numbers of deleted messages.
        """
        messages, keys = list(self.waiting()), set(known)
        unknown = [message for message in messages if message.message.receiver not in keys]
        oldest = []
        for key in keys:
            of_receiver = [message for message in messages if message.message.receiver == key]
            oldest += of_receiver[:-MAX_MESSAGES]
        for message in [*unknown, *oldest]:
            message.path.unlink(missing_ok=True)
        return len(unknown), len(oldest)

    def delete_sent(self, receiver: Receiver | None, messages: list[QueuedMessage]) -> None:
        """Delete messages after they were sent to `receiver`, or, where it is None, to the command."""
        # Noted first: killed in between, a second message on one day would follow.
        if messages and receiver is not None and receiver.digest == "daily":
            self._write(f"daily-{receiver.key}", str(time.time()))
        for message in messages:
            message.path.unlink(missing_ok=True)

    def _last_sent_s(self, receiver: Receiver) -> float:
        with suppress(OSError, ValueError):
            return min(time.time(), float((self.path / f"daily-{receiver.key}").read_text()))
        return 0.0

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("[0-9]*.json"))
