"""Learned noise of a page: parts that a site draws anew at each visit without a change of the page.

A page that changed at its last visit has hashes of those parts in its notes. A part that changed at each of
three visits is a *clock*: it is not compared until it stops changing. Only these may be clocks: numbers next
to a word that counts or tells time ("17 readers"), a day with a full hour and no label, and parts whose name
or label says that they are about other pages (related articles) or drawn anew (the quote of the day). All
else is a statement of the page, such as a price, a headline, a stock: a page that states something else at
each visit is a page that changes.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

import xxhash
from selectolax.lexbor import LexborNode

from scrapy_gp4c.fingerprint.data import KEY_WORD, leaves
from scrapy_gp4c.fingerprint.text import (
    HEADINGS,
    MOST_LABELLED,
    OTHER_PAGES_NAME,
    SEPARATOR,
    compared_parts,
    compared_pieces,
    names_of,
)
from scrapy_gp4c.words.masking import (
    CHECKSUMS,
    CURRENCIES,
    DATED,
    LETTERS,
    ON_THE_HOUR,
    WORDS,
    is_moment,
    mask,
    states_date,
)
from scrapy_gp4c.words.normal import normalise

_ROW: Final = struct.Struct("<IH")
"""Learned state of a part: position, with the number of changes in a row in its low bits, and text's hash."""
MAX_ROWS: Final = 18
_STREAK: Final = 3
_COUNTER: Final = 4
_CLOCK_STREAK: Final = 2
"""Changes of a part in a row, after the page's first change, that make it a clock."""

_WITHIN: Final = "\u0590"  # scripts without spaces, or that write articles and endings on words


def _words(*names: str) -> tuple[frozenset[str], re.Pattern[str]]:
    """Return words of `WORDS` lists: a set for scripts with spaces, a pattern for those without."""
    words = " ".join(WORDS[name] for name in names).split()
    within = [re.escape(word) for word in words if word[0] >= _WITHIN]
    return frozenset(word for word in words if word[0] < _WITHIN), re.compile("|".join(within))


_COUNTERS: Final = _words("counters", "views")
_STATEMENTS: Final = _words("statements")
_CURRENCY: Final = re.compile(rf"[{CURRENCIES}]|\b(?:kč|zł|kr|лв|lei|r\$|rp)\b|%|\d\s?[円元원บ]")
_NAME: Final = re.compile(
    rf"(?:[\w-]*?[-_])?(?:{OTHER_PAGES_NAME}"
    r"|(?:popular|similar|suggested|random|more|other)-?(?:posts?|articles?|stories|news|links"
    r"|items|products|videos|topics|pages|reads)|recent-?comments|testimonials?|weather|wetter"
    r"|did-?you-?know|fun-?facts?|(?:tip|fact|word|joke|thought|quote)-?of-?(?:the-?)?(?:day|moment)|daily-?(?:quote|tip|fact)"
    r"|who-?is-?online|users?-?online|online-?users|visitors?|visitor-?count(?:er)?|hit-?count(?:er)?|page-?views?"
    r"|views?-?count(?:er)?|post-?views|counter|hits|share-?counts?|(?:load|render|server|page|response)-?time|timestamp"
    r"|time-?ago|(?:request|trace|session)-?id|csrf|nonce|debug|captcha|sponsors?|banners?|(?:site|page|main)-?footer"
    r"|colophon|quotes?|quotations?|qotd|fortune)(?:[-_][\w-]*)?"
)
_STATEMENT_NAME: Final = re.compile("price|stock|avail|cart|sku|headline|ticker|market")
_QUOTED: Final = re.compile("[-_]?quot|fortune|qotd")  # a rotating one has no number; that of a share has
_INLINE: Final = frozenset(
    ("-text", "a", "b", "i", "em", "span", "strong", "small", "br", "time", "q", "cite")
)
_LABEL: Final = re.compile(
    r"\W*(?:[^\W\d]{1,15}['’\s]{1,2}){0,2}(?:"
    + "|".join(re.escape(label.strip()) for label in WORDS["asides"].split("|") if label.strip())
    + r")(?:\w{0,3}(?:\s[^:：]{0,40})?(?P<colon>[:：])|[^:：]{0,30}$)"
)
_TOKEN: Final = re.compile(r"\w*\d[\w.,'’%-]*(?:\s\d{3}\b)*|" + LETTERS + r"|[,;|·•](?=\s)|[:：]")
_QUOTATION: Final = re.compile(r"\s*[\"“„«‹「『].*[\"”“»›」』]\W*", re.S)
_CONTAINERS: Final = frozenset(("div", "section", "ul", "ol", "dl", "table", "aside"))
_MEASURES: Final = frozenset(
    ("duration", "ms", "millis", "milliseconds", "micros", "nanos", "seconds", "age", "uptime", "load")
)
_TOKEN_VALUE: Final = re.compile(
    r'"(?=[^"]*\d)(?:[0-9a-f-]{8,200}|(?>(?:\d*+[A-Za-z]++\d++){2,40})[\w+/=.:-]{0,200})"'
)
_UNIX_VALUE: Final = re.compile(r"1[5-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?")  # 2017 to 2033
_VERSION_KEY: Final = re.compile("version|commit|sha|hash|digest|sku|isbn|url|link|slug|name|title", re.I)
_LONGEST_COUNTER: Final = 80
_LONGEST_LABEL: Final = 60
_LONGEST_TOPIC: Final = 1_000
_NEAR: Final = 3
"""Most words between a number and the word that says what it counts."""


