"""Dotted paths: what they lead to, and where they lead nowhere."""

from __future__ import annotations

import pytest

from scrapy_gp4c.scoring.dotted_path import NotCallableError, is_dotted, load_callable

NUMBER = 7


def own() -> str:
    """A callable of a user's own."""
    return "own"


@pytest.mark.parametrize(
    ("text", "dotted"),
    [
        ("package.module.name", True),
        ("a.b", True),
        ("a", False),
        ("0.5", False),
        ("a.b ", False),
        ("t * X", False),
    ],
)
def test_how_dotted_paths_look(text: str, dotted: bool) -> None:
    """Names with at least one dot between them, and nothing else."""
    assert is_dotted(text) == dotted


def test_a_callable_is_loaded() -> None:
    """The object itself."""
    assert load_callable(f"{__name__}.own") is own


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("no_such_module.name", ImportError, "no_such_module"),
        (f"{__name__}.nothing", ImportError, "nothing"),
        (f"{__name__}.NUMBER", NotCallableError, "int"),
    ],
)
def test_paths_that_lead_to_no_callable(path: str, error: type[Exception], said: str) -> None:
    """One error for a path that leads nowhere, another for what cannot be called."""
    with pytest.raises(error, match=said):
        load_callable(path)
