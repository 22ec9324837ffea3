"""Contents as a web that is crawled from its start pages."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.search.queries import parse_query_log
from tests.support.linked import write_linked
from training import evaluate, learn
from training.histories.contents import read_contents
from training.histories.growth import LINK, NO_FINDER, GrowthHistory, read_growth, write_growth
from training.replaying.linked import growth_of_contents

TEXTS = {
    "index": "[Bread of the day](bread) [more](more) [elsewhere](https://example.com/bread)",
    "bread": 'back <a class=x href="index">Home</a>',
    "more": "[stars and bread](bread), `the moon <moon>`_, [](stars)",
    "moon": ":doc:`stars <stars>`",
    "stars": "no link",
    "lost": "[to](index)",
}


def contents_of(path: Path, texts: dict[str, str]) -> Path:
    """Write texts of one site that all change in cycle 2."""
    rows = [
        {"site": "s", "page": page, "versions": {"0": text, "2": f"{text} again"}}
        for page, text in texts.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def named(grown: GrowthHistory) -> dict[tuple[str, str], float]:
    """Names of linking and linked page -> worth of the link's text."""
    names = list(grown.history.page_names or ())
    return {(names[source], names[target]): anchor for source, target, anchor in grown.links.tolist()}


def test_a_web_of_links_by_hand(tmp_path: Path) -> None:
    """From the page with the most links, breadth first; a text is worth the share of the words asked for."""
    contents = read_contents(contents_of(tmp_path / "c.jsonl", TEXTS))
    grown = growth_of_contents(contents, parse_query_log(["bread\t3", "stars\t1"], "log"))
    assert list(grown.history.page_names or ()) == ["index", "bread", "more", "moon", "stars"]
    assert grown.finder.tolist() == [1, 2, NO_FINDER, 2, 2]
    assert grown.history.weights.tolist() == [3, 3, 2, 2, 3]
    assert named(grown) == {
        ("index", "bread"): 0.75,
        ("index", "more"): 0,
        ("bread", "index"): 0,
        ("more", "bread"): 1,
        ("more", "moon"): 0,
        ("more", "stars"): 0,
        ("moon", "stars"): 0.25,
    }
    assert set(named(growth_of_contents(contents)).values()) == {0}


def test_links_stay_in_files_and_parts(tmp_path: Path) -> None:
    """An archive has them all; of what is left out, none is left."""
    contents = read_contents(contents_of(tmp_path / "c.jsonl", TEXTS))
    grown = growth_of_contents(contents, parse_query_log(["bread\t1"], "log"))
    write_growth(tmp_path / "grown.npz", grown)
    assert named(read_growth(tmp_path / "grown.npz")) == named(grown)
    late = replace(grown, born=np.array([0, 0, 0, 2, 0]))
    pairs = {pair for pair in named(grown) if "moon" not in pair}
    assert named(late.until(1)).keys() == pairs
    with pytest.raises(HistoryError, match="'links' of a growth history must be between its 5 pages"):
        replace(grown, links=np.array([(0, 9, 0.5)], LINK))


def test_texts_without_links_are_no_web(tmp_path: Path) -> None:
    """The error says what would be."""
    contents = read_contents(contents_of(tmp_path / "c.jsonl", {"a": "alone", "b": "too"}))
    with pytest.raises(HistoryError, match=r"no text of .*c\.jsonl in cycle 0 links to another page"):
        growth_of_contents(contents)


@pytest.mark.parametrize(
    ("log", "counted"),
    [("bread\t1\n", ["inlinks", "inlink_sites", "anchor"]), (None, ["inlinks", "inlink_sites"])],
)
def test_links_are_learned_from(
    log: str | None, counted: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function of first visits is learned with links, and with their words if a log of queries is there."""
    write_linked(tmp_path / "c.jsonl", pages=30)
    arguments = [str(tmp_path / "c.jsonl"), "--growth", "--new-pages", "2", "--from-start"]
    if log:
        (tmp_path / "log.tsv").write_text("near\t1\n")
        arguments += ["--query-log", str(tmp_path / "log.tsv")]
    how = ["--population", "4", "--generations", "1", "--seeds", "1", "--jobs", "1", "--budget", "0.1"]
    output = tmp_path / "new.json"
    assert learn.main([*arguments, *how, "-o", str(output)]) == 0
    terminals = json.loads(output.read_text())["parameters"]["terminals"]
    assert [name for name in terminals if name in ("inlinks", "inlink_sites", "anchor")] == counted
    assert evaluate.main([*arguments, "--new-page-function", str(output), "--discovery", "0.1"]) == 0
    capsys.readouterr()


def test_a_log_goes_with_texts_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of growth has no texts of links that queries could be compared with."""
    contents = read_contents(contents_of(tmp_path / "c.jsonl", TEXTS))
    write_growth(tmp_path / "grown.npz", growth_of_contents(contents))
    (tmp_path / "log.tsv").write_text("near\t1\n")
    arguments = [str(tmp_path / "grown.npz"), "--growth", "--query-log", str(tmp_path / "log.tsv")]
    for main in (evaluate.main, learn.main):
        assert main(arguments) == 2
        assert "--query-log with --growth: expected a file of contents" in capsys.readouterr().err
