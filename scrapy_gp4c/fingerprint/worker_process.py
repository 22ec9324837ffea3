"""Process that fingerprints large pages beside the crawl: a megabyte takes up to a second.

Parsers and patterns keep Python's lock while they run, so that a thread would hold up the reactor as well. A
thread of the crawl only waits for the process's answers.

``python -m scrapy_gp4c.fingerprint.worker_process`` is that process: it reads pages from standard input, and
answers each on standard output, until the input ends.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint import Features, PageReading, main_features, read
from scrapy_gp4c.words.normal import MAX_BODY_BYTES

LARGE_BYTES: Final = 65_536
"""Smaller bodies take a few milliseconds, at most a fifth of a second: less than the wait for the process."""
TIMEOUT_S: Final = 60.0
"""Time after which the crawl gives up on the process and fingerprints the page itself."""
_PACKAGES: Final = str(Path(__file__).parents[2])
_REQUEST: Final = struct.Struct("<BB?BI")
"""Head of a page: class, features, whether texts are wanted, bytes of the encoding's name and of the body."""
_ANSWER: Final = struct.Struct("<?QII")
"""Head of an answer: whether it has a fingerprint, the fingerprint, bytes of the normal text and the text."""
_CLASSES: Final = (HtmlResponse, XmlResponse, TextResponse)
_FEATURES: Final = (None, main_features)


def is_large(response: Response, features: Features | None) -> bool:
    """Tell whether the process fingerprints a response; it cannot call the user's own features."""
    return len(response.body) > LARGE_BYTES and isinstance(response, TextResponse) and features in _FEATURES


class FingerprintProcess:
    """Crawl's side of the process, which starts with the first large page."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def read(
        self, response: TextResponse, features: Features | None, *, with_text: bool = False
    ) -> Future[PageReading]:
        """Return the future of `scrapy_gp4c.fingerprint.read` of the response, with the same errors.

        The process takes pages in the order of the calls.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gp4c-fingerprint")
        try:
            # The encoding is guessed from the whole body here: the process gets only the head of a long body.
            encoding = response.encoding
        except (LookupError, ValueError):
            encoding = "utf-8"
        return self._thread.submit(self._read, response, encoding, features, with_text)

    def close(self) -> None:
        """End the process and cancel the pages that wait."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
        self._end()

    def _read(
        self, response: TextResponse, encoding: str, features: Features | None, with_text: bool
    ) -> PageReading:
        kind = next(number for number, one in enumerate(_CLASSES) if isinstance(response, one))
        name, body = encoding.encode(), response.body[: MAX_BODY_BYTES + 1]
        head = _REQUEST.pack(kind, _FEATURES.index(features), with_text, len(name), len(body))
        try:
            reading = self._ask(head + name + body, with_text)
        except (OSError, ValueError):  # the process could not start, was killed, or took too long
            self._end()
            reading = None
        return read(response, features, with_text=with_text) if reading is None else reading

    def _ask(self, page: bytes, with_text: bool) -> PageReading | None:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(page)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], TIMEOUT_S)[0]:
            raise TimeoutError
        answer = process.stdout.read(_ANSWER.size)
        if len(answer) < _ANSWER.size:
            raise ChildProcessError
        is_read, fingerprint, *sizes = _ANSWER.unpack(answer)
        texts = [process.stdout.read(size) for size in sizes]
        if [*map(len, texts)] != sizes:
            raise ChildProcessError
        if not is_read:
            return None
        return PageReading(
            fingerprint, *(text.decode("utf-8", "surrogatepass") for text in texts if with_text)
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError, ValueError):
                process.communicate()


def _start() -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, so that Ctrl-C reaches the crawl alone."""
    if getattr(sys, "frozen", False):  # sys.executable is the frozen program then, not Python
        raise ChildProcessError
    path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy_gp4c.fingerprint.worker_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def _serve(pages: BinaryIO, answers: BinaryIO) -> None:
    """Answer pages until the input ends."""
    while len(head := pages.read(_REQUEST.size)) == _REQUEST.size:
        kind, features, with_text, name_bytes, body_bytes = _REQUEST.unpack(head)
        encoding = pages.read(name_bytes).decode("ascii")
        body = pages.read(body_bytes)
        if len(body) < body_bytes:
            return
        try:
            response = _CLASSES[kind]("http://page/", body=body, encoding=encoding)
            reading = read(response, _FEATURES[features], with_text=with_text)
            normal, text = ((one or "").encode("utf-8", "surrogatepass") for one in reading[1:])
            answer = _ANSWER.pack(True, reading.fingerprint, len(normal), len(text)) + normal + text
        except Exception:  # the crawl reads the page itself then, and logs the error
            answer = _ANSWER.pack(False, 0, 0, 0)
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(sys.stdin.buffer, sys.stdout.buffer)
