"""Canonical URLs of pages: without campaign and session parameters; and URLs of pages that moved."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha1
from html import unescape
from typing import Final
from urllib.parse import unquote_plus, urlsplit

SESSION_PARAMS: Final = (
    "phpsessid", "jsessionid", "aspsessionid*", "asp.net_sessionid", "cfid", "cftoken", "oscsid",
    "zenid", "xtcsid", "modsid", "sesskey", "jservsessionid*",
)  # fmt: skip
"""Session parameters of PHP, Java EE, ASP, ColdFusion, shop systems and Moodle, in lower case."""
IGNORED_PARAMS: Final = (
    # Campaigns: Google Analytics, Matomo, Adobe, AT Internet, HubSpot, Mapp, Mailchimp and their like.
    "utm_*", "mtm_*", "pk_campaign", "pk_kwd", "pk_source", "pk_medium", "pk_keyword", "pk_content",
    "matomo_*", "piwik_*", "hsa_*", "_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking",
    "mc_cid", "mc_eid", "mkt_tok", "oly_enc_id", "oly_anon_id", "vero_conv", "vero_id", "wickedid",
    "_openstat", "yclid", "ymclid", "ysclid", "at_campaign", "at_medium", "at_custom*", "s_cid",
    "ml_subscriber", "ml_subscriber_hash", "trk_contact", "trk_msg", "trk_module", "trk_sid",
    "sc_campaign", "sc_channel", "sc_content", "sc_medium", "sc_outcome", "wt_mc", "wt_zmc", "etcc_*",
    "_bta_tid", "_bta_c", "ns_campaign", "ns_mchannel", "ns_source", "pk_cid", "s_kwcid", "ef_id", "_kx",
    "__s", "_bhlid", "_branch_match_id", "_branch_referrer", "at_recipient_*", "bsft_*",
    "ck_subscriber_id", "elqtrack", "elqtrackid", "et_rid", "sc_customer", "sc_eh", "sc_uid",
    "ss_email_id", "vgo_ee", "wt.mc_id", "xtor",
    # Clicks: what search engines and social networks add to the links of their users.
    "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid", "_ga",
    "_gl", "fbclid", "fb_action_ids", "fb_action_types", "fb_source", "fb_ref", "msclkid", "ttclid",
    "twclid", "li_fat_id", "igshid", "igsh", "epik", "rdt_cid", "scclid", "irclickid", "irgwc",
    "cjevent", "dm_i", "bbeml", "spm", "sscid", "rb_clickid", "syclid", "unicorn_click_id",
    "guce_referrer", "guce_referrer_sig", "guccounter", "awc", "zanpid", "tduid", "ranmid", "raneaid",
    "ransiteid", "tblci", "cm_mmc*", "sfmc_*", "mibextid", "ref_src", "algo_pvid", "pdp_npi", "__cf_chl_*",
    "hss_channel", "mkwid", "pcrid", "cmpid", "ncid", "wprov", "__twitter_impression", "cvid", "mkcid",
    "mkevt", "mkrid", "_trkparms", "_trksid", "pd_rd_*", "pf_rd_*", "fbadid", "adgroupid",
    # Signatures of links to files in clouds.
    "x-amz-*", "x-goog-*", "key-pair-id", "awsaccesskeyid", "googleaccessid", "ossaccesskeyid",
    *SESSION_PARAMS,
)  # fmt: skip
"""Default names of parameters that make no page of their own, lower case; a final ``*`` is any rest.

Sources: the vendors' documentation of their campaign, click and signature parameters, the list of Brave's
query filter, and the session names of PHP, Java EE, ASP, ColdFusion and osCommerce.
"""

_SESSION_NAMES: Final = re.compile(
    r"s|[a-z]{0,2}sid|.*[-_.]sid|(?:.*[-_.])?sess|.*sess(?:ion)?[-_]?id|.*session|.*(?:csrf|xsrf|nonce).*"
    r"|(?:visit(?:or)?|guest|request|trace|tracking|cart|basket)[-_]?(?:id|key|token)",
    re.DOTALL,
)
"""Names of parameters that are a session if their value matches `_SESSION_VALUE`."""
_SESSION_VALUE: Final = re.compile(r"[0-9a-f]{24,64}|(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[0-9A-Za-z_-]{24,64}")
_CACHE_BUSTER: Final = re.compile(
    r"(?:_|_dc|cb|rnd|rand(?:om)?|_?no[-_]?cache|cache[-_]?bust(?:er|ing)?)=(?:1[5-9]\d{8}(?:\d{3}){0,2}|0\.\d{6,20})"
    r"|(?:[a-z]{0,2}_?|.*rand.*|.*cache.*)(?<![xyzp])(?<!re)(?<!im)=0\.\d{15,20}",
    re.IGNORECASE,
)
"""Parameter that keeps caches from answering: a Unix time or a random number, such as jQuery's ``_``.

