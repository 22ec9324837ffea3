"""A small web server for commands that are run from the shell."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from benchmarks.common import Answer, address_of, serve


@contextmanager
def served(page_at: Callable[[str], str | None], headers: Mapping[str, str] = {}) -> Iterator[str]:
    """Serve pages on loopback; yields the URL. ``page_at``: HTML of a path, None: 404."""

    def answer(host: int, path: str) -> Answer:
        page = page_at(path)
        return Answer((page or "").encode(), 404 if page is None else 200, headers)

    (server,) = serve(answer)
    yield address_of(server)
    server.shutdown()
    server.server_close()
