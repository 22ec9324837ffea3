"""Metrics in the text format of Prometheus, read by its own parser."""

from prometheus_client.parser import text_string_to_metric_families

from scrapy_gp4c.notices.metrics import metrics


def test_prometheus_reads_the_metrics() -> None:
    """Counts of the last cycle, its budget, pages by stage, their age, and the estimates with intervals."""
    share = {"estimate": 0.2, "low": 0.1, "high": 0.3}
    record = {
        "cycle": 7, "planned": 20, "visited": 19, "changed": 3, "change_rate": None,
        "outcomes": {"changed": 3, "error": 1}, "plan": {"budget": 20},
        "panel": {"judged": 9, "changed_share": share, "freshness": share},
    }  # fmt: skip
    text = metrics("news", record, {"never_fetched": 4, "ranked": 90}, 2.5).decode()  # type: ignore[arg-type]
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    spider = ("spider", "news")
    assert samples["gp4c_cycle", spider] == 7
    assert samples["gp4c_visits", ("outcome", "changed"), spider] == 3
    assert samples["gp4c_pages", spider, ("stage", "never_fetched")] == 4
    assert (samples["gp4c_budget", spider], samples["gp4c_age_cycles", spider]) == (20, 2.5)
    assert samples["gp4c_freshness", ("bound", "low"), spider] == 0.1
    assert not [name for name, *_ in samples if name == "gp4c_change_rate"]