class TextNode(NamedTuple):
    """Text node of a page, with the blank behind it if there is one, or a piece of JSON data."""

    text: str
    position: int = 0
    """Hash, a multiple of 4 below 2**32, that identifies its part if this may be a clock; 0: it may not."""


def counter_form(text: str) -> str | None:
    """Return a text with "0" for its numbers, if each stands beside a word of counting or time; else None."""
    if not any(map(str.isdigit, text)):
        return None
    lower = mask(text.lower())
    tokens = _TOKEN.findall(lower)
    numbers = [at for at, token in enumerate(tokens) if any(map(str.isdigit, token))]
    if not numbers or _is_statement(lower, tokens):
        return None
    for at in numbers:
        has_colon = at > 0 and tokens[at - 1] in ":："
        before = tokens[max(at - 1 - _NEAR, 0) : at - 1] if has_colon else tokens[max(at - 1, 0) : at]
        if not _has_counter(tokens[at + 1 : at + 1 + _NEAR]) and not _has_counter(before[::-1]):
            return None
    return " ".join("0" if any(map(str.isdigit, token)) else token for token in tokens)


def _has_counter(tokens: Sequence[str]) -> bool:
    """Whether a counting word is among the tokens that come before the next number or comma."""
    words, within = _COUNTERS
    for token in tokens:
        if token in words or within.search(token):
            return True
        if not token[0].isalpha():
            return False
    return False


def _is_statement(lower: str, tokens: Iterable[str]) -> bool:
    words, within = _STATEMENTS
    return bool(_CURRENCY.search(lower)) or not words.isdisjoint(tokens) or bool(within.search(lower))


class _Tree:
    """Elements and text nodes of the compared part of a page, as lists in document order."""

    def __init__(self, roots: Sequence[LexborNode]) -> None:
        self.tags: list[str] = []
        self.names: list[list[str]] = []
        self.texts: list[str] = []
        self.parents: list[int] = []
        self.paths: list[int] = []
        self.ends: list[int] = []
        """Position behind the last descendant of each node."""
        for root in roots:
            self._add(root)
        count = len(self.tags)
        self.sizes = [len(text) for text in self.texts]
        self.size = sum(self.sizes)
        self.links = [int(tag == "a") for tag in self.tags]
        self.ends = list(range(1, count + 1))
        for at in range(count - 1, -1, -1):
            above = self.parents[at]
            if above >= 0:
                self.sizes[above] += self.sizes[at]
                self.links[above] += self.links[at]
                self.ends[above] = max(self.ends[above], self.ends[at])

    def _add(self, root: LexborNode) -> None:
        open_nodes = [(root, -1)]
        while open_nodes:
            node, above = open_nodes.pop()
            tag = node.tag or ""
            text = (node.text_content or "") if tag == "-text" else ""
            if tag == "-text" and not text.strip():
                continue
            at = len(self.tags)
            self.tags.append(tag)
            self.texts.append(text)
            self.parents.append(above)
            self.paths.append(crc32(tag.encode(), self.paths[above] if above >= 0 else 0))
            if tag[:1] == "-":
                self.names.append([])
                continue
            attributes = node.attributes
            self.names.append([*names_of(attributes.get("class"), attributes.get("id"))])
            open_nodes += [(child, at) for child in reversed([*node.iter(include_text=True)])]

    def text(self, at: int) -> str:
        return " ".join(text for text in self.texts[at : self.ends[at]] if text)


