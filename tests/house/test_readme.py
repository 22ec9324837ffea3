"""The house: the README works word by word, in a project of its own."""

import configparser
import gzip
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.served import served
from tests.support.sources import ROOT
from training.histories.formats import write_text
from training.histories.models import generate

README: Final = (ROOT / "README.md").read_text("utf-8")
SHELL: Final = [
    line.partition("  #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
"""Every line that the README has for a shell."""
PYTHON: Final = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
QUICK: Final = {
    "training.learn": ["--population", "6", "--generations", "2", "--seeds", "1", "--jobs", "1"],
    "training.experiment": ["--quick", "--jobs", "1"],
    "monitor": ["--cycles", "1"],
}
"""Command -> what a test has time for."""
SPIDER: Final = "news"


@pytest.fixture
def site() -> Iterator[str]:
    """A list of pages, and the pages, which change at every visit but for every third."""
    visits = itertools.count(1)

    def news(path: str) -> str | None:
        name = path.strip("/")
        links = "".join(f'<a href="/{number}">page {number}</a>' for number in range(9)) if not name else ""
        answer_text = "as ever" if name.isdigit() and int(name) % 3 else f"visit {next(visits)}"
        text = f"<p>{'some words ' * 20}{answer_text}</p>{links}"
        html = f"<html><head><title>{name}</title></head><body>{text}</body></html>"
        return None if name == "robots.txt" else html

    with served(news) as url:
        yield f"{url}/"


def run(directory: Path, words: list[str]) -> str:
    """Run a command of the README; returns what it printed."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}
    more = next((extra for name, extra in QUICK.items() if name in words), [])
    program = words[1:] if words[0] == "python" else ["-m", *words]
    done = subprocess.run(
        [sys.executable, *program, *more],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_every_line_is_run_by_a_test_below() -> None:
    """A line of another kind needs a test of its own."""
    kinds = {"make", "pip", "scrapy gp4c", "python -m training"}
    assert {kind for line in SHELL for kind in kinds if line.startswith(kind)} == kinds
    assert [line for line in SHELL if not line.startswith(tuple(kinds))] == []


@pytest.mark.slow
def test_its_commands_for_a_crawl(tmp_path: Path, site: str) -> None:
    """Its settings and its callback in a new project, three cycles, and every command."""
    run(tmp_path, ["scrapy", "startproject", "project", "."])
    settings, callback = PYTHON
    imports = [line for line in callback.splitlines() if line.startswith("from ")]
    with (tmp_path / "project" / "settings.py").open("a") as file:
        file.write(settings + "DOWNLOAD_DELAY = 0\nROBOTSTXT_OBEY = False\n")
    (tmp_path / "project" / "spiders" / "news.py").write_text(
        "".join(f"{line}\n" for line in imports)
        + f"import scrapy\n\n\nclass News(scrapy.Spider):\n    name = {SPIDER!r}\n"
        f"    start_urls = [{site!r}]\n\n"
        + "".join(f"    {line}\n" if line else "\n" for line in callback.splitlines() if line not in imports)
        + "        yield from response.follow_all(css='a')\n"
    )
    for cycle in range(1, 4):
        items = tmp_path / f"items-{cycle}.jsonl"
        run(tmp_path, ["scrapy", "crawl", SPIDER, "-o", items.name])
        assert len(items.read_text().splitlines()) == (10 if cycle == 1 else 4)
    with gzip.open(tmp_path / "urls.txt.gz", "wt") as file:
        file.write(f"{site}more\n")
    printed = {}
    learning = ("evaluate", "budget", "learn")  # these need more cycles: tests/commands/test_learning.py
    for line in (line for line in SHELL if line.startswith("scrapy gp4c")):
        if line.split()[2] in learning:
            continue
        words = shlex.split(line.replace("SPIDER", SPIDER).replace("URL", f"{site}3").replace("1h", "0.1s"))
        printed[words[2]] = run(tmp_path, words)
    assert re.search(r"pages +10\n", printed["status"])
    assert len(re.findall(rf"{site}\d*$", printed["changes"], re.MULTILINE)) == 4
    assert "cycle 4 would visit" in printed["plan"]
    assert f"{site}3" in printed["why"]
    assert "1 page added" in printed["import"]
    assert len(gzip.decompress((tmp_path / "history.tsv.gz").read_bytes()).splitlines()) == 1 + 4 + 11


@pytest.mark.slow
def test_its_commands_for_a_history(tmp_path: Path) -> None:
    """Evaluate, budget, learn and the experiment on a history of the name that it gives."""
    with gzip.open(tmp_path / "history.tsv.gz", "wb") as file:
        path = tmp_path / "history.tsv"
        write_text(path, generate("poisson", 300, 18, 1))
        with path.open("rb") as plain:
            shutil.copyfileobj(plain, file)
    printed = {}
    for line in (line for line in SHELL if line.startswith("python -m training")):
        words = shlex.split(line)
        printed[words[2]] = run(tmp_path, words)
    assert "oracle" in printed["training.evaluate"]
    assert "change rate" in printed["training.budget"]
    assert "GP4C_SCORE_FUNCTION" in printed["training.learn"]
    assert (tmp_path / "results" / "report.html").exists()


def test_what_it_makes_and_installs_is_there() -> None:
    """Its targets are the Makefile's, and run modules that exist; its extras are the package's."""
    for line in (line for line in SHELL if line.startswith("make ")):
        words = shlex.split(line)
        done = subprocess.run(
            ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        for module in re.findall(r"python -m (\w+(?:\.\w+)*)", done.stdout):
            name = module.partition(".")[0]
            assert name in ("venv", "pip", "pytest") or (ROOT / f"{module.replace('.', '/')}.py").exists()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for line in (line for line in SHELL if line.startswith("pip ")):
        match = re.fullmatch(r"pip install '?\.(?:\[(\w+)\])?'?", line)
        assert match is not None, line
        assert match[1] is None or match[1] in setup["options.extras_require"]
