"""Groups of a history's pages in a file: clusters, and links between the pages."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from training.histories.history import ChangeHistory

FORMAT: Final = "gp4c-groups/1"
COMMAND: Final = "python -m training.cluster CONTENTS|STORE -o groups.npz"


def identity_of(history: ChangeHistory) -> str:
    """Digest of sites and names of a history's pages, in their order."""
    digest = hashlib.sha256()
    sites = history.site_names or [str(number) for number in range(int(history.site.max()) + 1)]
    for site, page in zip(history.site.tolist(), history.page_names or [""] * history.pages, strict=True):
        digest.update(f"{sites[site]}\t{page}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def write_groups(path: Path, groups: PageGroups) -> None:
    """Write a file; raises HistoryError where it cannot."""
    columns: dict[str, npt.NDArray[Any]] = {"cluster": groups.cluster, "order": groups.order}
    columns |= {"source": groups.links.source, "target": groups.links.target}
    if groups.keys is not None:
        columns["keys"] = groups.keys
    about = {"format": np.array(FORMAT), "identity": np.array(groups.identity)}
    try:
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **about, **columns)
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


def read_groups(path: Path, history: ChangeHistory) -> PageGroups:
    """Read the groups of a history. Raises HistoryError for another file, or groups of other pages."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["format"]) != FORMAT:
                raise ValueError(f"its format is {arrays['format']}")
            links = Links(arrays["source"], arrays["target"], len(arrays["cluster"]))
            keys = arrays.get("keys")
            groups = PageGroups(arrays["cluster"], arrays["order"], links, str(arrays["identity"]), keys)
            if keys is not None and history.key is not None:
                return _of_keys(groups, keys, history.key)
    except OSError as error:
        raise HistoryError(f"cannot read the groups {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise HistoryError(
            f"{path} is no file of groups ({FORMAT}): {error}; make one with `{COMMAND}`"
        ) from error
    if groups.identity != identity_of(history) or len(groups.cluster) != history.pages:
        raise HistoryError(
            f"{path} has the groups of other pages than those of {history.source}; make its own with "
            f"`{COMMAND}`"
        )
    return groups


def _of_keys(groups: PageGroups, keys: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> PageGroups:
    """Groups of pages by their keys; raises ValueError where no page is known."""
    order = np.argsort(keys)
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    is_known = keys[at] == wanted
    if not is_known.any():
        raise ValueError("it has the groups of another store's pages")
    return groups.of_pages(np.where(is_known, at, NOWHERE))
