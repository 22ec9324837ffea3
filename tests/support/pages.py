"""Reports as text: whether they are well formed and complete."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from tests.support.example_results import results


def experiment(directory: Path, gain: float = 0.05) -> Path:
    """A directory with the results of an experiment whose history is gone."""
    directory.mkdir()
    (directory / "results.json").write_text(json.dumps(results(gain).to_json()))
    return directory


class ReportParser(HTMLParser):
    """Collects a report's ids, links and loaded files, and checks that elements are closed in order."""

    EMPTY = frozenset(("meta", "link", "br", "path", "circle", "rect"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name == "href" and tag == "a":
                self.links.append(str(value))
            if name in ("src", "srcset", "data", "action") or (name == "href" and tag == "link"):
                self.loads.append(str(value))
        if tag not in self.EMPTY:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the element is the last one opened."""
        if tag not in self.EMPTY:
            assert self.stack.pop() == tag


def check(text: str) -> ReportParser:
    """Check that a report is well formed, self-contained and explains its terms; return it parsed."""
    page = ReportParser(text)
    assert not page.stack
    assert page.loads == ["data:,"]  # the icon that browsers ask for otherwise
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.ids) == len(set(page.ids))
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids)
    assert not re.search(r"\bnan\b|None|undefined", re.sub(r"<style>.*?</style>", "", text, flags=re.S))
    return page
