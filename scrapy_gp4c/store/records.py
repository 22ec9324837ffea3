"""Typed records of a store: cycles, requests, visits, and the shadows (`SHADOW`) of the control group.

Records that the store keeps as JSON are typed dictionaries. They are written back byte by byte as they were
read: absent keys stay absent, unknown keys (of other versions) and the order of keys stay.
"""

import math
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Required, TypedDict

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import PageGroups
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import KINDS, NO_DISTANCE, OUTCOMES, VISIT_BYTES
from scrapy_gp4c.scoring import hints, terminals

Cuts = list[tuple[float, int] | None] | None
"""For each round, score and tie-breaking draw of the last page chosen, or None where no page was.

None in place of the list: the policy does not choose by one score, so the control group estimates nothing."""


class PromiseCounts(TypedDict):
    """Counts of promises (longest times between visits of a page) when a cycle was planned."""

    pages: int
    """Pages past their warm-up that have a promise."""
    late: int
    """Pages whose last visit is longer ago than promised."""
    latest_s: float
    """Seconds by which the page that is most overdue is late."""
    needed: int
    """Visits per cycle, on average, that keeping all promises takes."""
    budget: int
    """Visits that the cycle could spend on promises."""
    missed: int
    """Pages due by their promise that the budget left out."""


class PlanCounts(TypedDict, total=False):
    """Counts of pages when a cycle was planned; `hub` to `promised` count the plan by kind of visit."""

    known: int
    due: int
    """New and warm-up pages that wait for their visit."""
    copies: int
    """Pages with a stored copy, and not gone: those that the control group is a sample of."""
    rankable: int
    """Pages that the policy could choose from."""
    budget: int
    """Visits that the policy may choose in all rounds: the budget less hubs, control group and gone pages."""
    cuts: Cuts
    site_cuts: list[list[tuple[int, float, int]]]
    """For each round, key, score and draw of the last page chosen of each site with a limited share."""
    hub: int
    """Pages visited because they often link to new pages."""
    panel: int
    """Pages of the control group."""
    recheck: int
    """Gone pages that are visited again."""
    ranked: int
    """Pages that the policy chose in all rounds so far."""
    warmup: int
    new: int
    promised: int
    """Pages visited because a promise makes them due; absent: no page has a promise."""
    promises: PromiseCounts


class RoundCounts(TypedDict):
    """Counts of one planned round of a cycle."""

    planned: int
    """Pages in the round's plan."""
    seen: int
    """Visits that the cycle had committed when the round was planned."""


class SampledCounts(TypedDict):
    """Visits of a sampling policy: to samples, and to neighbours of samples that had changed."""

    samples: int
    samples_changed: int
    seeds: int
    """Samples whose neighbours were visited; of policies that choose groups: groups that were visited."""
    neighbours: int
    neighbours_changed: int


class ShareEstimate(TypedDict):
    """Share of all pages, estimated by the control group, with its 95% interval."""

    estimate: float
    low: float
    high: float


class PanelEstimates(TypedDict):
    """Estimates of all pages' changes and freshness by the control group, after a cycle."""

    judged: int
    """Pages of the control group whose visit showed whether they had changed."""
    unchosen: int
    """Judged pages that the cycle would not have visited if they were ordinary pages."""
    outdated: int
    """Unchosen pages whose copy would be out of date if they were ordinary pages."""
    changed_share: ShareEstimate
    """Share of pages that changed in the cycle."""
    freshness: ShareEstimate
    """Share of pages whose stored copy is up to date."""


