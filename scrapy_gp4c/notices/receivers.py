"""Receivers of notices: an address, the events it gets, and the messages made of these (``GP4C_NOTIFY``)."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from scrapy_gp4c.notices.events import SUMMARY, PageEvent
from scrapy_gp4c.page_state.events import EVENTS
from scrapy_gp4c.page_state.rules import url_matches

Digest = Literal["each", "cycle", "daily"]

MAX_EACH: Final = 100
"""Most messages about one event each, per cycle: a receiver would take minutes for thousands."""
NAMED_PAGES: Final = 20
"""Most pages that a message names; the others are counted."""
DIFF_LINES: Final = 5
DEFAULT_EVENTS: Final = ("new", "changed", "gone", "back")
FIELDS: Final = ("spider", "summary", "pages", "count", "cycle")
DEFAULT_TEMPLATE: Final = "{summary}\n\n{pages}"


@dataclass(frozen=True)
class Receiver:
    """A receiver of notices: an Apprise URL, which events it gets, and how often."""

    url: str
    """Address with its password, never shown: see `name`."""
    match: str = "*"
    """Glob of the URLs of pages whose events it gets."""
    tag: str | None = None
    """Tag of the pages whose events it gets; None: any."""
    events: tuple[str, ...] = DEFAULT_EVENTS
    template: str = DEFAULT_TEMPLATE
    digest: Digest = "cycle"
    """``each``: a message per event; ``cycle``: one per cycle; ``daily``: one per day."""
    place: int = 0
    """Position among the receivers of the same address, from 0."""

    @property
    def name(self) -> str:
        """Scheme of the address and `key`, for logs, without secrets."""
        return f"{self.url.partition('://')[0]}://... ({self.key})"

    @property
    def key(self) -> str:
        """Hash of address and `place`, which identifies the receiver without its password."""
        name = f"{self.place} {self.url}" if self.place else self.url
        return hashlib.sha256(name.encode()).hexdigest()[:8]

    def for_test(self) -> Self:
        """Return a copy that gets all events of all pages in one message, without waiting for a day's end."""
        return replace(self, match="*", tag=None, events=EVENTS, digest="cycle")

    @property
    def most_shown(self) -> int:
        """Greatest number of a cycle's events whose text differences the messages to it can show."""
        return NAMED_PAGES + (MAX_EACH if self.digest == "each" else 0)

    def wants(self, event: PageEvent) -> bool:
        """Whether an event is of the kinds, tag and URLs that the receiver gets."""
        if event.kind not in self.events or (self.tag is not None and event.tag != self.tag):
            return False
        return self.match == "*" or url_matches(event.url, self.match)


def read_receivers(value: Any) -> tuple[Receiver, ...]:
    """Read the value of ``GP4C_NOTIFY``: a URL, or a list of URLs and dicts; raises ValueError."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list | tuple):
        raise ValueError("it is neither a list nor a text")
    places: Counter[str] = Counter()
    receivers = []
    for receiver in map(_receiver, value):
        # Two receivers of one address got each other's messages, as the outbox took them for one.
        receivers.append(replace(receiver, place=places[receiver.url]))
        places[receiver.url] += 1
    return tuple(receivers)


def _receiver(value: Any) -> Receiver:
    fields = {"url": value} if isinstance(value, str) else value
    if (
        not isinstance(fields, Mapping)
        or not isinstance(fields.get("url"), str)
        or "://" not in fields["url"]
    ):
        raise ValueError("a receiver is a URL such as mailto://..., or a dict with 'url'")
    known = [name for name in Receiver.__dataclass_fields__ if name not in ("tag", "place")]
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(f"a receiver has no {unknown[0]!r}; it has {', '.join(known)}")
    if isinstance(match := fields.get("match"), Mapping):
        fields = {**fields, "match": "*", "tag": match.get("tag") if len(match) == 1 else None}
    for name in ("match", "tag"):
        if name in fields and (not isinstance(fields[name], str) or not fields[name]):
            raise ValueError(f"match is a glob of URLs, or a dict such as {{'tag': 'news'}}; found {match!r}")
    events = fields.get("events", DEFAULT_EVENTS)
    events = events.replace(",", " ").split() if isinstance(events, str) else events
    if not isinstance(events, list | tuple) or not events:
        raise ValueError(f"events names none; the events are {', '.join(EVENTS)}")
    events = tuple(events)
    if wrong := [event for event in events if event not in EVENTS]:
        raise ValueError(f"there is no event {wrong[0]!r}; the events are {', '.join(EVENTS)}")
    receiver = Receiver(**{**fields, "events": events})
    if receiver.digest not in get_args(Digest):
        raise ValueError(f"digest is one of {', '.join(get_args(Digest))}; found {receiver.digest!r}")
    _check_template(receiver.template)
    return receiver


def _check_template(template: Any) -> None:
    """Raise ValueError for a message template that `str.format` could not fill in."""
    if not isinstance(template, str) or not template.strip():
        raise ValueError(f"a template is a text such as {DEFAULT_TEMPLATE!r}; found {template!r}")
    try:
        for _, field, _, _ in Formatter().parse(template):
            if field is not None and field not in FIELDS:
                raise ValueError(f"it has no field {field!r}; it has {', '.join(FIELDS)}")
        template.format(spider="", summary="", pages="", count=1, cycle=1)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"the template {template!r} cannot be filled in: {error}") from None


class Message(NamedTuple):
    """A text with a title for one receiver, about one or more events."""

    receiver: str
    """`Receiver.key`, or `COMMAND` of `scrapy_gp4c.notices.outbox`."""
    title: str
    body: str


def messages_of(receiver: Receiver, events: Iterable[PageEvent]) -> list[Message]:
    """Make the messages to a receiver about the events it wants: one, or with digest ``each`` one per event.

    Beyond `MAX_EACH` the last message is about all other events.
    """
    wanted = [event for event in events if receiver.wants(event)]
    if receiver.digest == "each":
        single, others = wanted[:MAX_EACH], wanted[MAX_EACH:]
        messages = [_message(receiver, [event]) for event in single]
        return [*messages, _message(receiver, others)] if others else messages
    return [_message(receiver, wanted)] if wanted else []


def _message(receiver: Receiver, events: list[PageEvent]) -> Message:
    first = events[0]
    text = summary(events)
    fields = {
        "spider": first.spider,
        "summary": text,
        "pages": page_list(events),
        "count": len(events),
        "cycle": events[-1].cycle,
    }
    return Message(receiver.key, f"{first.spider}: {text}", receiver.template.format(**fields))


def summary(events: Iterable[PageEvent]) -> str:
    """Count events by kind, in words: ``3 changed, 1 gone``."""
    counts = Counter(event.kind for event in events)
    return ", ".join(f"{counts[kind]:,} {SUMMARY[kind]}" for kind in EVENTS if counts[kind])


def page_list(events: list[PageEvent]) -> str:
    """Return lines that name the pages of the first `NAMED_PAGES` events, and the number of others."""
    lines = list(map(_line, events[:NAMED_PAGES]))
    if (more := len(events) - NAMED_PAGES) > 0:
        lines.append(f"and {more:,} more")
    return "\n".join(lines)


def _line(event: PageEvent) -> str:
    lines = [f"{SUMMARY[event.kind]}: {event.url}"]
    lines += [f"    {line}" for line in (event.diff or ())[:DIFF_LINES]]
    return "\n".join(lines)
