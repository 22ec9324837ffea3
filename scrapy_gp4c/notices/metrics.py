"""Metrics of a store in the Prometheus text format."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, Literal

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.store.records import CycleRecord

GAUGES: Final = {
    "planned": "Pages of the plan of the last finished cycle",
    "visited": "Visits of the last finished cycle",
    "judged": "Visits of the last finished cycle that compared the page",
    "changed": "Visits of the last finished cycle that found a change",
    "change_rate": "Changed by judged visits of the last finished cycle",
    "known": "Pages known at the end of the last finished cycle",
    "new": "Pages that became known in the last finished cycle",
    "started": "Start of the last finished cycle, s since 1970",
    "finished": "End of the last finished cycle, s since 1970",
}
"""Field of `CycleRecord` -> help text of its gauge."""
PROMISES: Final[dict[Literal["pages", "late", "latest_s", "needed"], str]] = {
    "pages": "Pages with a promise when the last finished cycle was planned",
    "late": "Pages later than promised when the last finished cycle was planned",
    "latest_s": "Lateness of the latest of them, s",
    "needed": "Visits per cycle that keep all promises",
}
"""Field of `PromiseCounts` -> help text of its gauge."""


def metrics(
    spider: str, record: CycleRecord, stages: Mapping[str, int], age_cycles: float | None = None
) -> bytes:
    """Return a store's metrics in the Prometheus text format.

    ``record``: that of the last finished cycle, {} before the first; ``stages``: stage (as warm-up) -> number
    of pages; ``age_cycles``: mean age of the copies. Raises SettingsError if prometheus-client is missing.
    """
    if find_spec("prometheus_client") is None:
        raise SettingsError("metrics need prometheus-client: pip install 'scrapy-gp4c[notify]'")
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: dict[str, str], value: float) -> None:
        names = ["spider", *labels]
        existing: Any = gauges.get(name)
        if existing is None:
            existing = gauges[name] = Gauge(name, text, names, registry=registry)
        existing.labels(spider=spider, **labels).set(value)

    gauges: dict[str, Any] = {}
    gauge("gp4c_cycle", "Number of the last finished cycle", {}, record.get("cycle", 0))
    for field, text in GAUGES.items():
        value: Any = record.get(field)
        if value is not None:
            gauge(f"gp4c_{field}", text, {}, float(value))
    for outcome, count in record.get("outcomes", {}).items():
        gauge("gp4c_visits", "Visits of the last finished cycle by outcome", {"outcome": outcome}, count)
    for stage, count in stages.items():
        gauge("gp4c_pages", "Pages by stage", {"stage": stage}, count)
    if age_cycles is not None:
        gauge(
            "gp4c_age_cycles", "Mean number of cycles since the copies of pages were checked", {}, age_cycles
        )
    plan = record.get("plan", {})
    if (budget := plan.get("budget")) is not None:
        gauge("gp4c_budget", "Revisits that the budget of the last finished cycle allowed", {}, budget)
    if (promises := plan.get("promises")) is not None:
        for name, text in PROMISES.items():
            gauge(f"gp4c_promises_{name}", text, {}, promises[name])
    panel = record.get("panel")
    if panel:
        for share in ("changed_share", "freshness"):
            for bound in ("estimate", "low", "high"):
                text = (
                    f"Estimate of the {share.replace('_', ' ')} by the control group, with its 95% interval"
                )
                gauge(f"gp4c_{share}", text, {"bound": bound}, panel[share][bound])
    return generate_latest(registry)
