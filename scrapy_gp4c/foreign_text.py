"""Texts for logs and terminals: counts with their nouns, and foreign text (of sites, files) made safe."""

import logging
from typing import Final

_ORDERS: Final = (
    *range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029,  # controls and line ends
    0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # order of writing: shows other text
    *range(0xD800, 0xE000),  # halves of characters: no output can write them
)  # fmt: skip
_QUOTED: Final = {
    code: "".join(f"%{byte:02X}" for byte in chr(code).encode("utf-8", "surrogatepass")) for code in _ORDERS
}


def printable(text: str) -> str:
    """Return a text with its control characters percent-encoded, so that no terminal or log obeys them."""
    return text if text.isprintable() else text.translate(_QUOTED)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 page`` or ``2,345 pages``; ``plural``: words after other numbers than 1, None: noun + s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def foreign_safe_logger(name: str) -> logging.Logger:
    """Return a logger that percent-encodes control characters in the arguments of its lines."""
    logger = logging.getLogger(name)
    logger.addFilter(_quote_arguments)
    return logger


def _quote_arguments(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_quoted, record.args))
    return True


def _quoted(value: object) -> object:
    """Return the text of a value, made `printable`; the value itself if it is a number or needs no change."""
    if isinstance(value, int | float):
        return value
    text = str(value)
    lines = text.split("\n") if getattr(value, "has_lines", False) else [text]  # those of an error are ours
    safe = "\n".join(map(printable, lines))
    return value if safe == text else safe
