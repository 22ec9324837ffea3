"""Tests of the text fingerprint: what counts as a change, what does not, and that nothing raises."""

import gzip
from datetime import datetime
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from simhash import Simhash

from scrapy_gp4c.fingerprint import (
    distance,
    feature_hashes,
    features,
    fingerprint,
    fingerprint_of_text,
    is_changed,
    main_features,
    read,
    sim_half,
)
from scrapy_gp4c.fingerprint.answers import MAX_TEXT_CHARACTERS, page_text
from scrapy_gp4c.fingerprint.text import html_content
from scrapy_gp4c.words.masking import MASK, mask
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import shingle_hashes

URL = "http://127.0.0.1/"
WORD = st.text("abcdefghijklmnop", min_size=1, max_size=8)
MOMENT = st.datetimes(datetime(1900, 1, 1), datetime(2099, 12, 31))
UINT64 = st.integers(0, 2**64 - 1)


def page(body: str) -> HtmlResponse:
    """Return a response with this HTML."""
    return HtmlResponse(URL, body=body.encode(), encoding="utf-8")


def article(words: int, seed: int = 1) -> list[str]:
    """Return the words of a text."""
    dice = Random(seed)
    return ["".join(dice.choices("abcdefghiklmnoprstu", k=dice.randint(2, 9))) for _ in range(words)]


@given(st.binary(max_size=400), st.sampled_from((HtmlResponse, XmlResponse, TextResponse, Response)))
def test_no_body_raises(body: bytes, kind: type[Response]) -> None:
    """Any bytes under any declared type give an unsigned 64-bit number, the same one each time."""
    value = fingerprint(kind(URL, body=body))
    assert 0 <= value < 2**64
    assert value == fingerprint(kind(URL, body=body))


@given(
    st.lists(
        st.sampled_from(["<div>", "</p>", "<!--", "-->", "<ins class=ad id=ad>", "<a b='", "x", "&#0;", "<"])
    )
)
def test_no_markup_raises(pieces: list[str]) -> None:
    """Broken markup in any order gives a fingerprint."""
    assert 0 <= fingerprint(page("".join(pieces))) < 2**64


@pytest.mark.parametrize("tag", ["<div>", "<div class=ad>x", "<b>", "<!--", "<![CDATA[", "<script", "<a b='"])
def test_hostile_nesting_ends(tag: str) -> None:
    """A body of nothing but one opened tag ends: beyond MAX_DEPTH the markup is stripped without a parser."""
    assert 0 <= fingerprint(page(tag * 100_000)) < 2**64


@pytest.mark.parametrize("name", ["0" * 27, "cookie-" + "a_" * 26, "related" + "-a" * 26, "0" * 4_000])
def test_long_names_of_elements_take_no_time(name: str) -> None:
    """One class of 30 digits held a crawl up for hours: every way to divide them was tried."""
    begun_s = process_time()
    body = "".join(f'<div class="{name}{number}x!" id="{name}!{number}">text</div>' for number in range(50))
    assert 0 <= fingerprint(page(body)) < 2**64
    assert process_time() - begun_s < 20


def test_a_deep_headline_takes_no_time() -> None:
    """The likely main part was sought by reading the page once for each element around the headline."""
    begun_s = process_time()
    deep = "<div>" * 1_900 + "<h1>Deep</h1>" + "<p>one word more</p>" * 40_000 + "</div>" * 1_900
    assert fingerprint(page(deep + "<p>other words</p>" * 40_000)) > 0
    assert process_time() - begun_s < 5


