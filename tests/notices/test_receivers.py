"""Receivers of notices: the setting, who wants which event, and messages."""

import pytest

from scrapy_gp4c.notices.events import PageEvent
from scrapy_gp4c.notices.receivers import MAX_EACH, NAMED_PAGES, messages_of, read_receivers
from scrapy_gp4c.page_state.rules import url_matches


def event(kind: str = "changed", url: str = "http://h/a", diff: tuple[str, ...] | None = None) -> PageEvent:
    """An event of one page."""
    return PageEvent(kind, url, "news", 3, 100.0, 50.0, "changed", 9, 2, diff)


def test_the_setting_takes_addresses_and_dicts() -> None:
    """A plain address gets a digest of each cycle; a dict says more."""
    plain, chosen = read_receivers(
        ["json://h/x", {"url": "mailto://u:p@h", "match": "*/prices/*", "events": "gone", "digest": "each"}]
    )
    assert (plain.digest, plain.wants(event()), plain.wants(event("failing"))) == ("cycle", True, False)
    assert chosen.wants(event("gone", "http://h/prices/1"))
    assert not chosen.wants(event("gone", "http://h/news/1"))
    assert not chosen.wants(event("changed", "http://h/prices/1"))
    assert read_receivers("json://h/x json://h/y")[1].url == "json://h/y"
    assert read_receivers(None) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([5], "is a URL such as"),
        (["no address"], "is a URL such as"),
        ([{"url": "json://h", "evnts": "new"}], "has no 'evnts'; it has url, match, events"),
        ([{"url": "json://h", "events": ["moved"]}], "no event 'moved'; the events are new, changed"),
        ([{"url": "json://h", "digest": "weekly"}], "one of each, cycle, daily; found 'weekly'"),
        ([{"url": "json://h", "template": "{page}"}], "no field 'page'; it has spider, summary"),
        ([{"url": "json://h", "template": "{count:%%z}"}], "cannot be filled in"),
        ([{"url": "json://h", "template": "{"}], "cannot be filled in"),
        ([{"url": "json://h", "template": 5}], "a template is a text"),
        ([{"url": "json://h", "events": 5}], "names none; the events are"),
        ([{"url": "json://h", "events": []}], "names none; the events are"),
        ([{"url": "json://h", "match": ""}], "match is a glob"),
        ([{"url": "json://h", "match": {"tag": 5}}], "match is a glob"),
        (5, "neither a list nor a text"),
    ],
)
def test_what_is_no_receiver_is_one_error(value: object, message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        read_receivers(value)


def test_many_single_messages_end_with_one_about_the_others() -> None:
    """A site that changes its layout is no thousand mails."""
    (receiver,) = read_receivers([{"url": "json://h", "digest": "each"}])
    messages = messages_of(receiver, [event() for _ in range(MAX_EACH + 30)])
    assert len(messages) == MAX_EACH + 1
    assert messages[-1].title == "news: 30 changed"


def test_no_name_of_a_receiver_has_its_password() -> None:
    """Logs get the scheme and a digest."""
    (receiver,) = read_receivers("mailto://user:secret@host")
    assert "secret" not in receiver.name
    assert "user" not in receiver.name
    assert receiver.name.startswith("mailto://... (")


def test_a_digest_names_some_pages_and_counts_the_others() -> None:
    """Its title has the counts by kind; diffs are shortened."""
    events = [event(url=f"http://h/{number}", diff=("@@ 1 @@ [-a-] {+b+}",)) for number in range(30)]
    (message,) = messages_of(read_receivers("json://h")[0], [*events, event("gone"), event("failing")])
    assert message.title == "news: 30 changed, 1 gone"
    assert message.body.count("http://") == NAMED_PAGES
    assert "changed: http://h/0\n    @@ 1 @@ [-a-] {+b+}" in message.body
    assert message.body.endswith("and 11 more")


def test_a_receiver_of_each_event_gets_a_message_an_event() -> None:
    """By its own template."""
    (receiver,) = read_receivers([{"url": "json://h", "digest": "each", "template": "{count} in {cycle}"}])
    messages = messages_of(receiver, [event(), event("new", "http://h/b")])
    assert [(one.title, one.body) for one in messages] == [
        ("news: 1 changed", "1 in 3"),
        ("news: 1 new", "1 in 3"),
    ]


def test_receivers_of_one_address_are_told_apart() -> None:
    """One that hears of new pages and one that hears of gone ones, in the same channel."""
    keys = [
        one.key for one in read_receivers(["json://h", {"url": "json://h", "events": "gone"}, "json://i"])
    ]
    assert len(set(keys)) == 3
    assert keys[0] == read_receivers("json://h")[0].key


def test_urls_match_globs_and_plain_texts() -> None:
    """As they are, or decoded."""
    assert url_matches("http://h/a/b", "*/a/*")
    assert url_matches("http://h/a/b", "/a/")
    assert url_matches("http://h/caf%C3%A9", "café")
    assert url_matches("http://h/caf%C3%A9/x", "*café*")
    assert not url_matches("http://h/b", "/a/")