def blocks_of(html: str) -> list[TextNode]:
    """Return the text nodes of the compared part of a page; ``[]`` if they lack some of the compared text."""
    roots, data, compared = compared_parts(html)
    tree = _Tree(roots)
    parts = _positions(tree)
    nodes = [(at, text.strip()) for at, text in enumerate(tree.texts) if text]
    pieces = compared_pieces(SEPARATOR.join(text for _, text in nodes))
    if len(pieces) != len(nodes):  # a text holds one of the signs itself
        return []
    blocks: list[TextNode] = []
    for (at, _), text in zip(nodes, pieces, strict=True):
        is_stated = bool(blocks) and blocks[-1].text.startswith(DATED)
        position = parts[at] or (0 if is_stated else _position_of_moment(text, tree.paths[at]))
        blocks.append(TextNode(text, position))
    for text in data:
        blocks += blocks_of_data(text) or [TextNode(f"{text} ")]
    return blocks if without_clock(blocks, frozenset()).split() == compared.split() else []


def _position_of_moment(text: str, path: int) -> int:
    """Return the position of a text that is just a day with a full or half hour; 0: it is not.

    Without a label it is compared as the time of an event; some sites show the time of the visit so.
    """
    is_alone = len(text) <= _LONGEST_COUNTER and ON_THE_HOUR.search(text) is not None and states_date(text)
    is_moment_alone = is_alone and (is_moment(text) or not any(map(str.isalpha, text)))
    return crc32(b"%d" % path) & ~7 or 8 if is_moment_alone and DATED not in text else 0


def blocks_of_data(text: str) -> list[TextNode]:
    """Return the values of a text of JSON data, and the text between them; ``[]`` for other texts."""
    has_checksums = CHECKSUMS.search(text) is not None
    try:
        return [
            TextNode(piece, _position_of_value(piece, keys, has_checksums)) for piece, keys in leaves(text)
        ]
    except (RecursionError, ValueError):
        return []


def _position_of_value(value: str, keys: tuple[str, ...], has_checksums: bool) -> int:
    """Return the position that identifies a JSON value that may be a clock, by its keys; 0: it may not.

    It is the same in all rows of a list. ``has_checksums``: whether the data is about checksums.
    """
    if not keys or not any(map(str.isdigit, value)):
        return 0
    words = [word.lower() for key in keys[-2:] for word in KEY_WORD.findall(key)]
    if _is_statement(" ".join(words), words) or _STATEMENT_NAME.search(keys[-1].lower()) is not None:
        return 0
    is_number = value[0] != '"'
    is_clock = (
        _UNIX_VALUE.fullmatch(value) is not None or not _MEASURES.isdisjoint(words) or _has_counter(words)
        if is_number
        else _VERSION_KEY.search(keys[-1]) is None
        and ((not has_checksums and _TOKEN_VALUE.fullmatch(value) is not None) or _is_time(value))
    )
    return crc32("\n".join(keys).encode("utf-8", "replace")) & ~7 or 8 if is_clock else 0


def _is_time(value: str) -> bool:
    return re.fullmatch(r'"20\d\d(?: - |-)?\d\d(?: - |-)?\d\d[ T:\d.+Z-]*"', value) is not None


def _positions(tree: _Tree) -> list[int]:
    """Return the `TextNode.position` of each node of a tree; 0: it may be no clock."""
    parts = [0] * len(tree.tags)
    numbers: Counter[int] = Counter()
    topics = (tree.text(at) for at, tag in enumerate(tree.tags) if tag in ("title", "h1"))
    topic = " ".join(islice(topics, 10))[:_LONGEST_TOPIC].lower()  # every name and label is sought in it

    def position(at: int, form: str | None = None) -> int:
        # A counter's words are its position: where they change, the page states something else.
        path_hash = tree.paths[at] if form is None else crc32(form.encode("utf-8", "replace"))
        numbers[path_hash] += 1
        return (
            crc32(b"%d %d" % (path_hash, numbers[path_hash])) & ~7 | (_COUNTER if form is not None else 0)
            or 8
        )

    def may_be_clock(at: int) -> bool:
        lower = tree.text(at).lower()
        tokens = _TOKEN.findall(lower)
        has_number = any(sign.isdigit() for sign in lower)
        return not has_number or tree.links[at] > 0 or not _is_statement(lower, tokens)

    for at, tag in enumerate(tree.tags):
        above = tree.parents[at]
        if above >= 0 and parts[above]:
            parts[at] = parts[above]
        if parts[at] or not tree.sizes[at]:
            continue
        name = next((name for name in tree.names[at] if _is_noise_name(name, topic)), None)
        is_quoted = (
            tag in ("blockquote", "q")
            or (name is not None and _QUOTED.search(name) is not None)
            or (tag == "-text" and _QUOTATION.fullmatch(tree.texts[at]) is not None)
        )
        if is_quoted:
            if not any(sign.isdigit() for sign in tree.text(at)):
                parts[at] = position(at)
        elif (tag == "time" or name is not None) and may_be_clock(at):
            parts[at] = position(at)
        elif (
            tree.sizes[at] <= min(_LONGEST_COUNTER, tree.size / 3)  # no short page with a counter
            and (form := counter_form(tree.text(at))) is not None
        ):
            parts[at] = position(at, form)
        elif tag == "-text" and (label := _label(tree.texts[at], topic)) is not None:
            if label["colon"] and tree.texts[at][label.end() :].strip():
                parts[at] = position(at) if may_be_clock(at) else 0
            else:
                for sibling in _labelled(tree, at):
                    if may_be_clock(sibling):
                        parts[sibling] = position(sibling)
    return parts


