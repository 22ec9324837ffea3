"""The score file of a learned discovery function, for ``GP4C_DISCOVERY_FUNCTION``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from scrapy_gp4c.scoring.expression import parse
from training.evolution.discovery import FITNESS, DiscoveryChoices, LearnedDiscovery
from training.evolution.score_file import ScoreFile
from training.histories.growth import GrowthHistory


def write_discovery(
    path: Path, learned: LearnedDiscovery, choices: DiscoveryChoices, grown: GrowthHistory
) -> None:
    """Write what was learned; raises LearningError when the file cannot be written."""
    best, crawl = learned.best, choices.crawl
    process = asdict(choices.parameters) | {"depths": choices.parameters.depths._asdict()}
    about = {"discovery": crawl.discovery, "score_function": crawl.score_function.formula, "growth": True}
    ScoreFile(
        parse(best.text),
        choices.clock,
        FITNESS,
        {part: {FITNESS: getattr(best, part)} for part in ("training", "validation", "test")},
        "training + validation",
        choices.seed,
        grown.history,
        {**process, **about, "budget": crawl.budget, "warmup": crawl.warmup, "seeds": choices.seeds},
        crawl.policy.text,
    ).write(path)
