"""Checksums of bodies: a page whose body is the one of its last visit keeps its fingerprint unread.

The checksum of a body is seeded with the fingerprint of that body. A body whose checksum, seeded with the
stored fingerprint, equals the stored checksum has therefore just this fingerprint, whatever visits stored the
two.
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

from scrapy_gp4c.fingerprint import Features, answers, main_features, simhash_words, sketches, text
from scrapy_gp4c.words import masking, normal, shingles

_KNOWN_FEATURES: Final = (None, main_features, simhash_words)
_RULES: Final[tuple[ModuleType, ...]] = (answers, text, sketches, normal, masking, shingles)
_READERS: Final = ("scrapy", "w3lib", "selectolax", "lxml")


@cache
def rules_digest() -> bytes:
    """Digest of the rules, and of the libraries that read pages: other rules make other checksums."""
    versions = [f"{name} {metadata.version(name)}" for name in _READERS]
    versions += [unicodedata.unidata_version, str(answers.READS_PDF)]
    for module in _RULES:
        try:
            versions.append(inspect.getsource(module))
        except OSError:  # installed without sources
            versions.append(metadata.version("scrapy-gp4c"))
    return xxhash.xxh3_128_digest("\n".join(versions).encode())


def body_sum(response: Response, features: Features | None, fingerprint: int) -> int | None:
    """Return the checksum of a body, uint64, seeded with its fingerprint, uint64.

    It covers the body, the Content-Type, the class of the response and the rules of the fingerprint. None for
    the user's own features, which may look at anything.
    """
    if features not in _KNOWN_FEATURES:
        return None
    total = xxhash.xxh3_64(rules_digest(), seed=fingerprint)
    encoding = getattr(response, "_encoding", None)  # set by a middleware, else guessed from header and body
    index = _KNOWN_FEATURES.index(features)
    kind = f"{type(response).__name__} {encoding} {index} {isinstance(response, TextResponse)}"
    content_type = response.headers.get(b"Content-Type") or b""
    total.update(f"{kind} {len(content_type)} ".encode() + content_type)
    total.update(response.body)
    return total.intdigest()
