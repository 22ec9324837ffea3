"""Worker process that fingerprints large pages, because a page of a megabyte takes up to a second.

Parsers and regular expressions hold the GIL, so that they would block the reactor from a thread as well. Here
a thread of the crawl does nothing but wait for the process's answers.

``python -m scrapy_gp4c.fingerprint.worker_process`` is that process: it reads pages from standard input, and
answers each on standard output, until the input ends.
"""

import os
import selectors
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint import (
    ComparedPart,
    CutBody,
    Features,
    PageReading,
    cut_body,
    main_features,
    simhash_words,
    watched_features,
    with_cut_body,
)
from scrapy_gp4c.fingerprint.answers import MAX_PDF_BYTES, PDF_MAGIC, is_text
from scrapy_gp4c.fingerprint.copy_notes import CopyState, read_and_compare
from scrapy_gp4c.fingerprint.text import MAX_SOURCE_BYTES
from scrapy_gp4c.foreign_text import foreign_safe_logger

logger = foreign_safe_logger(__name__)

LARGE_BYTES: Final = 65_536
"""Size from which on pages go to the process; smaller ones take milliseconds, less than the wait for it."""
TIMEOUT_S: Final = 60.0
"""Time after which the crawl gives up on the process: the page's bytes are compared then."""
CPU_S: Final = 10
"""Processor time after which the process gives up on a page: its bytes are compared then."""
NO_MEMORY: Final = 3
"""Exit code of the process for a page that it has not enough memory for."""
_PACKAGES: Final = str(Path(__file__).parents[2])
_SIZE: Final = struct.Struct("<I")
"""Head of a message: its size in bytes; 0: a message with the error of a page follows."""
_CLASSES: Final = (HtmlResponse, XmlResponse, TextResponse, Response)
_FEATURES: Final = (None, main_features, simhash_words, watched_features)


def needs_process(response: Response, features: Features | None) -> bool:
    """Whether the worker process is to fingerprint a response: a large text, or a PDF of any size.

    A small PDF may unpack to much. False if `features` is the user's, which the process cannot call.
    """
    if features not in _FEATURES:
        return False
    body = response.body
    return body.startswith(PDF_MAGIC) or (len(body) > LARGE_BYTES and is_text(response))


class FingerprintProcess:
    """The crawl's access to the worker process, which starts with the first large page."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._was_killed = False

    def read(
        self,
        response: Response,
        features: Features | None,
        *,
        with_text: bool = False,
        copy: CopyState | None = None,
    ) -> Future[PageReading]:
        """Have the process run `read_and_compare`, with the same arguments, on the response.

        The process takes pages in the order of the calls. The future raises TimeoutError for a page that
        takes too long, ChildProcessError for one that lacks memory or ends two processes (it might end the
        crawl as well), and RuntimeError with the text of any exception in the process.
        """
        self._thread = self._thread or ThreadPoolExecutor(1, "gp4c-fingerprint")
        page = _page(response, _FEATURES.index(features), with_text, copy)
        return self._thread.submit(self._read, response, page)

    def cut(
        self, response: Response, features: Features | None, watch: tuple[str, ...], ignore: tuple[str, ...]
    ) -> Future[ComparedPart]:
        """Have the process run `scrapy_gp4c.fingerprint.compared_part`, with the same arguments.

        The future raises as that of `read`.
        """
        self._thread = self._thread or ThreadPoolExecutor(1, "gp4c-fingerprint")
        page = _page(response, parts=(watch, ignore))
        return self._thread.submit(self._cut, response, features, page)

    def _cut(self, response: Response, features: Features | None, page: "_Page") -> ComparedPart:
        answer = self._answer(page, response.body)
        cut = cut_body(response, *page.parts) if answer is None else _CUT.decode(answer)
        return with_cut_body(response, features, cut)

    def close(self) -> None:
        """End the process and cancel the futures of pages that wait; later calls start a new process."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
        self._end()

    def _read(self, response: Response, page: "_Page") -> PageReading:
        answer = self._answer(page, response.body)
        if answer is None:
            features, with_text = _FEATURES[page.features], page.with_text
            return read_and_compare(response, features, with_text=with_text, copy=page.copy)
        return _unpacked(answer)

    def _answer(self, page: "_Page", body: bytes) -> bytes | None:
        """Return the answer of the process for a page; None: it could not start. Raises as `read` says."""
        most_bytes = (MAX_PDF_BYTES if body.startswith(PDF_MAGIC) else MAX_SOURCE_BYTES) + 1
        messages = _message(page), _SIZE.pack(min(len(body), most_bytes)), memoryview(body)[:most_bytes]
        for is_last in (False, True):
            try:
                return self._ask(messages)
            except (OSError, ValueError) as error:  # it could not start, was killed, or took too long
                code = self._exit_code()
                self._end()
                if isinstance(error, TimeoutError) or code == _TIME_OVER:
                    raise TimeoutError from error
                if code == NO_MEMORY or (is_last and code < 0):
                    raise ChildProcessError(
                        "it ended the process for large pages, maybe for want of memory"
                    ) from error
                if code >= 0:
                    return None
                if not self._was_killed:
                    self._was_killed = True
                    logger.warning(
                        "The process that reads large pages was ended by signal %d, maybe for want of "
                        "memory. It starts anew, and reads the page again; further such lines are left out.",
                        -code,
                    )
        return None

    def _exit_code(self) -> int:
        """Return the exit code of the process, negative for a signal; 0: it never started, or still runs."""
        try:
            return 0 if self._process is None else self._process.wait(1)
        except subprocess.TimeoutExpired:
            return 0

    def _ask(self, messages: Iterable[bytes | memoryview]) -> bytes:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(messages)
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:  # select() knows no descriptor beyond 1,023
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(TIMEOUT_S):
                raise TimeoutError
        answer = _next_message(process.stdout)
        if answer == b"" and (error := _next_message(process.stdout)) is not None:
            raise RuntimeError(msgspec.msgpack.decode(error))  # the crawl would not read it within limits
        if not answer:
            raise ChildProcessError
        return answer

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


