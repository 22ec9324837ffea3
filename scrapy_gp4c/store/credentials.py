"""Removal of secrets from requests and URLs, by the names of parameters, headers and arguments.

A store keeps the name of a secret, never its value. The field ``lacks`` of a stored request lists such names:
``query api_key``, ``header authorization``, ``cookie session``, ``meta token``. A visit takes the values from
the request that the spider makes.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Self, cast
from urllib.parse import unquote

from scrapy_gp4c.foreign_text import printable
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

SECRET_PARAMS: Final = (
    "access_key", "access_token", "api_key", "api_token", "auth", "auth_key", "auth_token", "bearer",
    "client_secret", "credentials", "csrf_token", "http_pass", "http_user", "id_token", "jsessionid", "jwt",
    "key", "passwd", "password", "phpsessid", "private_key", "pwd", "refresh_token", "secret", "secret_key",
    "session_id", "session_token", "sig", "signature", "subscription_key", "token", "x-amz-credential",
    "x-amz-security-token", "x-amz-signature", "x-goog-signature",
)  # fmt: skip
"""Default of ``GP4C_SECRET_PARAMS``: names of parameters and arguments whose values are secret.

Case, ``-``, ``_``, ``.`` and a leading ``x-`` make no difference.
"""
_HEADERS: Final = frozenset({"authorization", "proxyauthorization", "cookie"})
"""Headers that are secret whatever the setting; names in the form of `_plain`."""
_DISPENSABLE_HEADERS: Final = frozenset({"referer"})
"""Headers that a visit can do without: a secret in their URL is removed, and not listed in `lacks`."""

_USER: Final = re.compile(r"(?<=://)[^/?#\s]*@")
_NAME: Final = re.compile(  # not "++": Python before 3.11.5 then misses names in encoded URLs
    r"(?:(?P<mark>[?&;#])|%3f|%26|%23)(?P<name>(?:(?!%3f|%26|%23|%3d)[^?&;#=/\s])+)(?:=|%3d)", re.I
)
"""Pattern of a parameter's name in a URL, or, percent-encoded, in a URL that is a parameter's value."""
_QUERY: Final = re.compile(r"[?#]|\Z")
_END: Final = re.compile(r"[&#\s]|\Z")
_ENCODED_END: Final = re.compile(r"%26|%23|[&#\s]|\Z", re.I)
_IN_PATH: Final = re.compile(r"(?P<head>;(?P<name>[^=;/?#\s]++)=)[^;/?#\s]++")
_SCHEME_VALUE: Final = re.compile(r"(?:basic|bearer|digest|negotiate|token)\s+\S", re.I)
"""A header's value that is a credential by its form (RFC 9110, section 11.4)."""


@lru_cache(4096)
def _plain(name: str) -> str:
    """Normalise a name for comparison: lower case, without ``-``, ``_``, ``.`` and leading ``x-``."""
    return re.sub("[-_.]", "", unquote(name).lower().removeprefix("x-").removeprefix("x_"))


