"""What a cycle's record, its log line and `status` tell of samples; score files that want another policy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import crawl_store, texts_of
from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.reports import sampled_counts
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.outcomes import KINDS, NEIGHBOUR, SAMPLE, VISIT
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import samples_of
from tests.support import live_replay


def test_visits_are_counted_by_why_they_were_made() -> None:
    """Samples and neighbours, and how many of each had changed; nothing of a policy that has none."""
    visits = np.zeros(7, VISIT)
    visits["kind"] = [SAMPLE, SAMPLE, NEIGHBOUR, NEIGHBOUR, NEIGHBOUR, 0, KINDS.index("new")]
    visits["outcome"] = [2, 1, 2, 2, 1, 2, 0]
    result = sampled_counts(visits, seeds=1)
    assert result == {
        "samples": 2, "samples_changed": 1, "seeds": 1, "neighbours": 3, "neighbours_changed": 2,
    }  # fmt: skip
    assert samples_of({"sampled": result}) == "2 samples (1 changed, 1 followed), 3 neighbours (2 changed)"
    assert sampled_counts(visits[5:], seeds=0) is None
    assert samples_of({}) == ""


@pytest.mark.parametrize(
    ("policy", "follows"),
    [
        ("db(in_flight=2)", "changed"),
        ("db(phi=0)", "none"),
        ("db(phi=1, in_flight=3)", "all"),
        ("gsb(sample=2)", "groups"),
        ("groups(sample=2, in_flight=4)", "groups"),
        ("rounds(rounds=2, sample=0.5)", "none"),
        ("top_k", None),
    ],
)
def test_every_cycle_tells_how_many_samples_were_followed(
    policy: str, follows: str | None, tmp_path: Path
) -> None:
    """By phi, those that changed, all, none; of policies by groups the groups whose rest was fetched."""
    changed = live_replay.related_changes(seed=2, cycles=5)
    crawl_settings = live_replay.settings_of({"GP4C_POLICY": policy, "GP4C_BUDGET": 0.4})
    texts = texts_of(changed, np.random.default_rng(0))
    crawl_store(tmp_path / "s", texts, crawl_settings, live_replay.KEYS, live_replay.URLS)
    with open_store(tmp_path / "s", readonly=True) as store:
        records = store.cycles()[live_replay.WARMUP + 1 :]
        for record in records:
            if follows is None:
                assert "sampled" not in record
                continue
            ((_, visits),) = store.visits(record["cycle"], record["cycle"])
            counts = record["sampled"]
            assert counts["samples"] == int((visits["kind"] == SAMPLE).sum()) > 0
            assert counts["neighbours"] == int((visits["kind"] == NEIGHBOUR).sum())
            site = live_replay.SITE[visits["page"][visits["kind"] == NEIGHBOUR]]
            expected = {
                "changed": counts["samples_changed"],
                "all": counts["samples"],
                "none": 0,
                "groups": len(set(site.tolist())),
            }
            assert counts["seeds"] == expected[follows]
    assert len(records) == 3


def score_file(path: Path, **more: Any) -> str:
    path.write_text(json.dumps({"format": "gp4c-score/1", "expression": "t * X", "clock": "visits", **more}))
    return str(path)


def test_a_crawl_by_another_policy_than_the_learned_one_is_told(tmp_path: Path) -> None:
    """With both ways out; files of before were learned under top_k; what is no score file goes with any."""

    def line(function: str, policy: str) -> str | None:
        crawl_settings = {"GP4C_SCORE_FUNCTION": function, "GP4C_POLICY": policy}
        return messages.other_policy(Settings.load(ScrapySettings(crawl_settings)))

    learned = score_file(tmp_path / "a.json", policy="rounds(rounds=4)")
    assert line(learned, "rounds(rounds=4)") is None
    message = line(learned, "top_k")
    assert message is not None
    assert "was learned under the policy rounds(rounds=4), and this crawl has top_k" in message
    assert "Set GP4C_POLICY = 'rounds(rounds=4)'" in message
    assert "python -m training.learn --policy" in message
    before = score_file(tmp_path / "b.json")
    assert (line(before, "top_k"), line("t * X", "rounds()")) == (None, None)
    assert line(before, "rounds()") is not None
    assert line(before, "db") is None, "it chooses by no score"
    with pytest.raises(ScoreError, match='has "policy": 4; expected the text of a policy'):
        load(score_file(tmp_path / "c.json", policy=4))
