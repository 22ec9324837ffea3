"""The process that fingerprints large pages for a crawl: ``python -m scrapy_gp4c.fingerprint.worker``.

It reads pages from its standard input and answers with their fingerprints on standard output, one after the
other, until the input ends.
"""

from __future__ import annotations

import signal
import struct
import sys
from typing import BinaryIO, Final

from scrapy.http import HtmlResponse, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint import fingerprint, main_features

PAGE: Final = struct.Struct("<BBBI")
"""Before each page: its class (of `CLASSES`), which features (of `FEATURES`), bytes of its encoding's name
and of its body, which follow."""
ANSWER: Final = struct.Struct("<?Q")
"""Whether there is a fingerprint, and it."""
CLASSES: Final = (HtmlResponse, XmlResponse, TextResponse)
FEATURES: Final = (None, main_features)


def serve(pages: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends."""
    while len(head := pages.read(PAGE.size)) == PAGE.size:
        kind, features, name_bytes, body_bytes = PAGE.unpack(head)
        encoding = pages.read(name_bytes).decode("ascii")
        body = pages.read(body_bytes)
        if len(body) < body_bytes:
            return
        try:
            response = CLASSES[kind]("http://page/", body=body, encoding=encoding)
            answer = ANSWER.pack(True, fingerprint(response, FEATURES[features]))
        except Exception:  # the crawl tries itself, and says what is wrong
            answer = ANSWER.pack(False, 0)
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the crawl's affair; its end is ours
    serve(sys.stdin.buffer, sys.stdout.buffer)