Other short names, but for coordinates, count only with as many digits as JavaScript's Math.random() gives."""
_SIGNED: Final = (
    (  # CloudFront, Laravel, nginx: an expiry or policy, and a signature; each long, or taken out as a secret
        re.compile(
            r"^(?=(?:.*&)?(?:sig(?:nature)?|token|md5|hash|hmac|st)=(?:[^&]{16}|&|$))"
            r"(?:.*&)?(?:(?:exp(?:ires?|iry)?|e)=1[5-9]\d{8}(?:&|$)|policy=(?:[^&]{16}|&|$))",
            re.I,
        ),
        re.compile(r"(?:sig(?:nature)?|token|md5|hash|hmac|st|exp(?:ires?|iry)?|e|policy)=", re.I),
    ),
    (  # Azure
        re.compile(r"^(?=(?:.*&)?sig=)(?:.*&)?sv=20\d\d-\d\d-\d\d", re.I),
        re.compile(r"(?:sig|s[eprtv]|sip|spr|srt|sdd|sk(?:oid|tid|[estv]))=", re.I),
    ),
)
"""Pattern of a query that signs a link for some time, and of its parameters that make the signature."""
_ORDER: Final = re.compile("C=[NMSD];O=[AD]")
"""Parameter that sorts a directory's listing, of Apache's mod_autoindex."""
_link_finders: Final = tuple(
    re.compile(pattern).findall
    for pattern in (  # each begins with a text, which makes it fast
        r"href\s*=\s*[\"']?([^\"'>\s]*)",
        r"HREF\s*=\s*[\"']?([^\"'>\s]*)",
        r'onclick\s*=\s*"([^">]*)',
        r"onclick\s*=\s*'([^'>]*)",
        r"value\s*=\s*[\"']?((?:/|http)[^\"'>\s]*)",
    )
)
_data_finder = re.compile(r"data-(?<![\w-]data-)([\w-]*+)\s*+=\s*+[\"']?([^\"'>\s]*)").findall
"""Finder of names and values of ``data-`` attributes in HTML; linear in the length of a name."""
_DATA_NAMES: Final = ("id", "href", "url", "link", "slug", "sku", "path")
"""Ends of the names of ``data-`` attributes that callbacks make links of."""
_PATH_SESSION: Final = re.compile(r"/\(S\([0-9a-z]{24}\)\)(?=/)", re.IGNORECASE)
"""Session in a path of cookieless ASP.NET, ``/(S(...))``."""
_PATH_PARAMETER: Final = re.compile(r";([^/?#;=%]+)(?:=|%3d)([^/?#;]*)", re.IGNORECASE)
_DEFAULT_PORT: Final = re.compile(
    r"^(http://[^/?#]*(?=:80(?:/|$))|https://[^/?#]*(?=:443(?:/|$))):\d+", re.IGNORECASE
)
_ROOT_DOT: Final = re.compile(r"^([a-z]+://[^/?#]*[^/?#.])\.(?=[:/]|$)", re.IGNORECASE)
"""Dot behind a host's name, as in ``example.com.``, which is the same host (RFC 1034, 3.1)."""


@lru_cache(maxsize=8)
def _pattern(ignored: tuple[str, ...]) -> re.Pattern[str]:
    names = (re.escape(name.lower().rstrip("*")) + (".*" if name.endswith("*") else "") for name in ignored)
    return re.compile("|".join(names) or r"(?!)", re.DOTALL)


def page_url(url: str, ignored: tuple[str, ...] = IGNORED_PARAMS) -> str:
    """Return a URL without ignored, session and signature parameters, default port, and dot after the host.

    All else stays as it is, the order of the other parameters included. ``ignored``: names as in
    `IGNORED_PARAMS`; (): the URL is returned as it is.
    """
    if not ignored:
        return url
    head, mark, query = url.partition("?")
    if ";" in head:
        pattern = _pattern(ignored)
        head = _PATH_PARAMETER.sub(
            lambda match: "" if _is_ignored(f"{match[1]}={match[2]}", pattern) else match[0], head
        )
    if "(" in head:
        head = _PATH_SESSION.sub("", head)
    if ":80" in head or ":443" in head:
        head = _DEFAULT_PORT.sub(r"\1", head)
    if "./" in head or ".:" in head or head.endswith("."):
        head = _ROOT_DOT.sub(r"\1", head)
    if not mark:
        return head
    query, hash_mark, fragment = query.partition("#")
    parts = query.split("&")
    parameters = [parameter for parameter in parts if not _is_ignored(parameter, _pattern(ignored))]
    if signature := _signature(query):
        parameters = [parameter for parameter in parameters if parameter not in signature]
    if len(parameters) < len(parts):
        query = "&".join(parameters)
    return head + (mark + query if query else "") + hash_mark + fragment