def _is_noise_name(name: str, topic: str) -> bool:
    if _NAME.fullmatch(name) is None or _STATEMENT_NAME.search(name) is not None:
        return False
    # A page whose title is about the weather states it.
    return not any(len(word) > 3 and word.rstrip("s") in topic for word in re.split("[-_]", name))


def _label(text: str, topic: str) -> re.Match[str] | None:
    label = _LABEL.match(" ".join(text[:200].split()).lower())
    return label if label is not None and label[0].strip(" :：") not in topic else None


def _labelled(tree: _Tree, at: int) -> list[int]:
    """Return the positions of the elements and texts to which the label at a position belongs."""
    if tree.sizes[at] > _LONGEST_LABEL:
        return []
    above = tree.parents[at]
    while above >= 0 and tree.sizes[above] == tree.sizes[at]:
        if tree.tags[above] in ("a", "button", "option"):
            return []
        at, above = above, tree.parents[above]
    siblings: list[int] = []
    block = None
    sibling = tree.ends[at]
    while above >= 0 and sibling < tree.ends[above] and len(siblings) < MOST_LABELLED:
        tag = tree.tags[sibling]
        is_page = 3 * tree.sizes[sibling] > tree.size
        if is_page or tag in HEADINGS or (block not in (None, tag) and tag not in _INLINE):
            break
        if tag not in _INLINE:
            block = "" if tag in _CONTAINERS else tag  # one container, or several paragraphs
        if tree.sizes[sibling]:
            siblings.append(sibling)
        sibling = tree.ends[sibling]
    return siblings


def clock_positions(learned: bytes) -> frozenset[int]:
    """Return the positions (`TextNode.position`) of clocks, by the state of noise learning."""
    return frozenset(at for at, (_, streak) in _rows(learned).items() if streak >= _CLOCK_STREAK)


def without_clock(blocks: Sequence[TextNode], positions: frozenset[int]) -> str:
    """Return the text of the blocks of a page, without its clocks: the blocks at `positions`."""
    return "".join(block.text for block in blocks if block.position not in positions)


def learn(learned: bytes, blocks: Sequence[TextNode], *, is_changed: bool) -> bytes:
    """Return the packed state of noise learning after a page was read; b"" if nothing may be a clock.

    ``learned``: the state before; ``blocks``: parts of the page now; ``is_changed``: whether the page changed
    but for its clocks.
    """
    texts: dict[int, list[str]] = {}
    for block in blocks:
        texts.setdefault(block.position, []).append(block.text)
    statement = sum(len(text.split()) for text in texts.pop(0, []))
    before = _rows(learned)
    rows: dict[int, tuple[int, int]] = {}
    for at, pieces in texts.items():
        value, (old, streak) = _hash(" ".join(pieces)), before.get(at, (None, -1))
        # One of few quotes may be drawn twice in a row; a counter that stands still has stopped.
        highest = _CLOCK_STREAK if at & _COUNTER else _CLOCK_STREAK + 1
        streak = max(streak - 1, 0) if value == old else min(streak + 1, highest)
        rows[at] = (value, streak)
    if not is_changed and not any(streak for _, streak in rows.values()):
        return b""
    learned_rows = sorted(rows.items(), key=lambda row: -row[1][1])[:MAX_ROWS]
    # A page all of whose text changes is a page that changes.
    if (
        sum(len(" ".join(texts[at]).split()) for at, (_, streak) in learned_rows if streak >= _CLOCK_STREAK)
        > statement
    ):
        learned_rows = [(at, (value, min(streak, _CLOCK_STREAK - 1))) for at, (value, streak) in learned_rows]
    return b"".join(_ROW.pack(at | streak, value) for at, (value, streak) in learned_rows)


def _hash(text: str) -> int:
    is_hour = len(text) <= _LONGEST_COUNTER and ON_THE_HOUR.search(text) is not None  # masked without context
    form = text if is_hour else normalise(text)
    return xxhash.xxh64_intdigest(" ".join(form.split()).encode("utf-8", "replace")) & 0xFFFF


def _rows(learned: bytes) -> dict[int, tuple[int, int]]:
    """Return position -> hash and number of changes in a row, of each part in a state of learning."""
    return {at & ~_STREAK: (value, at & _STREAK) for at, value in _ROW.iter_unpack(learned)}
