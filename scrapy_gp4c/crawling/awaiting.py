"""Results of threads for coroutines, with asyncio or without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TypeVar

from scrapy.utils.asyncio import is_asyncio_available
from twisted.internet.threads import deferToThread

Result = TypeVar("Result")


def awaitable(future: Future[Result]) -> Awaitable[Result]:
    """The result of a thread as an awaitable of Scrapy, with asyncio or without."""
    if is_asyncio_available():
        return asyncio.wrap_future(future)
    deferred: Awaitable[Result] = deferToThread(future.result)
    return deferred
