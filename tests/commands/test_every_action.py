"""Every action that only reads, on every kind of store: of a crawl, empty, damaged, in use."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scrapy_gp4c.errors import Gp4cError, StoreError, UnknownPageError
from scrapy_gp4c.store.opening import open_store
from tests.commands.test_commands import in_process, make_project
from tests.support.loopback import Pages, Site, crawl, html
from tests.support.schemas import checked
from tests.support.sources import ROOT

SETTINGS = {"GP4C_SCORE_FUNCTION": "default", "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 1}
READING = ("changes", "failing", "history", "pages", "plan", "status", "why")


class News(Pages):
    """Asks for six pages."""

    name = "news"


def arguments_of(action: str, url: str) -> list[str]:
    return [url] if action in ("why", "history") else []


async def test_actions_on_the_store_of_a_crawl_that_runs(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Finished cycles, and one under way in another process: text, and JSON that fits its schema."""
    for cycle in range(4):
        for page in range(6):
            changing = f"cycle{cycle} " * 9 if page < 3 else ""
            site.pages[f"/{page}"] = html(f"page{page} " * 20 + changing)
        await crawl(News, store_path, SETTINGS, site=site)
    hold = (
        "import sys, time\nfrom scrapy_gp4c.store.opening import open_store\n"
        "from scrapy_gp4c.store.records import NewVisit\n"
        "with open_store(sys.argv[1]) as store:\n"
        "    store.begin_cycle({'started': time.time(), 'score_function': 't'})\n"
        "    store.record(NewVisit(0, 'changed', time=time.time(), fingerprint=1, distance=9))\n"
        "    store.add_page(5, {'url': 'http://new/'})\n    store.commit()\n    print(flush=True)\n"
        "    input()"
    )
    command = [sys.executable, "-c", hold, str(store_path)]
    writer = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdout.readline()
    project = make_project(project_directory, store_path, monkeypatch, SETTINGS)
    result = {}
    for action in READING:
        in_process(project, action, *arguments_of(action, site.url("/0")))
        assert capsys.readouterr().out
        in_process(project, action, *arguments_of(action, site.url("/0")), "--json")
        result[action] = checked(action, capsys.readouterr().out)
    in_process(project, "changes", "--last", "4", "--match", site.url("/1"), "--csv")
    table = capsys.readouterr().out.splitlines()
    in_process(project, "changes", "--cycle", "3", "--json")
    third = checked("changes", capsys.readouterr().out)
    in_process(project, "changes", "--since", "2100-01-01", "--json")
    assert checked("changes", capsys.readouterr().out)["changes"] == []
    writer.communicate("\n")
    assert [(one["cycle"], one["distance"]) for one in result["changes"]["changes"]] == [(5, 9)]
    with open_store(store_path, readonly=True) as store:
        changed = [one["url"] for one in third["changes"]]
        ((_, visits),) = store.visits(3, 3)
        expected = [store.request(page)["url"] for page in visits["page"][visits["outcome"] == 2].tolist()]
        assert changed == expected
        assert result["changes"]["changes"][0]["changes"] == store.page(0).X + 1
    assert table[0] == "cycle,kind,time,url,distance,changes"
    assert len(table) > 2
    assert [line.split(",")[-1] for line in table[1:]] == [str(n + 1) for n in range(len(table) - 1)]
    assert all(site.url("/1") in line for line in table[1:])
    assert result["status"]["cycles"][-1]["is_finished"] is False
    assert (result["plan"]["cycle"], result["why"]["cycle"]) == (6, 6)
    with open_store(store_path) as store:
        store.keep_visits(2)  # as GP4C_KEEP_CYCLES does
    numbers = []
    for kinds in ((), ("--changed", "--new")):
        in_process(project, "changes", "--last", "9", "--json", *kinds)
        changes = checked("changes", capsys.readouterr().out)["changes"]
        numbers.append(sorted((one["url"], one["cycle"], one["changes"]) for one in changes))
    assert numbers[0] == numbers[1] != []


