"""A TCP proxy that tests put before a server: it counts what passes, and cuts or stalls it when told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self


class Proxy:
    """Forwards connections to a port of loopback, each by two threads."""

    def __init__(self, target: int) -> None:
        """Listen; `port` is where."""
        self.target = target
        self.sent = 0
        """Bytes to the server."""
        self.received = 0
        """Bytes from it."""
        self.flows = threading.Event()
        """While it is clear, nothing is passed on; what comes is taken nevertheless."""
        self.flows.set()
        self.cut_when: Callable[[bytes], bool] | None = None
        """Is asked of what the server is sent: True passes that on, and then cuts before its answer."""
        self.cuts = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bytes(self) -> int:
        """All that passed."""
        return self.sent + self.received

    def cut(self) -> None:
        """Cut all connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut all, and take no more."""
        self._listening.close()
        self.flows.set()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self._pairs.append((client, server))
                dropped = threading.Event()
                for pair in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass, args=(*pair, pair[0] is client, dropped), daemon=True
                    ).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, to_server: bool, dropped: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.flows.wait()
                if dropped.is_set():
                    if not to_server:
                        break
                    continue
                if to_server:
                    self.sent += len(data)
                    if self.cut_when is not None and self.cut_when(data):
                        self.cut_when = None
                        self.cuts += 1
                        dropped.set()
                else:
                    self.received += len(data)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
