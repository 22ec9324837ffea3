"""Texts as zstd frames, with a dictionary that is trained on the first of them.

Pages of a site have much in common that no single one repeats, and that a dictionary holds once for all. A
frame names its dictionary, so that every dictionary is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from scrapy_gp4c.errors import ArchiveError

try:
    import zstandard
except ImportError as error:  # raised by whoever needs it, with what to install
    _missing: ImportError | None = error
else:
    _missing = None

LEVEL: Final = 3
DICTIONARY_BYTES: Final = 65_536
SAMPLES: Final = 256
"""Texts that a dictionary is trained on; before, frames have none."""
SAMPLE_BYTES: Final = 2**21
"""Of all samples together: bounds the time of training."""
LONGEST_SAMPLE_BYTES: Final = 32_768
MOST_BYTES: Final = 2**26
"""Of one text: a frame that says more is none of ours."""


def require() -> None:
    """Raise ArchiveError, which says what to install, where zstandard is missing."""
    if _missing is not None:
        raise ArchiveError(
            "the archive of texts needs the library zstandard, which is not installed: "
            "pip install 'scrapy-gp4c[archive]', or set GP4C_ARCHIVE = False."
        )


class Compression:
    """Compresses by the newest dictionary, and decompresses by any."""

    def __init__(self, dictionaries: Sequence[bytes]) -> None:
        """Take the dictionaries, the newest last. Raises ArchiveError where zstandard is missing."""
        require()
        self._decompressors = {0: zstandard.ZstdDecompressor()}
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        for content in dictionaries:
            self.use(content)

    def use(self, content: bytes) -> int:
        """Compress by this dictionary from now on; returns its number."""
        dictionary = zstandard.ZstdCompressionDict(content)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=dictionary, write_checksum=True)
        self._decompressors[dictionary.dict_id()] = zstandard.ZstdDecompressor(dict_data=dictionary)
        return dictionary.dict_id()

    @property
    def has_dictionary(self) -> bool:
        """Tell whether there is one to compress by."""
        return len(self._decompressors) > 1

    def compressed(self, text: str) -> bytes:
        """Return a text as a frame with a checksum."""
        return self._compressor.compress(text.encode("utf-8", "surrogatepass"))

    def text(self, frame: bytes) -> str:
        """Return the text of a frame; raises ValueError for one that is damaged."""
        try:
            parameters = zstandard.get_frame_parameters(frame)
            decompressor = self._decompressors[parameters.dict_id]
            return decompressor.decompress(frame, MOST_BYTES).decode("utf-8", "surrogatepass")
        except (zstandard.ZstdError, KeyError) as error:
            raise ValueError(f"no text can be read ({error})") from error


class Training:
    """Trains a dictionary on the texts that come by, beside the crawl: zstd needs no lock of Python's."""

    def __init__(self) -> None:
        """Begin without samples."""
        self._samples: list[bytes] = []
        self._bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._trained: Future[bytes | None] | None = None

    def add(self, text: str) -> None:
        """Take a sample; with the last one training begins."""
        if self._trained is not None:
            return
        sample = text.encode("utf-8", "surrogatepass")[:LONGEST_SAMPLE_BYTES]
        self._samples.append(sample)
        self._bytes += len(sample)
        if len(self._samples) >= SAMPLES or self._bytes >= SAMPLE_BYTES:
            self._thread = ThreadPoolExecutor(1, "gp4c-archive")
            self._trained = self._thread.submit(train, self._samples)
            self._samples = []

    def take(self) -> bytes | None:
        """Return the dictionary, once, when it is there."""
        if self._trained is None or not self._trained.done():
            return None
        found = self._trained.result()
        self.close()
        return found

    def close(self) -> None:
        """Begin anew; what is under way is waited for, at most a second or two."""
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = self._trained = None


def train(samples: Sequence[bytes]) -> bytes | None:
    """Return a dictionary for texts like these; None where they have too little in common."""
    size = min(DICTIONARY_BYTES, sum(map(len, samples)) // 8)
    try:
        trained: bytes = zstandard.train_dictionary(size, list(samples), k=200, d=8).as_bytes()
    except zstandard.ZstdError:
        return None
    return trained
