"""The add-on: what one line in the settings installs, and what it leaves alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import scrapy
from scrapy.settings import Settings as ScrapySettings
from twisted.internet import threads

from scrapy_gp4c import Addon
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.middleware import FingerprintMiddleware
from scrapy_gp4c.scheduler import RecrawlScheduler
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, html


def test_installs_scheduler_and_middleware() -> None:
    """One line sets the scheduler, and the middleware on the engine side of retry and redirect."""
    settings = ScrapySettings()
    Addon().update_settings(settings)
    assert settings["SCHEDULER"] == f"{RecrawlScheduler.__module__}.{RecrawlScheduler.__name__}"
    middlewares = settings.getwithbase("DOWNLOADER_MIDDLEWARES")
    position = middlewares[FingerprintMiddleware]
    retry = middlewares["scrapy.downloadermiddlewares.retry.RetryMiddleware"]
    offsite = middlewares["scrapy.downloadermiddlewares.offsite.OffsiteMiddleware"]
    assert position < offsite < retry


def test_leaves_what_the_user_set() -> None:
    """A scheduler and a middleware position of the project win over the add-on's."""
    path = "scrapy_gp4c.middleware.FingerprintMiddleware"
    settings = ScrapySettings({"SCHEDULER": "my.Scheduler", "DOWNLOADER_MIDDLEWARES": {path: 42}})
    Addon().update_settings(settings)
    assert settings["SCHEDULER"] == "my.Scheduler"
    crawl_settings = settings.getdict("DOWNLOADER_MIDDLEWARES")
    assert {
        key: position for key, position in crawl_settings.items() if key in (path, FingerprintMiddleware)
    } == {path: 42}


def test_a_jobdir_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file is in its place, or the file system is read-only."""
    Addon().update_settings(ScrapySettings({"JOBDIR": str(tmp_path / "jobs" / "shop")}))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "jobs").write_text("a file")
    with pytest.raises(SettingsError, match=r"JOBDIR must be a directory .*/jobs cannot\. Set another"):
        Addon().update_settings(ScrapySettings({"JOBDIR": str(tmp_path / "jobs" / "shop")}))


def test_leaves_what_another_addon_set() -> None:
    """A fingerprinter that another add-on has installed before tells pages apart."""
    settings = ScrapySettings()
    settings.set("REQUEST_FINGERPRINTER_CLASS", "scrapy_poet.ScrapyPoetRequestFingerprinter", "addon")
    Addon().update_settings(settings)
    assert settings["REQUEST_FINGERPRINTER_CLASS"] == "scrapy_poet.ScrapyPoetRequestFingerprinter"


def test_bad_setting_stops_before_anything_is_built() -> None:
    """Settings are checked when the add-on loads, before a store or an engine exists."""
    with pytest.raises(SettingsError, match="GP4C_PANEL"):
        Addon().update_settings(ScrapySettings({"GP4C_PANEL": 7}))


# --- what a person sees: `scrapy` commands in a project of their own

SPIDER = """
from scrapy import Spider

