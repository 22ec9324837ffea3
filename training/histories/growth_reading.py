"""Reading growth: an archive, the store of a crawl, or what was exported of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories.formats import read_file
from training.histories.growth import TOLD, GrowthHistory
from training.histories.growth_export import is_export, read_export_growth
from training.histories.history import ChangeHistory


def read_growth(path: Path) -> GrowthHistory:
    """Read an npz archive of `write_growth`, the store of a crawl (a directory), or a store's export.

    Raises HistoryError, which names what was expected and found.
    """
    if path.is_dir():
        from training.histories.growth_store import read_store_growth  # needs lmdb; an archive does not

        return read_store_growth(path)
    if is_export(path):
        return read_export_growth(path)
    fields = read_file(path)
    found: dict[str, npt.NDArray[Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in ("born", "finder", "claims") if name in archive.files}
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    if not {"born", "finder"} <= found.keys():
        raise HistoryError(
            f"{path} tells nothing of growth: expected an npz archive with the arrays born and finder, as "
            "`python -m training.from_git --growth` writes it, the store of a crawl, or what `scrapy gp4c "
            "export` writes of one"
        )
    history = ChangeHistory(**fields._replace(observed=None)._asdict(), source=str(path))
    return GrowthHistory(history, found["born"], found["finder"], found.get("claims", np.empty(0, TOLD)))