class Credentials:
    """Removes from requests and URLs the values of parameters, headers and arguments named as secret."""

    def __init__(self, names: Iterable[str] = SECRET_PARAMS) -> None:
        self._names = frozenset(map(_plain, names))

    @classmethod
    def of_store(cls, records: Iterable[CycleRecord]) -> Self:
        """Make an instance from the default names and those in the records of a store's cycles."""
        named = [name for record in records for name in record.get("secret_params", ())]
        return cls((*SECRET_PARAMS, *named))

    def has(self, name: str) -> bool:
        """Whether the value of a parameter, header or argument of this name is secret."""
        return _plain(name) in self._names

    def url(self, url: str) -> str:
        """Return a URL, or a text that contains URLs, without secrets and control characters, for display."""
        return printable(self._url(url)[0])

    def stripped(self, stored: StoredRequest) -> StoredRequest:
        """Return a stored request without secrets; the same object if it has none.

        A secret parameter of the URL keeps its name (``?token=``): pages with and without it differ. The
        result's ``lacks`` lists what was removed, now or earlier.
        """
        lacks: list[str] = []
        bare = cast(dict[str, Any], dict(stored))
        bare["url"], url_lacks = self._url(str(stored.get("url", "")))
        lacks += url_lacks
        if "headers" in stored:
            bare["headers"] = self._headers(stored["headers"], lacks)
        if cookies := bare.pop("cookies", None):
            lacks += (f"cookie {name}" for name in cookie_names(cookies))
        for argument in ("meta", "cb_kwargs"):
            if argument in stored:
                bare[argument] = self._arguments(bare[argument], argument, lacks)
        for argument in ("headers", "meta", "cb_kwargs"):
            if argument in stored and not bare[argument]:
                del bare[argument]
        if bare == stored:
            return stored
        if lacks:
            bare["lacks"] = sorted({*stored.get("lacks", ()), *lacks})
        return cast(StoredRequest, bare)

    def _url(self, url: str) -> tuple[str, list[str]]:
        if "@" not in url and "=" not in url and "%3" not in url:
            return url, []
        bare = _USER.sub("", url)
        lacks = ["userinfo"] if bare != url else []

        def blanked(pair: re.Match[str]) -> str:
            if not self.has(pair["name"]):
                return pair[0]
            lacks.append(_query(pair["name"]))
            return pair["head"]

        start = _QUERY.search(bare).start()  # type: ignore[union-attr] # it matches the end, too
        parts = [_IN_PATH.sub(blanked, bare[:start])]
        done = position = start
        while (match := _NAME.search(bare, position)) is not None:
            position = match.end()
            if self.has(match["name"]):
                end = (_END if match["mark"] else _ENCODED_END).search(bare, position)
                assert end is not None
                if end.start() > position:
                    lacks.append(_query(match["name"]))
                    parts.append(bare[done:position])
                    done = position = end.start()
        return "".join((*parts, bare[done:])), lacks

    def _headers(self, headers: Any, lacks: list[str]) -> dict[str, list[str]]:
        bare: dict[str, list[str]] = {}
        for name, values in headers.items() if isinstance(headers, dict) else ():
            values = [str(value) for value in values] if isinstance(values, list) else [str(values)]
            secret = _plain(name) in _HEADERS or self.has(name)
            if secret or any(map(_SCHEME_VALUE.match, values)):
                if _plain(name) == "cookie":
                    lacks += (f"cookie {cookie}" for value in values for cookie in names_in_header(value))
                else:
                    lacks.append(f"header {name.lower()}")
                continue
            bare[name] = [self.url(value) for value in values]
            if bare[name] != values and name.lower() not in _DISPENSABLE_HEADERS:
                lacks.append(f"header {name.lower()}")
        return bare

    def _arguments(self, value: Any, argument: str, lacks: list[str]) -> Any:
        """Return `value` without secrets at any depth; add their names to `lacks`, as ``meta token``."""
        if isinstance(value, str):
            bare = self.url(value) if "://" in value else value
            if bare != value:
                lacks.append(argument)
            return bare
        if isinstance(value, list):
            return [self._arguments(one, argument, lacks) for one in value]
        if not isinstance(value, dict):
            return value
        arguments = {}
        for name, one in value.items():
            where = f"{argument} {name}" if " " not in argument else argument
            if self.has(str(name)) and one not in (None, "") and not isinstance(one, bool):
                lacks.append(where)
            else:
                arguments[name] = self._arguments(one, where, lacks)
        return arguments


def _query(name: str) -> str:
    return f"query {unquote(name).lower()}"


def cookie_names(cookies: Any) -> list[str]:
    """Return the names of a request's ``cookies``: a dictionary, or a list of dictionaries."""
    if isinstance(cookies, dict):
        return [str(name) for name in cookies]
    return [str(cookie.get("name", "")) for cookie in cookies if isinstance(cookie, dict)]


def names_in_header(value: str) -> list[str]:
    """Return the names of the cookies in a ``Cookie`` header."""
    return [pair.partition("=")[0].strip() for pair in value.split(";")]