class CycleRecord(TypedDict, total=False):
    """JSON record of a cycle: settings frozen at its begin, its plan, and its counts once finished."""

    cycle: int
    started: float | None
    """s since 1970, as is `finished`; None: unknown, in a store made from a history without times."""
    budget: int | float
    site_share: float
    policy: str
    score_function: str
    formula: str
    score_file_sha256: str | None
    clock: Literal["visits", "cycles"]
    seed: int
    fingerprint: str
    """Value of ``GP4C_FINGERPRINT``."""
    groups: str
    """Checksum of the page clusters that the plan was made with; absent: it used none."""
    discovery: float
    """Value of ``GP4C_DISCOVERY``."""
    discovery_function: str
    """Formula of the score function that ranks hubs; the next field says whether it counts by clock."""
    discovery_clock: Literal["visits", "cycles"]
    new_page_function: str
    """Formula that ranks first visits; absent: sites take turns."""
    new_page_clock: Literal["visits", "cycles"]
    undelivered: dict[str, list[Any]]
    """Page whose last items were lost -> fields of `scrapy_gp4c.crawling.cycle.Undelivered`."""
    signalled: int
    """Number of visits, the earliest of the cycle, whose signals were sent; absent: no receiver listens."""
    sitemaps: dict[str, list[str]]
    """URL of a sitemap -> other sites whose robots.txt has named it so far."""
    promised: bool
    """Whether a request has promised how often its page is visited."""
    left_alone: dict[str, float]
    """Hosts that refuse the crawl -> until when they want no request, s since 1970; 0: they do not say."""
    lies: dict[str, list[int]]
    """Hosts whose answers "not modified" were false -> up to three such pages, of this cycle and before."""
    moved: list[list[str]]
    """Address changes of sites: prefix and suffix of the new URLs, prefix and suffix of the old ones."""
    varying_data: list[str]
    """Names of request data (``meta``, ``cb_kwargs``) whose values differ between runs of the spider."""
    steady_data: dict[str, int]
    """Name of request data -> how often its value equalled that of the run before, up to a few times."""
    spider_sums: dict[str, list[int]]
    """Attribute of the spider -> its checksums at the first visit and at the end of the last run."""
    code: list[int]
    """Checksum of the spider's code, and the first cycle with that code; 0: it never changed."""
    hidden_data: dict[str, list[int]]
    """Part of responses, and callback -> numbers of its runs with the same items and with other ones, when
    only this part had changed."""
    traps: list[list[Any]]
    """Scopes of crawler traps: site, start of the directory, whether URLs have a query."""
    repeats: list[list[Any]]
    """Scopes as in `traps`, then numbers of new pages, of repeats of other pages, of cycles with repeats."""
    url_parts: dict[str, list[int]]
    """Part of URLs, such as a parameter -> the smallest hashes of all pages' URLs without that part."""
    logins: list[int]
    """Keys of the pages by which the spider comes to its first POST, or to the cookies of its session."""
    closers: list[int]
    """Keys of the pages whose callbacks have closed the spider."""
    doubted: list[int]
    """Fingerprints of block pages, captchas and the like, seen in this cycle and before."""
    secret_params: list[str]
    """Names that ``GP4C_SECRET_PARAMS`` has beyond its default."""
    planned: int | None
    """Pages of all rounds' plans; None while the first is being written."""
    plan: PlanCounts
    rounds: list[RoundCounts]
    finished: float | None
    """Absent: the cycle is open."""
    reason: str
    """Why the run that finished the cycle closed, as Scrapy calls it."""
    known: int
    """Known pages at the end of the cycle."""
    visited: int
    forgotten: int
    """Visits among `visited` to pages that `scrapy gp4c forget` has since removed; absent: none."""
    judged: int
    """Visits that showed whether the page had changed."""
    changed: int
    change_rate: float | None
    outcomes: dict[str, int]
    new: int
    """Pages that became known in the cycle."""
    new_by_hubs: int
    """New pages found by visits to hubs (pages that often link to new ones)."""
    gained: tuple[int, float]
    """Visits with a measured gain of search quality, and the sum of gains, ppm; absent: none measured."""
    sampled: SampledCounts
    """Absent: the policy has sampled nothing."""
    panel: PanelEstimates | None


class FoldMarker(TypedDict):
    """Progress of a fold, the pass that applies a finished cycle's visits to the page columns."""

    record: CycleRecord
    """Fields to add to the cycle's record when the fold is complete."""
    next_block: int
    """First block of pages that is not folded yet."""


def samples_of(record: CycleRecord) -> str:
    """Return the counts ``sampled`` of a cycle's record as a line of text; "" where it has none."""
    counts = record.get("sampled")
    if counts is None:
        return ""
    return (
        f"{counts['samples']:,} samples ({counts['samples_changed']:,} changed, "
        f"{counts['seeds']:,} followed), "
        f"{counts['neighbours']:,} neighbours ({counts['neighbours_changed']:,} changed)"
    )


def local_time(seconds: float | None) -> str:
    """Return a record's time, s since 1970, as local date and time; "-" for None.

    A time that the calendar does not have is returned as its number.
    """
    if seconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError, TypeError):  # a clock that was thousands of years ahead
        return f"{seconds} s"