def ignored_names(url: str, ignored: tuple[str, ...]) -> list[str]:
    """Return the names of the query parameters that `page_url` leaves out of a URL, sorted."""
    query, compared = (one.partition("#")[0].partition("?")[2] for one in (url, page_url(url, ignored)))
    return sorted({part.partition("=")[0] for part in query.split("&") if part not in compared.split("&")})


def signature_names(url: str) -> list[str]:
    """Return the names, in lower case, of the query parameters that sign a link for some time, sorted."""
    query = url.partition("#")[0].partition("?")[2]
    return sorted({parameter.partition("=")[0].lower() for parameter in _signature(query)})


def _signature(query: str) -> set[str]:
    parameters = query.split("&")
    return {one for signed, names in _SIGNED if signed.match(query) for one in parameters if names.match(one)}


def link_sum(source: str, ignored: tuple[str, ...]) -> int:
    """Checksum of the set of links in HTML, uint64 above 0 (0: none yet); ``ignored``: as in `page_url`."""
    links = {link for find in _link_finders for link in find(source)}
    links.update(value for name, value in _data_finder(source) if name.endswith(_DATA_NAMES))
    pages = {page_url(unescape(link), ignored) if "?" in link or ";" in link else link for link in links}
    digest = sha1("\n".join(sorted(pages)).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big") or 1


def without_session(url: str, ignored: tuple[str, ...] = IGNORED_PARAMS) -> str:
    """Return a URL without signature, and without the session parameters in `ignored`; campaigns stay."""
    return page_url(url, _sessions(ignored))


@lru_cache(maxsize=8)
def _sessions(ignored: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in ignored if name in SESSION_PARAMS)


def _is_ignored(parameter: str, pattern: re.Pattern[str]) -> bool:
    name, _, value = parameter.partition("=")
    name = unquote_plus(name).lower()
    if pattern.fullmatch(name) or _CACHE_BUSTER.fullmatch(parameter) or _ORDER.fullmatch(parameter):
        return True
    return _SESSION_VALUE.fullmatch(value) is not None and _SESSION_NAMES.fullmatch(name) is not None


_WWW: Final = re.compile(r"//www\d*\.")
"""Prefix ``www.``, ``www2.`` of a host's name, with or without which pages are mostly the same."""
_PORT: Final = re.compile(r":\d+$")
"""Port of a URL's host, as behind a load balancer that puts its inner port into redirects and links."""
_SLASHES: Final = re.compile("/{2,}")
_INDEX: Final = re.compile(r"(?<=/)(?:index|default)\.[a-z]{2,5}$|(?<=.)/$", re.IGNORECASE)
"""End of a path, such as ``index.html``, that servers mostly treat as if it were not there."""
_FRONT: Final = re.compile(r"^/index\.[a-z]{2,4}(?=/)", re.IGNORECASE)
"""First name of a path, such as ``index.php``, that servers mostly treat as if it were not there."""
ENDS: Final = (("", ""), ("/", ""), ("", "/"), ("/", "/index.html"), ("/", "/index.php"), ("", ".html"))
"""Pairs of ends of a page's new and old path, by which sites commonly move pages."""
MIN_MOVED: Final = 3
"""Redirected pages from which a move of a path is learnt; for a scheme or host, one is enough."""
MAX_MOVES: Final = 100
MAX_OLD_NAMES: Final = 10
"""Addresses of one page from which `Moves.old_names` follows earlier moves."""


class Moves:
    """Rules of moved sites, learnt from permanent redirects, which give a page's former URLs."""

    def __init__(self, rules: list[list[str]]) -> None:
        """``rules``: results of `rule_of_move` from earlier cycles, the oldest first."""
        self.rules = rules
        self._shown: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)

    def learn(self, old: str, new: str) -> bool:
        """Learn from a permanent redirect of URL `old` to `new`; returns whether a rule was added."""
        rule = rule_of_move(old, new)
        if rule is None or [*rule] in self.rules:
            return False
        pages = self._shown[rule]
        pages.add(old)
        is_of_hosts = (rule[0], rule[2]) == (head_and_path(new)[0], head_and_path(old)[0])
        if len(pages) < (1 if is_of_hosts else MIN_MOVED):
            return False
        self.rules = [*self.rules, [*rule]][-MAX_MOVES:]
        return True

    def old_names(self, url: str) -> Iterator[str]:
        """Yield the URLs that the page at `url` may have had before its site moved, once or repeatedly."""
        names = [url]
        for new_begin, new_end, old_begin, old_end in reversed(self.rules):
            for name in names[:MAX_OLD_NAMES]:
                if name.startswith(new_begin) and name.endswith(new_end):
                    stem = name[len(new_begin) : len(name) - len(new_end)]
                    if stem[:1] in ("", "/") and (old := old_begin + stem + old_end) not in names:
                        names.append(old)
                        yield old


