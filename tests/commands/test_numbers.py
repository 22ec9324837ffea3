"""Counts on a command line."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.commands.numbers import positive


@given(st.integers())
def test_counts_begin_at_one(number: int) -> None:
    """Whole numbers come back; the others are told what was expected and found."""
    if number >= 1:
        assert positive(str(number)) == number
    else:
        with pytest.raises(ArgumentTypeError, match=f"at least 1; found '{number}'"):
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
