"""Names of pages: parameters of campaigns and sessions make no page, all others do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.utils.request import fingerprint

from scrapy_gp4c.crawling.requests import PageFingerprinter
from scrapy_gp4c.page_state.page_names import (
    IGNORED_PARAMS,
    Moves,
    last_name,
    link_sum,
    page_url,
    plainer_urls,
    signature_names,
    without_session,
)

PAGE = "http://h/a?id=1&page=2"


@pytest.mark.parametrize(
    "url",
    [
        "http://h/a?id=1&utm_source=mail&page=2",
        "http://h/a?utm_campaign=26-11-2026&id=1&page=2&utm_content=",
        "http://h/a?id=1&page=2&gclid=Cj0KCQ&fbclid=IwAR0",
        "http://h/a?id=1&page=2&wt_mc=de.mail&etcc_med=mail&ns_campaign=x",
        "http://h/a?id=1&page=2&UTM_Medium=x",
        "http://h/a?id=1&page=2&PHPSESSID=3f2a",
        "http://h/a;jsessionid=0AF3B9?id=1&page=2",
        "http://h/a;JSESSIONID=0AF3B9.node7?id=1&page=2",
        "http://h/a?id=1&page=2&jsessionid=0AF3",
        "http://h/(S(lit3py55t21z5v55vlm25s55))/a?id=1&page=2",
        "http://h/a?sid=0123456789abcdef0123456789abcdef&id=1&page=2",
        "http://h/a?id=1&shop_sessid=0123456789abcdef0123456789abcdef&page=2",
        "http://h/a?id=1&page=2&ASPSESSIONIDQQBCTTAB=x",
        "http://h/a?id=1&%75tm_source=x&page=2",
        "http://h/a?id=1&page=2&mtm_campaign=x&_ga=1.2&mc_eid=3",
        "http://h./a?id=1&page=2",
        "http://h:80/a?id=1&page=2",
        "http://h/a;sid=0123456789abcdef0123456789abcdef?id=1&page=2",
        "http://h/a?ssid=0123456789abcdef0123456789abcdef&id=1&page=2",
        "http://h/a?JServSessionIdroot=x&id=1&s_kwcid=AL!8&page=2",
        "http://h/a?id=1&visitorId=0123456789abcdef0123456789abcdef&page=2&_trksid=p2.m5",
        "http://h/a?id=1&page=2&_=1764412345678&rnd=0.8349345345",
        "http://h/a?id=1&r=0.8349345345123456&page=2&sesskey=a1B2c3&MODsid=0123456789abcdef",
        "http://h/a?csrf_token=0123456789abcdef0123456789abcdef&id=1&page=2&awc=1_2_3&__cf_chl_tk=x",
        "http://h/a?id=1&page=2&C=M;O=D",
        "http://h/a?id=1&page=2&X-Amz-Date=20261130T000000Z&X-Amz-Expires=3600&X-Amz-Signature=",
        "http://h/a?id=1&page=2&Expires=1764412345&Signature=&Key-Pair-Id=APKA",
        "http://h/a?expires=1764412345&id=1&page=2&signature=0123456789abcdef",
        "http://h/a?id=1&token=0123456789abcdef&e=1764412345&page=2",
        "http://h/a?MD5=0123456789abcdef&id=1&page=2&Expires=1764412345",
        "http://h/a?sv=2024-11-04&st=2026-11-30&se=2026-12-01&sr=b&sp=r&id=1&page=2&sig=",
    ],
)
def test_parameters_of_campaigns_and_sessions_make_no_page(url: str) -> None:
    """The other parameters stay in their order."""
    assert page_url(url) == PAGE


@pytest.mark.parametrize(
    "url",
    [
        "http://h/a", "http://h/a?", "http://h/a?id=1#part", "http://h/story?sid=42", "http://h/?s=shoes",
        "http://h/a?source=utm", "http://h/a?utm", "http://h/a;v=2?x", "http://h/f(x)/a", "http://h/a?gclid2=1",
        "http://h/wiki/A_(b)/c", "http://h/a?session=morning", "http://h/talks?session_id=12",
        "http://h/wiki?announcement=0123456789abcdef01234567", "http://h/a?nonce=1",
        "http://h/a./b.", "http://h/../a.:1", "http://h.de/.", "http://h:8080/", "http://h/a:80/", "https://h:80/",
        "http://h/a;id=0123456789abcdef01234567", "http://h/a?classid=0123456789abcdef01234567",
        "http://h/a?_=3&rnd=12&t=1764412345", "http://h/a?visitor=0123456789abcdef01234567",
        "http://h/map?geo_lat=0.8349345345123456&x=0.1278901234567890", "http://h/a?share=0.8349",
        "http://h/archive?signature=A-12&policy_id=3", "http://h/a?expires=1764412345", "http://h/a?sp=2&sig=x",
        "http://h/a?sv=2024-11-04&sp=2", "http://h/a?C=M", "http://h/a?C=M;O=D;F=1",
        "http://h/a?hash=0123456789abcdef0123456789abcdef", "http://h/a?token=x&e=1764412345",
        "http://h/a?md5=0123456789abcdef0123456789abcdef&policy=public",
    ],
)  # fmt: skip
def test_all_other_urls_name_their_own_page(url: str) -> None:
    """Names that only resemble, short values of ``sid`` and ``s``, and fragments stay."""
    assert page_url(url) in (url, url.rstrip("?"))


@given(
    st.lists(st.tuples(st.sampled_from(["id", "page", "q", "lang"]), st.text("ab1", max_size=3)), max_size=4),
    st.lists(
        st.tuples(st.sampled_from([name.replace("*", "x") for name in IGNORED_PARAMS]), st.text("ab1")),
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_any_mixture_names_the_page_without_them(
    parameters: list[tuple[str, str]], noise: list[tuple[str, str]], random: object
) -> None:
    """Wherever they stand; a name is a fixed point."""
    merged = [f"{name}={value}" for name, value in parameters]
    for name, value in noise:
        merged.insert(random.randint(0, len(merged)), f"{name}={value}")  # type: ignore[attr-defined]
    plain = "&".join(f"{name}={value}" for name, value in parameters)
    named = page_url("http://h/a?" + "&".join(merged))
    assert named == ("http://h/a?" + plain if plain else "http://h/a")
    assert page_url(named) == named


def test_a_project_names_its_own_parameters() -> None:
    """An empty list makes every URL a page of its own."""
    assert page_url("http://h/a?ref=x&utm_source=y", ("ref",)) == "http://h/a?utm_source=y"
    assert page_url("http://h/a?utm_source=y", ()) == "http://h/a?utm_source=y"


def test_names_of_data_take_time_in_proportion() -> None:
    """However long a name is: each is read once, and its end tells whether its value is a link."""
    assert link_sum("data-" * 200_000, ()) == link_sum("<a data-size=1>", ()) == link_sum("", ())
    assert link_sum("<a data-post-id=1>", ()) != link_sum("<a data-post-id = '2'>", ())


def test_the_parameters_of_a_signature_are_named() -> None:
    """A stored request lacks them, so that only the spider can make it; a hash alone is no signature."""
    assert signature_names("http://h/a?MD5=0123456789abcdef&id=1&Expires=1764412345#b") == ["expires", "md5"]
    assert signature_names("http://h/a?md5=0123456789abcdef") == signature_names("http://h/a") == []


def test_a_stored_url_has_no_session() -> None:
    """Campaigns stay, as the link was; with sessions taken off the list, they stay, too."""
    url = "http://h/a;jsessionid=1?PHPSESSID=2&utm_source=x"
    assert without_session(url) == "http://h/a?utm_source=x"
    assert without_session(url, ("utm_*",)) == url


def test_the_fingerprint_is_scrapys_of_the_page() -> None:
    """Links of two campaigns are one page; method and body still count."""
    fingerprinter = PageFingerprinter()
    plain = fingerprinter.fingerprint(Request("http://h.de/a"))
    assert {fingerprinter.fingerprint(Request(url)) for url in ("http://h.de:80/a", "http://h.de./a")} == {
        plain
    }
    one, other = Request("http://h/a?utm_source=x&id=1"), Request("http://h/a?id=1&utm_source=y")
    assert (
        fingerprinter.fingerprint(one)
        == fingerprinter.fingerprint(other)
        == fingerprint(Request("http://h/a?id=1"))
    )
    assert fingerprinter.fingerprint(one) == fingerprinter.fingerprint(one)
    post = Request("http://h/a?utm_source=x&id=1", method="POST", body=b"x")
    assert fingerprinter.fingerprint(post) != fingerprinter.fingerprint(one)


@pytest.mark.parametrize(
    ("redirects", "link", "old_names"),
    [
        ([("http://a.b/", "https://www.a.b/")], "https://www.a.b/x?y=1", ["http://a.b/x?y=1"]),
        ([("http://a.b/x", "http://a.b/x/")], "http://a.b/y/z/", ["http://a.b/y/z"]),
        ([("http://a.b/x", "https://c.d/x/")], "https://c.d/y/", ["http://a.b/y"]),
        ([("http://a.b/x.html", "http://a.b/x")], "http://a.b/y", ["http://a.b/y.html"]),
        ([("http://a.b/x/index.html", "http://a.b/x/")], "http://a.b/", ["http://a.b/index.html"]),
        (
            [(f"http://a.b/{n}", f"http://a.b/blog/{n}") for n in range(3)],
            "http://a.b/blog/7",
            ["http://a.b/7"],
        ),
        ([(f"http://a.b/{n}", f"http://a.b/blog/{n}") for n in range(2)], "http://a.b/blog/7", []),
        ([(f"http://a.b/{n}", "http://a.b/") for n in range(9)], "http://a.b/", []),
        ([(f"http://a.b/{n}", "http://a.b/login") for n in range(9)], "http://a.b/login", []),
        ([("http://a.b/", "https://a.b/")], "https://a.b.c/", []),
        (
            [("http://a.b/", "http://c.d/"), ("http://c.d/", "https://e.f/")],
            "https://e.f/x",
            ["http://c.d/x", "http://a.b/x"],
        ),
    ],
)
def test_sites_that_moved(redirects: list[tuple[str, str]], link: str, old_names: list[str]) -> None:
    """A scheme or host is learned by one permanent redirect, a path by three."""
    moves = Moves([])
    for old, new in redirects:
        moves.learn(old, new)
    assert list(Moves(moves.rules).old_names(link)) == old_names


@pytest.mark.parametrize(
    ("url", "plainer"),
    [
        ("https://a.b/x?y=/", []),
        ("http://www.a.b/x", ["https://www.a.b/x", "http://a.b/x"]),
        ("https://www12.a.b/", ["https://www.a.b/", "https://a.b/"]),
        ("https://a.b:8443/X/", ["https://a.b/X/", "https://a.b:8443/X", "https://a.b:8443/x/"]),
        ("https://a.b/index.html", ["https://a.b/"]),
        ("https://a.b/x/default.aspx", ["https://a.b/x/"]),
        ("https://a.b/index.php/x/y", ["https://a.b/x/y"]),
        ("https://a.b//x///y?z=//", ["https://a.b/x/y?z=//"]),
        ("https://a.b/", []),
    ],
)
def test_plainer_addresses(url: str, plainer: list[str]) -> None:
    """One thing less each; a home page keeps its slash."""
    assert list(plainer_urls(url)) == plainer


@pytest.mark.parametrize("path", ["/a/b/c", "/c/", "/x/c/index.html?", "/c"])
def test_pages_with_one_name_in_several_directories(path: str) -> None:
    """Index pages have the name of their directory, and queries are part of a name."""
    assert last_name(f"http://h{path}") == ("c?" if "?" in path else "c")
    assert last_name(f"http://h{path.rstrip('?')}?id=1") == "c?id=1"