def rule_of_move(old: str, new: str) -> tuple[str, str, str, str] | None:
    """Return the (new prefix, new suffix, old prefix, old suffix) by which the URL `old` became `new`.

    ``("https://b", "", "http://a/en", ".html")`` for a move of ``http://a/en/x.html`` to ``https://b/x``.
    None if the names at the end of the paths (``x``) differ, or the URLs are equal.
    """
    (old_head, old_path), (new_head, new_path) = head_and_path(old), head_and_path(new)
    for new_end, old_end in ENDS:
        if not (new_path.endswith(new_end) and old_path.endswith(old_end)):
            continue
        old_stem, new_stem = (
            old_path[: len(old_path) - len(old_end)],
            new_path[: len(new_path) - len(new_end)],
        )
        shared = shared_tail(old_stem, new_stem)
        if shared is None or (new_end != old_end and shared in ("", "/")):
            continue
        new_begin = new_head + new_stem[: len(new_stem) - len(shared)]
        old_begin = old_head + old_stem[: len(old_stem) - len(shared)]
        is_move = new_begin != old_begin or new_end != old_end
        return (new_begin, new_end, old_begin, old_end) if is_move else None
    return None


def shared_tail(old: str, new: str) -> str | None:
    """Return the longest common tail of two paths, in whole segments; None: their last segments differ.

    ``/blog/2024/a`` and ``/news/2024/a`` share ``/2024/a``.
    """
    tail = old[old.rfind("/") :]
    if not new.endswith(tail):
        return None
    while tail != old and new.endswith(longer := old[old.rfind("/", 0, len(old) - len(tail)) :]):
        tail = longer
    return tail


def other_ends(url: str) -> Iterator[str]:
    """Yield former URLs of a page, if `ENDS` has the move of its site: ``/a.html`` for ``/a``, say."""
    for new_end, old_end in ENDS[1:]:
        if "?" not in url and url.endswith(new_end) and not (new_end == "" and url.endswith("/")):
            yield url[: len(url) - len(new_end)] + old_end


def plainer_urls(url: str) -> Iterator[str]:
    """Yield simpler URLs that often have the same page, each with one thing changed.

    With https, without ``www2.``, a port, ``//``, ``index.html``, ``index.php/`` or final slash, or in lower
    case.
    """
    head, path = head_and_path(url)
    if (plainer := _PORT.sub("", head)) != head:
        yield plainer + path
    if head.startswith("http:"):
        yield f"https{head[4:]}{path}"
    if "//www" in head:
        heads = [_WWW.sub(begin, head) for begin in ("//www.", "//")]
        yield from (plainer + path for plainer in heads if plainer != head)
    if "?" not in path and (plainer := _INDEX.sub("", path)) != path:
        yield head + plainer
    if (plainer := _FRONT.sub("", path)) != path:
        yield head + plainer
    if path != path.lower():
        yield head + path.lower()
    before, mark, query = path.partition("?")
    if "//" in before:
        yield head + _SLASHES.sub("/", before) + mark + query


def last_name(url: str) -> str:
    """Return the last name of a URL's path with the query; ``a`` for ``/b/a/index.html``."""
    path, mark, query = head_and_path(url)[1].partition("?")
    return _INDEX.sub("", path).rstrip("/").rpartition("/")[2] + mark + query


def head_and_path(url: str) -> tuple[str, str]:
    """Split a URL into scheme with host, and path with query ("/" if empty), without the fragment."""
    parts = urlsplit(url)
    head = f"{parts.scheme}://{parts.netloc}"
    return head, url[len(head) :].partition("#")[0] or "/"
