"""Learned noise: what a site draws anew at each visit stops counting, and no statement of a page does."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random

import pytest
from scrapy.http import HtmlResponse, JsonResponse

from scrapy_gp4c.fingerprint import is_changed, read
from scrapy_gp4c.fingerprint.copy_notes import compared
from scrapy_gp4c.fingerprint.noise import blocks_of, blocks_of_data

FILLER = [f"paragraph {number} about the harbour and its lamps" for number in range(40)]
FILLER[7] = "we open at <b>nine</b>, at <a href=/ten>ten</a> (<i>not</i> on Sunday)."
TITLES = ["Bridge opens", "Ferry is late", "Storm ahead", "Mayor resigns", "Market grows", "School wins"]
TITLES += ["Strike ends", "Lamp burns", "River floods", "Library closes", "Park is green", "Oil leak found"]
QUOTES = ["Know thyself", "Less is more", "Time flies", "Act now", "Be kind", "Stay calm", "Carpe diem"]
QUOTES += ["Hope lasts", "Love stays"]


def outcomes(pages: Sequence[str]) -> list[bool]:
    """Whether each visit of a page after the first finds a change."""
    copy, notes, results = None, None, []
    for page in pages:
        kind = JsonResponse if page.startswith("{") else HtmlResponse
        response = kind("http://127.0.0.1/", body=page.encode(), encoding="utf-8")
        reading, notes = compared(response, read(response), None, copy, notes, 3)
        if copy is not None:
            results.append(is_changed(reading.fingerprint, copy, 3))
        copy = reading.kept_fingerprint
        assert len(notes) <= 128
    return results


def page(*blocks: str, filler: Sequence[str] = FILLER) -> str:
    """A page of paragraphs, with some blocks above and below."""
    middle = "".join(f"<p>{one}</p>" for one in filler)
    return f"<html><title>Page</title><body><div>{'</div><div>'.join(blocks)}</div>{middle}</body></html>"


def test_a_clock_stops_counting_and_counts_again() -> None:
    """After three changes in a row; a change beside it is found; if it stops, its next change is one."""
    clocks = [f"{17 + n} members like this" for n in range(8)]
    assert outcomes([page(one) for one in clocks]) == [True] * 3 + [False] * 4
    pages = [page(one) for one in clocks[:6]]
    edited = [*FILLER[:-1], "the harbour is closed"]
    assert outcomes([*pages, page(clocks[6], filler=edited), page(clocks[7], filler=edited)])[-2:] == [
        True,
        False,
    ]
    dated = [*FILLER[:-1], "the court will hear the case on 10 March 2026 in Leeds"]
    moved = [*FILLER[:-1], "the court will hear the case on 17 March 2026 in Leeds"]
    pages_with_date = [page(one, filler=dated) for one in clocks[:6]]
    assert outcomes([*pages_with_date, page(clocks[6], filler=moved)])[-2:] == [False, True]
    stopped = [*pages, pages[-1], page("99 members like this"), page("99 members like this")]
    assert outcomes(stopped) == [True] * 3 + [False] * 3 + [True, False]


def links(number: int, count: int = 4) -> str:
    """Links to articles that are drawn anew."""
    titles = Random(number).sample(TITLES, count)
    return "".join(f"<li><a href='/{title}'>{title}</a></li>" for title in titles)


NOISE: dict[str, Callable[[int], str]] = {
    "visitors": lambda n: f"<p>Visitors online: <b>{17 + n}</b></p>",
    "people": lambda n: f"<p>{17 + n} people are viewing this page</p>",
    "readers": lambda n: f"{1000 + n * n} readers so far",
    "guest": lambda n: f"Welcome guest {n * 77 + 5}",
    "several": lambda n: f"<p>{n} waiting users</p>stable text<p>queue: {n * 3 + 1}</p>",
    "German": lambda n: f"<span>{17 + n}</span> <span>Mitglieder</span>",
    "Russian": lambda n: f"Сейчас на сайте {17 + n} посетителей",
    "Arabic": lambda n: f"عدد الزوار {17 + n}",
    "Chinese": lambda n: f"当前在线人数：{17 + n}",
    "Korean": lambda n: f"현재 접속자 {17 + n}명",
    "Hindi": lambda n: f"<p>इस समय {17 + n} पाठक ऑनलाइन</p>",
    "generated": lambda n: f"<p>{n + 17} queries in 0.{n}3 seconds, request x{n}f3k{n * 3}</p>",
    "counter": lambda n: f"<div id=counter>{12345 + n}</div>",
    "related by name": lambda n: f"<ul class=relatedArticles>{links(n)}</ul>",
    "related by label": lambda n: f"<h3>Related articles</h3><ul>{links(n)}</ul>",
    "related in French": lambda n: f"<div><strong>À lire aussi :</strong><ul>{links(n)}</ul></div>",
    "related in Japanese": lambda n: f"<h3>関連記事</h3><ul>{links(n)}</ul>",
    "related with prices": lambda n: f"<div class='related products'>{links(n)} $1{n}</div>",
    "quote": lambda n: f"<blockquote>{QUOTES[n]}</blockquote>",
    "quote by name": lambda n: f"<div id=random-quote>{QUOTES[n]}</div>",
    "quote by label": lambda n: f"<p>Quote of the day: {QUOTES[n]}</p>",
    "quote by its marks": lambda n: f"“{QUOTES[n]}”",
    "weather": lambda n: f"Weather: {QUOTES[n]}, {n} degrees",
    "advertisement": lambda n: f"<div><small>Anzeige</small><a href=/>{TITLES[n]} from {n} EUR</a></div>",
    "sponsor": lambda n: f"<div class=sponsor>{TITLES[n]}</div>",
    "pictures of sponsors": lambda n: f"<p class=sponsors><img src='/{TITLES[n]}.png' alt='{TITLES[n]}'></p>",
}
STATEMENTS: dict[str, Callable[[int], str]] = {
    "price": lambda n: f"<span class=price>${19 + n}.99</span>",
    "price in words": lambda n: f"<p>Price: {19 + n}.99 EUR</p>",
    "price with a counter": lambda n: f"<p>Price {19 + n} EUR, 5 visitors watching</p>",
    "price of members": lambda n: f"<p>Members pay {10 + n} pounds</p>",
    "number": lambda n: f"<td>{190 + 3 * n}</td>",
    "stock": lambda n: f"<p>In stock: {50 - n}</p>",
    "stock in words": lambda n: f"<p>{('in stock', 'sold out')[n % 2]}</p>",
    "few left": lambda n: f"<p>Only {50 - n} left</p>",
    "headline": lambda n: f"<h2>{TITLES[n]}</h2>",
    "headline without a name": lambda n: f"<div>{TITLES[n]}</div>",
    "headline with a link": lambda n: f"<h3><a href='/{n}'>{TITLES[n]}</a></h3>",
    "version": lambda n: f"<p>Version 3.{n}.1</p>",
    "German": lambda n: f"<p>Noch {50 - n} Stück auf Lager</p>",
    "Japanese": lambda n: f"<p>価格：{1200 + n}円</p>",
    "Russian": lambda n: f"<p>Цена: {1500 + n} руб.</p>",
    "best seller": lambda n: f"<div class='plan popular'><b>Most popular</b><p>Pro</p><p>${10 + n}</p></div>",
    "share": lambda n: f"<div class=stock-quote>ACME {100 + n}.3</div>",
    "paragraph": lambda n: f"<p>{QUOTES[n]}, said the mayor when {TITLES[n]}</p>",
    "newest first": lambda n: "".join(f"<li>{TITLES[(at - n) % 12]} {n - at}</li>" for at in range(5)),
    "people": lambda n: f"<p>{40 + n} people were rescued</p>",
    "hour of an event": lambda n: f"<p>Lamp club <b>{n + 1} December 2026, 19:00</b></p>",
    "exchange rate": lambda n: f"<p>1 EUR = {1.05 + n / 100:.2f} USD</p>",
    "weather station": lambda n: f"<p>Water temperature {10 + n} degrees</p>",
}


@pytest.mark.parametrize("blocks", [40, 8])
def test_noise_stops_counting(blocks: int) -> None:
    """Counters, clocks, tokens; parts about other pages, or drawn anew, by their names and labels."""
    for name, made in NOISE.items():
        pages = [page(made(n), filler=FILLER[:blocks]) for n in range(9)]
        assert not any(outcomes(pages)[3:]), name


@pytest.mark.parametrize("blocks", [40, 8])
def test_a_statement_that_changes_at_each_visit_is_a_change_each_time(blocks: int) -> None:
    """A price, a headline, a stock: the learned clock hid them from the fourth visit on."""
    for name, made in STATEMENTS.items():
        pages = [page(made(n), filler=FILLER[:blocks]) for n in range(9)]
        assert all(outcomes(pages)), name


@pytest.mark.parametrize("form", ["%A, %d %B %Y %H:%M", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M"])
@pytest.mark.parametrize("block", ["{} <span>{}</span>", "<p>{}</p><div>{}</div>"])
def test_a_day_with_a_full_hour_is_learned_as_a_clock(block: str, form: str) -> None:
    """A crawl that begins on the hour sees one in each clock, which no label tells from an event."""
    visits = [datetime(2026, 11, 20, 6) + timedelta(days=day) for day in range(9)]
    pages = [page(block.format("Rowing Club of Leeds", f"{visit:{form}}")) for visit in visits]
    assert outcomes(pages) == [True] * 3 + [False] * 5


def test_a_counter_on_a_short_page_is_learned_without_the_page() -> None:
    """The main part as a whole was short enough to be a counter, and too much of the page to be one."""
    main = "<main><p>Two oars and a lamp for every boat</p><p>{} readers</p></main>"
    page_outcomes = outcomes([page(main.format(17 + n), filler=FILLER[:1]) for n in range(9)])
    assert page_outcomes[3:] == [False] * 5


def test_a_quote_that_is_drawn_twice_in_a_row_is_still_a_clock() -> None:
    """It has stopped after two visits without another."""
    drawn = [0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 7]
    page_outcomes = outcomes([page(f"<blockquote>{QUOTES[n]}</blockquote>") for n in drawn])
    assert page_outcomes == [True] * 3 + [False] * 6 + [True]


def token(number: int) -> str:
    return sha256(bytes([number])).hexdigest()[:12]


ROWS = [{"id": number, "price": 5 + number} for number in range(6)]
DATA_NOISE: dict[str, Callable[[int], object]] = {
    "token": lambda n: {"rows": ROWS, "kennung": token(n)},
    "Unix time": lambda n: {"rows": ROWS, "zeitstempel": 1763690584 + n * 86400},
    "row's own stamp": lambda n: {"rows": [{**row, "gesehen": 1763690584000 + n * 60_000} for row in ROWS]},
    "run time": lambda n: {"rows": ROWS, "dauer": {"ms": 0.01 + n / 77}},
    "counter": lambda n: {"rows": ROWS, "onlinePlayers": 100 + 7 * n},
}
DATA_STATEMENTS: dict[str, Callable[[int], object]] = {
    "price": lambda n: {"rows": [{"id": 1, "price": 5 + n}]},
    "large price": lambda n: {"price": 1_700_000_000 + 1000 * n},
    "count": lambda n: {"count": 100 + n, "rows": ROWS},
    "commit": lambda n: {"branch": "main", "commit": token(n) * 3},
    "version": lambda n: {"name": "lamp", "version": f"1.{n}.0"},
    "headlines": lambda n: {"headlines": [f"{TITLES[(n - at) % 12]} {n - at}" for at in range(4)]},
    "date of an event": lambda n: {"title": "Concert", "rows": [{"name": "Hall", "seats": 90 - n}]},
}


def test_noise_of_data_stops_counting_and_its_statements_count() -> None:
    """Of JSON under keys that no rule knows, and of the state of an application."""
    for name, made in DATA_NOISE.items():
        pages = [json.dumps(made(n)) for n in range(9)]
        assert not any(outcomes(pages)[3:]), name
        shells = [f"<title>Shop</title><body><script>window.__STATE__ = {one}</script>" for one in pages]
        assert not any(outcomes(shells)[3:]), name
    for name, made in DATA_STATEMENTS.items():
        assert all(outcomes([json.dumps(made(n)) for n in range(9)])), name


def test_what_a_page_is_about_is_no_clock() -> None:
    """The weather of a page with that title is its statement, also in a part of that name."""
    pages = [page(f"<h1>Weather</h1><div class=weather>{QUOTES[n]}, {n} degrees</div>") for n in range(9)]
    assert all(outcomes(pages))


@pytest.mark.slow
def test_hostile_pages_take_time_in_proportion() -> None:
    """Labels, counters and quotation marks without end."""
    for body in ("<p>Related</p><p>1$ x</p>" * 9000, "<b>1</b>" * 20_000, "<p>“a 1 visitor" * 9000):
        assert blocks_of(f"<html><body>{body}")
    assert blocks_of_data(json.dumps({"key": "a11" * 40 + "!"}))


def test_pages_that_change_are_no_clocks() -> None:
    """All of the text, the newest entry of a list, or other blocks each time."""
    pages = [page(filler=[f"{one} {n}" for one in FILLER]) for n in range(7)]
    assert outcomes(pages) == [True] * 6
    news = [page(filler=[f"headline {30 + n - at} of the day" for at in range(30)]) for n in range(7)]
    assert outcomes(news) == [True] * 6
    wandering = [page(filler=[*FILLER[: 5 * n], f"corrected {n}", *FILLER[5 * n + 1 :]]) for n in range(7)]
    assert outcomes(wandering) == [True] * 6
    rare = [page("one") if n % 4 else page("two") for n in range(9)]
    assert outcomes(rare).count(True) == 4
