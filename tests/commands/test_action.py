"""Output and arguments of all commands: tables for the terminal, counts from 1 on."""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings

from scrapy_gp4c.commands import Command
from scrapy_gp4c.commands.action import positive, table_lines, width_of
from scrapy_gp4c.commands.actions import ACTIONS, run_action
from scrapy_gp4c.commands.learning import TrainingCommand


def test_commands_of_scrapy_load_none_of_the_actions() -> None:
    """Scrapy loads the class for `scrapy list` too: with all actions that took half a second."""
    code = "import sys, scrapy_gp4c.commands; print(*(n for n in sys.modules if n.startswith('scrapy_gp4c')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["scrapy_gp4c", "scrapy_gp4c.commands"]


def test_wide_letters_take_two_columns() -> None:
    """Columns stay aligned with Chinese, Korean, full width and combining letters."""
    texts = ("abc", "\u4e2d\u6587", "\ud55c", "\uff21", "e\u0301")
    assert [width_of(text) for text in texts] == [3, 4, 2, 2, 1]
    lines = table_lines([("site", "pages", "URL"), ("\u4e2d\u6587", "1", "a"), ("e\u0301", "22", "b")], 1)
    assert [width_of(line) for line in lines] == [len("site  pages  URL"), *[len("site  pages  a")] * 2]


@given(st.integers() | st.just(10**30))
def test_counts_begin_at_one(number: int) -> None:
    """Whole numbers come back; the others are told what was expected and found."""
    if 1 <= number < 2**31:
        assert positive(str(number)) == number
    else:
        limit = f"at least 1; found '{number}'" if number < 1 else f"at most {2**31 - 1}; found"
        with pytest.raises(ArgumentTypeError, match=limit):
            positive(str(number))


@pytest.mark.parametrize("text", ["0", "-3", "1.5", "many", ""])
def test_a_parser_ends_with_one_line_for_what_is_no_count(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of argparse, which names the option and the text."""
    parser = ArgumentParser()
    parser.add_argument("--cycles", type=positive)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args([f"--cycles={text}"])
    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "argument --cycles: " in last
    assert repr(text) in last


def test_counts_begin_with_one_and_help_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every option that takes a count refuses 0 and less alike; no line of help is longer than 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    counts = 0
    for name, action in ACTIONS.items():
        if isinstance(action, TrainingCommand):
            continue
        command, parser = Command(), argparse.ArgumentParser()
        command.settings = Settings()
        command.add_options(parser)
        assert max(map(len, parser.format_help().splitlines())) <= 80
        with pytest.raises(SystemExit):
            parser.parse_args([*name.split(), "--help"])
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80, name
        for option in {*re.findall(r"(--\w+) N\b", text)} - {"--seed"}:
            counts += 1
            for number in ("0", "-1", "-3"):
                with pytest.raises(SystemExit):
                    parser.parse_args([*name.split(), "news", f"{option}={number}"])
                assert f"expected a count of at least 1; found '{number}'" in capsys.readouterr().err, name
        for budget in ("0", "-1", "1.5", "x") if "--budget B" in text else ():
            counts += 1
            with pytest.raises(SystemExit):
                parser.parse_args([*name.split(), "news", "URL", f"--budget={budget}"])
            assert f"such as 0.05, or a count of at least 1; found '{budget}'" in capsys.readouterr().err
    assert counts >= 15


COMPLETED = {
    "st": {"status", "stores", "store"},
    "store ": {"verify", "backup", "restore", "compact"},
    "status ": {"news", "nightly"},
    "store verify ni": {"nightly"},
    "status --c": {"--cycles"},
    "store backup news --": {"--keep"},
    "status news ": set(),
    "learn --": set(),
}
"""Words after ``scrapy gp4c`` -> what the shell proposes for the last of them."""


@pytest.mark.parametrize("program", ["bash", "zsh"])
def test_a_shell_completes_actions_spiders_and_options(
    program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the function that the action prints; the spiders are those that Scrapy lists."""
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    run_action(Settings(), argparse.Namespace(action="completion", spider=None, json=False))
    lines = [capfd.readouterr().out, "scrapy() { echo news; echo nightly; }"]
    if program == "zsh":  # as bashcompinit calls it
        lines.append("setopt KSH_ARRAYS SH_WORD_SPLIT BASH_REMATCH 2>/dev/null")
    for words in COMPLETED:
        typed = shlex.join(["scrapy", "gp4c", *words.split(" ")])
        lines.append(f"COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()")
        lines.append('_scrapy_gp4c; echo "${COMPREPLY[*]}"')
    done = subprocess.run([program, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    proposed = {
        typed: {word for word in line.split() if word.startswith(typed.rpartition(" ")[2])}  # zsh's own part
        for typed, line in zip(COMPLETED, done.stdout.splitlines(), strict=True)
    }
    assert proposed == COMPLETED, done.stderr
