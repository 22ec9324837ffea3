"""The process that fingerprints large pages for a crawl: ``python -m scrapy_gp4c.fingerprint.worker``.

It reads pages from its standard input and answers on standard output with their fingerprints, and texts if
these are asked for, one after the other, until the input ends.
"""

from __future__ import annotations

import signal
import struct
import sys
from typing import BinaryIO, Final

from scrapy.http import HtmlResponse, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint import main_features, read

PAGE: Final = struct.Struct("<BB?BI")
"""Before each page: its class (of `CLASSES`), which features (of `FEATURES`), whether its texts are asked
for, bytes of its encoding's name and of its body, which follow."""
ANSWER: Final = struct.Struct("<?QII")
"""Whether there is a fingerprint, it, and bytes of the texts that follow: the normalised one, the other."""
CLASSES: Final = (HtmlResponse, XmlResponse, TextResponse)
FEATURES: Final = (None, main_features)


def serve(pages: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the input ends."""
    while len(head := pages.read(PAGE.size)) == PAGE.size:
        kind, features, with_text, name_bytes, body_bytes = PAGE.unpack(head)
        encoding = pages.read(name_bytes).decode("ascii")
        body = pages.read(body_bytes)
        if len(body) < body_bytes:
            return
        try:
            response = CLASSES[kind]("http://page/", body=body, encoding=encoding)
            found = read(response, FEATURES[features], with_text=with_text)
            normal, text = ((one or "").encode("utf-8", "surrogatepass") for one in found[1:])
            answer = ANSWER.pack(True, found.fingerprint, len(normal), len(text)) + normal + text
        except Exception:  # the crawl tries itself, and says what is wrong
            answer = ANSWER.pack(False, 0, 0, 0)
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the crawl's affair; its end is ours
    serve(sys.stdin.buffer, sys.stdout.buffer)
