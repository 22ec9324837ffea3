"""What a person sees of what the crawl compares."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_gp4c.commands.text import NO_TEXT, marked_text
from scrapy_gp4c.words.normal import normalise
from tests.commands.test_commands import scrapy_gp4c
from tests.support.schemas import checked
from tests.support.served import served

PAGES = {
    "/page": "<html><title>Shop</title><nav>Home</nav><p>Built on 10 Nov 2026 with care, and "
    + "many words " * 9
    + "</p><div class=ad>Buy tyres</div></html>",
    "/empty": "<html><title>App</title><div id=root></div></html>",
}


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a server."""
    with served(PAGES.get) as url:
        yield url


@pytest.mark.slow
def test_a_page_is_shown_as_it_is_compared(address: str, project_directory: Path) -> None:
    """Compared text, masked parts in brackets, what is left out and why; nothing is recorded."""
    done = scrapy_gp4c(project_directory, "text", "news", f"{address}/page")
    assert done.returncode == 0, done.stderr
    assert "built on [-10 nov 2026-] with care" in done.stdout
    assert "left out, navigation, 1 word:\nHome" in done.stdout
    assert "left out, advertisement, 2 words:\nBuy tyres" in done.stdout
    assert not [*project_directory.rglob("data.mdb")]
    document = checked(
        "text", scrapy_gp4c(project_directory, "text", "news", f"{address}/page", "--json").stdout
    )
    assert (document["kind"], document["masked"], document["has_text"]) == ("html", 1, True)
    rules = 'GP4C_RULES=[{"match": "*/page", "watch": "p"}]'
    watched = scrapy_gp4c(project_directory, "text", "news", f"{address}/page", "-s", rules)
    assert "by rule 1 ('*/page') of GP4C_RULES" in watched.stdout
    assert "tyres" not in watched.stdout
    assert "built on 10 nov 2026 with care" in watched.stdout  # what is watched has no masks
    empty = scrapy_gp4c(project_directory, "text", "news", f"{address}/empty").stdout
    assert NO_TEXT in empty
    missing = scrapy_gp4c(project_directory, "text", "news", f"{address}/missing").stdout
    assert "the answer is 404: a visit would compare nothing of it" in missing
    assert NO_TEXT not in missing


@pytest.mark.slow
def test_a_page_that_cannot_be_fetched_is_one_error(project_directory: Path) -> None:
    """With the reason."""
    for url, error in (("http://127.0.0.1:1/", "cannot fetch http://127.0.0.1:1/: "), ("a", "'a' is no URL")):
        done = scrapy_gp4c(project_directory, "text", "news", url)
        assert done.returncode == 1
        assert done.stderr.startswith(f"scrapy gp4c text: {error}")


def test_masks_are_marked_in_any_script() -> None:
    """What stands in the text, in its normal form."""
    for text, marked in (
        ("Seen 3 hours ago today", "seen [-3 hours ago-] today"),
        ("価格 2026年3月4日 円", "価格 [-2026 年 3 月 4 日-] 円"),
        ("nothing here", "nothing here"),
    ):
        assert marked_text(text, normalise(text)) == marked
