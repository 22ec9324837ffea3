"""The house: every command that the documentation shows can be given, and the tutorial works word by word."""

import argparse
import importlib
import itertools
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker
from scrapy.settings import Settings

from scrapy_gp4c.commands import Command
from scrapy_gp4c.commands.actions import ACTIONS
from scrapy_gp4c.crawling import promises
from scrapy_gp4c.store.records import PromiseCounts
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


def service_commands() -> list[tuple[str, str]]:
    """Commands of `scrapy` that units of systemd, pods and containers run, with their documents."""
    commands_of_services = []
    for path in (*DOCUMENTS.values(), ROOT / "compose.yaml"):
        text = path.read_text("utf-8")
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if path.suffix == ".md" else [text]:
            commands_of_services += [(path.name, command) for command in run_by(yaml.safe_load(block))]
        for command in re.findall(r"^ExecStart=\S*?/(scrapy .*)", text, re.MULTILINE):
            commands_of_services.append((path.name, command.replace("%%", "%")))
    return commands_of_services


def run_by(node: Any) -> Iterator[str]:
    """Commands of `scrapy` in a description of containers."""
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else [shlex.join(map(str, node)), *node]:
            yield from run_by(value)
    elif str(node).startswith("scrapy "):
        yield re.sub(r"\$\{\w+:-(\w+)\}", r"\1", str(node))


def test_settings_that_services_give_exist() -> None:
    """Units, pods and containers name settings of ours that the page of settings has."""
    words = [
        (name, word) for name, command in service_commands() for word in re.findall(r"GP4C_\w+", command)
    ]
    known = set(re.findall(r"^\| `(GP4C_\w+)`", DOCUMENTS["settings.md"].read_text("utf-8"), re.MULTILINE))
    assert {name for name, _ in service_commands()} >= {"commands.md", "many-machines.md", "compose.yaml"}
    assert [(name, word) for name, word in words if word not in known] == []


def test_commands_of_scrapy_gp4c_are_understood() -> None:
    """Their options exist and take such values."""
    services = [one for one in service_commands() if one[1].startswith("scrapy gp4c ")]
    assert len(services) >= 4
    command = Command()
    command.settings = Settings()
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    for name, text in [*gp4c_commands(), *services]:
        try:
            arguments = parser.parse_args(words_of(text)[2:])
        except SystemExit:
            pytest.fail(f"{name}: {text}")
        assert arguments.action in ACTIONS


class Understood(Exception):  # noqa: N818
    """The arguments were read."""


def training_commands() -> list[tuple[str, str]]:
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

    def parse(parser: argparse.ArgumentParser, *arguments_: Any) -> Any:
        real(parser, *arguments_)
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


def test_commands_of_dask_and_of_containers_are_understood() -> None:
    """Schedulers and workers have these options; services, profiles, variables and extras exist."""
    text = (ROOT / "compose.yaml").read_text("utf-8")
    services = yaml.safe_load(text)["services"]
    lines = [line for name in DOCUMENTS for line in commands(name, "dask")]
    lines += [one["command"] for one in services.values() if one["command"].startswith("dask ")]
    assert len(lines) >= 4
    for line in lines:
        program, *arguments = shlex.split(line, comments=True)[1:]
        {"scheduler": dask_scheduler, "worker": dask_worker}[program].main.make_context(program, arguments)
    named = {
        word
        for line in commands("many-machines.md", "docker compose")
        for word in re.split(r"[ =]", line.partition("  #")[0])
        if word.isalpha()
    } - {"docker", "compose", "up", "run"}
    assert named == services.keys() | {
        profile for one in services.values() for profile in one.get("profiles", ())
    }
    exported = {
        name for line in commands("many-machines.md", "export") for name in re.findall(r"(\w+)=", line)
    }
    assert set(re.findall(r"\$\{(\w+):-", text)) <= exported
    extras = re.findall(r"/src\[([\w,]+)\]", (ROOT / "Dockerfile").read_text("utf-8"))
    assert len(extras) == 1
    assert set(extras[0].split(",")) <= {*metadata("scrapy-gp4c").get_all("Provides-Extra")}


