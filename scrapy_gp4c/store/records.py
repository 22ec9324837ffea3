"""Typed records of a store: cycles, requests, visits, and the shadows of the control group.

Those that are JSON in the store are dictionaries with known keys: a key that is absent stays absent, one that
another version wrote stays, and so does their order, so that what was read is written back byte by byte.
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
"""By round, score and draw of the last page chosen, None where none was; None alone: the policy does not
choose by one score, and there is no estimate by the panel."""


class PromiseCounts(TypedDict):
    """Promises about pages when a cycle was planned."""

    pages: int
    """Settled pages with a promise."""
    late: int
    """Pages that no visit has reached in the time promised."""
    latest_s: float
    """Time by which the latest of them is late."""
    needed: int
    """Visits per cycle that keep all promises, in the mean."""
    budget: int
    """Visits that the cycle could spend on promises."""
    missed: int
    """Pages due that the budget left out."""


class PlanCounts(TypedDict, total=False):
    """Numbers of pages that the planning of a cycle counted."""

    known: int
    due: int
    """New and warm-up pages that wait for their visit."""
    copies: int
    """Pages with a copy, and not gone: what the panel speaks for."""
    rankable: int
    """Pages that the policy could choose from."""
    budget: int
    """Visits that the policy may choose in all rounds: the budget less hubs, control group and gone pages."""
    cuts: Cuts
    site_cuts: list[list[tuple[int, float, int]]]
    """By round, sites with a share and a cut of their own: key and cut of each."""
    hub: int
    panel: int
    recheck: int
    """Gone pages that are looked at again."""
    ranked: int
    warmup: int
    new: int
    promised: int
    """Pages visited by their promise; absent: no page has one."""
    promises: PromiseCounts


class RoundCounts(TypedDict):
    """One planned round of a cycle."""

    planned: int
    """Pages of its plan."""
    seen: int
    """Visits of the cycle in the log when it was planned."""


class SampledCounts(TypedDict):
    """Visits to samples, and visits that followed from what the samples showed."""

    samples: int
    samples_changed: int
    seeds: int
    """Samples that were followed; of policies by groups: groups that were."""
    neighbours: int
    neighbours_changed: int


class ShareEstimate(TypedDict):
    """Share of all pages, estimated by the control group, with its 95% interval."""

    estimate: float
    low: float
    high: float


class PanelEstimates(TypedDict):
    """Estimates of a cycle by the control group."""

    judged: int
    """Pages of the control group whose visit told whether they had changed."""
    unchosen: int
    """Judged pages whose shadow the cycle would not have visited."""
    outdated: int
    """Unchosen pages whose shadow's copy is out of date."""
    changed_share: ShareEstimate
    freshness: ShareEstimate


class CycleRecord(TypedDict, total=False):
    cycle: int
    started: float | None
    """s since 1970, as is `finished`; None in a restored store that never knew."""
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
    """Identity of the clusters that its plan follows from; absent: it uses none."""
    discovery: float
    discovery_function: str
    """Formula of the score function; its clock is the next field."""
    discovery_clock: Literal["visits", "cycles"]
    new_page_function: str
    """Formula that ranks first visits; absent: they come by turns."""
    new_page_clock: Literal["visits", "cycles"]
    undelivered: dict[str, list[Any]]
    """Page -> what is known of the copy of it that was delivered last, where later visits were not."""
    signalled: int
    """Visits whose signals and items are through, in order; absent: nobody listens."""
    sitemaps: dict[str, list[str]]
    """URL of a sitemap -> other sites whose robots.txt has named it so far."""
    promised: bool
    """Whether a request has said how often its page is to be visited."""
    left_alone: dict[str, float]
    """Hosts that refuse the crawl -> until when they want no request, s since 1970; 0: they do not say."""
    lies: dict[str, list[int]]
    """Hosts whose answers "not modified" were false -> up to three such pages, of this cycle and before."""
    moved: list[list[str]]
    """Rules by which sites moved: begin and end of new addresses, begin and end of the old ones."""
    varying_data: list[str]
    """Names of data that requests hand on with other values in other runs."""
    steady_data: dict[str, int]
    """Name of such data -> how often it had the value of the run before, up to a few times."""
    spider_sums: dict[str, list[int]]
    """Attribute of the spider -> its checksums at the first visit and at the end of the last run."""
    code: list[int]
    """Checksum of the spider's code, and the cycle from which on it is so; 0: a first one."""
    hidden_data: dict[str, list[int]]
    """Part of answers, and callback -> trials that made the items of before, and others."""
    traps: list[list[Any]]
    """Scopes of traps: site, start of the directory, whether URLs have a query."""
    repeats: list[list[Any]]
    """Scopes as in `traps`, then counts of new pages, of repeats and of cycles with repeats."""
    url_parts: dict[str, list[int]]
    """Part of URLs, such as a parameter -> hashes of some URLs of pages without it."""
    logins: list[int]
    """Keys of the pages by which the spider comes to its first POST, or to the cookies of its session."""
    closers: list[int]
    """Keys of the pages whose callbacks have closed the spider."""
    doubted: list[int]
    """Fingerprints of texts that are blocks and the like, of this cycle and before."""
    secret_params: list[str]
    """Names that ``GP4C_SECRET_PARAMS`` has beyond its default."""
    planned: int | None
    """Pages of all rounds' plans; None while the first is being written."""
    plan: PlanCounts
    rounds: list[RoundCounts]
    finished: float | None
    """Absent: the cycle is open."""
    reason: str
    known: int
    visited: int
    forgotten: int
    """Visits among them to pages that `scrapy gp4c forget` took out since; absent: none."""
    judged: int
    changed: int
    change_rate: float | None
    outcomes: dict[str, int]
    new: int
    """Pages that became known in the cycle."""
    new_by_hubs: int
    """New pages that visits to hubs found."""
    gained: tuple[int, float]
    """Measured visits, and what they gained a search, in ppm; absent where nothing was measured."""
    sampled: SampledCounts
    """Absent: its policy has sampled nothing."""
    panel: PanelEstimates | None


