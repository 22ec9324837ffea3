"""Files of the monitored web besides its pages: sitemaps, a feed, and an endless calendar.

Sitemaps and feed date the last change of each page in real time: a change of day d dates from the moment when
the web first showed day d or a later one. Days before day 1 are as long as the first one, at least
`EARLIER_DAY`. The lying sitemap dates every page now.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from html import escape
from random import Random

from .model import BY_LYING_SITEMAP, BY_SITEMAP, Web
from .page_text import Noise, title, week_path
from .prose import headline, sentence

SITEMAP_TYPE, FEED_TYPE = "text/xml; charset=utf-8", "application/atom+xml; charset=utf-8"
EARLIER_DAY = timedelta(seconds=6)  # a crawl of all pages takes as long
YEAR_WEEKS = 52
WEEK_SENTENCES = 6


def since(shown: Mapping[int, datetime], day: int) -> datetime:
    """Return when a change of ``day`` was first visible; ``shown``: day -> when the web first showed it."""
    if day >= 1:
        return min(moment for other, moment in shown.items() if other >= day)
    first, second = [*sorted(shown.values()), max(shown.values())][:2]
    return first - (1 - day) * max(second - first, EARLIER_DAY)


def render_file(web: Web, page: int, day: int, port: int, shown: Mapping[int, datetime]) -> tuple[str, str]:
    """Return the content type and the text of a sitemap or feed; ``shown``: as for `since`, with ``day``."""
    changed = web.last_change(day)
    lies = web.found_by[web.host[page]] == BY_LYING_SITEMAP
    entries = [
        (web.url(other, port), other, (max(shown.values()) if lies else since(shown, int(changed[other]))))
        for other in web.listed(page, day).tolist()
    ]
    if lies or web.found_by[web.host[page]] == BY_SITEMAP:
        urls = [f"<url><loc>{url}</loc><lastmod>{at.isoformat()}</lastmod></url>" for url, _, at in entries]
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        lines = [f'<urlset xmlns="{space}">', *urls, "</urlset>"]
        return SITEMAP_TYPE, "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', *lines])
    address = web.url(page, port)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<title>News of host {web.host[page]}</title><id>{address}</id>",
        f"<updated>{max(at for *_, at in entries).isoformat()}</updated>" if entries else "",
        *(
            f'<entry><title>{escape(title(web, other))}</title><id>{url}</id><link href="{url}"/>'
            f"<updated>{at.isoformat()}</updated></entry>"
            for url, other, at in entries
        ),
        "</feed>",
    ]
    return FEED_TYPE, "\n".join(lines)


def render_week(web: Web, week: int, noise: Noise) -> str:
    """Return the HTML of a week of the calendar, which never changes and links to the next week."""
    dice = Random(f"{web.seed}/week/{week}")
    text = " ".join(sentence(dice, japanese=False) for _ in range(WEEK_SENTENCES))
    links = [noise.link(week_path(week + further), f"Week {week + further}") for further in (1, YEAR_WEEKS)]
    return (
        f"<!DOCTYPE html><html><head><title>Week {week}</title></head><body>"
        f"{noise.tag('main', id='content')}<h1>Week {week}: {headline(dice, japanese=False)}</h1>"
        f"<p>{text}</p>{' '.join(links)}</main></body></html>"
    )
