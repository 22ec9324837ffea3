"""The house: what a wheel holds, and that it works alone, far from the repository."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.sources import PACKAGES, ROOT

FILES: Final = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE")
FOLDERS: Final = (*PACKAGES, "tests", "benchmarks", "example_project", "docs")
"""All that could slip into a wheel."""
BUILD: Final = "from setuptools.build_meta import build_wheel; build_wheel('dist')"

ALONE: Final = """
import sys
installed, repository = sys.argv[1:3]
sys.path[:] = [installed, *(path for path in sys.path if path not in ("", repository))]
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in getattr(one, "__module__", "")]
"""
"""A process that finds our packages where the wheel was unpacked, and nowhere else."""
CHECK_ORIGIN: Final = """
ours = {name: module.__file__ for name, module in sys.modules.items()
        if name.partition(".")[0] in ("scrapy_gp4c", "training", "tests", "benchmarks", "example_project")}
assert ours and all(path.startswith(installed) for path in ours.values()), ours
"""

CRAWLING: Final = (
    "scrapy_gp4c.Addon",
    "scrapy_gp4c.scheduler.RecrawlScheduler",
    "scrapy_gp4c.middleware.FingerprintMiddleware",
    "scrapy_gp4c.fingerprint.main_features",
    "scrapy_gp4c.fingerprint.features",
    "scrapy_gp4c.commands.Command",
)
"""What settings and entry points name."""
COMMANDS: Final = (
    "learn",
    "evaluate",
    "budget",
    "experiment",
    "report",
    "from_git",
    "store_history",
    "synthetic",
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the contents of a wheel that was built from a copy of the sources."""
    copy = tmp_path_factory.mktemp("sources")
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    built = subprocess.run([sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = (copy / "dist").glob("*.whl")
    directory = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(directory)
    return directory


def alone(installed: Path, code: str, *arguments: str) -> str:
    """Run code that sees the wheel but not the repository; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", ALONE + code + CHECK_ORIGIN, str(installed), str(ROOT), *arguments],
        cwd=installed.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_holds_both_packages_and_nothing_else(installed: Path) -> None:
    """Every module, the typing marks and the reports' templates; no tests, benchmarks or demo."""
    inside = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in inside if ".dist-info/" not in name} == ours
    assert {"scrapy_gp4c/py.typed", "training/py.typed"} < ours
    assert {path.suffix for path in (ROOT / "training" / "reporting" / "templates").iterdir()} == {
        ".html",
        ".css",
    }


def test_the_description_of_a_wheel_has_absolute_links(installed: Path) -> None:
    """An index's page has no files beside it: pictures and links lead to the project's source."""
    (metadata,) = installed.glob("*.dist-info/METADATA")
    text = metadata.read_text("utf-8")
    (source,) = re.findall(r"^Project-URL: Source, (\S+)", text, re.MULTILINE)
    links = re.findall(r"\]\(([^)#][^)]*)\)", text)
    assert f"{source}/raw/main/docs/images/demo.svg" in links
    assert f"{source}/blob/main/docs/tutorial.md" in links
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.slow
def test_a_wheel_serves_a_crawl(installed: Path) -> None:
    """What `ADDONS`, `SCHEDULER`, `GP4C_FEATURES` and the command line name is found."""
    code = """
from scrapy.utils.misc import load_object
for name in sys.argv[3:]:
    print(load_object(name).__name__)
"""
    printed = alone(installed, code, *CRAWLING)
    assert printed.split() == [name.rpartition(".")[2] for name in CRAWLING]
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "gp4c = scrapy_gp4c.commands:Command" in entry_points.read_text()


@pytest.mark.slow
def test_a_wheel_serves_the_commands_of_training(installed: Path) -> None:
    """``python -m training.X --help`` for all seven."""
    code = """
import contextlib, io, runpy
for name in sys.argv[3:]:
    shown = io.StringIO()
    sys.argv = ["", "--help"]
    try:
        with contextlib.redirect_stdout(shown):
            runpy.run_module("training." + name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, (name, end.code)
    print(shown.getvalue().partition("[")[0].rstrip())
"""
    printed = alone(installed, code, *COMMANDS)
    assert printed.split("\n")[:-1] == [f"usage: python -m training.{name}" for name in COMMANDS]


@pytest.mark.slow
def test_a_wheel_serves_reports(installed: Path) -> None:
    """Templates and style are found where the report's maker looks for them."""
    code = """
from training.reporting import page
print(*sorted(__import__("jinja2").PackageLoader("training.reporting").list_templates()))
"""
    templates = ROOT / "training" / "reporting" / "templates"
    assert alone(installed, code).split() == sorted(path.name for path in templates.iterdir())