class FoldMarker(TypedDict):
    """Where an interrupted fold goes on."""

    record: CycleRecord
    """Fields that complete the cycle's record."""
    next_block: int


def samples_of(record: CycleRecord) -> str:
    """Return the counts of a cycle's record as people read them; empty where it has none."""
    counts = record.get("sampled")
    if counts is None:
        return ""
    return (
        f"{counts['samples']:,} samples ({counts['samples_changed']:,} changed, "
        f"{counts['seeds']:,} followed), "
        f"{counts['neighbours']:,} neighbours ({counts['neighbours_changed']:,} changed)"
    )


def local_time(seconds: float | None) -> str:
    """Return a time of a record, s since 1970, as people write it; its number where no calendar has it."""
    if seconds is None:
        return "-"
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError, TypeError):  # a clock that was thousands of years ahead
        return f"{seconds} s"


class StoredRequest(TypedDict, total=False):
    """Request of a page, without whatever is Scrapy's default."""

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
    """Arguments that only this class has."""
    rule: list[str | None]
    """Callback and link extractor of the CrawlSpider's rule that made the request."""
    unstorable: list[str]
    """Names of values that JSON cannot hold, such as ``meta page_methods``; the spider's request has them."""
    lacks: list[str]
    """Secrets that are left out, such as ``header authorization``: see `scrapy_gp4c.store.credentials`."""
    session: bool
    """Whether its ``cookiejar`` had cookies of an earlier answer."""
    needs_callback: str
    """Why the callback runs though the page is unchanged: ``always``, as it yields what no plan keeps, or
    ``once``, as the request has data that was not delivered."""
    follows: bool
    """Whether its callback has followed links of the page, which may change though the text does not."""


class LastAnswer(NamedTuple):
    """Last answer of a page, as far as it failed or came from another URL."""

    status: int | None = None
    """HTTP status of a failed visit; None: no answer came."""
    error: str | None = None
    """Reason of a failure in a word or sentence; None: the status says it."""
    since_s: float | None = None
    """Time of the first failure in a row, s since 1970."""
    final_url: str | None = None
    """URL after redirects, without secrets; None: that of the page."""
    failures: int = 0
    """Failed visits in a row, as the column of that name is lowered to end a page's wait."""


NO_ANSWER: Final = LastAnswer()

SAME_PAGE: Final = "the same page as "
"""Start of the error of a page that repeats another, whose URL follows."""


class StoredGroups(NamedTuple):
    """Clusters, links and popularity of a store's pages."""

    groups: PageGroups
    popularity: npt.NDArray[np.uint8]
    """``[P]``, from 0 to 10."""
    origin: dict[str, Any]
    """Description of how they were made, for people."""


class NewVisit(NamedTuple):
    """One visit to be recorded."""

    page: int
    outcome: str
    time: float
    """s since 1970."""
    kind: str = "other"
    fingerprint: int = 0
    distance: int = NO_DISTANCE
    bytes: int = 0
    """Bytes of the body."""
    latency_s: float = 0.0
    """Time from the request to the response's headers; 0: not measured."""


def packed_visit(visit: NewVisit) -> bytes:
    """Bytes of dtype `VISIT`; raises struct.error for a number that its field cannot hold."""
    latency_ms = min(65_535, math.ceil(1000 * visit.latency_s))
    codes = KINDS.index(visit.kind), OUTCOMES.index(visit.outcome)
    counts = visit.page, visit.bytes, latency_ms
    return VISIT_BYTES.pack(visit.time, visit.fingerprint, *counts, *codes, visit.distance)


TRUST: Final = np.dtype([("site", "<u8"), ("counts", "<f8", (len(hints.KINDS), 2, 2))])
"""Judged visits of a site by kind of claim, claimed, changed, decayed: see `scrapy_gp4c.scoring.hints`; a
site is told by `scrapy_gp4c.page_state.groups.Place.site_key`."""

SHADOW: Final = np.dtype(
    [
        ("page", "<u4"),
        ("key", "<u8"),
        ("current", "<u8"),  # fingerprint that the page's last visit brought
        ("copy", "<u8"),  # fingerprint that the shadow's last visit brought
        *terminals.STATE.items(),  # as the shadow's visits left it
        # What the last 8 cycles did, the lowest bit the last one: page judged, and changed; shadow visited,
        # and out of date then. All 0 where no score has asked for related pages.
        *[(name, "u1") for name in ("judged", "changed", "visited", "outdated")],
        *[(f"predicted_{n}", "<f4") for n in range(1, KEPT_CYCLES + 1)],  # chance of a change, n cycles ago
    ]
)
"""A shadow: the state that a page of the control group would have as an ordinary page."""
