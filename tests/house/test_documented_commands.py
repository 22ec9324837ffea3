"""The house: every command that the documentation shows can be given, and the tutorial works word by word."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from scrapy.settings import Settings

from scrapy_gp4c.commands import ACTIONS, Command
from tests.support.sources import ROOT

DOCUMENTS: Final = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
OPTIONAL: Final = re.compile(r"\[([^\[\]]*)\]")


def commands(name: str, program: str) -> list[str]:
    """The lines of code blocks that begin with a program."""
    text = DOCUMENTS[name].read_text("utf-8").replace("\\\n", " ")
    fenced = "".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    indented = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    lines = (line.strip().removeprefix("$ ") for line in (fenced + "\n" + indented).splitlines())
    return [line for line in lines if line.startswith(program + " ")]


def spelled_out(command: str) -> Iterator[str]:
    """A command without its optional parts, and with all of them, the first choice of each."""
    command = command.partition("  #")[0]
    yield OPTIONAL.sub("", command)
    yield OPTIONAL.sub(lambda part: part[1].partition("|")[0], command).replace("|dir", "")


def words_of(text: str) -> list[str]:
    """What a shell would make of it, with values for what a synopsis names."""
    values = {"N": "3", "B": "0.1", "F": "t*X", "SHARE": "10%", "TIME": "1h", "TEXT": "news"}
    return [values.get(word, word) for word in shlex.split(text)]


def gp4c_commands() -> list[tuple[str, str]]:
    """All commands of ``scrapy gp4c``, with their documents."""
    return [
        (name, text)
        for name in DOCUMENTS
        for line in commands(name, "scrapy gp4c")
        for text in dict.fromkeys(spelled_out(line))
        if "ACTION" not in text
    ]


def test_commands_of_scrapy_gp4c_are_understood() -> None:
    """Their options exist and take such values."""
    for name, text in gp4c_commands():
        command = Command()
        command.settings = Settings()
        parser = argparse.ArgumentParser()
        command.add_options(parser)
        try:
            arguments = parser.parse_args(words_of(text)[2:])
        except SystemExit:
            pytest.fail(f"{name}: {text}")
        assert arguments.action in ACTIONS


class Understood(Exception):  # noqa: N818
    """The arguments were read."""


def training_commands() -> list[tuple[str, str]]:
    """All commands of the training package."""
    return [
        (name, text)
        for name in DOCUMENTS
        for line in commands(name, "python -m")
        if line.split()[2].startswith("training.")
        for text in dict.fromkeys(spelled_out(line))
    ]


def test_commands_of_training_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their parsers take all options that the documents show."""
    real = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, *given: Any) -> Any:
        real(parser, *given)
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    for name, text in training_commands():
        _, _, module, *arguments = words_of(text)
        try:
            importlib.import_module(module).main(arguments)
        except Understood:
            continue
        except SystemExit:
            pass
        pytest.fail(f"{name}: {text}")


def test_there_are_commands_to_hold() -> None:
    """Every action is shown, and what is shown is found."""
    words_of_commands = [text.split() for _, text in gp4c_commands()]
    shown = {" ".join(words[2:4]) if words[2] == "store" else words[2] for words in words_of_commands}
    assert shown == set(ACTIONS)
    assert len(training_commands()) > 20


class _Quotes(BaseHTTPRequestHandler):
    """The site of the tutorial, three pages long."""

    def do_GET(self) -> None:
        """Answer with a page."""
        if self.path == "/robots.txt":
            self.send_error(404)
            return
        number = int(self.path.strip("/") or 1)
        link = f'<li class="next"><a href="/{number + 1}">next</a></li>' if number < 3 else ""
        body = f"<html><body><p>{'words of page ' * 9}{number}</p>{link}</body></html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_the_tutorial_works_word_by_word(tmp_path: Path) -> None:
    """Its project, its spider, its settings and its commands, on a site like its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Quotes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}/"
    text = DOCUMENTS["tutorial.md"].read_text("utf-8").replace("https://quotes.toscrape.com/", site)
    spider, settings = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    lines = re.findall(r"^scrapy .*$", text, re.MULTILINE)
    assert [line.split()[1] for line in lines[:3]] == ["startproject", "crawl", "crawl"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    printed = {}
    for line in lines:
        words = [*shlex.split(line), *(["--cycles", "1"] if "monitor" in line else [])]
        words = ["0.1s" if word == "1h" else word for word in words]
        if words[1] != "startproject" and not printed.get("changed"):
            (tmp_path / "quotes" / "spiders" / "quotes.py").write_text(spider)
            with (tmp_path / "quotes" / "settings.py").open("a") as file:
                file.write(settings + "DOWNLOAD_DELAY = 0\n")
            printed["changed"] = "yes"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stderr)
        printed[line] = done.stdout
    server.shutdown()
    assert re.search(r"^ +2 .* 3 ", printed["scrapy gp4c status quotes"], re.MULTILINE)
    assert "cycle 3 would visit 3 of 3 pages" in printed["scrapy gp4c plan quotes --urls"]
    assert "in warm-up" in printed[f"scrapy gp4c why quotes {site}"]