class Quiet(Spider):
    name = "quiet"
    start_urls = ["http://127.0.0.1:9/"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a Scrapy project whose settings have the add-on's one line."""
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = monitor.settings\n")
    spiders = tmp_path / "monitor" / "spiders"
    spiders.mkdir(parents=True)
    (tmp_path / "monitor" / "__init__.py").touch()
    (spiders / "__init__.py").touch()
    (spiders / "quiet.py").write_text(SPIDER)
    (tmp_path / "monitor" / "settings.py").write_text(
        'SPIDER_MODULES = ["monitor.spiders"]\nADDONS = {"scrapy_gp4c.Addon": 500}\n'
        "RETRY_ENABLED = False\nTELNETCONSOLE_ENABLED = False\n"
    )
    return tmp_path


def begin(project: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a `scrapy` command in the project."""
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; returns its exit code and output."""
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def critical_lines(output: str) -> list[str]:
    """Return the messages logged as critical by us."""
    return [line.partition("CRITICAL: ")[2] for line in output.splitlines() if "CRITICAL: " in line]


HOSTILE = "__import__('os').system('touch pwned')"


def write_score(path: Path, expression: str) -> str:
    """Write a score file; returns its path."""
    path.write_text(json.dumps({"format": "gp4c-score/1", "expression": expression}))
    return str(path)


@pytest.mark.slow
def test_errors_at_start_are_one_line_and_an_exit_code(project: Path) -> None:
    """A bad setting, score file or store: one readable line with setting and remedy; history intact."""
    assert end(begin(project, "crawl", "quiet", "-s", "GP4C_SCORE_FUNCTION=9**9**9**9 * t"))[0] == 0
    path = project / ".scrapy" / "gp4c" / "quiet"
    with Store(path, readonly=True) as store:
        history = store.cycles()
    assert len(history) == 1
    (project / "foreign").mkdir()
    (project / "foreign" / "data.mdb").write_bytes(b"PK\3\4" + bytes(50_000))
    cases = {
        "GP4C_BUGDET=0.1": ["GP4C_BUGDET", "GP4C_BUDGET"],
        "GP4C_STORE=foreign": ["GP4C_STORE", "foreign", "not the file of a page store"],
        "LOG_LEVEL=INFO": ["GP4C_STORE", "quiet", str(os.getpid())],  # in use by this process
        f"GP4C_SCORE_FUNCTION={write_score(project / 'hostile.json', HOSTILE)}": [
            "GP4C_SCORE_FUNCTION",
            "hostile",
        ],
    }
    with Store(path):
        for setting, expected in cases.items():
            code, output = end(begin(project, "crawl", "quiet", "-s", setting))
            # Before 2.19 Scrapy exits with 0 whatever fails once it has made the spider.
            assert code != 0 or scrapy.version_info < (2, 19), setting
            lines = critical_lines(output)
            assert len(lines) == 1, output[-3000:]
            for part in expected:
                # An expression is shown with a caret on lines of its own.
                assert part in output[output.index(lines[0]) :], (part, output[-3000:])
    assert not (project / "pwned").exists()
    with Store(path) as store:
        assert store.cycles() == history
        assert store.verify() == []


@pytest.mark.parametrize(
    "expression", [HOSTILE, "t * visits", "(" * 10_000 + "t" + ")" * 10_000, "t.real", "t" + " * t" * 100_000]
)
@pytest.mark.parametrize("in_file", [False, True])
def test_hostile_score_functions_are_one_short_error(expression: str, in_file: bool, tmp_path: Path) -> None:
    """Whether a setting or in a score file, such an expression is refused in a few lines, and not run."""
    value = write_score(tmp_path / "score.json", expression) if in_file else expression
    with pytest.raises(SettingsError) as caught:
        Addon().update_settings(ScrapySettings({"GP4C_SCORE_FUNCTION": value}))
    message = str(caught.value)
    assert message.startswith("GP4C_SCORE_FUNCTION: ")
    assert len(message) < 2_000
    assert not Path("pwned").exists()


@pytest.mark.slow
async def test_shell_fetch_and_parse_fetch_only_what_was_asked(project: Path, site: Site) -> None:
    """With a plan waiting in the store, other commands need neither store nor fetchers."""
    site.pages = {f"/{number}": html("a page of the plan") for number in range(10)}
    path = project / ".scrapy" / "gp4c" / "quiet"
    with Store(path) as store:
        store.add_pages((number + 1, {"url": site.url(f"/{number}")}) for number in range(9))
    before = (path / "data.mdb").read_bytes()
    url = site.url("/9")
    for command in (
        ("fetch", "--nolog", url),
        ("fetch", "--spider=quiet", url),
        ("shell", "--spider=quiet", "-c", "print(response.status, response.text)", url),
        ("parse", "--spider=quiet", url),
    ):
        site.log.clear()
        process = begin(project, *command, "-s", "GP4C_FETCHERS=2")
        code, output = await threads.deferToThread(end, process)
        assert code == 0, output
        assert "http://127.0.0.1" in output or "a page of the plan" in output
        assert site.log == [("GET", "/9")], command
        assert (path / "data.mdb").read_bytes() == before
