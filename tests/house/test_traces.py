"""Traces of a crawl and of learning: few modules are crossed by a response, a plan and a generation."""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import pytest_twisted
from scrapy import Request, Spider

from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.middleware import FingerprintMiddleware
from scrapy_gp4c.scoring import terminals
from tests.support.loopback import Site, crawl, html
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import Parameters
from training.evolution.learning import learn
from training.evolution.workers import workers
from training.histories.models import generate

PACKAGES = ("scrapy_gp4c.", "training.")


class OnePage(Spider):
    name = "one"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}


class Trace:
    """Modules of ours whose functions were called between two calls."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def begin(self) -> None:
        sys.setprofile(self._note)

    def end(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith(PACKAGES):
            self.modules.add(name)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*arguments: Any, **options: Any) -> Any:
            self.begin()
            try:
                return call(*arguments, **options)
            finally:
                self.end()

        return traced


@pytest.mark.slow
@pytest_twisted.ensureDeferred
async def test_a_plan_and_a_response_cross_few_modules(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that the first round and a known page's response cross, when all is imported and read."""
    site.pages = {"/": html("a page with a text of more than a few words on nothing in particular")}
    OnePage.url = site.url("/")
    for _ in range(4):
        await crawl(OnePage, tmp_path / "store", {"GP4C_BUDGET": 1})
    planning, response = Trace(), Trace()
    monkeypatch.setattr(Planner, "plan_first", planning.around(Planner.plan_first))
    process, settle = FingerprintMiddleware.process_response, Cycle.settle

    def begin(*arguments: Any, **named: Any) -> Any:
        response.begin()
        return process(*arguments, **named)

    def end(*arguments: Any, **named: Any) -> Any:
        settle(*arguments, **named)
        response.end()

    monkeypatch.setattr(FingerprintMiddleware, "process_response", begin)
    monkeypatch.setattr(Cycle, "settle", end)
    await crawl(OnePage, tmp_path / "store", {"GP4C_BUDGET": 1})
    assert 10 < len(planning.modules) <= 20, " ".join(sorted(planning.modules))
    assert 10 < len(response.modules) <= 12, " ".join(sorted(response.modules))


class SecondGeneration:
    """Listener to learning that traces the second generation; the first one may compile."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.number = 0

    def generation(self, number: int, asked: int) -> None:
        self.number = number
        if number == 2:
            self.trace.begin()

    def advance(self, texts: int) -> None:
        """Some of its functions are replayed."""

    def first_fitness(self, fitness: float) -> None:
        """No other run waits."""

    def best(self, fitness: Sequence[float]) -> None:
        if self.number == 2:
            self.trace.end()


@pytest.mark.slow
def test_a_generation_crosses_few_modules() -> None:
    """Breeding, replays with related terminals and their fitness, in this process."""
    history = generate("brdc12-like", 300, 20, 0)
    history = replace(history, page_names=[f"/{page % 7}/{page}" for page in range(history.pages)])
    parameters = Parameters(terminals.RELATED, population=20, generations=2)
    choices = Choices(seeds=1, selection="guarded", parameters=parameters)
    listener = SecondGeneration()
    with workers(1) as alone:
        learn(history, choices, alone, folds=prepare_splits(history, choices), watch=listener)
    assert 10 < len(listener.trace.modules) <= 18, sorted(listener.trace.modules)
