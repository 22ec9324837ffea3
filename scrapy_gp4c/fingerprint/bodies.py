"""Telling by its bytes alone that a page has the fingerprint that it had: most pages of a revisit do.

The sum of a body is seeded with the fingerprint that was made of it, so that it says both at once: a body
that comes to the sum that is kept, seeded with the fingerprint that is kept, has just this fingerprint,
whatever visits the two were kept by.
"""

from __future__ import annotations

import inspect
import unicodedata
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Final

import xxhash
from scrapy.http import Response, TextResponse

from scrapy_gp4c.fingerprint import Features, main_features, sketches, text
from scrapy_gp4c.words import masking, normal, shingles

OURS: Final = (None, main_features)
"""Features whose every source is known: the body, and how it is read."""
_RULES: Final[tuple[ModuleType, ...]] = (text, sketches, normal, masking, shingles)
_READERS: Final = ("scrapy", "w3lib", "selectolax")


@cache
def _rules() -> bytes:
    """What stands for the rules of the fingerprint and the programs that read pages: another, other sums."""
    told = [f"{name} {metadata.version(name)}" for name in _READERS] + [unicodedata.unidata_version]
    for module in _RULES:
        try:
            told.append(inspect.getsource(module))
        except OSError:  # installed without sources: then the release alone tells
            told.append(metadata.version("scrapy-gp4c"))
    return xxhash.xxh3_128_digest("\n".join(told).encode())


def body_sum(response: Response, features: Features | None, fingerprint: int) -> int | None:
    """Return the sum of a body, uint64, for the fingerprint that was made, or may be made, of it (uint64).

    It is made of the body, its Content-Type, the class of the response and the rules of the fingerprint. None
    for the user's own features, which may look at anything.
    """
    if features not in OURS:
        return None
    total = xxhash.xxh3_64(_rules(), seed=fingerprint)
    given = getattr(response, "_encoding", None)  # by who made the response, if anybody
    kind = f"{type(response).__name__} {given} {OURS.index(features)} {isinstance(response, TextResponse)}"
    content_type = response.headers.get(b"Content-Type") or b""
    total.update(f"{kind} {len(content_type)} ".encode() + content_type)
    total.update(response.body)
    return total.intdigest()
