"""The picture of the demo with workers: who visited how much, day by day, and who was killed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73")  # Okabe and Ito's, told apart by colour-blind readers
WIDTH: Final = 0.26


def draw(
    path: Path,
    visits: Sequence[Mapping[str, int]],
    taken: Sequence[Mapping[str, int]],
    killed: Sequence[str | None],
) -> None:
    """Write the picture as PNG.

    Args:
        path: where to write it.
        visits: by day, each worker's visits.
        taken: by day, those of them in shards that it took over.
        killed: by day, the worker that was killed; None: nobody.
    """
    names = list(visits[0])
    figure, axes = plt.subplots(figsize=(9, 4.2), dpi=120, layout="constrained")
    for place, (name, colour) in enumerate(zip(names, COLOURS, strict=True)):
        for day, (own, over, dead) in enumerate(zip(visits, taken, killed, strict=True), 1):
            at = day + (place - 1) * WIDTH
            axes.bar(at, own[name] - over[name], WIDTH * 0.92, color=colour, label=name if day == 1 else None)
            axes.bar(
                at, over[name], WIDTH * 0.92, bottom=own[name] - over[name],
                color="white", edgecolor=colour, hatch="////", linewidth=0.8,
            )  # fmt: skip
            if dead == name:
                axes.plot(at, own[name], marker="X", color="#D00000", markersize=9, clip_on=False, zorder=3)
    axes.bar(0, 0, color="white", edgecolor="#555555", hatch="////", label="in shards taken over")
    axes.plot([], [], marker="X", color="#D00000", linestyle="", markersize=9, label="kill -9")
    axes.set_xlim(0.4, len(visits) + 0.6)
    axes.set_xticks(range(1, len(visits) + 1))
    axes.set_xlabel("day")
    axes.set_ylabel("visits")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_title("Visits of three workers, one of which is killed every day", loc="left", fontsize=11)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    figure.savefig(path)
    plt.close(figure)