def test_a_huge_body_is_cut() -> None:
    """Text behind MAX_TEXT_CHARACTERS is not looked at, text before it is."""
    head = "<p>" + "word " * (MAX_TEXT_CHARACTERS // 5)
    assert fingerprint(page(head + "one")) == fingerprint(page(head + "other"))
    assert fingerprint(page("new " + head)) != fingerprint(page(head))


@given(UINT64, UINT64, UINT64)
def test_distance_is_a_metric(a: int, b: int, c: int) -> None:
    """The distance is symmetric, zero only for equal fingerprints, and keeps the triangle inequality."""
    assert distance(a, b) == distance(b, a) == int(Simhash(a).distance(Simhash(b)))
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


def test_text_that_vanishes_is_a_change() -> None:
    """A page without text is 0, and gaining or losing text is a change whatever the threshold."""
    assert fingerprint(page("<script>x</script><p> </p>")) == 0
    assert is_changed(0, fingerprint(page("<p>one")), 64)
    assert not is_changed(0, 0, 1)
    assert is_changed(0b111, 0b1000, 4)
    assert not is_changed(0b111, 0b1000, 5)


@given(st.text(max_size=200))
def test_arrays_and_shingle_list_agree(text: str) -> None:
    """There is one hash per shingle, and equal shingles have equal hashes."""
    names, hashes = features(text), shingle_hashes(normalise(text)).tolist()
    assert len(names) == len(hashes)
    assert len(set(zip(names, hashes, strict=True))) == len(set(names)) == len(set(hashes))


@given(st.lists(WORD, min_size=1, max_size=300))
def test_sim_half_is_the_simhash_of_the_package(words: list[str]) -> None:
    """The upper half equals Simhash(shingles, f=32) of the simhash package with the same hash function."""
    text = " ".join(words)
    hashes = shingle_hashes(normalise(text))
    digests = {
        name.encode(): int(value).to_bytes(8, "big")
        for name, value in zip(features(text), hashes, strict=True)
    }
    expected = Simhash(features(text), f=32, hashfunc=lambda name: digests.get(name, bytes(8))).value
    assert sim_half(hashes) == expected == fingerprint_of_text(text) >> 32


@given(st.lists(WORD, min_size=1, max_size=60), st.data())
def test_markup_and_white_space_do_not_count(words: list[str], data: st.DataObject) -> None:
    """White space, attribute order, session ids in links and comments leave the fingerprint alone."""
    gaps = data.draw(st.lists(st.sampled_from([" ", "\n", "\t\r\n", "\u00a0", "<!-- 1 -->  "]), min_size=1))
    plain = page(f"<p class='a' id='b'>{' '.join(words)}</p> <a href='/x?sid=1'>next</a>")
    spaced = "".join(word + gaps[i % len(gaps)] + " " for i, word in enumerate(words))
    other = page(f"<p id='b' class='a'>\n{spaced}</p>\n<a href='/x?sid=2'>next</a>")
    assert fingerprint(plain) == fingerprint(other)


@given(MOMENT, MOMENT)
def test_time_stamps_do_not_count(one: datetime, two: datetime) -> None:
    """Two moments in the same or another notation are the same text."""
    formats = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%a, %d %b %Y %H:%M:%S GMT", "%B %d, %Y at %I:%M %p")
    stamps = {mask(f"updated {at:{how}} today".lower()) for at in (one, two) for how in formats}
    assert stamps <= {f"updated {MASK} today"}


@pytest.mark.parametrize(
    "text",
    [
        "12:34:56",
        "2026-11-21T02:03:04.123+00:00",
        "21/11/2026 02:03",
        "21.11.2026",
        "Sat Nov 21 02:03:04 2026",
        "21. November 2026 um 12:31 Uhr",
        "Freitag, 3. März 2026",
        "3 août 2026 à 14h05",
        "21 de noviembre de 2026",
        "21 de março de 2026",
        "November 3rd, 2026",
        "2026年11月21日",
        "3 minutes ago",
        "just now",
        "vor 3 Minuten",
        "hace 5 días",
        "há 2 horas",
        "3分前",
        "deadbeefdeadbeef00",
        "123e4567-e89b-12d3-a456-426614174000",
        "sid=a8f3k2",
        "1,234 views",
        "Page views: 17",
    ],
)
def test_moments_and_tokens_are_masked(text: str) -> None:
    """Each of these differs from fetch to fetch and becomes one sign, whatever stands around it."""
    assert mask(text.lower()) == MASK
    assert mask(f"lorem ipsum {text.lower()} dolor") == f"lorem ipsum {MASK} dolor"


@pytest.mark.parametrize("words", [50, 1000])
def test_a_price_a_sentence_and_a_headline_count(words: int) -> None:
    """On pages of 50 to 1,000 words each of 100 changes of every kind moves at least three bits."""
    missed = 0
    for seed in range(100):
        text = article(words, seed)
        position = seed * 7 % (words - 12)

        def show(text: list[str], price: str = "12.99", headline: str = "quiet harbour opens") -> int:
            return fingerprint(page(f"<h1>{headline}</h1><b>${price}</b><p>{' '.join(text)}</p>"))

        before = show(text)
        rewritten = [*text[:position], *article(12, seed + 1000), *text[position + 12 :]]
        for after in (show(text, price="13.99"), show(text, headline=f"new{seed} bridge"), show(rewritten)):
            missed += distance(before, after) < 3
    assert missed <= 3  # of 300: the acceptance asks for 99%; measured 99.9%


def test_what_is_never_content() -> None:
    """Scripts, navigation, the page's footer and hidden elements go; title, header and aside stay."""
    html = (
        "<title>title</title><style>x</style><nav>x</nav><header>header</header><article>text of an article"
        "<aside>note</aside><footer>author</footer></article><aside>x</aside><p hidden>x</p>"
        "<p style='display: none'>x</p><noscript>x</noscript><template>x</template><script>x</script>"
        "<footer>x</footer>"
    )
    assert html_content(html).text.split() == ["title", "text", "of", "an", "article", "note", "author"]


@pytest.mark.parametrize(
    "furniture",
    [
        "<header><a href=/>Home</a> <b>{} items in your bag</b></header>",
        "<div class=TopBar>Good morning, {}</div>",
        "<div class='clock-widget'>Now: {}</div>",
        "<div class='stat-block online-list'>Here now: {}</div>",
        "<div id=chat-launcher>I am {}, how can I help?</div>",
        "<footer>Revision <code>4e1f09{}</code></footer>",
    ],
)
def test_what_each_page_of_a_site_has_is_no_part_of_a_page(furniture: str) -> None:
    """Headers, strips and boxes may change; a header with the headline counts."""
    page = "<body>{}<div><h1>Ferry</h1><p>" + "It leaves at noon from the north quay. " * 4 + "</p></div>"
    assert len({html_content(page.format(furniture.format(word))).text for word in ("one", "two")}) == 1
    headed = "<body><div><h1>Ferry</h1>{}" + "It leaves at noon from the north quay. " * 4 + "</div>"
    header = "<header><h1>Ferry {}</h1></header>"
    assert len({html_content(headed.format(header.format(word))).text for word in ("one", "two")}) == 2


def test_the_likely_main_part_has_the_headline_and_most_text() -> None:
    """Without main and article, the header before headline and text is left out."""
    words = "The ferry leaves at noon from the north quay of the old harbour. " * 3
    head = "<body><div class=site-header><p>{}</p><a href=/>Home</a></div>"
    page = head + "<div><div><h1>Ferry</h1></div><div>{}</div></div>"
    texts = {html_content(page.format(strip, words)).text for strip in ("Gold 81.2 up", "Gold 80.9 down")}
    assert len(texts) == 1
    assert "Ferry" in texts.pop()
    logo = f"<body><div><h1>Port</h1><p>Gold {{}}</p></div><div>{words}</div>"
    assert len({html_content(logo.format(price)).text for price in ("81.2", "80.9")}) == 2


@pytest.mark.parametrize(
    "part",
    [
        "<div><div><h1>Lamp</h1><p>{text}</p></div><div>Price: {word} EUR</div></div>",
        "<h1>Blog</h1><div class=post><header><h2>{word}</h2></header><p>{text}</p></div>",
        "<header><h2>Status: {word}</h2></header><div><p>{text}</p></div>",
        "<div class=notice>The quay is {word}</div><div><h1>Ferry</h1><p>{text}</p></div>",
        "<div class=ticker><h1>Quote</h1><p>{word}</p></div><p>{text}</p>",
        "<div class=wp-block-quote>{word}</div><p>{text}</p>",
        "<div class=ticker>{word}</div><div><h1>Ferry</h1><p>{text}</p></div>",
        "<div><div>Price {word}</div><div><h1>Lamp</h1><p>{text}</p></div></div>",
        "<div class=sidebar-right>Price {word}</div><div><h1>Lamp</h1><p>{text}</p></div>",
        "<div class=topbar>Call +49 30 1234{word}</div><div><h1>Lamp</h1><p>{text}</p></div>",
        "<p>Biscuits: ⭐ 4.{word} / <b>Downloads</b> <i>{word}</i></p><p>{text}</p>",
        "<div class=stock-info>{word}</div><p>{text}</p>",
        "<dialog open>{word}</dialog><p>{text}</p>",
        "<footer>Mon - Fri 9-{word}, Sat 9-12</footer><p>{text}</p>",
        "<footer>Call 0301 234{word}99</footer><p>{text}</p>",
    ],
)
def test_what_may_be_said_nowhere_else_counts(part: str) -> None:
    """Parts beside headline and text, headers of entries and notices are no furniture of the site."""
    text = "It leaves at noon from the north quay. " * 5
    assert len({fingerprint(page(part.format(text=text, word=word))) for word in (17, 18)}) == 2


@pytest.mark.parametrize(
    "counter", ["12 and {} guests", "items 1-{}", "{} / 99 files", "Visitors: 0001{} 456"]
)
def test_counters_of_a_footer_are_no_hours_and_phones(counter: str) -> None:
    """Hours have minutes, or stand in a list; phone numbers have nine digits."""
    text = "It leaves at noon from the north quay. " * 5
    footer = f"<p>{text}</p><footer>About us. {counter}</footer>"
    assert len({fingerprint(page(footer.format(number))) for number in (17, 18)}) == 1


def test_a_time_under_a_label_of_dates_counts() -> None:
    """The day of a concert under "Fecha" is a statement."""
    event = (
        "<p>Concert</p><div><b>Fecha</b><div><time>sábado, {} de noviembre de 2026 - 20:00</time></div></div>"
    )
    assert len({html_content(event.format(day)).text for day in (21, 28)}) == 2
    shown = [normalise(html_content(event.format(day)).text) for day in (21, 28)]
    assert shown[0] != shown[1]


def test_scripts_without_spaces_are_split() -> None:
    """Japanese and Thai text is compared character by character, white space between them aside."""
    one, two = "山川海空森町村駅橋店本車道花", "山川海空森町村駅橋店本車道雨"
    assert distance(fingerprint_of_text(one), fingerprint_of_text(two)) >= 3
    assert fingerprint_of_text(one) == fingerprint_of_text("\n ".join(one))
    assert len(features("สวัสดี")) == 6 + 2


def test_xml_json_and_binary() -> None:
    """XML counts without tags and with CDATA, JSON as it is, anything else byte by byte."""
    feed = "<rss><!-- x --><title><![CDATA[one <b>two</b>]]></title><link>three</link></rss>"
    assert page_text(XmlResponse(URL, body=feed.encode())).split() == ["one", "two", "three"]
    assert page_text(TextResponse(URL, body=b'{"a": "<b>"}')) == '{"a" : "<b>"}'
    blob = gzip.compress(b"one")
    assert fingerprint(Response(URL, body=blob)) != fingerprint(Response(URL, body=blob + b"\0"))
    assert page_text(Response(URL, body=blob)) == ""
    assert fingerprint(Response(URL)) == 0


def test_users_features_replace_the_text() -> None:
    """With a function of one's own nothing else counts, and one of many changed features is found."""

    def prices(response: Response) -> list[str]:
        assert isinstance(response, TextResponse)
        return response.css("b::text").getall()

    rows = [f"<b>{number}</b>" for number in range(300)]
    before = fingerprint(page("".join(rows)), prices)
    assert before == fingerprint(page("<p>other text" + "".join(rows)), prices)
    assert is_changed(before, fingerprint(page("".join([*rows[:-1], "<b>new</b>"])), prices), 3)
    assert fingerprint(page("<p>no price"), prices) == 0
    assert feature_hashes(["a"]).size == 3


def test_main_features_take_the_main_element() -> None:
    """The ready-made extraction looks at <main>, and at the whole page where there is none."""
    assert main_features(page("<p>side</p><main>one two</main>")) == features("one two")
    assert main_features(page("<p>side</p>")) == features("side")


def test_long_texts_are_hashed_as_short_ones() -> None:
    """A shingle has one hash wherever it stands: texts far beyond one piece agree with three words alone."""
    random = Random(1)
    words = ["".join(random.choices("abcdefghijklm", k=random.randint(1, 12))) for _ in range(30_000)]
    hashes = shingle_hashes(" ".join(words))
    assert len(hashes) == len(words) + 2
    for last in [2, len(words) - 1, *random.sample(range(2, len(words)), 300)]:
        alone = shingle_hashes(" ".join(words[last - 2 : last + 1]))
        assert hashes[last] == alone[2]


def test_a_word_longer_than_a_piece_is_hashed() -> None:
    """A text without a single space is cut somewhere, and still tells a change at its end."""
    long = "x" * 200_000
    assert fingerprint_of_text(long) != fingerprint_of_text(long[:-1] + "y")


LETTERS = {
    "Latin": "abcdefghilmnoprstu",
    "accents": "aàâäeéèiîoôuùçñß",
    "Cyrillic": "абвгдежзиклмнопрсту",
    "Greek": "αβγδεζηθικλμνοπρστυ",
    "Arabic": "ابتثجحخدذرزسشعفقكلمن",
    "Hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "Devanagari": "अआइकखगघचजटडतदनपबमयरलवस",
    "Bengali": "অআইকখগঘচজটডতদনপবমযরলস",
    "Thai": "กขคงจชซดตถทนบปผพมยรลวสห",
    "Han": "山川海空森町村駅橋店本車道花雨書館",
    "Kana": "あいうえおかきくけこさしすせそたちつてと",
    "Hangul": "가나다라마바사아자차카타파하거너더러머버",
}
UNSPACED = ("Thai", "Han", "Kana")
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
MOST_MISSED = 1 / 1000


class EditedPage:
    """A page of blocks of words in one script, one row of which it shows several times."""

    def __init__(self, dice: Random, script: str, words: int, times: int) -> None:
        """Write it; ``words`` counts all blocks without the row."""
        self.dice, self.script, self.times = dice, script, times
        self.row = self.words(dice.randint(2, 9))
        self.blocks = [self.words(max(words // times, 1)) for _ in range(times)]

    def word(self) -> str:
        """Return a word, or a number."""
        if self.dice.random() < 0.1:
            return str(self.dice.randrange(1, 5000))
        return "".join(self.dice.choices(LETTERS[self.script], k=self.dice.randint(2, 8)))

    def words(self, count: int) -> list[str]:
        return [self.word() for _ in range(count)]

    def edit(self) -> None:
        """Change, remove or add one word of the row."""
        position = self.dice.randrange(len(self.row))
        how = self.dice.randrange(4)
        if how == 0:
            old = self.row[position]
            while self.row[position] == old:
                self.row[position] = self.word()
        elif how == 1 and len(self.row) > 1:
            del self.row[position]
        elif how == 2:
            self.row.insert(position, self.word())
        else:  # one letter or digit
            word = self.row[position]
            letters = "0123456789" if word.isdigit() else LETTERS[self.script]
            at = self.dice.randrange(len(word))
            self.row[position] = word[:at] + self.dice.choice(letters.replace(word[at], "")) + word[at + 1 :]

    def response(self, noise: Random) -> HtmlResponse:
        """Return the page with dates, tokens and counters of this moment."""
        joiner = "" if self.script in UNSPACED else " "
        body = "".join(
            f"<p>{joiner.join(block)}</p><div>{joiner.join(self.row)}</div>" for block in self.blocks
        )
        stamp = (
            f"<p>Updated {noise.randint(1, 28)} Nov 2026 {noise.randint(10, 23)}:15 GMT</p>"
            f"<p>{noise.randint(2, 50)} minutes ago</p><p>Views: {noise.randrange(10**5)}</p>"
            f"<input type=hidden name=csrf value={noise.getrandbits(64):x}>"
            f"<aside>{' '.join('abcdefgh'[noise.randrange(8)] for _ in range(3))}</aside>"
        )
        # The furniture stays below a third of the shortest page.
        text = f"<html><title>A page</title><body><p>{stamp}</p>{body}<p>Thank you for reading this page</p>"
        return HtmlResponse(URL, body=text.encode(), encoding="utf-8")


def judged(script: str, tries: int, *, edits: bool) -> list[str]:
    """Pages of a script that were judged wrong."""
    wrong = []
    for number in range(tries):
        size, times = SIZES[number % len(SIZES)], number % 8 + 1
        if size > 1000 and number % 5:  # long texts take most of the time
            size = 200
        shown = EditedPage(Random(f"{script}/{number}/{edits}"), script, size, times)
        before = read(shown.response(Random(number))).fingerprint
        if edits:
            shown.edit()
        after = read(shown.response(Random(number if edits else -number))).fingerprint
        if is_changed(before, after, 3) != edits:
            wrong.append(f"{script} {number}: {size} words, {times} times")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("edits", [True, False], ids=["edits", "noise"])
def test_any_edit_is_found_and_no_noise_is(edits: bool) -> None:
    """At any length and multiplicity, in twelve scripts: at most one of 1,000 is judged wrong."""
    tries = 100
    wrong = [one for script in LETTERS for one in judged(script, tries, edits=edits)]
    assert len(wrong) <= max(1, MOST_MISSED * tries * len(LETTERS)), wrong
