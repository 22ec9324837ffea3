"""The tables of sampling policies: what stands in them is what replays find."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import sampling
from benchmarks.sampling import Case, Row, cases, main, rows, tried
from tests.support.linked import write_linked
from training.comparing.trials import try_policy, written
from training.histories.formats import write_npz
from training.histories.models import generate
from training.histories.reading import read_history
from training.replaying.metrics import ORACLE, TRIO
from training.replaying.prepared import CrawlChoices


@pytest.fixture
def contents(tmp_path: Path) -> Path:
    return write_linked(tmp_path / "contents.jsonl", pages=40)


def test_rows_are_those_that_a_history_has_groups_for(contents: Path, tmp_path: Path) -> None:
    """A history without names knows sites alone; contents know all."""
    ((case, policies),) = cases(str(contents), None)
    assert policies is not None
    everything = rows(case.history)
    assert {row.policy.partition("(")[0] for row in everything} == {
        ORACLE, "top_k", "rounds", "rns", "rr", "gsb", "groups", "lb", "db", "cb"
    }  # fmt: skip
    path = tmp_path / "history.npz"
    write_npz(path, generate("poisson", 40, 9, 1))
    ((nameless, _),) = cases(str(path), "a*")
    assert [str(row) for row in rows(nameless.history)] == [
        ORACLE, f"`{sampling.PLAIN}` under `top_k`", "`rns`", "`rr`", "`gsb`", "`groups`"
    ]  # fmt: skip


def test_sites_are_left_out_with_their_clusters(contents: Path) -> None:
    """What is left keeps its clusters and links; a pattern that matches nothing leaves out nothing."""
    (whole, _), (part, _) = cases(str(contents), "b*")
    of_first_site = whole.history.site == 0
    groups, part_groups = (one.history.neighbours.groups_by_content for one in (whole, part))
    assert groups is not None
    assert part_groups is not None
    assert np.array_equal(part_groups.cluster, groups.cluster[of_first_site])
    assert np.array_equal(part.history.changed, whole.history.changed[:, of_first_site])
    assert len([*cases(str(contents), "c*")]) == 1


def test_weights_are_those_of_popularity_alone(contents: Path) -> None:
    """C^w weighs pages by their links; freshness and the rest are of pages that weigh the same."""
    ((case, _),) = cases(str(contents), None)
    crawl = CrawlChoices(0.1, seed=1)
    result = tried(case, Row("rns"), crawl, 2)
    plain = try_policy(case.history, "rns", crawl, 2, [*TRIO, sampling.WEIGHTED])
    for metric in TRIO:
        assert np.array_equal(result.per_cycle[metric], plain.per_cycle[metric])
    assert not np.array_equal(result.per_cycle[sampling.WEIGHTED], plain.per_cycle[sampling.WEIGHTED])
    bits = Case("bits", read_history(contents))
    assert sampling.WEIGHTED not in tried(bits, Row("rns"), crawl, 1).per_cycle


@pytest.mark.slow
def test_tables_have_the_means(contents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for every policy, the lead over random visits, and what is varied; the file's text stays."""
    output = tmp_path / "tables.md"
    output.write_text("# Kept\n\n## Replaced\n")
    small = ["--budgets", "0.1", "--seeds", "2", "-o", str(output)]
    assert main([str(contents), *small]) in (0, 1)
    said = output.read_text()
    assert said.startswith("# Kept\n\n## The tables\n\n### contents, 10.0% of 40 pages\n")
    ((case, _),) = cases(str(contents), None)
    crawl = CrawlChoices(0.1, seed=1)
    random, cluster = (tried(case, Row(name), crawl, 2) for name in ("rns", "cb"))
    ahead = written(cluster.ahead(random, "change_rate"), sign="+")
    (line,) = [line for line in said.splitlines() if line.startswith("| `cb` |")]
    assert line.startswith(f"| `cb` | {written(cluster.mean('change_rate'))} | ")
    assert line.endswith(f" | {ahead} |")
    assert said.count("`--clusters ") == len(sampling.CLUSTER_COUNTS)
    assert said.count("`--features ") == len(sampling.FEATURE_SETS)
    shown = capsys.readouterr().out
    assert shown.count("target: at least 1.4)") == 1
    assert shown.count("lead in freshness") == 4
    before = said
    assert main([str(contents), *small]) in (0, 1)
    assert output.read_text() == before
