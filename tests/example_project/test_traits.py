"""The traits of a change history, against their definitions in plain Python, and the web's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from example_project.history import history_of
from example_project.model import Web
from example_project.traits import LEAST_PAGES, LEAST_SWEPT, Bits, bits_of, main, traits
from training.histories.history import ChangeHistory

LIKE_PUBLIC = {  # docs57weekly.public without awesome-selfhosted-data, see docs/lab/demo.md
    "changes per page and cycle": 0.0225,
    "pages that never changed": 0.514,
    "pages with at most 1 changes": 0.755,
    "pages with at most 5 changes": 0.967,
    "pages that changed in 20% of the cycles or more": 0.0155,
    "pages that changed in 50% of the cycles or more": 0.0057,
    "changes of the busiest 5% of the pages": 0.443,
    "directory: others changed in the same cycle": 0.270,
    "directory: correlation of the numbers of changes": 0.452,
    "site: others changed in the same cycle": 0.0935,
    "site: the same by their rates alone, same cycle": 0.0479,
    "site: correlation of the numbers of changes": 0.292,
    "sweeps (half a directory at once): per directory and cycle": 0.0074,
    "sweeps: share of all changes": 0.155,
    "sweeps: share of the directory": 0.769,
}


def others(changed, group, lag):
    """Share of the other pages of a changed page's group that changed ``lag`` cycles later: by its words."""
    shares = []
    for cycle in range(len(changed) - lag):
        for page in np.flatnonzero(changed[cycle]).tolist():
            fellows = [other for other in range(len(group)) if group[other] == group[page] and other != page]
            if len(fellows) + 1 >= LEAST_PAGES:
                shares.append(np.mean([changed[cycle + lag, other] for other in fellows]))
    return np.mean(shares) if shares else float("nan")


@given(
    changed=arrays(np.bool_, st.tuples(st.integers(2, 6), st.just(30))),
    directory=arrays(np.int64, 30, elements=st.integers(0, 3)),
)
def test_definitions(changed, directory):
    """Togetherness, sweeps and counts are what their names say; a site has two directories."""
    changed[0, :2] = True
    directory = np.unique(directory, return_inverse=True)[1]
    bits = Bits(changed, np.unique(directory // 2, return_inverse=True)[1], directory)
    result = traits(bits)
    for name, group in (("directory", bits.directory), ("site", bits.site)):
        for lag, when in ((0, "same cycle"), (1, "next cycle")):
            expected = others(changed, group.tolist(), lag)
            got = result[f"{name}: others changed in the {when}"]
            assert got == pytest.approx(expected, nan_ok=True)
    times = changed.sum(0)
    assert result["pages that never changed"] == np.mean(times == 0)
    swept = []
    for one in range(directory.max() + 1):
        pages = np.flatnonzero(directory == one)
        if pages.size >= LEAST_SWEPT:
            swept += [changed[cycle, pages].mean() for cycle in range(len(changed))]
    steady = [share for share in swept if share >= 0.5]
    expected = len(steady) / len(swept) if swept else 0.0
    assert result["sweeps (half a directory at once): per directory and cycle"] == pytest.approx(expected)
    if steady:
        assert result["sweeps: share of the directory"] == pytest.approx(np.mean(steady))


def test_apart_and_together():
    """Pages of one clock are together, pages of clocks of their own as their rates say."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(40), 10)
    apart = Bits(rng.random((200, 400)) < 0.1, group, group)
    same = "directory: others changed in the same cycle"
    alone = "directory: the same by their rates alone, same cycle"
    assert traits(apart)[same] == pytest.approx(traits(apart)[alone], rel=0.05)
    assert traits(apart)[alone] == pytest.approx(0.1, rel=0.05)
    together = Bits((rng.random((200, 40)) < 0.1)[:, group], group, group)
    assert traits(together)[same] == 1.0
    assert traits(together)[alone] == pytest.approx(0.1, rel=0.1)
    assert traits(together)["sweeps: share of all changes"] == 1.0
    assert abs(traits(apart)["directory: correlation of the numbers of changes"]) < 0.05
    assert traits(together)["directory: correlation of the numbers of changes"] > 0.95


@pytest.mark.slow
def test_the_web_is_like_the_data():
    """Without the pages that a program rewrites, the web's traits are those its constants were chosen for."""
    webs = [traits(bits_of(history_of(Web(seed), 58), ["/live/"])) for seed in range(1, 9)]
    for name, public in LIKE_PUBLIC.items():
        assert np.mean([one[name] for one in webs]) == pytest.approx(public, rel=0.25), name


def test_directories_and_pages_left_out():
    """A directory is site and path; what a text of --without is in is left out, and numbers stay dense."""
    names = ["a/x", "a/y", "b/x", "a/x"]
    history = ChangeHistory(
        np.eye(4, dtype=bool), np.array([0, 0, 0, 1]), site_names=["one", "two"], page_names=names
    )
    bits = bits_of(history)
    assert bits.directory.tolist() == [0, 0, 1, 2]
    remaining = bits_of(history, ["one/a/"])
    assert (remaining.site.tolist(), remaining.directory.tolist()) == ([0, 1], [0, 1])
    np.testing.assert_array_equal(remaining.changed, history.changed[:, 2:])


def test_bad_input(tmp_path, capsys):
    """Histories without names, and nothing left, are one clear message each."""
    nameless, named = tmp_path / "bits.txt", tmp_path / "bits.tsv"
    nameless.write_text("01\n10\n")
    named.write_text("one\ta/x\t01\n")
    assert main([str(nameless)]) == 2
    assert "does not tell the names of its pages" in capsys.readouterr().err
    assert main([str(named), "--without", "one"]) == 2
    assert "no page is left" in capsys.readouterr().err
