"""``scrapy gp4c evaluate`` and its like, as a user runs them."""

import json
import random
from pathlib import Path

import pytest

from tests.commands.test_commands import crawl_cycles, make_project, scrapy_gp4c


@pytest.mark.slow
def test_replays_know_store_budget_and_policy_of_a_spider(
    project_directory: Path, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spider's name stands for its store and settings; a package of the same name does not hide ours."""
    project = make_project(project_directory, store_path, monkeypatch)
    dice = random.Random(1)
    outcomes = [dict.fromkeys(range(20), "first")]
    outcomes += [{page: dice.choice(["changed", "unchanged"]) for page in range(20)} for _ in range(9)]
    with project.open_store(readonly=False) as store:
        store.add_pages([(page + 1, {"url": f"http://site/{page}"}) for page in range(20)])
    crawl_cycles(project, outcomes)
    (project_directory / "training").mkdir()
    (project_directory / "training" / "__init__.py").write_text("raise SystemExit('not ours')")
    options = ("-s", f"GP4C_STORE={store_path}", "-s", "GP4C_BUDGET=0.25", "-s", "GP4C_POLICY=top_k")
    written = tmp_path / "values.json"
    done = scrapy_gp4c(project_directory, "evaluate", "news", "--score", "age", "--json", written, *options)
    assert done.returncode == 0, done.stderr
    values = json.loads(written.read_text())
    assert str(store_path) in json.dumps(values)
    assert "0.25" in json.dumps(values)
    done = scrapy_gp4c(project_directory, "evaluate", "sports")
    assert done.returncode == 1
    assert "there is no spider and no file 'sports'" in done.stderr
    done = scrapy_gp4c(project_directory, "learn", "--help")
    assert done.stdout.startswith("usage: scrapy gp4c learn [options] SPIDER|HISTORY\n")
