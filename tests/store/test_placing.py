"""Which shard a host belongs to: for ever the same, and the same for all spellings of its name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.shards.placing import HOSTLESS, MOST_SHARDS, host_name, shard_of, shard_of_url

PINNED = {
    "": 0,
    "example.com": 883,
    "a.example.com": 940,
    "localhost": 355,
    "127.0.0.1": 652,
    "[::1]": 540,
    "bücher.example": 166,
}


@pytest.mark.parametrize("host", sorted(PINNED))
def test_the_rule_is_for_ever(host: str) -> None:
    """Shards that were made are looked for by it: these numbers never change."""
    assert shard_of(host, MOST_SHARDS) == PINNED[host]
    assert shard_of(host) == PINNED[host] % 64


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("EXAMPLE.com", b"example.com"),
        ("www.example.com:8080", b"example.com"),
        ("WWW.www.example.com.", b"www.example.com"),
        ("example.com..", b"example.com"),
        ("bücher.example", b"xn--bcher-kva.example"),
        ("BÜCHER.example", b"xn--bcher-kva.example"),
        ("xn--bcher-kva.example", b"xn--bcher-kva.example"),
        ("bücher。example:80", b"xn--bcher-kva.example"),
        ("[::1]:6800", b"[::1]"),
        ("www.", b"www"),
        ("", b""),
        (":80", b""),
        ("ü" * 70, ("ü" * 70).encode()),
        ("\udc80", b"\xed\xb2\x80"),
    ],
)
def test_names_of_hosts(host: str, name: bytes) -> None:
    """As DNS has them, without port, ``www.`` and the dot at the end; any text has one."""
    assert host_name(host) == name


@given(st.text(max_size=80), st.integers(1, MOST_SHARDS))
def test_any_text_has_a_shard(host: str, shards: int) -> None:
    """Whatever stands in a URL; the port is nothing to it, where there is none yet."""
    assert 0 <= shard_of(host, shards) < shards
    assert shard_of(host, 1) == 0
    if not {":", "[", "]"} & {*host}:
        assert shard_of(f"{host}:8080", shards) == shard_of(host, shards)


@pytest.mark.parametrize("url", ["", "/path", "mailto:somebody", "file:///etc/hosts", "http:///x"])
def test_what_has_no_host_is_in_one_shard(url: str) -> None:
    """The first one."""
    assert shard_of_url(url, 64) == HOSTLESS


def test_urls_of_a_host_share_a_shard() -> None:
    """Whatever scheme, user, port, path and case they have."""
    urls = ["http://a.example/x", "https://u:p@A.example:444/y?z", "http://www.a.example./"]
    assert len({shard_of_url(url, MOST_SHARDS) for url in urls}) == 1


def test_hosts_are_spread_evenly() -> None:
    """20,000 of them over 64 shards: none has a third more or less than its share."""
    counts = np.bincount([shard_of(f"host{number}.example") for number in range(20_000)], minlength=64)
    assert counts.min() > 0.75 * 20_000 / 64
    assert counts.max() < 1.33 * 20_000 / 64


@pytest.mark.parametrize("shards", [0, -1, MOST_SHARDS + 1])
def test_numbers_of_shards_have_bounds(shards: int) -> None:
    """One to 1,024: another number is one error."""
    with pytest.raises(StoreError, match="expected 1 to 1,024 shards"):
        shard_of("example.com", shards)
