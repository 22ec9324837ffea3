"""Compressed bodies that lack their end are errors, whatever of them can be decoded."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest

from scrapy_gp4c.middleware import MAX_BYTES_AT_ONCE, MAX_MEMBERS, lacks_end, zstd
from tests.support.loopback import Pages, Site, crawl, html, outcomes

CODECS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"br": brotli.compress,
    b"zstd": zstd.compress,
}
TEXT = html(" ".join(f"word{number * 7919 % 1000}" for number in range(2000))).encode()


@pytest.mark.parametrize("encoding", CODECS)
def test_a_stream_that_is_cut_anywhere_lacks_its_end(encoding: bytes) -> None:
    """The whole does not, nor do several members or padding behind gzip's end; of a part it is not known."""
    stream = CODECS[encoding](TEXT)
    assert lacks_end(stream, [encoding]) is False
    assert lacks_end(stream, [encoding], len(TEXT) - 1) is None
    for size in [1, 20, len(stream) - 1, *random.Random(1).sample(range(1, len(stream)), 20)]:
        assert lacks_end(stream[:size], [encoding]) or size < 3, size
    if encoding == b"gzip":
        assert not lacks_end(stream + stream, [encoding])
        assert not lacks_end(stream + bytes(7), [encoding])
        assert lacks_end(stream + stream[:-3], [encoding])


@pytest.mark.parametrize("encoding", [b"gzip", b"zstd"])
def test_many_members_cost_no_square(encoding: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first of some thousands are looked at; a few are checked to the last."""
    looks: list[int] = []
    kind: Any = zlib if encoding == b"gzip" else zstd
    name = "decompressobj" if encoding == b"gzip" else "ZstdDecompressor"
    make = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *given, **more: (looks.append(1), make(*given, **more))[1])
    member = CODECS[encoding](b"a")
    assert not lacks_end(member * 5_000, [encoding])
    assert len(looks) <= MAX_MEMBERS
    assert lacks_end(member * 50 + member[:-3], [encoding])


def test_what_cannot_be_known_is_no_error() -> None:
    """Unknown or several encodings, plain bodies, and streams that are none."""
    for body, encodings in (
        (TEXT, []),
        (TEXT, [b"identity"]),
        (TEXT, [b"gzip"]),
        (TEXT, [b"compress"]),
        (gzip.compress(TEXT)[:-9], [b"gzip, br"]),
        (b"", [b"gzip"]),
    ):
        assert not lacks_end(body, encodings)


@pytest.mark.slow
async def test_a_crawl_takes_truncated_pages_for_errors(tmp_path: Path) -> None:
    """Whole, cut, whole, cut: the copy stays what it was, also of a page that is read beside the reactor."""
    cut = {"at": 0}

    def page(encoding: bytes, text: bytes = TEXT) -> Callable[[Any], bytes]:
        def render(request: Any) -> bytes:
            request.setHeader(b"Content-Encoding", encoding)
            stream = CODECS[encoding](text)
            return stream[: len(stream) - cut["at"]]

        return render

    site = Site({f"/{encoding.decode()}": page(encoding) for encoding in CODECS})
    site.pages["/large"] = page(b"gzip", TEXT + b"<p>" + b"word " * MAX_BYTES_AT_ONCE)
    settings = {"GP4C_BUDGET": 1.0, "RETRY_ENABLED": False, "ROBOTSTXT_OBEY": False}
    try:
        for cycle, cut["at"] in enumerate((0, 40, 0, 200), 1):
            await crawl(Pages, tmp_path, settings, site=site)
            expected = ("first", "error", "unchanged", "error")[cycle - 1]
            assert {tuple(seen) for seen in outcomes(tmp_path, cycle).values()} == {(expected,)}
    finally:
        await site.close()


@pytest.mark.slow
def test_a_brotli_bomb_is_never_held() -> None:
    """A few kB that unpack to 256 MiB: a chunk at a time, up to the limit."""
    compressor = brotli.Compressor()
    packed = b"".join(compressor.process(bytes(2**24)) for _ in range(16)) + compressor.finish()
    assert len(packed) < 2**16
    tracemalloc.start()
    assert not lacks_end(packed, [b"br"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22
    assert lacks_end(packed[:100], [b"br"])
