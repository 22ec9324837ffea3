"""The web's truth as a change history, for replays."""

import numpy as np
import pytest

from example_project.history import growth_of, history_of, main
from example_project.model import NEVER, Web
from training.comparing.evaluation import evaluate
from training.histories.claims import read_first_sight
from training.histories.growth import NO_FINDER, read_growth
from training.histories.reading import read_history
from training.replaying.growth import HUBS, growth_crawl, replay_growth
from training.replaying.prepared import CrawlChoices


def test_what_is_written_is_what_the_web_shows(tmp_path):
    """Cycle c is what changed on day c + 1; each page is found by its site and name."""
    path = tmp_path / "web.tsv"
    assert main(["--seed", "3", "--hosts", "4", "--days", "9", "-o", str(path)]) == 0
    history, web = read_history(path), Web(3, 4)
    assert history.changed.shape == (8, web.steady.sum())
    pages = [
        web.find(history.site_names[site], name)
        for site, name in zip(history.site.tolist(), history.page_names, strict=True)
    ]
    np.testing.assert_array_equal(pages, np.flatnonzero(web.steady))
    for cycle in range(8):
        np.testing.assert_array_equal(history.changed[cycle], web.changed(cycle + 2)[pages])
    seen = read_first_sight(tmp_path / "web.first_sight.tsv.gz", history)
    assert (seen.size > 0).all()
    dated = np.flatnonzero(web.host[pages] % 4)  # the hosts that send Last-Modified
    assert dict(seen.claims[["page", "value"]].tolist()) == {
        page: -1 - web.age_days[pages[page]] for page in dated.tolist()
    }


def test_growth_is_what_the_web_shows(tmp_path):
    """Pages appear on their day, and what leads to each lists it from then on; changes are the web's."""
    path = tmp_path / "web.npz"
    assert main(["--growth", "--seed", "3", "--days", "9", "-o", str(path)]) == 0
    grown, web = read_growth(path), Web(3)
    history = grown.history
    pages = np.array(
        [
            web.find(history.site_names[site], name)
            for site, name in zip(history.site.tolist(), history.page_names, strict=True)
        ]
    )
    stays = (web.born <= 9) & (web.gone == NEVER) & ~web.private & ~web.redirects
    np.testing.assert_array_equal(pages, np.flatnonzero(stays))
    np.testing.assert_array_equal(grown.born, web.born[pages] - 1)
    assert grown.finder[0] == NO_FINDER
    new = np.flatnonzero(grown.born > 0)
    for page, finder, born in zip(pages[new], pages[grown.finder[new]], grown.born[new], strict=True):
        assert page in web.listed(int(finder), int(born) + 1)
        assert page not in web.listed(int(finder), int(born))
    for cycle in range(8):
        np.testing.assert_array_equal(history.changed[cycle], web.changed(cycle + 2)[pages])


@pytest.mark.slow
def test_discovery_finds_new_pages_sooner_at_the_same_change_rate():
    """On three seeds, at 5%: a mean delay of 1.2 cycles at most, and 3% fewer changes per visit at most."""
    choices, rows = CrawlChoices(), {0.0: [], 0.1: []}
    for seed in (1, 2, 3):
        grown = growth_of(Web(seed))
        for share, delays in rows.items():
            delays.append(replay_growth(grown, growth_crawl("default", None, share, HUBS, choices)))
    delay = {share: np.mean([one.delay.mean() for one in delays]) for share, delays in rows.items()}
    rate = {share: np.mean([one.change_rate for one in delays]) for share, delays in rows.items()}
    assert delay[0.1] <= 1.2
    assert delay[0.1] < delay[0.0]
    assert rate[0.1] >= 0.97 * rate[0.0]


def test_replays_of_several_seeds():
    """On every seed the default finds far more than age, and keeps more copies current than random."""
    for seed in (1, 2, 3):
        names = ("default", "age", "random")
        by_name = {one.score: one.metrics for one in evaluate(history_of(Web(seed)), names).results}
        default, age, by_chance = (by_name[name] for name in names)
        assert default["change_rate"].mean > 1.3 * age["change_rate"].mean > 0.1
        assert default["freshness"].mean >= by_chance["freshness"].mean


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--days", "1", "-o", "a.tsv"], "2 to 400"),
        (["--hosts", "0", "-o", "a.tsv"], "1 to 250"),
        (["--growth", "-o", "a.tsv"], "ends in .npz"),
        (["-o", "a.else"], "a.else"),
        (["-o", "nowhere/a.tsv"], "nowhere/a.tsv"),
    ],
)
def test_bad_input(capsys, monkeypatch, tmp_path, arguments, said):
    """What cannot be made or written is one clear message."""
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
