"""What learning shows: numbers with their intervals."""

from io import StringIO

from rich.console import Console

from training.evolution.choices import Choices
from training.reporting.terminal import bars


def test_the_first_run_has_a_line_of_its_own() -> None:
    """Where there is no terminal, what is known first is told at once, and then what all runs found."""
    console = Console(file=StringIO(), width=80)
    with bars(console, Choices(seeds=5), 1, 0) as watch:
        watch.generation(1, 1500)
        watch.first_fitness(0.25)
        watch.best([0.25, 0.5])
    assert console.file.getvalue().splitlines() == [
        "generation 1/50, first of 5 seeds: best ndcg 0.2500",
        "generation 1/50: best ndcg 0.5000 (worst run 0.2500)",
    ]
