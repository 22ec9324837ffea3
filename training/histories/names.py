"""Page and site names in compressed blocks."""

import math
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

BATCH: Final = 8_192
"""Default number of items in a batch: lines of a history of 57 cycles then take about 0.5 MB."""

UNDECODED: Final = "surrogateescape"
"""Error handler for decoding names: paths may be any bytes, and must survive a round trip."""


def batches(items: Iterable[Any], size: int = BATCH, most_bytes: float = math.inf) -> Iterator[list[Any]]:
    """Yield lists of at most ``size`` items; a list also ends once its items have ``most_bytes`` bytes."""
    batch: list[Any] = []
    bytes_read = 0
    for item in items:
        batch.append(item)
        bytes_read += len(item) if most_bytes < math.inf else 0
        if len(batch) >= size or bytes_read >= most_bytes:
            yield batch
            batch, bytes_read = [], 0
    if batch:
        yield batch


class PackedNames(Sequence[str]):
    """Names in compressed blocks (URLs and paths to a fifth or less), made into str on demand.

    Access in rising order unpacks every block once.
    """

    def __init__(self, names: Iterable[str | bytes] = ()) -> None:
        """``names``: str, or bytes in UTF-8."""
        self._blocks: list[bytes] = []
        self._ends: list[int] = []  # position after the last name of each block
        self._chosen: npt.NDArray[np.int64] | None = None  # positions of a selection; None: all
        self._unpacked: tuple[int, list[bytes]] = -1, []
        self.extend(names)

    def extend(self, names: Iterable[str | bytes]) -> None:
        """Append names; not allowed on a selection that `take` returned."""
        assert self._chosen is None
        for batch in batches(n if isinstance(n, bytes) else n.encode("utf-8", UNDECODED) for n in names):
            lengths = np.fromiter(map(len, batch), np.uint32, len(batch))
            self._blocks.append(zlib.compress(lengths.tobytes() + b"".join(batch), 1))
            self._ends.append(len(batch) + (self._ends[-1] if self._ends else 0))

    def take(self, pages: npt.NDArray[Any] | slice) -> "PackedNames":
        """Names of these positions (or of a bool mask); the blocks are shared."""
        selection = PackedNames()
        selection._blocks, selection._ends = self._blocks, self._ends
        selection._chosen = (np.arange(len(self)) if self._chosen is None else self._chosen)[pages]
        return selection

    def raw(self, i: int) -> bytes:
        """Name i, not decoded; IndexError beyond the last."""
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        position = i % len(self) if self._chosen is None else int(self._chosen[i])
        block = bisect_right(self._ends, position)
        if self._unpacked[0] != block:
            self._unpacked = block, self._unpack(block)
        return self._unpacked[1][position - self._ends[block]]  # counted from the block's end

    def _unpack(self, block: int) -> list[bytes]:
        count = self._ends[block] - (self._ends[block - 1] if block else 0)
        content = zlib.decompress(self._blocks[block])
        ends = (4 * count + np.cumsum(np.frombuffer(content, np.uint32, count), dtype=np.int64)).tolist()
        return [content[start:end] for start, end in zip([4 * count, *ends], ends, strict=False)]

    def __len__(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> "PackedNames": ...
    def __getitem__(self, i: int | slice) -> "str | PackedNames":
        if isinstance(i, slice):
            return self.take(i)
        return self.raw(i).decode("utf-8", UNDECODED)
