"""A Dask cluster as somebody would run it: a scheduler, workers, and certificates of their own."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START_LIMIT_S = 60
PARTIES = ("CLIENT", "SCHEDULER", "WORKER")


def certificates(folder: Path) -> dict[str, str]:
    """Make a certificate that trusts itself; returns Dask's settings for it as environment variables."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "cluster.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = folder / "cluster.key"
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    ours = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true", f"{tls}CA_FILE": str(pem)}
    for party in PARTIES:
        ours |= {f"{tls}{party}__CERT": str(pem), f"{tls}{party}__KEY": str(secret)}
    return ours


class Cluster:
    """A scheduler and workers of one thread each, in processes of their own."""

    def __init__(self, folder: Path, workers: int, settings: dict[str, str]) -> None:
        """Start it; ``settings``: environment variables, see `certificates`."""
        self.environment = {**os.environ, **settings}
        self._contact = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        protocol = "tls" if settings else "tcp"
        try:
            self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--protocol", protocol)
            self.address = self._told(lambda message: message["address"])
            self.workers = [self.join() for _ in range(workers)]
        except BaseException:
            self.stop()
            raise

    def join(self) -> subprocess.Popen[bytes]:
        """Start another worker, which nobody starts again when it dies."""
        return self._start("worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny")

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self._contact), *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process

    def _told(self, read: Any) -> Any:
        for _ in range(START_LIMIT_S * 20):
            try:
                return read(json.loads(self._contact.read_text()))
            except (OSError, ValueError):  # not there, or half written
                time.sleep(0.05)
        raise TimeoutError(f"the scheduler did not start within {START_LIMIT_S} s")

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.wait()