_TIME_OVER: Final = -getattr(signal, "SIGPROF", 1024)
"""Exit code of the process that gives up on a page after `CPU_S`."""


class _Page(msgspec.Struct, array_like=True):
    """Message to the worker process: a page to fingerprint, or with `parts`, to cut parts out of.

    The page's body is a message of its own, which saves a copy.
    """

    kind: int  # position in `_CLASSES`
    encoding: str
    content_type: bytes
    features: int = 0  # position in `_FEATURES`
    with_text: bool = False
    copy: CopyState | None = None
    parts: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """``watch`` and ``ignore`` of `cut_body`."""


_CUT: Final = msgspec.msgpack.Decoder(CutBody | None)


def _page(response: Response, *fields: Any, **parts: Any) -> _Page:
    kind = next(number for number, one in enumerate(_CLASSES) if isinstance(response, one))
    content_type = response.headers.get(b"Content-Type") or b""
    return _Page(kind, _encoding(response), content_type, *fields, **parts)


def _encoding(response: Response) -> str:
    """Return the encoding of a response, detected here because the process gets only a long body's head."""
    try:
        return response.encoding if isinstance(response, TextResponse) else ""
    except (LookupError, ValueError):
        return "utf-8"


def _message(content: object) -> bytes:
    packed = msgspec.msgpack.encode(content)
    return _SIZE.pack(len(packed)) + packed


def _next_message(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    message = stream.read(size)
    return message if len(message) == size else None


# Texts may have lone surrogates, which MessagePack's strings may not: they travel as bytes.
def _packed(reading: PageReading) -> bytes:
    texts = [
        None if one is None else one.encode("utf-8", "surrogatepass")
        for one in (reading.normal, reading.text)
    ]
    return _message((texts, reading._replace(normal=None, text=None)))


def _unpacked(answer: bytes) -> PageReading:
    texts, reading = msgspec.msgpack.decode(answer, type=tuple[list[memoryview | None], PageReading])
    normal, text = (None if one is None else str(one, "utf-8", "surrogatepass") for one in texts)
    return reading._replace(normal=normal, text=text)


def _serve(pages: IO[bytes], answers: IO[bytes]) -> None:
    while (message := _next_message(pages)) is not None and (body := _next_message(pages)) is not None:
        try:
            if (set_timer := getattr(signal, "setitimer", None)) is not None:  # Windows has none
                set_timer(signal.ITIMER_PROF, CPU_S)  # ends the process, whatever holds it up
            page = msgspec.msgpack.decode(message, type=_Page)
            arguments: dict[str, Any] = {"encoding": page.encoding} if page.encoding else {}
            headers = {"Content-Type": page.content_type} if page.content_type else {}
            response = _CLASSES[page.kind]("http://page/", body=body, headers=headers, **arguments)
            features, with_text = _FEATURES[page.features], page.with_text
            if any(page.parts):
                answer = _message(cut_body(response, *page.parts))
            else:
                answer = _packed(read_and_compare(response, features, with_text=with_text, copy=page.copy))
        except MemoryError:
            sys.exit(NO_MEMORY)
        except Exception as error:
            answer = _SIZE.pack(0) + _message(f"{type(error).__name__}: {error}")
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(sys.stdin.buffer, sys.stdout.buffer)