def test_the_warning_of_promises_is_that_of_the_code() -> None:
    """The page on being told shows the line for a budget that is too small."""
    counts: PromiseCounts = {
        "pages": 900, "late": 52, "latest_s": 6 * 3600.0, "needed": 340, "budget": 210, "missed": 130,
    }  # fmt: skip
    line = promises.too_small_warning(counts)
    assert line is not None
    shown = DOCUMENTS["being-told.md"].read_text("utf-8")
    assert f"```\n{line.partition(' Raise')[0]}\n```" in shown


def test_there_are_commands_to_hold() -> None:
    """Every action is shown, and what is shown is found."""
    words_of_commands = [text.split() for _, text in gp4c_commands()]
    shown = {" ".join(words[2:4]) if words[2] == "store" else words[2] for words in words_of_commands}
    assert shown == set(ACTIONS)
    assert len(training_commands()) > 20


def without_times(text: str) -> list[str]:
    """Sorted lines of an output, without times, directories and the number of the store."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\S+(/\.scrapy/\S+)( \(\w+\))?", r"\1", text)
    return sorted(text.strip().splitlines())


def shown_examples(name: str) -> list[tuple[list[str], str]]:
    """Commands and output of each block of a page that begins with ``$``; those that crawl come last."""
    text = DOCUMENTS[name].read_text("utf-8")
    blocks = re.findall(r"^```\n((?:\$ [^\n]*\n)+)(.*?)^```", text, re.DOTALL | re.MULTILINE)
    examples = [(lines.removeprefix("$ ").strip().split("\n$ "), output) for lines, output in blocks]
    return sorted(examples, key=lambda example: len(example[0]))


@pytest.mark.slow
def test_the_tutorial_works_word_by_word(tmp_path: Path) -> None:
    """Its commands print what the page shows, and those of the page of commands, too, on its store."""
    text = DOCUMENTS["tutorial.md"].read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shop, spider, settings = (code for language, code in blocks if language == "python")
    shown = [block.strip() for language, block in blocks if not language]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}

    def run(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def run_all(line: str) -> str:
        """Output of a line of a shell, which may be a loop."""
        loop = re.fullmatch(r"for day in ([\d ]+); do (.*); done", line)
        return run(line) if loop is None else "".join(run(loop[2]) for _ in loop[1].split())

    with socket.socket() as probe:  # the page names one port, which another program may have
        if probe.connect_ex(("127.0.0.1", 8642)) == 0:
            pytest.skip("port 8642 is in use")
    run("scrapy startproject shop .")
    (tmp_path / "site.py").write_text(shop)
    (tmp_path / "shop" / "spiders" / "offers.py").write_text(spider)
    with (tmp_path / "shop" / "settings.py").open("a") as file:
        file.write(settings)
    server = subprocess.Popen(
        [sys.executable, "site.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith(b"The shop is open")
        crawls, status = shown[1].splitlines()
        run_all(crawls)
        assert without_times(run(status)) == without_times(shown[2])
        for command, output in itertools.pairwise(shown[3:]):
            if command.startswith("scrapy gp4c") and not output.startswith("scrapy"):
                assert without_times(run(command)) == without_times(output)
        assert "7 judged visits found 6 changes" in run("scrapy gp4c why offers http://127.0.0.1:8642/6")
        examples = shown_examples("commands.md")
        assert len(examples) >= 5
        for lines, output in examples:
            assert without_times([run_all(line) for line in lines][-1]) == without_times(output), lines
        run("scrapy gp4c monitor offers --every 0.1s --cycles 1")
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_learning_ends_as_its_page_shows(tmp_path: Path) -> None:
    """The history and the options that the page names give the end that it shows."""
    text = DOCUMENTS["learning.md"].read_text("utf-8")
    shown = re.search(r"^```\n(score = .*?)^```", text, re.DOTALL | re.MULTILINE)
    history = re.search(r"`python -m (training\.synthetic [^`]+)`", text)
    options = re.search(r"`(--population [^`]+)`, which takes half a minute", text)
    assert shown is not None
    assert history is not None
    assert options is not None
    for words in (history[1], f"training.learn history.tsv.gz --output score.json {options[1]}"):
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(words)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(shown[1].rstrip())
