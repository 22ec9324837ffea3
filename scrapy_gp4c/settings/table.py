"""Every ``GP4C_*`` setting: default, unit, meaning.

`TABLE` is the single list of settings: docs/settings.md documents each (a test holds that), and
`scrapy_gp4c.settings.Settings` has one field for each, in this order.
"""

from __future__ import annotations

from typing import Final

from scrapy_gp4c.page_state.page_names import IGNORED_PARAMS
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.named import DEFAULT
from scrapy_gp4c.settings import values
from scrapy_gp4c.store.credentials import SECRET_PARAMS

TABLE: Final[dict[str, values.Setting]] = {
    "GP4C_STORE": values.Setting(
        None,
        "a local directory, in whose path only {spider} and {args} stand for something, or None for "
        ".scrapy/gp4c/<spider>",
        values.store_template,
        "directory of the page store",
    ),
    "GP4C_SCORE_FUNCTION": values.Setting(
        DEFAULT,
        "the name of a score function, an expression, the path of a score file, or a dotted path",
        functions.load,
        "ranks the pages that may be revisited",
    ),
    "GP4C_POLICY": values.Setting(
        None,
        "the name of a policy, with its parameters, a dotted path, or None for the score function's own",
        values.optional_policy,
        "chooses the pages that are revisited, in one or several rounds",
    ),
    "GP4C_BUDGET": values.Setting(
        0.05,
        "a share of the known pages above 0.0 and at most 1.0 (float), or a count of at least 1 (int)",
        values.budget,
        "revisits per cycle",
    ),
    "GP4C_SITE_SHARE": values.Setting(
        0.1,
        "a share of the budget from 0.0 to 1.0",
        values.share,
        "most of the budget for a site whose pages change at every visit; at least an equal share",
    ),
    "GP4C_DISCOVERY": values.Setting(
        0.1,
        "a share of the budget from 0.0 to 1.0",
        values.share,
        "share of the budget for hubs: pages whose visits bring new pages",
    ),
    "GP4C_DISCOVERY_FUNCTION": values.Setting(
        "brought * t",
        "the name of a score function, an expression, the path of a score file, or a dotted path",
        functions.load,
        "ranks the hubs",
    ),
    "GP4C_NEW_PAGES": values.Setting(
        None, "a count of pages, or None for no cap", values.optional_count, "cap on first visits per cycle"
    ),
    "GP4C_NEW_PAGES_PER_SITE": values.Setting(
        None,
        "a count of pages, or None for no cap",
        values.optional_count,
        "cap on first visits per cycle and site",
    ),
    "GP4C_NEW_PAGE_FUNCTION": values.Setting(
        None,
        "the name of a score function, an expression, the path of a score file, a dotted path, or None",
        lambda value: None if value in (None, "", "None") else functions.load(value),
        "ranks the pages that wait for their first visit, where GP4C_NEW_PAGES caps",
    ),
    "GP4C_WARMUP_VISITS": values.Setting(
        2,
        "a count from 0 to 1000",
        lambda value: values.count(value, 0, 1000),
        "judged visits that every page gets, outside the budget, before it is ranked",
    ),
    "GP4C_PANEL": values.Setting(
        0.0,
        "a share of the known pages from 0.0 to 1.0",
        values.share,
        "share of pages visited in every cycle whatever their score",
    ),
    "GP4C_DISTANCE": values.Setting(
        3,
        "a number of bits from 1 to 64",
        lambda value: values.count(value, 1, 64),
        "Hamming distance of two fingerprints from which on a page counts as changed",
    ),
    "GP4C_SKIP_UNCHANGED": values.Setting(
        False,
        "True or False",
        values.flag,
        "send validators (ETag, Last-Modified) and do not call callbacks for unchanged pages",
    ),
    "GP4C_GONE_AFTER": values.Setting(
        3,
        "a count from 1 to 255",
        lambda value: values.count(value, 1, 255),
        "`gone` outcomes (404, 410) in a row after which a page is gone, and looked at ever more rarely",
    ),
    "GP4C_BELIEVE_AFTER": values.Setting(
        5,
        "a count from 1 to 255",
        lambda value: values.count(value, 1, 255),
        "doubtful answers in a row, blocks and the like, after which the last one is the page",
    ),
    "GP4C_HINTS": values.Setting(
        True,
        "True or False",
        values.flag,
        "read what sitemaps, feeds and headers say of pages",
    ),
    "GP4C_FINGERPRINT": values.Setting(
        "sketch",
        "'sketch' or 'simhash'",
        lambda value: values.one_of(value, ("sketch", "simhash")),
        "how pages are compared: by this package's sketches, or by the papers' SimHash of words",
    ),
    "GP4C_FEATURES": values.Setting(
        None,
        "the dotted path of a callable features(response) -> list[str], or None for the page's text",
        values.loaded_callable,
        "what the fingerprint is made of",
    ),
    "GP4C_SEED": values.Setting(
        0,
        "a whole number from 0 to 2**63",
        lambda value: values.count(value, 0, 2**63),
        "decides ties between equal scores",
    ),
    "GP4C_MAX_PAGES_PER_SITE": values.Setting(
        10_000_000,
        "a count of pages of at least 1",
        lambda value: values.count(value, 1, 2**32 - 1),
        "pages of a host from which on no new one is remembered",
    ),
    "GP4C_KEEP_CYCLES": values.Setting(
        None,
        "a count of cycles of at least 1, or None for all",
        lambda value: None if value in (None, "", "None") else values.count(value, 1),
        "finished cycles whose visits are kept; what pages came to by older ones stays in their columns",
    ),
    "GP4C_QUERY_LOG": values.Setting(
        None,
        "the path of a file with a line query<TAB>count per query, or None",
        values.path,
        "what users search for: what visits gain their searches is measured in an index beside the store",
    ),
    "GP4C_URL_PARAMS_IGNORED": values.Setting(
        " ".join(IGNORED_PARAMS),
        "names, as a list or as one text with blanks or commas between; `*` at an end stands for any rest",
        values.names,
        "parameters of URLs that make no page of their own: campaigns, clicks, sessions",
    ),
    "GP4C_SECRET_PARAMS": values.Setting(
        " ".join(SECRET_PARAMS),
        "names, as a list or as one text with blanks or commas between",
        values.names,
        "parameters of URLs, headers, keys of meta and of cb_kwargs whose values are never stored",
    ),
    "GP4C_ARCHIVE": values.Setting(
        False,
        "True or False",
        values.flag,
        "keep the last versions of every page as text (extra `[archive]`)",
    ),
    "GP4C_ARCHIVE_VERSIONS": values.Setting(
        2,
        "a count from 1 to 1000",
        lambda value: values.count(value, 1, 1000),
        "versions of a page that the archive keeps; a change is shown where it has both",
    ),
    "GP4C_RULES": values.Setting(
        (),
        "a list of dicts such as {'match': '*/news/*', 'max_age': '6h'}",
        values.rules,
        "how often pages are visited, and what of them is compared",
    ),
    "GP4C_CHANGE_ITEMS": values.Setting(
        False,
        "True or False",
        values.flag,
        "send a PageChange item through the pipelines for every event of a page",
    ),
    "GP4C_NOTIFY": values.Setting(
        None,
        "a list of addresses that Apprise knows, or of dicts with an address as `url`",
        values.receivers,
        "who is told at a cycle's end which pages changed (extra `[notify]`)",
    ),
    "GP4C_ON_CHANGE": values.Setting(
        None,
        "a command line, or None",
        values.optional_text,
        "command that gets a line of JSON per event on its standard input at a cycle's end",
    ),
    "GP4C_FEED": values.Setting(
        None, "the path of a file, or None", values.path, "feed of the newest events: *.json, else Atom"
    ),
    "GP4C_METRICS": values.Setting(
        None,
        "the path of a file, or None",
        values.path,
        "metrics of the last cycle in Prometheus's text format",
    ),
    "GP4C_FREEZE_GC": values.Setting(
        False,
        "True or False",
        values.flag,
        "leave what is loaded when a crawl begins out of garbage collections until it ends",
    ),
    "GP4C_REDELIVER": values.Setting(
        3,
        "a count from 1 to 1000",
        lambda value: values.count(value, 1, 1000),
        "visits in a row whose callback or pipeline failed after which the last counts as delivered",
    ),
    "GP4C_SHARED_ARGS": values.Setting(
        (),
        "names, as a list or as one text with blanks or commas between",
        values.names,
        "arguments of the spider that do not make another crawl, with a store of its own",
    ),
    "GP4C_STORE_MODE": values.Setting(
        None,
        "permissions such as 0o770 or '770', or None for the owner alone",
        values.mode,
        "permissions of the store's directory; its files get the same, but for execution",
    ),
    "GP4C_FETCHERS": values.Setting(
        None,
        "a count of local fetchers from 1 to 1000, the address of a Dask scheduler (tls:// or, on loopback, "
        "tcp://), or None",
        values.fetchers,
        "processes that download and run callbacks (extra `[dask]`)",
    ),
    "GP4C_FETCHERS_INSECURE": values.Setting(
        False,
        "True or False",
        values.flag,
        "accept a scheduler of another machine without TLS: whoever can talk to it runs code",
    ),
    "GP4C_ITEMS_AT": values.Setting(
        "owner",
        "`owner` or `fetchers`",
        values.items_at,
        "where items go through their pipelines, if there are fetchers",
    ),
    "GP4C_REVISION": values.Setting(
        None,
        "a text, or None",
        values.optional_text,
        "revision of the project: fetchers of another one get no pages",
    ),
    "GP4C_BACKUP": values.Setting(
        None,
        "a directory, a URL that fsspec knows (s3://bucket/path), or None",
        values.optional_text,
        "where backups of the store go after every cycle, and while one runs",
    ),
    "GP4C_BACKUP_MINUTES": values.Setting(
        60,
        "a count of minutes of at least 1",
        lambda value: values.count(value, 1),
        "time between two backups while a cycle runs",
    ),
    "GP4C_BACKUP_KEEP": values.Setting(
        3,
        "a count of backups of at least 1",
        lambda value: values.count(value, 1),
        "newest backups of the store that are kept",
    ),
}
