"""Commands that tell of pages: history, failing, feed, metrics and notify, on the store of real crawls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider

from scrapy_gp4c.errors import NoticeError
from tests.commands.test_commands import in_process, make_project
from tests.notices.test_sending import Hook, hook
from tests.support.loopback import Site, crawl, html
from tests.support.schemas import checked

__all__ = ["hook"]
SETTINGS = {"GP4C_BUDGET": 1.0, "GP4C_ARCHIVE": True, "GP4C_GONE_AFTER": 2}


class News(Spider):
    """Follows the links of a list."""

    name = "news"

    def parse(self, response: Any) -> Iterator[Request]:
        yield from response.follow_all(css="a")


async def test_commands_tell_what_crawls_found(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: Hook,
    tmp_path: Path,
) -> None:
    """A page that changed once, and one that fails since the second cycle, also after a hint."""
    News.start_urls = [site.url("/list")]
    for version in range(3):
        site.pages["/list"] = html("a list", links=["/a", "/b"])
        site.pages["/a"] = html(f"the price is {min(version, 1) + 10} euros today, as ever")
        if version == 0:
            site.pages["/b"] = html("page b")
        else:
            site.pages.pop("/b", None)
        await crawl(News, store_path, SETTINGS)
    settings = {**SETTINGS, "GP4C_NOTIFY": [hook.url]}
    project = make_project(project_directory, store_path, monkeypatch, settings)

    def run(action: str, *words: str) -> str:
        in_process(project, action, *words)
        return capsys.readouterr().out

    visits = checked("history", run("history", site.url("/a"), "--json"))["visits"]
    assert [visit["outcome"] for visit in visits] == ["first", "changed", "unchanged"]
    assert "{+11+}" in visits[1]["diff"][0]
    assert "3 visits, 2 of them compared it, 1 found a change" in run("history", site.url("/a"))
    (failing,) = checked("failing", run("failing", "--json"))["pages"]
    assert (failing["url"], failing["outcome"]) == (site.url("/b"), "gone")
    assert failing["found_on"] == site.url("/list")
    assert (failing["failures"], failing["last_success"]) == (2, 1)
    second = json.loads(run("history", site.url("/b"), "--json"))["visits"][1]
    assert (failing["status"], failing["error"], failing["since"]) == (404, None, second["time"])
    assert run("failing", "--match", "*/a") == "no page that matches */a fails\n"
    (tmp_path / "hints").write_text(site.url("/b"))
    run("hint", str(tmp_path / "hints"))  # which ends its wait, and not its failures
    assert json.loads(run("failing", "--json"))["pages"] == [failing]

    def printed(*words: str) -> list[tuple[int, str, str]]:
        document = checked("changes", run("changes", "--json", "--last", "9", *words))
        return [(one["cycle"], one["kind"], one["url"].rpartition("/")[2]) for one in document["changes"]]

    assert printed() == [(2, "changed", "a")]
    assert sorted(printed("--new", "--match", "*/[ab]")) == [(1, "new", "a"), (1, "new", "b")]
    assert printed("--failing", "--gone") == [(2, "failing", "b"), (3, "gone", "b")]
    assert sorted(printed("--changed", "--failing")) == [(2, "changed", "a"), (2, "failing", "b")]
    assert "{+11+}" in run("changes", "--changed", "--failing", "--last", "9", "--diff")
    assert "failing in cycle 2" in run("changes", "--failing", "--last", "9", "--diff")
    assert run("changes", "--cycle", "99") == "there is no such cycle yet: the newest is 3\n"
    assert run("changes", "--since", "2100-01-01") == "there is no cycle since then: the newest is 3\n"
    assert run("changes", "--new", "--match", "zz") == "no page that matches zz was new in cycle 3\n"
    run("feed", "-o", str(tmp_path / "changes.json"))
    assert json.loads((tmp_path / "changes.json").read_text())["items"][-1]["url"] == site.url("/a")
    assert 'gp4c_cycle{spider="news"} 3.0' in run("metrics")
    assert "A test message was sent to 1 receiver" in run("notify", "--test")
    assert hook.received[0]["title"] == "news: 1 changed"
    assert "Nothing waits for 1 receiver" in run("notify")
    hook.received.clear()
    await crawl(News, store_path, {"GP4C_NOTIFY": [{"url": hook.url, "events": "failing"}], **SETTINGS})
    assert hook.received == []
    (again,) = json.loads(run("failing", "--json"))["pages"]
    assert again == {**failing, "failures": 3, "last_visit": 4}
    hook.status = 500
    with pytest.raises(
        NoticeError, match=r"did not accept the message in time, or redirects to another address\)$"
    ):
        run("notify", "--test")  # which the next run does not send again
