"""What a crawl over four cycles takes for a change, on every kind of page."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_commands import in_process, make_project
from tests.support.loopback import Pages, Site, crawl, outcomes
from tests.support.schemas import checked

FILLER = "a quiet harbour with a lamp and a stone bridge over the river where the market stands " * 4
SETTINGS = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0, "ROBOTSTXT_OBEY": False}
HTML = "text/html"
Made = Callable[[int], "str | bytes"]


def page(body: str, head: str = "") -> str:
    return f"<html><head><title>Page</title>{head}</head><body>{body}</body></html>"


def filled(text: str, head: str = "") -> str:
    """An HTML page of many words and a text."""
    return page(f"<p>{FILLER} {text}</p>", head)


def row(cycle: int) -> str:
    """A row that changes in cycles 3 and 4."""
    return f"Price: {(12, 12, 13, 14)[cycle - 1]} EUR"


CHANGING: dict[str, tuple[str, Made]] = {
    "twice": (HTML, lambda n: page(f"<p>{FILLER}</p><p>{row(n)}</p><i>{FILLER}</i><p>{row(n)}</p>")),
    "four-times": (HTML, lambda n: page(f"<p>{FILLER}</p><p>{row(n)}</p>" * 4)),
    "root-ad": (HTML, lambda n: page(f"<div id=app class=ad><p>{FILLER} {row(n)}</p></div>")),
    "hidden": (HTML, lambda n: page(f"<div style='display:none'><p>{FILLER} {row(n)}</p></div>")),
    "nav": (HTML, lambda n: page(f"<nav>{FILLER} {row(n)}</nav><p>Menu</p>")),
    "long-script": (
        HTML,
        lambda n: filled(f"{row(n)}", f"<script>{'x=1;' * 60_000}</script>"),
    ),
    "json-ld": (
        HTML,
        lambda n: page("", f'<script type="application/ld+json">"{row(n)}"</script>'),
    ),
    "json": ("application/json", lambda n: json.dumps({"price": row(n), "id": 7})),
    "lines": ("application/x-ndjson", lambda n: f'{{"id": 1}}\n{{"p": "{row(n)}"}}\n'),
    "csv": ("text/csv", lambda n: f"name,price\nGull,{row(n)}\n"),
    "feed": ("text/xml", lambda n: f"<rss><channel><item><title>{row(n)}</title></item></channel></rss>"),
    "attribute": ("text/xml", lambda n: f"<list><item price='{row(n)}'/></list>"),
    "image": ("image/png", lambda n: b"\x89PNG" + row(n).encode()),
}
STILL: dict[str, tuple[str, Made]] = {
    "date": (HTML, lambda n: filled(f"{9 + n}-Nov-2026")),
    "cookies": (
        HTML,
        lambda n: page(f"<p>{FILLER}</p>" + "<div id=cookie-bar>We use cookies</div>" * (n % 2)),
    ),
    "aside": (HTML, lambda n: page(f"<main>{FILLER}</main><aside>Weather: {n} degrees</aside>")),
    "keys": (
        "application/json",
        lambda n: json.dumps(dict(list({"a": 1, "b": [2, 3]}.items())[:: (-1) ** n])),
    ),
    "stamp": ("application/json", lambda n: json.dumps({"rows": [1], "generated_at": 1763690584 + n})),
    "builddate": (
        "text/xml",
        lambda n: (
            f"<rss><title>News</title><channel><lastBuildDate>1{n} Nov 08:00</lastBuildDate></channel></rss>"
        ),
    ),
    "quotes": ("text/csv", lambda n: 'name,price\n"Gull",7\n' if n % 2 else "name,price\r\nGull,7\r\n"),
}
EMPTY: dict[str, tuple[str, Made]] = {
    "app": (HTML, lambda n: page("<div id=root></div><script>go()</script>")),
    "nothing": (HTML, lambda n: ""),
}


class Reader(Pages):
    """Asks for all pages."""

    name = "news"


@pytest.mark.slow
async def test_changes_are_found_and_noise_is_left_alone(
    site: Site,
    store_path: Path,
    project_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of each kind; pages without text are told in the log, by `status` and by `why`."""
    now = {"cycle": 1}

    def served(content_type: str, made: Made) -> Callable[[Any], bytes]:
        def render(request: Any) -> bytes:
            request.setHeader("Content-Type", f"{content_type}; charset=utf-8")
            body = made(now["cycle"])
            return body if isinstance(body, bytes) else body.encode()

        return render

    for name, (content_type, made) in (CHANGING | STILL | EMPTY).items():
        site.pages[f"/{name}"] = served(content_type, made)
    results = []
    for now["cycle"] in range(1, 5):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await crawl(Reader, store_path, SETTINGS, site=site)
        results.append(outcomes(store_path, now["cycle"]))
        assert "2 pages have no visible text" in caplog.text
    by_page = {path[1:]: [one.get(path) for one in results] for path in results[0]}
    same, moves = [["first"], *[["unchanged"]] * 3], [["first"], ["unchanged"], ["changed"]]
    assert {name: by_page[name] for name in STILL if by_page[name] != same} == {}
    assert {name: by_page[name] for name in EMPTY if by_page[name] != same} == {}
    assert {name: by_page[name] for name in CHANGING if by_page[name][:3] != moves} == {}
    project = make_project(project_directory, store_path, monkeypatch, SETTINGS)
    in_process(project, "status", "--json")
    assert checked("status", capsys.readouterr().out)["no_text"] == 2
    in_process(project, "status")
    assert "2 pages have no visible text" in capsys.readouterr().out
    in_process(project, "why", site.url("/app"))
    assert "its copy has no visible text" in capsys.readouterr().out
    in_process(project, "why", site.url("/aside"))
    assert (
        "words are compared (html); 0 masked; 3 left out: sidebar or page header" in capsys.readouterr().out
    )
    in_process(project, "why", site.url("/aside"), "--json")
    assert checked("why", capsys.readouterr().out)["known"]["compared"]["left_out"] == [
        "sidebar or page header"
    ]


async def test_the_clock_of_a_page_stops_counting(site: Site, store_path: Path) -> None:
    """After three changes in a row; a change beside it is found, and the store survives its folds."""
    now = {"cycle": 1}

    def served(request: Any) -> bytes:
        price = "Price: 12 EUR" if now["cycle"] < 7 else "Price: 13 EUR"
        blocks = "".join(f"<p>{word} {FILLER}</p>" for word in "abcdef")
        return page(f"<div>{now['cycle'] * 7} members like this</div>{blocks}<p>{price}</p>").encode()

    site.pages["/clock"] = served
    results = []
    for now["cycle"] in range(1, 10):
        await crawl(Reader, store_path, SETTINGS, site=site)
        results += outcomes(store_path, now["cycle"])["/clock"]
    assert results == ["first", *["changed"] * 3, *["unchanged"] * 2, "changed", *["unchanged"] * 2]
