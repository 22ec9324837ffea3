"""The text of the monitored web's pages, and the HTML around it.

What counts is the *main text*: a pure function of the web, the page and its version. Around it stands
what must not count: a time stamp, a rotating ad, session ids in links, white space and the order of
attributes, all drawn anew for every response from ``noise``.
"""

from datetime import datetime
from functools import lru_cache
from html import escape
from random import Random

import numpy as np

from .model import BY_FEED, CALENDAR_HOST, DIRECTORY, MANUAL, NEWS, NO_CHARSET_HOST, NO_SPACE_HOST, SHOP, Web
from .prose import ADJECTIVES, NOUNS, PLACES, headline, sentence

WORDS = {NEWS: (50, 900), SHOP: (50, 250), MANUAL: (120, 1000), DIRECTORY: (60, 60)}  # range, log-uniform
WORDS_PER_SENTENCE = 12
TEASERS = 5  # sentences on an index page
BESIDE, BANNER, INSIDE = range(3)
RELATED = 5  # links to other pages below each text
_GAPS = ("\n", "\n  ", "\n\n", "\n\t")
_SPACES = (" ", "\n", "  ")


def _dice(web: Web, *key: object) -> Random:
    """Return a random generator that depends on nothing but the web's seed and the key."""
    return Random(f"{web.seed}/{'/'.join(map(str, key))}")


def week_path(week: int) -> str:
    """Return the path of a week of the calendar, from 1."""
    return f"/calendar/week-{week}.html"


@lru_cache(maxsize=65536)
def title(web: Web, page: int) -> str:
    """Return the name of a page, which never changes; links to it carry it."""
    if web.index[page]:
        return f"Host {web.host[page]}" if web.host[page] else "Directory"
    if web.file[page]:
        return "Feed" if web.found_by[web.host[page]] == BY_FEED else "Sitemap"
    return headline(_dice(web, page, "title"), web.host[page] == NO_SPACE_HOST)


@lru_cache(maxsize=8192)
def main_text(web: Web, page: int, version: int) -> tuple[str, ...]:
    """Return the main text of a page's version: headline, facts, then sentences.

    Version 1 is written at the page's birth; each later version edits what stands there: a price, a
    stock count, the headline, or one to three sentences. An index page also lists pages of its host, see
    `Web.listed`.
    """
    dice = _dice(web, page)
    kind = int(web.kind[page])
    facts = 3 if kind == SHOP and not web.index[page] else 1
    low, high = WORDS[kind]
    words = low * (high / low) ** dice.random()
    sentences = TEASERS if web.index[page] else max(3, round(words / WORDS_PER_SENTENCE))
    edit_of = [1] * (facts + sentences)  # the last edit of each part of the text
    for edit in range(2, version + 1):
        what = dice.random()
        if facts == 3 and what < 0.8:
            edit_of[1 if what < 0.7 else 2] = edit
        elif what > 0.9:
            edit_of[0] = edit
        else:
            start = facts + dice.randrange(sentences)
            for part in range(start, min(start + dice.randint(1, 3), len(edit_of))):
                edit_of[part] = edit
    japanese = bool(web.host[page] == NO_SPACE_HOST)
    text = [headline(_dice(web, page, 0, edit_of[0]), japanese)]
    if facts == 3:
        # The cents and the count follow the edit's number: no edit repeats what stood there before.
        euros = 5 + int(_dice(web, page, 1, edit_of[1]).paretovariate(1.2) * 20) % 900
        text.append(f"€{euros}.{37 * edit_of[1] % 100:02d}")
        text.append(f"{1 + 13 * edit_of[2] % 97} in stock")
    text += [sentence(_dice(web, page, part, edit_of[part]), japanese) for part in range(facts, len(edit_of))]
    return tuple(text)


@lru_cache(maxsize=65536)
def related(web: Web, page: int) -> tuple[int, ...]:
    """Return the pages that a page links to below its text: some on its host, some elsewhere."""
    dice = _dice(web, page, "related")
    host = int(web.host[page])
    siblings = np.flatnonzero(web.steady[web.first[host] : web.first[host + 1]]) + web.first[host]
    everywhere = np.flatnonzero(web.steady)
    pool = [int(siblings[dice.randrange(siblings.size)]) for _ in range(RELATED - 2) if siblings.size]
    pool += [int(everywhere[dice.randrange(everywhere.size)]) for _ in range(2) if everywhere.size]
    return tuple(dict.fromkeys(other for other in pool if other != page))


class Noise:
    """Random parts of HTML that differ from response to response without any change of the page."""

    def __init__(self, dice: Random, now: datetime) -> None:
        self.dice, self.now = dice, now
        self.session = f"{dice.getrandbits(64):016x}"

    def tag(self, name: str, /, **attributes: str) -> str:
        """Return an opening tag with its attributes in any order; a trailing _ is for Python's keywords."""
        items = [f' {key.rstrip("_").replace("_", "-")}="{escape(v)}"' for key, v in attributes.items()]
        self.dice.shuffle(items)
        return f"<{name}{''.join(items)}>"

    def gap(self) -> str:
        """Return some white space."""
        return self.dice.choice(_GAPS)

    def link(self, url: str, text: str, **attributes: str) -> str:
        """Return a link whose URL carries the session id."""
        return f"{self.tag('a', href=f'{url}?sid={self.session}', **attributes)}{escape(text)}</a>"


