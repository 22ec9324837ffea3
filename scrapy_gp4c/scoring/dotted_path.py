"""Callables named by a dotted path: a score function, a fitness or a policy of a user's own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any


class NotCallableError(TypeError):
    """A dotted path leads to something that cannot be called; the message is the name of its type."""


def is_dotted(text: str) -> bool:
    """Tell whether a text is written like the path of something in a module: ``package.module.name``."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text) is not None


def load_callable(path: str) -> Callable[..., Any]:
    """Import the callable that a dotted path names.

    Raises ImportError where the path leads nowhere, NotCallableError where it leads to something else; what
    the imported module itself raises passes on.
    """
    module, _, name = path.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ImportError(str(error)) from error
    if not callable(found):
        raise NotCallableError(type(found).__name__)
    return found
