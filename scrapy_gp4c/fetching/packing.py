"""Messages between the owner of a crawl (its process with the store) and its fetchers, as bytes."""

import io
import itertools
import pickle
import sys
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final, NamedTuple

import cloudpickle
from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from scrapy_gp4c.crawling.request_data import objects_of
from scrapy_gp4c.crawling.requests import SHARED, method_name

MAX_OBJECTS: Final = 10_000
"""Most objects in the data of requests that a process keeps, in case that other requests have them too."""


def pack(value: Any, *, by_value: bool = False) -> bytes:
    """Return a pickled value, with the code of classes that cannot be imported, as in a notebook.

    ``by_value``: with the code of classes in the main module, too, which other processes lack.
    """
    if hasattr(sys.modules["__main__"], "__file__") and not by_value:
        with suppress(Exception):
            return pickle.dumps(value)
    return cloudpickle.dumps(value)


def packed_or_none(value: Any) -> bytes | None:
    """Return the pickled value; None: it cannot be pickled."""
    try:
        return pack(value)
    except Exception:  # whatever objects raise
        return None


class CallbackObject(NamedTuple):
    """An object in the data of a request, as it was before the request's callback ran."""

    identity: tuple[str, int]
    version: bytes
    """Digest of the object as it was sent."""
    value: Any
    packed: bytes | None

    def is_filled(self) -> bool:
        """Whether the callback has changed it."""
        return packed_or_none(self.value) != self.packed


class ObjectTable:
    """Objects that several requests share, so that callbacks get the same object, as within one process.

    Another process gets a copy, which its requests share if they were sent with the same content. Only the
    newest `MAX_OBJECTS` are kept.
    """

    def __init__(self, owner: str) -> None:
        """``owner``: name of this process, which owns the objects that its own requests bring."""
        self._owner = owner
        self._numbers = itertools.count()
        self._objects: OrderedDict[int, Any] = OrderedDict()
        self._identities: dict[int, int] = {}
        """Address of an object -> its identity."""
        self._copies: OrderedDict[tuple[tuple[str, int], bytes], Any] = OrderedDict()
        """Identity and version of another process's object -> the copy of it here."""

    def identify(self, values: dict[str, dict[str, Any]]) -> dict[tuple[str, str], tuple[str, int]]:
        """Return (field, name) -> identity (owner, number) of the objects in a request; see `objects_of`."""
        return {(field, name): self._identify(value) for field, name, value in objects_of(values)}

    def _identify(self, value: Any) -> tuple[str, int]:
        if (number := self._identities.get(id(value))) is None:
            number = self._identities[id(value)] = next(self._numbers)
            self._objects[number] = value
            if len(self._objects) > MAX_OBJECTS:
                _, oldest = self._objects.popitem(last=False)
                del self._identities[id(oldest)]
        return self._owner, number

    def take(self, request: Request) -> list[CallbackObject]:
        """Replace the copies of objects in a request's data by the objects of this process; returns these.

        For an object of another process, that is the first copy of it that came here.
        """
        taken = []
        for (field, name), identity in request.meta.pop(SHARED, {}).items():
            values = getattr(request, field)
            if name not in values:
                continue
            owner, number = identity
            version = sha1(packed_or_none(values[name]) or b"").digest()
            if owner == self._owner and number in self._objects:
                values[name] = self._objects[number]
            else:
                values[name] = self._copies.setdefault((identity, version), values[name])
                if len(self._copies) > MAX_OBJECTS:
                    self._copies.popitem(last=False)
            taken.append(CallbackObject(identity, version, values[name], packed_or_none(values[name])))
        return taken


class PackedCallback:
    """Callback that is no method of the spider, such as a lambda, for the fetcher that gets its page."""

    def __init__(self, function: Any, spider: Spider) -> None:
        """Pickle the function, but not the spider in it: each process has its own. Raises ValueError."""
        file = io.BytesIO()
        try:
            _Pickler(file, spider).dump(function)
        except Exception as error:  # objects in it may raise anything when pickled
            raise ValueError(f"{function} cannot be pickled: {type(error).__name__}: {error}") from error
        self._packed = file.getvalue()

    def __call__(self, response: Any) -> None:
        """Raise TypeError: the owner of a crawl runs no callbacks."""
        raise TypeError("this callback runs on fetchers alone")

    def function(self, spider: Spider) -> Any:
        """Return the unpickled function, with this process's `spider` in it."""
        return _Unpickler(io.BytesIO(self._packed), spider).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
    def __init__(self, file: io.BytesIO, spider: Spider) -> None:
        super().__init__(file)
        self._spider = spider

    def persistent_id(self, entry: Any) -> str | None:
        """Return the name of an object that is not pickled, as each process has its own: spider, crawler."""
        return "spider" if entry is self._spider else "crawler" if entry is self._spider.crawler else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, spider: Spider) -> None:
        super().__init__(file)
        self._spider = spider

    def persistent_load(self, name: str) -> Any:
        return self._spider if name == "spider" else self._spider.crawler


def pack_request(request: Request, spider: Spider) -> dict[str, Any]:
    """Return a request as by `Request.to_dict`, with picklable callbacks; raises ValueError for others."""
    stored: dict[str, Any] = {name: getattr(request, name) for name in request.attributes}
    stored["headers"] = dict(request.headers)
    for name in ("callback", "errback"):
        function = stored[name]
        if function is not None and not isinstance(function, PackedCallback):
            stored[name] = method_name(spider, function) or PackedCallback(function, spider)
    if type(request) is not Request:
        stored["_class"] = f"{type(request).__module__}.{type(request).__name__}"
    return stored


def unpack_request(stored: dict[str, Any], spider: Spider, *, is_owner: bool = False) -> Request:
    """Return a request packed by `pack_request`; if `is_owner`, a callback that is no method stays packed."""
    functions = {name: stored.get(name) for name in ("callback", "errback")}
    closures = {name: one for name, one in functions.items() if isinstance(one, PackedCallback)}
    request = request_from_dict({**stored, **dict.fromkeys(closures)}, spider=spider)
    for name, closure in closures.items():
        setattr(request, name, closure if is_owner else closure.function(spider))
    return request
