"""What is secret in a request: found wherever it hides, in time linear in the length, and nothing else."""

import json
import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials

CREDENTIALS = Credentials()


@pytest.mark.parametrize(
    ("url", "bare", "lacks"),
    [
        ("http://h/a?b=1&c=2#d", "http://h/a?b=1&c=2#d", []),
        ("http://u:S@h/a", "http://h/a", ["userinfo"]),
        ("http://u:S%40S@h:80/a?b=u@h", "http://h:80/a?b=u@h", ["userinfo"]),
        ("http://h/a?api_key=S&b=2", "http://h/a?api_key=&b=2", ["query api_key"]),
        ("http://h/a?b=2&apiKey=S%26S;S", "http://h/a?b=2&apiKey=", ["query apikey"]),
        ("http://h/a?API%5FKEY=S", "http://h/a?API%5FKEY=", ["query api_key"]),
        ("http://h/a?api_key=", "http://h/a?api_key=", []),
        ("http://h/a?x=1;token=S", "http://h/a?x=1;token=", ["query token"]),
        ("http://h/a;jsessionid=S/b?c=1", "http://h/a;jsessionid=/b?c=1", ["query jsessionid"]),
        ("http://h/a#access_token=S&b=1", "http://h/a#access_token=&b=1", ["query access_token"]),
        ("http://h/a#!/b?sig=S", "http://h/a#!/b?sig=", ["query sig"]),
        ("http://h/?to=http://u:S@g/?sig=S", "http://h/?to=http://g/?sig=", ["query sig", "userinfo"]),
        (
            "http://h/?to=http%3A%2F%2Fg%2F%3Ftoken%3DS%26b%3D1&c=1",
            "http://h/?to=http%3A%2F%2Fg%2F%3Ftoken%3D%26b%3D1&c=1",
            ["query token"],
        ),
        ("http://h/a?X-Amz-Signature=S&Key-Pair-Id=1", "http://h/a?X-Amz-Signature=&Key-Pair-Id=1", None),
        ("http://h/a?keyword=1&tokens=2&monkey=3", "http://h/a?keyword=1&tokens=2&monkey=3", []),
    ],
)
def test_secrets_of_a_url(url: str, bare: str, lacks: list[str] | None) -> None:
    """Users, parameters by name, in paths, queries, fragments, and in URLs within; names stay."""
    stripped = CREDENTIALS.stripped({"url": url})
    assert stripped["url"] == bare == CREDENTIALS.url(url)
    if lacks is not None:
        assert stripped.get("lacks", []) == lacks


NAMES = st.sampled_from([*SECRET_PARAMS, "X-Api-Key", "apiKey", "TOKEN"])
SECRET = "S3cr3t"
VALUES = st.text(string.printable + "é&%;=?#/@", max_size=5).map(lambda text: text + SECRET + text)
PLAIN = st.text("abq", min_size=1, max_size=3)
URLS = st.builds(
    lambda user, path, pairs, fragment: (
        f"http://{user}h/{path}?" + "&".join(f"{a}={quote(b, '/;?:@')}" for a, b in pairs) + fragment
    ),
    st.sampled_from(["", f"u:{SECRET}@", f"{SECRET}@"]),
    st.sampled_from(["", "a/b", f"a;jsessionid={SECRET}/b"]),
    st.lists(st.tuples(NAMES, VALUES) | st.tuples(PLAIN, PLAIN), max_size=4),
    st.sampled_from(["", f"#token={SECRET}", "#a"]),
)
ARGUMENTS = st.recursive(
    URLS | PLAIN | st.integers() | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(PLAIN, inner, max_size=3)
        | st.dictionaries(NAMES, st.just(SECRET) | st.just([SECRET]) | st.just({"a": SECRET}), max_size=2)
    ),
    max_leaves=5,
)
REQUESTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"url": URLS},
    optional={
        "headers": st.dictionaries(NAMES, st.lists(st.just(SECRET), min_size=1), max_size=3).map(
            lambda named: {
                **named,
                "Cookie": [f"a={SECRET}; b={SECRET}"],
                "Referer": [f"http://h/?sig={SECRET}"],
            }
        ),
        "cookies": st.dictionaries(PLAIN, st.just(SECRET), max_size=2)
        | st.lists(st.fixed_dictionaries({"name": PLAIN, "value": st.just(SECRET)}), max_size=2),
        "meta": st.dictionaries(PLAIN | NAMES.map(lambda name: name), ARGUMENTS, max_size=3).map(
            lambda meta: {name: value for name, value in meta.items() if value != SECRET}
        ),
        "cb_kwargs": st.dictionaries(PLAIN, ARGUMENTS, max_size=3),
    },
)


@given(REQUESTS)
def test_no_secret_stays_in_a_stored_request(stored: Any) -> None:
    """Wherever it is; what is taken out is named, a second time nothing is, and what is plain stays."""
    before = json.dumps(stored)
    bare = CREDENTIALS.stripped(stored)
    assert SECRET not in json.dumps(bare)
    assert CREDENTIALS.stripped(bare) == bare
    assert json.dumps(stored) == before
    if SECRET not in before:
        assert {name: value for name, value in bare.items() if name != "lacks"}.keys() <= stored.keys()
    assert all(type(name) is str and SECRET not in name for name in bare.get("lacks", ()))


PIECES = [
    "?a=",
    "&a=;",
    "?token=a;",
    "%3fa%3d",
    "://@",
    "?a=%3fa%3d",
    ";a=",
    "?",
    "?token=a%26",
    "@://",
    "%3",
]


@pytest.mark.parametrize("piece", PIECES)
def test_any_url_is_read_in_one_pass(piece: str) -> None:
    """A URL of a megabyte is done: what takes the square of its length would not be."""
    for head in ("http://h/", "http://h/?"):
        CREDENTIALS.url(head + piece * (2**20 // len(piece)))


def test_what_a_store_says_is_secret_is_so_for_its_readers() -> None:
    """Names that settings had beyond the default are in the records of cycles."""
    credentials = Credentials.of_store([{"secret_params": ["pin"]}, {}])
    assert credentials.url("http://h/?pin=1&token=2") == "http://h/?pin=&token="


@pytest.mark.parametrize(
    "broken", [{"headers": ["x"]}, {"meta": "x"}, {"cookies": "x"}, {"cb_kwargs": [1]}, {"url": 7}]
)
def test_requests_of_a_broken_store_can_be_shown(broken: Any) -> None:
    """What other versions or hands have written raises nothing."""
    assert CREDENTIALS.stripped({"url": "http://h/", **broken})["url"] in ("http://h/", "7")