def ad_place(host: int) -> int:
    """Return where a host shows its ad: BESIDE the text, as a BANNER above it, or INSIDE it."""
    return host // 3 % 3


def ad(host: int, noise: Noise) -> str:
    """Return an ad in the host's manner."""
    dice = noise.dice
    text = f"Buy a {dice.choice(ADJECTIVES)} {dice.choice(NOUNS)} in {dice.choice(PLACES)} today!"
    target = f"http://127.0.0.1:9/click/{dice.getrandbits(32)}"
    if ad_place(host) == BESIDE:
        return f"{noise.tag('aside', class_='ad', role='complementary')}{noise.link(target, text)}</aside>"
    if ad_place(host) == BANNER:
        image = noise.tag(
            "img", src=f"/banner/{dice.getrandbits(16)}.png", alt=text, width="728", height="90"
        )
        return f"{noise.tag('div', class_='ad-banner', id=f'ad-{dice.randrange(99)}')}{image}</div>"
    link = noise.link(target, text, rel="sponsored nofollow", target="_blank")
    return f"{noise.tag('div', class_='advert', data_slot=str(dice.randrange(9)))}Advertisement {link}</div>"


def meta_charset(host: int) -> str:
    """Return the charset that a host's pages declare, "" for none; not always the true one."""
    return "" if host == NO_CHARSET_HOST else "utf-8"


def stamp(host: int, now: datetime) -> str:
    """Return the time stamp in the host's manner."""
    pattern = (
        "%Y-%m-%d %H:%M:%S.%f",
        "%a, %d %b %Y %H:%M:%S GMT",
        "%d/%m/%Y %H:%M:%S",
        "%B %d, %Y at %I:%M %p",
    )
    return f"Generated at {now.strftime(pattern[host % 4])}"


def _article(web: Web, page: int, version: int, noise: Noise) -> list[str]:
    text = main_text(web, page, version)
    dice = noise.dice
    lines = [f"<h1>{escape(text[0])}</h1>"]
    rest = 1
    if web.kind[page] == SHOP and not web.index[page]:
        price = noise.tag("span", class_="price", itemprop="price")
        lines.append(f"<p>{price}{text[1]}</span>{noise.gap()}<span>{text[2]}</span></p>")
        rest = 3
    for start in range(rest, len(text), 4):
        if web.kind[page] == MANUAL and (start - rest) % 16 == 12:
            lines.append(f"<h2>{escape(title(web, page))} {(start - rest) // 16 + 1}</h2>")
        joint = "" if web.host[page] == NO_SPACE_HOST else dice.choice(_SPACES)
        lines.append(f"<p>{escape(joint.join(text[start : start + 4]))}</p>")
    if ad_place(int(web.host[page])) == INSIDE:
        lines.insert(2, ad(int(web.host[page]), noise))
    return lines


def render(web: Web, page: int, day: int, port: int, noise: Noise) -> str:
    """Return the HTML of a page on a day, as served at ``port``."""
    host = int(web.host[page])
    version = int(web.versions(day)[page])

    def links(pages: list[int] | tuple[int, ...]) -> list[str]:
        return [f"<li>{noise.link(web.url(other, port), title(web, other))}</li>" for other in pages]

    main, charset = _article(web, page, version, noise), meta_charset(host)
    lines = ["<!DOCTYPE html>", noise.tag("html", lang="ja" if host == NO_SPACE_HOST else "en"), "<head>"]
    if charset:
        lines.append(noise.tag("meta", charset=charset))
    lines += [
        f"<title>{escape(title(web, page))}</title>",
        noise.tag("meta", name="csrf-token", content=f"{noise.dice.getrandbits(96):024x}"),
        noise.tag("link", rel="stylesheet", href=f"/style.css?{noise.session}"),
        f"<script>var session = '{noise.session}', rendered = {noise.now.timestamp():.3f};</script>",
        f"</head>{noise.gap()}<body>",
        noise.tag("nav", id="menu", class_="top"),
        "<ul>",
        f"<li>{noise.link('/', 'Home')}</li>",
        f"<li>{noise.link('/login', 'Sign in')}</li>",
        f"<li>{noise.link('/cart', 'Your basket')}</li>",
        "</ul>",
        f"</nav>{noise.gap()}",
        ad(host, noise) if ad_place(host) == BANNER else "",
        noise.tag("main", id="content", class_="main"),
        *main,
    ]
    if web.index[page]:
        calendar = [f"<li>{noise.link(week_path(1), 'Calendar')}</li>"] if host == CALENDAR_HOST else []
        listed = web.listed(page, day).tolist()
        lines += [noise.tag("ul", class_="listing"), *calendar, *links(listed), "</ul>"]
    else:
        lines += [noise.tag("ul", class_="related"), *links(related(web, page)), "</ul>"]
    lines += [
        "</main>",
        noise.tag("aside", class_="sidebar", id="side"),
        f"<h3>About {escape(title(web, int(web.first[host])))}</h3>",
        f"<p>{escape(sentence(_dice(web, 'about', host), host == NO_SPACE_HOST))}</p>",
        "</aside>",
        ad(host, noise) if ad_place(host) == BESIDE else "",
        f"{noise.tag('footer', class_='foot', id='foot')}{noise.gap()}<p>{stamp(host, noise.now)}</p>",
        f"<p>{noise.link('/imprint', 'Imprint')} {noise.link('/privacy', 'Privacy')}</p></footer>",
        "</body>",
        "</html>",
    ]
    return "".join(line + noise.gap() for line in lines if line)
