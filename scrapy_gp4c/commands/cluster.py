"""``scrapy gp4c cluster``: clusters of a spider's pages, and links, for the policies that ask for them.

They are made by the training package and scikit-learn, which a machine that only crawls need not have: in a
process of its own, so that nothing here imports it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from scrapy_gp4c.commands.output import add_json, print_json, say
from scrapy_gp4c.errors import SettingsError, StoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.protocols import has_open_cycle
from scrapy_gp4c.store.records import StoredGroups

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "cluster a spider's pages by what they say and link to, for policies such as cb and lb"
NEEDED: Final = ("sklearn", "scipy")


@dataclass(frozen=True)
class Clustering:
    """The clusters that were made."""

    pages: int
    """Pages in a cluster."""
    unclustered: int
    """Pages whose copies have no description."""
    clusters: int
    links: int
    """Between pages of one site."""


DOCUMENT = Clustering
"""Output of ``--json``."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    add = parser.add_argument
    add("--clusters", type=int, default=100, help="number of clusters (default: %(default)s)")
    add(
        "--features",
        default="content,url,page,links",
        help="what pages are alike by: content, url, page, links, history (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="seed of the clustering (default: %(default)s)")
    add_json(add)


def run(project: Project, options: Namespace) -> None:
    """Cluster, and write what was found to the store.

    Raises SettingsError where scikit-learn is missing, StoreError where a cycle is open, or there is nothing
    to cluster by.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"clusters need {', '.join(missing)}, which this installation lacks: "
            "pip install 'scrapy-gp4c[cluster]'"
        )
    with project.open_store() as store:
        if store.open_cycle is not None:
            raise has_open_cycle(project.store_path, store.open_cycle)
    about = {"made": time.time(), "features": options.features, "seed": options.seed}
    with tempfile.TemporaryDirectory() as folder:
        groups = _made(project, options, Path(folder, "groups.npz"))
    with project.open_store(readonly=False) as store:
        store.put_clusters(StoredGroups(groups, groups.popularity(), about))
    clustered = int(groups.sizes.sum())
    result = Clustering(
        clustered, len(groups.cluster) - clustered, len(groups.order), len(groups.links.source)
    )
    if options.json:
        print_json(result)
        return
    say(
        f"{result.pages:,} pages in {result.clusters:,} clusters, {result.links:,} links between pages; "
        f"{result.unclustered:,} pages are in no cluster: sampled, never followed"
    )


def _made(project: Project, options: Namespace, file: Path) -> PageGroups:
    arguments = [
        "--clusters",
        str(options.clusters),
        "--features",
        options.features,
        "--seed",
        str(options.seed),
    ]
    command = [sys.executable, "-m", "training.cluster", str(project.store_path), "-o", str(file), *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise StoreError(lines[-1].removeprefix("error: "))
    try:
        with np.load(file, allow_pickle=False) as arrays:
            links = Links(arrays["source"], arrays["target"], len(arrays["cluster"]))
            return PageGroups(arrays["cluster"], arrays["order"], links, str(arrays["identity"]))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise StoreError(f"the clusters that were made cannot be read: {error}") from error
