"""Foreign text in logs, errors and outputs: control characters are quoted, and a line stays one line."""

import ast
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import ExpressionError, StoreDamagedError
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger, printable
from tests.support.sources import MODULES, tree

HOSTILE = "\x1b]0;owned\x07 2026\n2026-01-01 00:00:00 [scrapy] forged \x9b1m \u2028 \u202egnp.exe \ud800"


@given(st.text())
def test_a_text_is_shown_on_one_line_without_orders_to_the_terminal(text: str) -> None:
    """Whatever it is, it can be written; letters of every script stay."""
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(sign < " " or "\x7f" <= sign < "\xa0" for sign in shown)
    assert shown.encode().decode() == shown
    assert printable("Ж é 漢 👩‍👩‍👧 %41") == "Ж é 漢 👩‍👩‍👧 %41"


def test_a_log_line_quotes_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    """Texts, exceptions and objects; numbers stay numbers, and the lines of our own errors lines."""
    logger = foreign_safe_logger("scrapy_gp4c.test")
    error = ExpressionError("bad score expression:\n  t +\n    ^")
    with caplog.at_level(logging.INFO):
        logger.info("%s %s %d %r", HOSTILE, ValueError(HOSTILE), 3, HOSTILE)
        logger.info("%s", error)
    assert len(caplog.messages[0].splitlines()) == 1
    assert "\x1b" not in caplog.text
    assert "%1B]0;owned%07 2026%0A2026-01-01" in caplog.messages[0]
    assert caplog.records[0].args[2] == 3  # type: ignore[index]
    assert caplog.messages[1] == str(error)


def test_an_error_quotes_what_it_names() -> None:
    """An error is printed by commands, scripts and logs alike."""
    assert len(str(StoreDamagedError(f"cannot read {HOSTILE}")).splitlines()) == 1
    assert str(ExpressionError("\x1b[2J\n  ^")) == "%1B[2J\n  ^"


def test_all_log_and_print_by_what_quotes() -> None:
    """A bare logger of a module, or a bare ``print`` of a command, would show foreign text as it is."""
    allowed = {"action", "monitor", "changes", "forget", "progress", "actions"}  # these quote by themselves
    sinners = []
    for name, path in MODULES.items():
        source = path.read_text()
        if name.startswith("scrapy_gp4c.") and "logging.getLogger(__name__)" in source:
            sinners.append(f"{name}: foreign_safe_logger")
        last = name.rpartition(".")[2]
        if name.startswith("scrapy_gp4c.commands") and last not in allowed and " print(" in source:
            sinners.append(f"{name}: say")
    assert sinners == []


COUNTED_NOUNS = re.compile(
    r"^ (?:(?:new|known|planned|visited|judged|other) )?"
    r"(?:page|visit|cycle|change|host|site|request|word|notice|answer|failure|checksum|bit)s\b(?!')"
)


def counts_without_singular(tree: ast.AST) -> Iterator[str]:
    """Texts in which a number, but no constant, stands before a plural."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for number, text in zip(node.values, node.values[1:], strict=False):
                if (
                    isinstance(number, ast.FormattedValue)
                    and isinstance(text, ast.Constant)
                    and COUNTED_NOUNS.match(text.value)
                    and ast.unparse(number.format_spec or ast.Constant("")) in ("''", "f','")
                    and not re.match(r"[A-Z_]+$|counted\(", ast.unparse(number.value))
                ):
                    yield ast.unparse(number.value) + text.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (part for part in node.value.split("%d")[1:] if COUNTED_NOUNS.match(part))


def test_one_page_is_no_1_pages() -> None:
    """Messages make singular and plural of every count."""
    assert counted(1, "page is", "pages are") == "1 page is"
    assert counted(2345, "word") == "2,345 words"
    own = (path for name, path in MODULES.items() if name.startswith("scrapy_gp4c"))
    assert [text for path in own for text in counts_without_singular(tree(path))] == []
    assert (
        len([*counts_without_singular(ast.parse('f"{n:,} new pages", "%d visits", f"{n} of {LEAST} pages"'))])
        == 2
    )