class StoredRequest(TypedDict, total=False):
    """Request of a page as JSON, without the values that are Scrapy's defaults."""

    url: Required[str]
    callback: str
    """Name of a method of the spider, as is `errback`."""
    errback: str
    cb_kwargs: dict[str, Any]
    meta: dict[str, Any]
    cookies: dict[str, Any] | list[dict[str, Any]]
    headers: dict[str, list[str]]
    priority: int
    dont_filter: bool
    flags: list[str]
    encoding: str
    _class: str
    """Dotted path of the request's class, where it is not Scrapy's own."""
    attributes: dict[str, Any]
    """Arguments that only `_class` has, not `scrapy.Request`."""
    rule: list[str | None]
    """Callback and link extractor of the CrawlSpider's rule that made the request."""
    unstorable: list[str]
    """Names of values left out because JSON cannot hold them, such as ``meta page_methods``."""
    lacks: list[str]
    """Secrets that are left out, such as ``header authorization``: see `scrapy_gp4c.store.credentials`."""
    session: bool
    """Whether the request's ``cookiejar`` had cookies of an earlier response."""
    needs_callback: str
    """Why the callback runs though the page is unchanged: ``always``: it yields requests that are not
    stored; ``once``: the request has data that was not delivered yet."""
    follows: bool
    """Whether the callback has followed links of the page, which may change though the text does not."""


class LastAnswer(NamedTuple):
    """How the last visit of a page failed, or to which URL it was redirected; all None after other visits."""

    status: int | None = None
    """HTTP status of a failed visit; None: no answer came."""
    error: str | None = None
    """Reason of a failure in a word or sentence; None: `status` says it, or the visit succeeded."""
    since_s: float | None = None
    """Time of the first failure in a row, s since 1970."""
    final_url: str | None = None
    """URL after redirects, without secrets; None: that of the page."""
    failures: int = 0
    """Failed visits in a row; the column of that name is lowered to end a page's wait."""


NO_ANSWER: Final = LastAnswer()

SAME_PAGE: Final = "the same page as "
"""Start of `LastAnswer.error` of a page with the content of another, whose URL follows."""


class StoredGroups(NamedTuple):
    """Clusters, links and popularity of a store's pages."""

    groups: PageGroups
    popularity: npt.NDArray[np.uint8]
    """PageRank of each page on a logarithmic scale from 0 to 10, ``[P]``."""


class NewVisit(NamedTuple):
    """One visit to be recorded, the argument of `Store.record`."""

    page: int
    outcome: str
    """One of `OUTCOMES` of `scrapy_gp4c.page_state.outcomes`, as `kind` is one of its `KINDS`."""
    time: float
    """s since 1970."""
    kind: str = "other"
    fingerprint: int = 0
    distance: int = NO_DISTANCE
    """Bits in which the fingerprint differs from that of the copy before."""
    bytes: int = 0
    """Bytes of the body."""
    latency_s: float = 0.0
    """Time from the request to the response's headers; 0: not measured."""


def packed_visit(visit: NewVisit) -> bytes:
    """Pack a visit as one row of dtype `VISIT`; raises struct.error for a number that does not fit."""
    latency_ms = min(65_535, math.ceil(1000 * visit.latency_s))
    codes = KINDS.index(visit.kind), OUTCOMES.index(visit.outcome)
    counts = visit.page, visit.bytes, latency_ms
    return VISIT_BYTES.pack(visit.time, visit.fingerprint, *counts, *codes, visit.distance)


TRUST: Final = np.dtype([("site", "<u8"), ("counts", "<f8", (len(hints.KINDS), 2, 2))])
"""How often a site's claims of changes were right: decayed counts of judged visits.

``counts[kind, claimed, changed]`` are explained in `scrapy_gp4c.scoring.hints`, ``site`` is
`scrapy_gp4c.page_state.groups.Place.site_key`."""

SHADOW: Final = np.dtype(
    [
        ("page", "<u4"),
        ("key", "<u8"),
        ("current", "<u8"),  # fingerprint that the page's last visit brought
        ("copy", "<u8"),  # fingerprint that the shadow's last visit brought
        *terminals.STATE.items(),  # as the shadow's visits left it
        # A bit per cycle, the lowest for the last of 8 cycles: page judged, and changed; shadow visited,
        # and out of date then. All 0 where no score function has terminals of related pages.
        *[(name, "u1") for name in ("judged", "changed", "visited", "outdated")],
        *[(f"predicted_{n}", "<f4") for n in range(1, KEPT_CYCLES + 1)],  # chance of a change, n cycles ago
    ]
)
"""A shadow: the state that a page of the control group would have if only the policy chose its visits."""
