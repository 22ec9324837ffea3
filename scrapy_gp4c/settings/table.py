"""Every ``GP4C_*`` setting: default, expected values, and how a value is read.

`TABLE` is the single list of settings: docs/settings.md says what each means (a test holds that), and
`scrapy_gp4c.settings.Settings` has one field for each, in this order.
"""

from functools import partial
from typing import Final

from scrapy_gp4c.page_state.page_names import IGNORED_PARAMS
from scrapy_gp4c.policies import table as policies
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.named import DEFAULT
from scrapy_gp4c.settings import values
from scrapy_gp4c.store.credentials import SECRET_PARAMS

_FUNCTION: Final = "the name of a score function, an expression, the path of a score file, or a dotted path"
_COUNT: Final = values.optional(partial(values.count, low=1))
_NAMES: Final = "names, as a list or as one text with blanks or commas between"
_FILE: Final = "the path of a file, in which only {spider} and {args} are replaced, or None"
TABLE: Final[dict[str, values.Setting]] = {
    "GP4C_STORE": values.Setting(
        None,
        "a local directory, in whose path only {spider} and {args} are replaced, or None for "
        ".scrapy/gp4c/<spider>",
        values.path_template,
    ),
    "GP4C_SCORE_FUNCTION": values.Setting(DEFAULT, _FUNCTION, functions.load),
    "GP4C_POLICY": values.Setting(
        None,
        "the name of a policy, with its parameters, a dotted path, or None for the score function's own",
        lambda value: None if value is None else policies.load(value),
    ),
    "GP4C_BUDGET": values.Setting(
        0.05,
        "a share of the known pages above 0.0 and at most 1.0 (float), or a count of at least 1 (int)",
        values.budget,
    ),
    "GP4C_SITE_SHARE": values.Setting(0.1, "a share of the budget from 0.0 to 1.0", values.share),
    "GP4C_DISCOVERY": values.Setting(0.1, "a share of the budget from 0.0 to 1.0", values.share),
    "GP4C_DISCOVERY_FUNCTION": values.Setting("brought * t", _FUNCTION, functions.load),
    "GP4C_NEW_PAGES": values.Setting(
        None, "a count of pages, or None for no cap", values.optional(partial(values.count, low=0))
    ),
    "GP4C_NEW_PAGE_FUNCTION": values.Setting(None, f"{_FUNCTION}, or None", values.optional(functions.load)),
    "GP4C_WARMUP_VISITS": values.whole_number(2, "a count from 0 to 1000", 0, 1000),
    "GP4C_PANEL": values.Setting(0.0, "a share of the known pages from 0.0 to 1.0", values.share),
    "GP4C_DISTANCE": values.whole_number(3, "a number of bits from 1 to 64", 1, 64),
    "GP4C_SKIP_UNCHANGED": values.OFF,
    "GP4C_GONE_AFTER": values.whole_number(3, "a count from 1 to 255", 1, 255),
    "GP4C_BELIEVE_AFTER": values.whole_number(5, "a count from 1 to 255", 1, 255),
    "GP4C_FINGERPRINT": values.one_of("sketch", "simhash"),
    "GP4C_FEATURES": values.Setting(
        None,
        "the dotted path of a callable features(response) -> list[str], or None for the page's text",
        values.loaded_callable,
    ),
    "GP4C_SEED": values.whole_number(0, "a whole number from 0 to 2**63", 0, 2**63),
    "GP4C_TRAP_PAGES": values.Setting(10, "a count of pages of at least 1, or None for no limit", _COUNT),
    "GP4C_KEEP_CYCLES": values.Setting(None, "a count of cycles of at least 1, or None for all", _COUNT),
    "GP4C_QUERY_LOG": values.Setting(
        None, "the path of a file with a line query<TAB>count per query, or None", values.path
    ),
    "GP4C_URL_PARAMS_IGNORED": values.Setting(
        " ".join(IGNORED_PARAMS), f"{_NAMES}; `*` at an end stands for any rest", values.names
    ),
    "GP4C_SECRET_PARAMS": values.Setting(" ".join(SECRET_PARAMS), _NAMES, values.names),
    "GP4C_ARCHIVE": values.OFF,
    "GP4C_RULES": values.Setting(
        (), "a list of dicts such as {'match': '*/news/*', 'max_age': '6h'}", values.rules
    ),
    "GP4C_CHANGE_ITEMS": values.OFF,
    "GP4C_NOTIFY": values.Setting(None, values.RECEIVERS, values.receivers),
    "GP4C_ON_CHANGE": values.Setting(None, "a command line with closed quotes, or None", values.command),
    "GP4C_FEED": values.Setting(None, _FILE, values.path_template),
    "GP4C_METRICS": values.Setting(None, _FILE, values.path_template),
    "GP4C_FREEZE_GC": values.OFF,
    "GP4C_REDELIVER": values.whole_number(3, "a count from 1 to 1000", 1, 1000),
    "GP4C_SHARED_ARGS": values.Setting((), _NAMES, values.names),
    "GP4C_STORE_MODE": values.Setting(
        None, "permissions such as 0o770 or '770', or None for the owner alone", values.optional(values.mode)
    ),
    "GP4C_FETCHERS": values.Setting(
        None,
        "a count of local fetchers from 1 to 1000, the address of a Dask scheduler (tls:// or, on loopback, "
        "tcp://), or None",
        values.optional(values.fetchers),
    ),
    "GP4C_FETCHERS_INSECURE": values.OFF,
    "GP4C_ITEMS_AT": values.one_of("owner", "fetchers"),
    "GP4C_REVISION": values.Setting(None, "a text, or None", values.optional_text),
    "GP4C_BACKUP": values.Setting(
        None, "a directory, a URL that fsspec knows (s3://bucket/path), or None", values.optional_text
    ),
}
