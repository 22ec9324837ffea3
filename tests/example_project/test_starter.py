"""The process that begins the demo's crawls: they are Scrapy's own commands, one after the other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from example_project.crawls import ROOT, DemoError, Series, Starter


@pytest.fixture
def starter():
    """Yield a starter, and stop it."""
    started = Starter()
    yield started
    started.stop()


@pytest.mark.slow
def test_commands_end_as_they_do_from_a_shell(starter, tmp_path):
    """Exit codes are Scrapy's; what goes wrong is in the file; the next command is none the wiser."""
    errors = tmp_path / "errors"
    for words, code in (
        (["scrapy", "version"], 0),
        (["scrapy", "crawl", "nobody"], 1),
        (["scrapy", "crawl", "monitor", "-s", "GP4C_BUDGET=none", "-a", "port=1", "--nolog"], 1),
        (["scrapy", "list"], 0),
    ):
        starter.begin(words, errors)
        here = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert starter.end(60) == here.returncode == code
        assert bool(errors.read_text()) == bool(here.stderr)


def test_it_imports_no_reactor():
    """Each crawl installs its own; what is named exists, what is in packages is there, and is left alone."""
    code = (
        "import gc, sys, example_project.starter as own; own.preload(own.PRELOADED); "
        "print('twisted.internet.reactor' in sys.modules, 'scrapy_gp4c.commands.status' in sys.modules, "
        "gc.get_freeze_count() > 10_000)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False True True\n"


@pytest.mark.slow
def test_stopped_it_leaves_no_process(tmp_path):
    """Neither by SIGTERM, which its crawl gets too, nor where the demo is gone."""
    for way in ("stop", "gone"):
        started = Starter()
        started.begin(
            ["scrapy", "shell", "--nolog", "-c", "import time; time.sleep(60)"], tmp_path / "errors"
        )
        child = 0
        for _ in range(600):
            listed = subprocess.run(
                ["ps", "-o", "pid=", "--ppid", str(started.process.pid)],
                capture_output=True, text=True, check=False,
            ).stdout.split()  # fmt: skip
            if listed:
                child = int(listed[0])
                break
            time.sleep(0.05)
        assert child
        if way == "stop":
            started.stop()
        else:
            os.kill(child, signal.SIGKILL)
            assert started.end(60) == -signal.SIGKILL
            started.process.stdin.close()
            assert started.process.wait(60) == 0
            started.process.stdout.close()
        assert not Path(f"/proc/{child}").exists() or "zombie" in Path(f"/proc/{child}/status").read_text()


def test_a_crawl_that_fails_says_why(tmp_path):
    """In one line, with the log to read."""
    one = Series("default", tmp_path, None, {"GP4C_BUDGET": "none"})
    one.command = lambda port: ["scrapy", "crawl", "nobody"]
    one.begin(1)
    with pytest.raises(DemoError, match=r"scrapy crawl failed: .*nobody.*its log: .*default\.log"):
        one.end()
    one.stop()
    assert one.starter is None