@pytest.mark.parametrize("action", READING)
def test_actions_without_a_sound_store(
    action: str,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None: one error. Without pages: an empty answer, or an error that says so. Damaged: one error."""
    project = make_project(project_directory, store_path, monkeypatch, SETTINGS)
    words = arguments_of(action, "http://site/1")
    with pytest.raises(StoreError, match="there is no page store"):
        in_process(project, action, *words)
    open_store(store_path).close()
    if action in ("why", "history"):
        with pytest.raises(UnknownPageError, match="no pages yet"):
            in_process(project, action, *words)
    else:
        in_process(project, action, *words)
        assert capsys.readouterr().out
        in_process(project, action, *words, "--json")
        checked(action, capsys.readouterr().out)
    data = store_path / "data.mdb"
    data.write_bytes(data.read_bytes()[:5000])
    with pytest.raises(StoreError, match=r"damaged|truncated"):
        in_process(project, action, *words)


OTHERS = {
    "feed": (("-o", "changes.json"), "StoreError done done StoreDamagedError"),
    "metrics": ((), "StoreError done done StoreDamagedError"),
    "notify": ((), "SettingsError SettingsError SettingsError SettingsError"),
    "export": (("-o", "history.tsv"), "StoreError done done StoreDamagedError"),
    "import": (("urls.txt",), "done done StoreInUseError StoreDamagedError"),
    "report": (("-o", "report.html"), "StoreError StoreError StoreError StoreError"),
    "store verify": ((), "StoreError done done StoreDamagedError"),
    "store verify --deep": (("--deep",), "StoreError done done StoreDamagedError"),
    "store restore --from-damaged": (
        ("--from-damaged",),
        "StoreError done StoreInUseError StoreDamagedError",
    ),
    "store backup": (("backups",), "StoreError done done StoreDamagedError"),
    "store restore": (("backup",), "done done StoreInUseError done"),
    "store compact": ((), "StoreError done StoreInUseError StoreDamagedError"),
    "store restore --nowhere": (("nowhere",), "StoreError StoreError StoreError StoreError"),
    "forget": (("*", "--yes"), "StoreError done StoreInUseError StoreDamagedError"),
    "forget --dry-run": (("*", "--dry-run"), "StoreError done done StoreDamagedError"),
    "search": (("apple",), "StoreError SearchIndexError SearchIndexError StoreDamagedError"),
    "cluster": ((), "StoreError StoreError StoreError StoreDamagedError"),
    "hint": (("urls.txt",), "StoreError done StoreInUseError StoreDamagedError"),
    "changes --diff": (("--diff",), "StoreError ArchiveError ArchiveError StoreDamagedError"),
}
"""The other actions, but for `monitor`, which crawls: what each needs, and what comes of it where there is no
store, where it is empty, while a process writes to it, and where it is damaged."""
WRITER = (
    "import sys\nfrom scrapy_gp4c.store.opening import open_store\n"
    "with open_store(sys.argv[1]) as store:\n    store.add_pages([(7, {'url': 'http://site/7'})])\n"
    "    print(flush=True)\n    input()"
)


def tried(project: Any, words: str) -> str:
    """Run an action; returns `done`, or the class of its one error."""
    try:
        in_process(project, words.partition(" --")[0], *OTHERS[words][0])
    except Gp4cError as error:
        return type(error).__name__ if str(error).strip() else "an error that says nothing"
    return "done"


@pytest.mark.slow
@pytest.mark.parametrize("words", OTHERS)
def test_other_actions_on_every_kind_of_store(
    words: str, store_path: Path, project_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done, or one error; a store that a process writes to is as it was."""
    project = make_project(project_directory, store_path, monkeypatch, SETTINGS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "urls.txt").write_text("http://site/1\n")
    open_store(tmp_path / "backup").close()
    result = [tried(project, words)]
    shutil.rmtree(store_path, ignore_errors=True)
    open_store(store_path).close()
    result.append(tried(project, words))
    shutil.rmtree(store_path, ignore_errors=True)
    command = [sys.executable, "-c", WRITER, str(store_path)]
    writer = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    result.append(tried(project, words))
    writer.communicate("\n")
    with open_store(store_path) as store:
        assert store.pages == 1
        assert store.verify() == []
    data = store_path / "data.mdb"
    data.write_bytes(data.read_bytes()[:5000])
    result.append(tried(project, words))
    assert " ".join(result) == OTHERS[words][1]
