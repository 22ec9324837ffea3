"""Settings of a cycle: kept in its record, and taken from there by a run that resumes it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from scrapy_gp4c.errors import ExpressionError, PolicyError, ScoreError, SettingsError
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import CycleRecord


def new_record(settings: Settings, store: Store | None) -> CycleRecord:
    """New record of a cycle: all settings that its plan follows from.

    ``store``: whose clusters that may be; None: no store has all pages, and none has clusters.
    """
    records = [] if store is None else store.cycles(store.last_cycle)
    if records:
        _check_fingerprint(settings, records[-1])
    groups = store.clusters() if settings.asks_for_clusters and store is not None else None
    of_groups: CycleRecord = {} if groups is None else {"groups": groups.groups.identity}
    waiting = still_left_alone(records, time.time())
    of_hosts: CycleRecord = {"left_alone": waiting} if waiting else {}
    return {
        **of_groups,
        **of_hosts,
        "started": time.time(),
        "budget": settings.budget,
        "site_share": settings.site_share,
        "policy": settings.policy.text,
        "score_function": settings.score_function.text,
        "formula": settings.score_function.formula,
        "score_file_sha256": settings.score_function.sha256,
        "clock": settings.score_function.clock,
        "seed": settings.seed,
        "fingerprint": settings.fingerprint,
        "discovery": settings.discovery,
        "discovery_function": settings.discovery_function.formula,
        "discovery_clock": settings.discovery_function.clock,
        **_of_new_pages(settings.new_page_function),
    }


def _of_new_pages(function: functions.ScoreFunction | None) -> CycleRecord:
    return (
        {} if function is None else {"new_page_function": function.formula, "new_page_clock": function.clock}
    )


def _check_fingerprint(settings: Settings, record: CycleRecord) -> None:
    if (recorded := record.get("fingerprint", settings.fingerprint)) != settings.fingerprint:
        raise SettingsError(
            f"GP4C_FINGERPRINT is {settings.fingerprint!r}, and the copies in this store were compared by "
            f"{recorded!r}: every page would count as changed once. Set it back, or begin a new store by "
            "GP4C_STORE."
        )


def still_left_alone(records: Sequence[CycleRecord], now_s: float) -> dict[str, float]:
    """Hosts that the last cycle was asked to leave alone until a time that has not come."""
    last = records[-1].get("left_alone", {}) if records else {}
    return {host: until_s for host, until_s in last.items() if until_s > now_s}


def recorded_settings(settings: Settings, record: CycleRecord) -> Settings:
    """Settings by which a resumed cycle is planned: the values of its record.

    What a store names is data: a dotted path is taken from the settings, where it must be the same. Raises
    Gp4cError where it is not.
    """
    _check_fingerprint(settings, record)
    policy, function = settings.policy, settings.score_function
    recorded = record.get("policy", table.DEFAULT)
    formula, clock = record.get("formula", function.formula), record.get("clock", function.clock)
    hubs = settings.discovery_function
    of_hubs = record.get("discovery_function", hubs.formula), record.get("discovery_clock", hubs.clock)
    new_pages = settings.new_page_function
    try:
        if (formula_of_new := record.get("new_page_function")) is None:
            new_pages = None
        elif (formula_of_new, record.get("new_page_clock")) != (
            (new_pages.formula, new_pages.clock) if new_pages else None
        ):
            new_pages = functions.recorded(formula_of_new, new_pages).on_clock(record.get("new_page_clock"))
        if of_hubs != (hubs.formula, hubs.clock):
            hubs = functions.recorded(of_hubs[0], hubs).on_clock(of_hubs[1])
        if recorded != policy.text:
            policy = table.load(recorded, trusted=False)
        if (formula, clock) != (function.formula, function.clock):
            function = functions.recorded(formula, function).on_clock(clock)
    except (PolicyError, ScoreError, ExpressionError) as error:
        raise type(error)(
            f"cycle {record.get('cycle')} was begun with the policy {recorded!r} and the score function "
            f"{formula!r} (of hubs: {of_hubs[0]!r}), and goes on by these; here it cannot: {error}"
        ) from error
    return dataclasses.replace(
        settings,
        policy=policy,
        score_function=function,
        budget=record.get("budget", settings.budget),
        site_share=record.get("site_share", 1.0),
        discovery=record.get("discovery", 0.0),
        discovery_function=hubs,
        new_page_function=new_pages,
        seed=record.get("seed", settings.seed),
    )
