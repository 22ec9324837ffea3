"""What speaks to a client as a PostgreSQL of some version does, until the first statement."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def server_of_version(version: str) -> Iterator[int]:
    """Let clients in, and tell them a version, as the protocol of PostgreSQL 3.0 has it; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client, suppress(OSError):
                        _welcome(client, version)
                        while client.recv(4096):
                            pass

        threading.Thread(target=serve, daemon=True).start()
        yield int(listening.getsockname()[1])


def _welcome(client: socket.socket, version: str) -> None:
    while True:
        length, code = struct.unpack("!II", client.recv(8, socket.MSG_WAITALL))
        client.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""
        if code == 196_608:  # 3.0; all else asks for encryption first
            break
        client.sendall(b"N")
    said = [b"R" + struct.pack("!II", 8, 0)]
    for name, value in (("server_version", version), ("client_encoding", "UTF8")):
        text = name.encode() + b"\0" + value.encode() + b"\0"
        said.append(b"S" + struct.pack("!I", 4 + len(text)) + text)
    said.append(b"Z" + struct.pack("!I", 5) + b"I")
    client.sendall(b"".join(said))
