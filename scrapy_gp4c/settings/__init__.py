"""The ``GP4C_*`` settings of one crawl: one frozen dataclass, read and checked by `table.TABLE`."""

import glob
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha1
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import numpy as np
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.conf import closest_scrapy_cfg
from scrapy.utils.project import data_path

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.errors import Gp4cError, SettingsError, StoreError, did_you_mean
from scrapy_gp4c.notices.receivers import Receiver
from scrapy_gp4c.page_state.columns import in_panel
from scrapy_gp4c.page_state.rules import PageRule
from scrapy_gp4c.policies import table as policies
from scrapy_gp4c.scoring import first_visits, functions, refresh_value
from scrapy_gp4c.scoring.terminals import CLUSTERED
from scrapy_gp4c.settings.table import TABLE
from scrapy_gp4c.settings.values import LOADING, check_private, loaded_callable

MAX_CHARACTERS: Final = 100
"""Most characters of a spider's name, and of its arguments, in the name of its store's directory."""


def _escaped(value: object) -> str:
    text = quote(str(value), safe=" @+-._")
    return (text.replace(".", "%2E") if ".." in text or text == "." else text) or "%"


def _shortened(text: str) -> str:
    """Return a text of at most `MAX_CHARACTERS`; a longer one ends with a digest."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]},{sha1(text.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class Settings:
    """The validated ``GP4C_*`` settings of one crawl."""

    store: str | None
    score_function: functions.ScoreFunction
    policy: policies.PolicyChoice
    budget: int | float
    site_share: float
    discovery: float
    discovery_function: functions.ScoreFunction
    new_pages: int | None
    new_page_function: functions.ScoreFunction | None
    warmup_visits: int
    panel: float
    distance_bits: int
    skip_unchanged: bool
    gone_after: int
    believe_after: int
    fingerprint: str
    features: Callable[[Response], list[str]] | None
    seed: int
    trap_pages: int | None
    keep_cycles: int | None
    query_log: str | None
    url_params_ignored: tuple[str, ...]
    secret_params: tuple[str, ...]
    archive: bool
    rules: tuple[PageRule, ...]
    change_items: bool
    notify: tuple[Receiver, ...]
    on_change: str | None
    feed: str | None
    metrics: str | None
    freeze_gc: bool
    redeliver: int
    shared_args: tuple[str, ...]
    store_mode: int | None
    fetchers: int | str | None
    fetchers_insecure: bool
    items_at: str
    revision: str | None
    backup: str | None

    @classmethod
    def load(cls, settings: BaseSettings) -> Self:
        """Read and check every setting; raises SettingsError that names the setting and the remedy."""
        values = []
        for name, setting in TABLE.items():
            value = settings.get(name, setting.default)
            try:
                values.append(setting.read(value))
            except Gp4cError as error:
                raise SettingsError(f"{name}: {error}") from None
            except (ValueError, TypeError, LookupError, OverflowError, *LOADING) as error:
                reason = f" ({error})" if isinstance(error, LOADING) else ""
                raise SettingsError(
                    f"{name} must be {setting.expected}; found {value!r}{reason}. "
                    f"Correct it in the settings, or remove it for the default {setting.default!r}."
                ) from None
        unknown = {name for name in settings if name.startswith("GP4C_")} - TABLE.keys()
        if unknown:
            named = ", ".join(name + did_you_mean(name, TABLE) for name in sorted(unknown))
            raise SettingsError(f"there is no setting {named}; the settings are {', '.join(TABLE)}")
        loaded = cls(*values)
        if loaded.policy is None:
            policy = loaded.score_function.policy or policies.DEFAULT
            loaded = replace(loaded, policy=policies.load(policy))
        if loaded.fingerprint == "simhash":
            if loaded.features is not None:
                raise SettingsError(
                    "GP4C_FINGERPRINT = 'simhash' compares the words of pages: remove GP4C_FEATURES, or take "
                    "'sketch'"
                )
            loaded = replace(loaded, features=loaded_callable("scrapy_gp4c.fingerprint.simhash_words"))
        loaded._check_measured()
        check_private(loaded.fetchers, is_insecure=loaded.fetchers_insecure)
        loaded._check_rules()
        return loaded

    def _check_measured(self) -> None:
        """Raise SettingsError where a score function or policy reads columns that its pages lack."""
        read = {
            "GP4C_SCORE_FUNCTION": self.score_function.columns,
            "GP4C_DISCOVERY_FUNCTION": self.discovery_function.columns,
            "GP4C_NEW_PAGE_FUNCTION": self.new_page_function.columns if self.new_page_function else (),
            "GP4C_POLICY": self.policy.columns or (),
        }
        for name, columns in read.items():
            if name != "GP4C_NEW_PAGE_FUNCTION" and not first_visits.TERMINALS.keys().isdisjoint(columns):
                raise SettingsError(
                    f"{name} reads what only pages before their first visit have "
                    f"({', '.join(first_visits.TERMINALS)}): use these in GP4C_NEW_PAGE_FUNCTION"
                )
        for name, columns in read.items():
            if self.query_log is None and not {*refresh_value.COLUMNS, "anchor"}.isdisjoint(columns):
                raise SettingsError(
                    f"{name} reads what users search for ({', '.join(refresh_value.TERMINALS)}, anchor), "
                    "which takes a log of queries: set GP4C_QUERY_LOG to the path of one, or use others"
                )

    def _check_rules(self) -> None:
        for rule in self.rules:
            if rule.distance is not None and rule.distance.counts_words and not self.archive:
                raise SettingsError(
                    f"GP4C_RULES: {rule.name}: 'distance' counts words, which takes the text of the copy "
                    "before: set GP4C_ARCHIVE = True (extra [archive]), or use 'any'"
                )

    def store_path(self, spider_name: str, arguments: Mapping[str, object] | None = None) -> Path:
        """Return the directory of the store of a spider with these arguments.

        Arguments named in the setting `shared_args` make no difference. Raises StoreError where the
        project's default directory, ``.scrapy``, cannot be made.
        """
        if self.store is not None:
            return self.filled_path(self.store, spider_name, arguments)
        directory = str(self.filled_path("{spider},{args}", spider_name, arguments)).removesuffix(",")
        if closest_scrapy_cfg():
            try:
                return Path(data_path(str(Path("gp4c", directory))))  # which makes .scrapy
            except OSError as error:
                raise StoreError(
                    f"cannot make {error.filename}: {error.strerror}. Set GP4C_STORE to a directory that "
                    "this user may write to."
                ) from None
        state = os.environ.get("XDG_STATE_HOME")  # a container or an egg of scrapyd has no scrapy.cfg
        return Path(state, "scrapy-gp4c", directory) if state else Path(".scrapy", "gp4c", directory)

    def filled_path(self, template: str, spider_name: str, arguments: Mapping[str, object] | None) -> Path:
        """Return the path of a setting with {spider} and {args} filled in, without those of `shared_args`."""
        others = {name: value for name, value in (arguments or {}).items() if name not in self.shared_args}
        named = [f"{_escaped(argument)}={_escaped(value)}" for argument, value in sorted(others.items())]
        name, text = _shortened(_escaped(spider_name)), _shortened(",".join(named))
        return Path(template.replace("{spider}", name).replace("{args}", text))

    def store_paths(self) -> list[Path]:
        """Return the existing paths that the setting `store` may mean, for any spider and arguments."""
        if self.store is None:
            return sorted(self.store_path("any").parent.glob("*"))
        pattern = glob.escape(self.store).replace("{spider}", "*").replace("{args}", "*")
        return sorted(map(Path, glob.glob(pattern)))

    def in_every_cycle(self, columns: Mapping[str, Array]) -> Bools:
        """Return which pages every cycle visits, ``[P]``: all with a budget of 1.0, else the control group.

        ``columns``: of the pages, ``n`` and, for the control group, ``key``.
        """
        if type(self.budget) is float and self.budget == 1.0:
            return np.ones(len(columns["n"]), np.bool_)
        if not self.panel:
            return np.zeros(len(columns["n"]), np.bool_)
        return in_panel(columns["key"], self.panel)

    @property
    def asks_for_clusters(self) -> bool:
        """Whether policy or score functions use clusters or links, so that visits store page descriptions."""
        read = (*self.score_function.columns, *self.discovery_function.columns)
        return not {"cluster", "links"}.isdisjoint(self.policy.near) or not set(CLUSTERED).isdisjoint(read)
