"""``scrapy gp4c fetcher``: a process that downloads and runs callbacks for a spider's crawl elsewhere."""

import asyncio
import logging
import os
import signal
import socket
from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from scrapy.utils.log import configure_logging

from scrapy_gp4c.commands.action import Action, option
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import FetcherError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.settings.values import check_private

RETRY_S: Final = 2.0
logger = foreign_safe_logger(__name__)


def _run(project: Project, options: Namespace) -> None:
    """Fetch until SIGTERM or Ctrl-C; then finish running downloads and return their results."""
    if find_spec("distributed") is None:
        raise FetcherError("a fetcher needs the library distributed: pip install 'scrapy-gp4c[dask]'")
    from scrapy_gp4c.fetching import fetcher  # no other command needs the extra

    check_private(options.connect, is_insecure=project.settings.fetchers_insecure)
    fetcher.revision = project.settings.revision
    configure_logging({**project.scrapy_settings.copy_to_dict(), "LOG_ENABLED": True})
    asyncio.run(
        _work(options.connect, options.name or f"{socket.gethostname()}-{os.getpid()}", _tls(options))
    )


def _tls(options: Namespace) -> Any:
    security: Any = import_module("distributed").Security
    files = {
        "tls_ca_file": options.tls_ca_file,
        "tls_worker_cert": options.tls_cert,
        "tls_worker_key": options.tls_key,
    }
    files = {name: path for name, path in files.items() if path is not None}
    return security(**files, **({"require_encryption": True} if files else {}))


async def _work(address: str, name: str, security: Any) -> None:
    """Run a Dask worker, and a new one whenever its scheduler has ended, until a signal stops it."""
    distributed: Any = import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the owner says what matters
    loop, leaving, is_waiting = asyncio.get_running_loop(), asyncio.Event(), False
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    asked = asyncio.ensure_future(leaving.wait())
    while not leaving.is_set():
        worker = distributed.Worker(
            address, name=name, nthreads=1, security=security, dashboard=False, memory_limit=0
        )
        starting = asyncio.ensure_future(worker.start())
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED, timeout=30.0)
        if starting.done() and starting.exception() is None:
            logger.info("Fetcher %s works for %s", name, address)
            is_waiting = False
            ended = asyncio.ensure_future(worker.finished())
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.is_set():
                from scrapy_gp4c.fetching import fetcher

                logger.info("Fetcher %s leaves: it ends what it has", name)
                await fetcher.leave()
        elif not is_waiting and not leaving.is_set():
            is_waiting = True
            why = starting.exception() if starting.done() else "no answer"
            logger.warning("The scheduler %s cannot be reached (%s): the fetcher waits for it", address, why)
        starting.cancel()
        with suppress(Exception):
            await asyncio.wait_for(worker.close(nanny=False), RETRY_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asked), RETRY_S)


TLS_FILES: Final = {
    "ca-file": "certificates that are trusted", "cert": "certificate", "key": "key of the certificate"
}  # fmt: skip
FETCHER = Action(
    "download pages and run callbacks for a crawl with GP4C_FETCHERS, until it is stopped",
    _run,
    [
        option(
            "--connect", required=True, metavar="ADDRESS", help="Dask's scheduler: tls://host:port, or tcp://"
        ),
        option("--name", help="name in the owner's log (default: host and process)"),
        *(
            option(f"--tls-{name}", metavar="PEM", help=f"{what} (default: Dask's configuration)")
            for name, what in TLS_FILES.items()
        ),
    ],
)
