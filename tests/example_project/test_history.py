"""The web's truth as a change history, for replays."""

import numpy as np
import pytest

from example_project.history import history_of, main
from example_project.model import Web
from training.comparing.evaluation import evaluate
from training.histories.reading import read_history


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


def test_replays_of_several_seeds():
    """On every seed the default finds far more than age, and keeps more copies current than random."""
    for seed in (1, 2, 3):
        names = ("default", "age", "random")
        by_name = {one.score: one.metrics for one in evaluate(history_of(Web(seed)), names).results}
        default, age, by_chance = (by_name[name] for name in names)
        assert default["change_rate"].mean > 1.3 * age["change_rate"].mean > 0.1
        assert default["freshness"].mean >= by_chance["freshness"].mean


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--days", "1", "-o", "a.tsv"], "2 to 400"),
        (["--hosts", "0", "-o", "a.tsv"], "1 to 250"),
        (["-o", "a.else"], "a.else"),
        (["-o", "nowhere/a.tsv"], "nowhere/a.tsv"),
    ],
)
def test_bad_input(capsys, monkeypatch, tmp_path, given, said):
    """What cannot be made or written is one clear message."""
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
