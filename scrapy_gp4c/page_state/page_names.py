"""Names of pages: URLs without the parameters of campaigns and sessions, which make no page of their own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_plus

SESSION_PARAMS: Final = (
    "phpsessid", "jsessionid", "aspsessionid*", "asp.net_sessionid", "cfid", "cftoken", "oscsid",
    "zenid", "xtcsid",
)  # fmt: skip
"""Names of the sessions of PHP, Java EE, ASP, ColdFusion and shop systems, in lower case."""
IGNORED_PARAMS: Final = (
    # Campaigns: Google Analytics, Matomo, Adobe, AT Internet, HubSpot, Mailchimp and their like.
    "utm_*", "mtm_*", "pk_campaign", "pk_kwd", "pk_source", "pk_medium", "pk_keyword", "pk_content",
    "matomo_*", "piwik_*", "hsa_*", "_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking",
    "mc_cid", "mc_eid", "mkt_tok", "oly_enc_id", "oly_anon_id", "vero_conv", "vero_id", "wickedid",
    "_openstat", "yclid", "ymclid", "ysclid", "at_campaign", "at_medium", "at_custom*", "s_cid",
    "ml_subscriber", "ml_subscriber_hash", "trk_contact", "trk_msg", "trk_module", "trk_sid",
    "sc_campaign", "sc_channel", "sc_content", "sc_medium", "sc_outcome",
    # Clicks: what search engines and social networks add to the links of their users.
    "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid", "_ga",
    "_gl", "fbclid", "fb_action_ids", "fb_action_types", "fb_source", "fb_ref", "msclkid", "ttclid",
    "twclid", "li_fat_id", "igshid", "igsh", "epik", "rdt_cid", "scclid", "irclickid", "irgwc",
    "cjevent", "dm_i", "bbeml", "spm",
    *SESSION_PARAMS,
)  # fmt: skip
"""Names of parameters, in lower case; ``*`` at the end stands for any rest.

Sources: the vendors' documentation of their campaign and click parameters, and the session names of PHP, Java
EE, ASP, ColdFusion and osCommerce.
"""

_SESSION_NAMES: Final = frozenset({"sid", "sess", "session", "sessionid", "session_id", "s"})
"""Names that are a session only if their value looks like one."""
_SESSION_VALUE: Final = re.compile(r"[0-9a-f]{24,64}|(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[0-9A-Za-z_-]{24,64}")
_PATH_SESSION: Final = re.compile(r";jsessionid(?:=|%3d)[^/?#;]*|/\(S\([0-9a-z]{24}\)\)(?=/)", re.IGNORECASE)
"""Session in a path: that of Java servlets, and that of ASP.NET without cookies."""


@lru_cache(maxsize=8)
def _pattern(ignored: tuple[str, ...]) -> re.Pattern[str]:
    names = (re.escape(name.lower().rstrip("*")) + (".*" if name.endswith("*") else "") for name in ignored)
    return re.compile("|".join(names) or r"(?!)", re.DOTALL)


def page_url(url: str, ignored: tuple[str, ...] = IGNORED_PARAMS) -> str:
    """URL that names the page of a URL: without parameters of campaigns and sessions.

    All else stays as it is, the order of the other parameters included. ``ignored``: names of parameters;
    with none, every URL names a page of its own.
    """
    if not ignored:
        return url
    head, mark, query = url.partition("?")
    if ";" in head or "(" in head:
        head = _PATH_SESSION.sub("", head)
    if not mark:
        return head
    query, hash_mark, fragment = query.partition("#")
    parts = query.split("&")
    parameters = [parameter for parameter in parts if not _is_ignored(parameter, _pattern(ignored))]
    if len(parameters) < len(parts):
        query = "&".join(parameters)
    return head + (mark + query if query else "") + hash_mark + fragment


def without_session(url: str, ignored: tuple[str, ...] = IGNORED_PARAMS) -> str:
    """URL without its session, if sessions are among the ignored parameters; campaigns stay."""
    return page_url(url, tuple(name for name in ignored if name in SESSION_PARAMS))


def _is_ignored(parameter: str, pattern: re.Pattern[str]) -> bool:
    name, _, value = parameter.partition("=")
    name = unquote_plus(name).lower()
    if pattern.fullmatch(name):
        return True
    return name in _SESSION_NAMES and _SESSION_VALUE.fullmatch(value) is not None
