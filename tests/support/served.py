"""A small web server for commands that are run from the shell."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def served(page_at: Callable[[str], str | None], headers: Mapping[str, str] = {}) -> Iterator[str]:
    """Serve pages on loopback; yields the URL. ``page_at``: HTML of a path, None: 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = page_at(self.path)
            body = (page or "").encode()
            self.send_response(404 if page is None else 200)
            length = {"Content-Length": str(len(body))}
            for name, value in ({"Content-Type": "text/html"} | length | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
