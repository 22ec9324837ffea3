"""Fingerprints of large pages, made beside the crawl: a megabyte takes up to a second, which holds up nobody.

Patterns and parsers keep Python's lock as long as they run, so that a thread would hold up the reactor as
well: the work is a process's, and a thread only waits for it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from scrapy.http import Response, TextResponse

from scrapy_gp4c.fingerprint import Features, Read, read
from scrapy_gp4c.fingerprint.worker import ANSWER, CLASSES, FEATURES, PAGE
from scrapy_gp4c.words.normal import MAX_BODY_BYTES

LARGE_BYTES: Final = 65_536
"""Smaller bodies take at most a fifth of a second, mostly a few milliseconds: less than they would wait."""
PATIENCE_S: Final = 60.0
"""After so long a page is given up on by the process, and fingerprinted here."""
_PACKAGES: Final = str(Path(__file__).parents[2])


def is_large(response: Response, features: Features | None) -> bool:
    """Tell whether the fingerprint of a response is to be made elsewhere; the user's own features are not."""
    return len(response.body) > LARGE_BYTES and isinstance(response, TextResponse) and features in FEATURES


class Elsewhere:
    """Makes fingerprints in a process of its own, which starts with the first large page."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def read(
        self, response: TextResponse, features: Features | None, *, with_text: bool = False
    ) -> Future[Read]:
        """Return what will be read of the response, as `scrapy_gp4c.fingerprint.read` has it.

        The future raises nothing but what that raises. Pages come one after the other, in the order of the
        calls.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gp4c-fingerprint")
        try:
            encoding = response.encoding  # of the whole body, as it is for a page that is not sent
        except (LookupError, ValueError):
            encoding = "utf-8"
        return self._thread.submit(self._made, response, encoding, features, with_text)

    def close(self) -> None:
        """End the process; pages that nobody waits for any more are left."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
        self._end()

    def _made(
        self, response: TextResponse, encoding: str, features: Features | None, with_text: bool
    ) -> Read:
        kind = next(number for number, one in enumerate(CLASSES) if isinstance(response, one))
        name, body = encoding.encode(), response.body[: MAX_BODY_BYTES + 1]
        page = PAGE.pack(kind, FEATURES.index(features), with_text, len(name), len(body)) + name + body
        try:
            found = self._answer(page, with_text)
        except (OSError, ValueError):  # no room for a process, or it was killed
            self._end()
            found = None
        return read(response, features, with_text=with_text) if found is None else found

    def _answer(self, page: bytes, with_text: bool) -> Read | None:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(page)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE_S)[0]:
            raise TimeoutError
        answer = process.stdout.read(ANSWER.size)
        if len(answer) < ANSWER.size:
            raise ChildProcessError
        is_made, value, *sizes = ANSWER.unpack(answer)
        texts = [process.stdout.read(size) for size in sizes]
        if [*map(len, texts)] != sizes:
            raise ChildProcessError
        if not is_made:
            return None
        return Read(value, *(text.decode("utf-8", "surrogatepass") for text in texts if with_text))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError, ValueError):
                process.communicate()


def _start() -> Any:
    if getattr(sys, "frozen", False):  # then it is not Python that would be started
        raise ChildProcessError
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy_gp4c.fingerprint.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
