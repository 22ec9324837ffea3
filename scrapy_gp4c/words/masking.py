"""Masks of what differs from fetch to fetch without a change of the page: times, dates, tokens, counters.

`mask` replaces each by the character `MASK`, so that "3 minutes ago" and "5 minutes ago" are equal. A number
that could be something else is masked only where the words before it say time or token: "Rp 1510000000" is a
price, "9:00-17:00" are hours of opening. docs/fingerprint.md lists what is masked. Here, a *clock* is a time
that differs at each fetch ("updated 17:30"), and a *statement* is a date or number that the page is about.

Names of months and days and words of relative times are those of Unicode's CLDR (``tools/date_words.py``).
The time is linear in the length of any text: the repeats of regular expressions are possessive (they never
backtrack), or bounded.
"""

import json
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import chain, pairwise
from typing import Final, NamedTuple

MASK: Final = "\x7f"  # DEL: no page's text holds it, and an ASCII text stays one (a quarter of the memory)

_DATA: Final = files(__package__)
_DATES_SOURCE, _WORDS_SOURCE = (
    re.sub("[\u200b\u200c]", "", _DATA.joinpath(name).read_text(encoding="utf-8"))
    for name in ("date_words.json", "mask_words.toml")
)
_TABLE: Final = json.loads(_DATES_SOURCE)
WORDS: Final[dict[str, str]] = tomllib.loads(_WORDS_SOURCE)
"""Name of a word list -> words, of many languages, that stand beside numbers or above lists."""
WEEKDAYS: Final = frozenset(_TABLE["weekdays"])
"""Names of the days of the week."""
RECENT: Final = frozenset(_TABLE["recent"]) | frozenset(WORDS["recent"].split())
_RECENT_WORDS: Final = frozenset(word for phrase in RECENT for word in phrase.split())
_UNIT_AFTER: Final = frozenset(map(tuple, _TABLE["unit_after"]))
_BEFORE_UNIT: Final = frozenset(map(tuple, _TABLE["before_unit"]))

# The patterns see each word of the tables as one character, whose low bits say what the word may be.
_STRONG, _WEAK, _DAY_NAME, _UNIT, _AFTER, _BEFORE, _VIEW = (1 << bit for bit in range(7))
_FIRST: Final = 0x10FF00  # end of the last private plane, where no font of icons is
_MARKS: Final[dict[str, int]] = {}
for _bit, _words in (
    (_STRONG, [*_TABLE["months"], *WORDS["other_months"].split()]),
    (_WEAK, _TABLE["weak_months"]),
    (_DAY_NAME, [*_TABLE["weekdays"], *WORDS["other_weekdays"].split()]),
    (_UNIT, [unit for unit, _ in _UNIT_AFTER] + [unit for _, unit in _BEFORE_UNIT]),
    (_AFTER, [after for _, after in _UNIT_AFTER]),
    (_BEFORE, [before for before, _ in _BEFORE_UNIT]),
    (_VIEW, WORDS["views"].split()),
):
    for _word in {*_words}.difference(WORDS["no_marks"].split(), _TABLE["unspaced"]):
        _MARKS[_word] = _MARKS.get(_word, 0) | _bit


def _all_and_ascii(phrases: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a list of phrases at its bars; return all phrases, and those that are ASCII."""
    names = tuple(phrase.strip() for phrase in phrases.split("|"))
    return names, tuple(filter(str.isascii, names))


def _any_phrase(name: str) -> str:
    return "|".join(map(re.escape, _all_and_ascii(WORDS[name])[0]))


def _any_of(*bits: int) -> str:
    """Return the regex class of the characters by which `_Masks` replaces words of some kinds, as `_UNIT`."""
    wanted = sum(bits)
    return "[" + "".join(chr(_FIRST + number) for number in range(1, 128) if number & wanted) + "]"


# Python's \w lacks vowel signs and other marks: it would split the words of Hindi, Tamil or Khmer at each.
_VOWEL_SIGNS: Final = "".join(
    sign
    for sign in map(chr, chain(range(0x300, 0x2000), range(0xA600, 0xAC00)))
    if unicodedata.category(sign)[0] == "M"
)
LETTERS: Final = rf"[^\W\d]++(?>(?:[{_VOWEL_SIGNS}]++[^\W\d]*+)*)"
"""Regex of a word in any script."""
# A whole token of letters, or digits and letters: the letters of "a8f3k2" are no words. Longer ones are
# none either: one of 30,000 characters, with a mark or an apostrophe in each syllable, took 1 s.
_LETTER: Final = r"(?:[^\s\d!-/:-@\[-`{-~·。、，：；（）「」『』！？-]|['’](?=\w))"
_WORD: Final = re.compile(rf"(?<!\w)([0-9]*+)([^\W\d_]{_LETTER}{{0,47}}+)(?!\w|{_LETTER})")
_ANY_MARK: Final = re.compile(f"[{chr(_FIRST)}-{chr(_FIRST + 127)}]")
_MONTH: Final = rf"{_any_of(_STRONG, _WEAK)}\.?"
_STRONG_MONTH: Final = rf"{_any_of(_STRONG)}\.?"
_WEEKDAY: Final = rf"{_any_of(_DAY_NAME)}(?:-feira)?"
_HALF_DAYS: Final = "|".join(map(re.escape, _TABLE["day_periods"]))
_ZONE: Final = (
    r"(?:\s?\(?(?:z|(?:utc|gmt)(?:[+-]1?\d\b(?!:))?|[ecmp][sd]t|cest|cet|eet|eest|bst|jst|msk|ist)\b\)?)?"
    # "8:00-13:00" are hours, "8:00:00-05:00" has a zone
    r"(?:\s?(?:\+(?:0\d|1[0-4]):?|-(?:0\d|1[0-2])(?:(?<=\d:\d\d:\d\d-\d\d):|(?<=t\d\d:\d\d-\d\d):|(?<=[.,]\d\d\d-\d\d):)?)[0-5]\d\b)?"
)
_CLOCK: Final = (
    r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-6]\d(?:[.,]\d++)?)?(?!:?\d)"
    rf"(?:\s?(?:[ap]\.?m\b\.?|(?:{_HALF_DAYS})(?!\w)))?(?:\s?uhr\b)?" + _ZONE
)
_OF: Final = r"(?:st|nd|rd|th|er|º|ª|°|-?(?:го|е))?\.?,?[\s/-]{1,3}(?:of |de |d['’]|del |den |ta['’] )?"
_YEAR: Final = r"(?:(?:19|20)\d\d|25[5-9]\d|1[34]\d\d)(?!\d)"
_PLAIN_YEAR: Final = r"(?:19|20)\d\d"
_AFTER_YEAR: Final = rf"(?:\s?(?:г\.?|р\.|року|ж\.|m\.|g\.|{_any_of(_UNIT)}\.?)(?!\w))?"
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_SECOND: Final = r"(?:\s(?:الثانية?|الأولى?|الآخرة?))?"
_WITH_YEAR: Final = rf",?[\s/-]{{1,3}}(?:พ\.ศ\. |de |del |do |da |de l'any )?{_YEAR}{_AFTER_YEAR}"
_COUNT: Final = r"(?:\d{1,3}(?:\s\d{3}){1,4}(?!\d)|\d++(?>(?:[.,']\d++)*))(?:\s?[km]\b)?"
_TIMES: Final = rf"(?:{'|'.join(WORDS['times'].split())})"
_THAI_MONTH: Final = r"(?:ม\.ค|ก\.พ|มี\.ค|เม\.ย|พ\.ค|มิ\.ย|ก\.ค|ส\.ค|ก\.ย|ต\.ค|พ\.ย|ธ\.ค)\."
_DAY_FIRST: Final = "|".join(
    (
        *(rf"{_PLAIN_YEAR}{sign}(?:0?[1-9]|1[0-2]){sign}{_DAY}(?!\d)\.?" for sign in ("-", "/", r"\.\s?")),
        rf"(?:{_PLAIN_YEAR}|25\d\d)\s?[年년]\s?\d\d?\s?[月월](?:\s?\d\d?\s?[日일])?",
        r"\d\d?\s?[月월]\s?\d\d?\s?[日일]",
        *(rf"\d\d?{sign}\d\d?{sign}(?:{_PLAIN_YEAR}|25[5-9]\d)(?!\d|\.\d)" for sign in ("-", "/", r"\.\s?")),
        r"\d\d?/\d\d?/\d\d(?![\d/])",
        r"20\d{6}t\d{4,6}z?(?!\w)",
        rf"1[34]\d\d/(?:0?[1-9]|1[0-2])/{_DAY}(?!\d)",
        rf"{_DAY}{_OF}(?:{_STRONG_MONTH}{_SECOND}(?:{_WITH_YEAR})?|{_MONTH}{_WITH_YEAR})(?!\w)",
        rf"{_DAY}\s?{_THAI_MONTH}(?:\s?(?:{_YEAR}|[67]\d(?!\d)))?",
        rf"{_DAY}\s?ខែ\s?[\u1780-\u17ff]{{2,10}}(?:\s?ឆ្នាំ\s?{_YEAR})?",
        rf"{_YEAR}\.?(?:\s(?:m\.|е\.))?[\s-]{{1,2}}{_STRONG_MONTH}[\s-]{_DAY}(?!\d)(?:\sd\.|\.)?",
        rf"1[01]\d/(?:0[1-9]|1[0-2])/{_DAY}(?![\d/])",  # years of Taiwan
        rf"(?:0[1-9]|1[0-2])-{_DAY}(?=\s\d\d:\d\d)",
        r"\d\d?/\d\d?\s?[(（][月火水木金土日월화수목금토][)）]",
    )
)
# What begins a date, looked for at each number before its twenty forms are tried.
_BEGINS_DATE: Final = (
    r"(?=\d{1,4}(?:[-/]|\.\s?\d\d?\.|\s?[^\x00-\x7f]|(?:st|nd|rd|th|er)?\.?,?[\s/-]{1,3}"
    r"(?:m\.[\s-]{1,2}|of |de[ln]? |d['’]|ta['’] )?[^\x00-\x7f])|\d{8}t)"
)
_MONTH_FIRST: Final = (
    rf"{_MONTH}[\s-]{{1,3}}{_DAY}(?:st|nd|rd|th)?(?!\w)(?![.,:]?\d)(?:,?[\s-]{{1,3}}{_PLAIN_YEAR}\b)?"
    rf"|{_MONTH}[\s-]{{1,3}}(?:de |del )?{_PLAIN_YEAR}\b"
)
_THEN: Final = (  # the clock and the weekday after a date
    rf"(?:\s*+[,(]?\s?(?:{_WEEKDAY}(?!\w)|[月火水木金土日一二三四五六월화수목금토일](?=[)）])"
    r"|(?:星期|周|週)[一二三四五六日天])[)）]?)?"
    r"(?:\s*+(?:,\s*+)?(?:(?:at|um|à|a las|às|alle|t|в|о|kl\.?|klo|om|o|-|–|\||·|@|\()\s*+)?"
    rf"(?:(?:{_HALF_DAYS})\s?)?(?:{_CLOCK}|(?:[01]?\d|2[0-3])\s?h\s?[0-5]\d\b)\)?|\s(?:kl\.?|klo|ore|h\.?|godz\.?)\s(?:[01]?\d|2[0-3])\.[0-5]\d(?:\.[0-5]\d)?\b|,?\s(?:[01]?\d|2[0-3])\.[0-5]\d(?:\.[0-5]\d(?!\.?\d)|(?=\s(?:wib|wita|wit|uhr)\b)))?"
)
CURRENCIES: Final = "$€£¥₽₹₺₩₫₴₪฿￥"
"""Signs of currencies."""
_NUMBER: Final = r"[0-9]++(?>(?:[.,'][0-9]++){0,8})"
_GROUPED: Final = r"(?:[0-9]{1,3}(?:\s[0-9]{3}){1,4}(?![0-9])|" + _NUMBER + ")"
_MANY: Final = (
    r"(?:[km万萬만천]|тыс\.|млн|mil|mio\.?|mln\.?|mrd\.?|tsd\.?|tis\.|tys\.|lakh|crore|jt|juta|ribu|rb)"
)
_VIEWS: Final = rf"(?:(?:page\s)?{_any_of(_VIEW)}|{_TIMES}\s(?:{'|'.join(WORDS['watching'].split())}))(?!\w)"
_CJK_VIEWS: Final = (
    "(?:ยอดวิว|ยอดเข้าชม|เปิดดู|อ่าน|視聴|再生|阅读|浏览|閱讀|瀏覽|查看|点击|點擊|点阅|人气|人氣|围观"
    "|看过|看過|位(?:访客|訪客|访问者)|播放|閲覧|見てい|目の(?:訪問|来訪)|보고 있"
    "|访问量|訪問量|在线(?:人数|用户)?|線上人數|방문자|접속자"
    "|观看|觀看|アクセス|조회|읽음|읽었|เข้าชม|ผู้ชม|คนอ่าน|จำนวนผู้อ่าน|बार देखा|বার (?:দেখা|পড়া|পঠিত))"
)
_CJK_NUMBER: Final = "(?:次数|次數|人次|人数|人數|者数|数|數|量|回数|수)"
_SHORT_UNIT: Final = (
    r"(?:m?secs?|ms|milliseconds?|[µμ]s|s|seconds?|sekunden?|secondes?|segundos?|secondi|sekund[ay]?|seconden|saniyede|sekunnissa|сек\.?|секунды?"
    r"|שני(?:ות|יה)|másodperc|ثانیه|ثانية|giây|วินาที|detik|δευτερόλεπτα|secunde|sekundi"
    r"|quer(?:y|ies)|abfragen|requêtes|consultas|запрос(?:а|ов)?|zapytań|мс|с|saniye|sn|秒|毫秒|ミリ秒|초)"
)
_UNITS: Final = _any_of(_UNIT)
_AGO: Final = _any_of(_AFTER)
_PART: Final = (
    rf"(?:(?:{_UNITS}|hrs?|mins?|secs?|std|[dhmsjgt])(?![^\W\d])\.?"
    + r"|[天日]|小时|小時|時間|分钟|分鐘|分|秒|일|시간|분|초)"
)
_UNSPACED_PART: Final = r"(?:[天日분일]|小时|小時|時間|分钟|分鐘|시간|วัน|ชั่วโมง|นาที)"
_JOIN: Final = r"(?:[\s,:]++(?:(?:and|et|und|y|e|en|ve|i|a|и|та|і|dan|và|و) ?)?|\s?و\s?)?"
_AND: Final = rf"(?:(?:\s|,\s| and )[0-9]++\s?{_UNITS}\.?)"
_DIGIT_FIRST: Final = "|".join(
    (
        rf"(?P<date>{_BEGINS_DATE}(?:{_DAY_FIRST}){_THEN})",
        rf"(?P<short>[0-3]\d(?P<sign>[.-])[01]\d(?P=sign)[23]\d(?![\d.-]){_THEN})",
        rf"(?P<day>(?<!\.){_DAY}\.(?:0?[1-9]|1[0-2])\.(?!\d))",
        rf"(?P<memory>{_NUMBER}\s?(?:[kmg]i?b|bytes))(?!\w)",
        r"(?P<copyright>(?:(?:19|20)\d\d\s?-\s?)?(?:19|20)\d\d)(?![\w.,:/%-])",
        r"(?P<address>(?<!\.)\d{1,3}(?:\.\d{1,3}){3})(?![\d.])",
        rf"(?P<vietnamese>{_DAY}\s{_UNITS}\s(?:1[0-2]|0?\d)(?!\d|\s{_UNITS}(?!\s\d{{4}}))(?:,?\s(?:{_UNITS}\s)?{_PLAIN_YEAR}\b)?)",
        rf"(?P<span>[0-9]++\+?\s?{_UNITS}\.?{_AND}?\s(?:(?:y?ang|yn|më|{_UNITS})\s)?{_AGO})(?!\w)",
        r"(?P<hanging>[0-9]++\s?(?:" + "|".join(map(re.escape, _TABLE["unspaced"])) + r"))(?![a-zäöüáéíóőű])"
        r"(?!(?<=ก่อน)[ก-๙])",  # seven days before a journey
        rf"(?P<clock>(?=\d\d?(?:[:.]\d|\s?[apuh時时点點시]))(?:{_CLOCK}|(?:1[0-2]|0?[1-9])\s?(?:[ap]\.m\.|[ap]m\b)|(?:[01]?\d|2[0-4])(?:[.:][0-5]\d)?\s?uhr\b"
        rf"|(?:(?<={_any_of(_UNIT)} )|(?<=\bklo )|(?<=\bkl\. )|(?<=\bkl ))"
        r"(?:[01]?\d|2[0-3])\.[0-5]\d(?![.,]?\d)"
        rf"|(?:[01]?\d|2[0-3])\s?h\s?[0-5]\d\b(?!\s?{_UNITS})|\d\d?\s?[時时点點시](?![間间])\s?(?:\d\d?\s?[分분])?(?:\s?\d\d?\s?[秒초])?))",
        r"(?P<unix>1[5-9]\d{8}(?:\d{3})?(?:\.\d++)?)(?![.,]?\d)",  # Unix time, 2017 to 2033
        rf"(?P<views>(?<![0-9]-){_GROUPED}\+?(?=\s{{0,3}}+(?:[^\x00-\x7f]|{_MANY}|page\s|{_TIMES}\s))\s?{_MANY}?(?:\s{_VIEWS}(?!\s[0-9.,]++\s?{_TIMES}(?!\w))"
        rf"|\s?(?:次|人|回|명이?)?(?:正在|が)?(?:この[^を]{{1,5}}を)?\s?{_CJK_VIEWS})(?!{_CJK_NUMBER}?\s?[:：]\s?\d))",
        rf"(?P<until>[0-9]++\s?{_UNSPACED_PART}\s?(?:{'|'.join(WORDS['until_unspaced'].split())}))",
        rf"(?P<left>[0-9]++\s?{_PART}(?:{_JOIN}[0-9]++\s?{_PART}){{1,3}}|[0-5]?\d:[0-5]\d)(?!:?\d)",
        rf"(?P<run>{_NUMBER}\s?(?:{_SHORT_UNIT}|{_any_of(_UNIT)}))(?!\w)",
    )
)
_MARK_FIRST: Final = "|".join(
    (
        rf"(?P<weekday>{_WEEKDAY}(?!\w)[.,]*+\s{{1,3}}(?:(?:ที่|the|le|el|{_UNITS})\s)?"
        rf"(?:{_DAY_FIRST}|{_MONTH_FIRST}|{_DAY}\.(?:0?[1-9]|1[0-2])\.(?:\d\d(?!\d))?(?!\d)){_THEN})",
        rf"(?P<month>(?:{_MONTH_FIRST}){_THEN})",
        rf"(?P<before>{_any_of(_BEFORE)}\.?\s(?:(?:[^\W\d]{{2,9}}|{_ANY_MARK.pattern})\s)?(?:de )?"
        rf"[0-9]++\+?\s?(?:de )?{_UNITS}(?:\s{_AGO})?)(?!\w)",  # acum 25 de minute
        rf"(?P<counted>{_VIEWS}(?:(?:\s\w{{2,8}})?\s?[:：]|\s(?:n[or]\.|[#№]))\s?{_COUNT})",
        rf"(?P<times>{_any_of(_VIEW)}\s{_COUNT}\s?{_TIMES}(?!\w))",
        rf"(?P<ngày>{_UNITS}\s{_DAY}\s{_UNITS}\s\d\d?(?:,?\s(?:{_UNITS}\s)?{_PLAIN_YEAR}))",
    )
)
_TOKEN: Final = (
    r"(?P<token>(?:(?:php|j|asp)?sess(?:ion)?_?id|(?:php|j|asp)?sess(?:ion)?(?=\s?[=:]\s?[\"']?[\w-]{6})|sid|csrf[\w-]{0,64}+|xsrf[\w-]{0,64}+|nonce|(?:ray|request|trace"
    r"|correlation|session|sitzungs|anfrage)[\s_-]?(?:id|nr\.?)"
    r"|(?:error|incident|support) (?:id|ref(?:erence)?)|build[\s_-]?id"
    r"|build(?=\s?[:#]?\s?(?=[0-9]*+[a-f])(?=[a-f]*+[0-9])[0-9a-f]{7,40}\b)"
    r"|(?:server|node|backend|pod|instance)(?=\s?:\s?(?!(?:imap|smtp|pop|mail|mx|s?ftp|ns|ntp|vpn|dns|ldap|irc)\d{0,2}[.-])[a-z]{2,20}-?[a-z0-9]{0,20}[.-]\w)"
    r"|(?:serv|render|deliver|process)ed by"
    r"|ref(?:erence)?(?=\s?[#:]\s?[\da-f]{1,40}\.[\da-f]{1,40}\.)"
    r"|(?<=[?&])(?:cb|rnd|ts?|nocache|cachebust\w{0,3}|token|cursor|page_?token|expires|x-amz-\w{1,20}|signature)(?==))"
    r"\s?[\"']?[=:#]?\s?[\"']?(?=[\w%+/.-]{0,64}\d)[\w%+/-]{1,200}+(?:\.[\w-]{1,60}+){0,4})"
)
_HEX: Final = (
    r"(?P<hex>(?=[0-9a-f]{8})(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|(?=[a-f]*+\d)[0-9a-f]{16,}+\b))"
)
_NUMERIC: Final = re.compile(
    # Only at the start of a word, the first character choosing the alternatives: five times as fast.
    # A number behind a sign of a currency is a price, whatever follows: "£120.00 Time left: 2 h".
    rf"(?<![0-9a-z{CURRENCIES}])(?:(?=[0-9a-f]){_HEX}|(?=[0-9])(?:{_DIGIT_FIRST})"
    rf"|(?={_ANY_MARK.pattern})(?:{_MARK_FIRST})"
    rf"|(?=[abcdeijnprstx]){_TOKEN}"
    rf"|(?=[rh])(?P<era>[rh]0?\d{{1,2}}[./](?:0?[1-9]|1[0-2])[./]{_DAY}(?![\d./]))"
    rf"|(?=[pumgv])(?P<online>{_VIEWS}\s?[:：]\s?{_COUNT})"
    rf"|(?=[^\x00-\u0dff])(?P<cjk>(?:{_CJK_VIEWS}{_CJK_NUMBER}?\s?[:：]?\s?{_NUMBER}[万萬만]?)"
    rf"|(?:{'|'.join(WORDS['unspaced_until'].split())})\s?[0-9]++\s?{_UNSPACED_PART}))"
)
_RUN: Final = re.compile(
    rf"{MASK}(?:[\s,]*+{MASK}|\s(?:19|20)\d\d\b|\s?(?:农历|農曆)[\u3400-\u9fff]{{0,5}}月[初十廿二三][一二三四五六七八九十])*"
)  # asctime's year comes after its clock
RANGE: Final = (
    r"(?:-|–|—|~|～|/|から|至|到|ถึง"
    r"|(?:to|till?|until|bis|à|a|al|às|alle|e|до|tot|til|do|đến|and|und|et|y|hasta|الى|إلى)(?![^\W\d]))"
)
"""Pattern of a sign or word between the ends of a period, in many languages."""
_HALF_DAY: Final = r"(?:午前|午後|上午|下午|오전|오후)"
_RANGE_AFTER: Final = re.compile(rf"\s?{RANGE}\s?(?:\w{{1,4}}\.?\s|{_HALF_DAY}\s?)?\d")
_RANGE_BEFORE: Final = re.compile(
    r"\d(?:\s?[ap]\.?m\.?|\s?uhr|\s?h|\s?[時时點点시](?:\s?\d\d?\s?[分분])?)?"
    rf"\s?{RANGE}\s?(?:\w{{1,4}}\.?\s|{_HALF_DAY}\s?)?$"
)
_DATE_RANGE: Final = r"(?:-|~|〜|to|till?|until|bis|au|al|до|по|から|至|到|ถึง|đến|tot|til|hasta|até|الى|إلى)"
_DATE_AFTER: Final = re.compile(
    rf"-{_DAY}(?![\w./-])|\s?{_DATE_RANGE}\s?(?:{_WEEKDAY}(?!\w)[.,]*+\s)?(?:{_DAY_FIRST}|{_MONTH_FIRST})"
)
_HOUR: Final = rf"\d\d?(?:[:.h][0-5]\d|\s?(?:[ap]\.?m\b\.?|uhr\b|{_any_of(_UNIT)}|[時时點点시]))(?![:.]?\d)"
_TO_HOUR: Final = re.compile(rf"\s?{RANGE}\s?(?:\w{{1,4}}\.?\s)?{_HOUR}")
_HOURS: Final = re.compile(
    r"[\s,|·:(–-]{0,4}(?:[^\W\d]{1,7}\s){0,2}\d\d?(?:[:.h][0-5]\d|\s?(?:[ap]\.?m\b\.?|uhr\b"
    rf"|{_any_of(_UNIT)}|[時时點点시]))?{_TO_HOUR.pattern}"
)
_DAY_BEFORE: Final = re.compile(rf"(?<![\d./-])(\d\d?)\.?\s?[-~]\s?(?:{_WEEKDAY},?\s)?$")
_FOUR_DIGITS: Final = re.compile(r"(?<!\d)\d{4}(?!\d)")
_HAS_SECONDS: Final = re.compile(r"\d\d:[0-5]\d:|\d\s?(?:z|utc|gmt)\b|[秒초]")
_BLANKS: Final = re.compile(r"(\s++)")
_ONE_WORD: Final = re.compile(LETTERS)
_LAST_WORDS: Final = re.compile(rf"{LETTERS}\d{{0,4}}")
_SAYS_TIME: Final = frozenset(WORDS["time"].split())
_POSTED: Final = frozenset(word for word in _SAYS_TIME if len(word) > 4) - _RECENT_WORDS
_TODAY_SIGNS: Final = "(?:今天|昨天|前天|今日|本日|昨日|一昨日|おととい|오늘|어제|그저께|วันนี้|เมื่อวาน)"
_CLOCK_SIGNS: Final = re.compile(
    "更新|发布|發布|发表|發表|現在|现在|当前|當前|生成|刷新"
    r"|(?<![\u3400-\u9fff])[時时][间間]|(?:北京|台北|本地|系统|系統|服务器|伺服器|标准|標準)[時时][间間]|投稿|公開"
    r"|업데이트|수정|작성|등록|현재|อัปเดต|อัพเดท|แก้ไข|เวลา"
)
_TIME_SIGNS: Final = re.compile(f"{_CLOCK_SIGNS.pattern}|{_TODAY_SIGNS}")
_TODAY_BEFORE: Final = re.compile(
    rf"{_TODAY_SIGNS}\W{{0,3}}(?:は|凌晨|早上|中午|晚上)?(?:{_HALF_DAYS})?\W{{0,3}}$"
)
_COUNTDOWN: Final = frozenset(WORDS["countdown"].split())
_LEFT: Final = frozenset(WORDS["left"].split())
_RUNS_OUT: Final = frozenset(WORDS["runs_out"].split())
_ONLY: Final = frozenset(WORDS["only"].split())
_LEFT_SIGNS: Final = re.compile(f"(?:{'|'.join(WORDS['left_signs'].split())})")
_SAID_BEFORE: Final = {
    "copyright": re.compile(
        r"(?:©|\bcopyright\b(?!\s(?:law|act|regist|fee|expir|protect|reform|directive|infring|term|claim|case|office"
        r"|treat|rule|polic|dispute|royalt))|\(c\))[^.!?]{0,40}$"
    ),
    "memory": re.compile(
        r"\b(?:peak memory(?: us(?:age|ed))?|max memory us(?:age|ed))\W{1,3}$"
        r"|\bmem(?:ory)?[\s_](?:usage|used|peak)\W{1,3}$"
        r"|\bspeicherverbrauch\W{1,3}$|\bmémoire utilisée\W{1,3}$|\bmemoria (?:usada|utilizzata)\W{1,3}$"
    ),
    "address": re.compile(
        r"\b(?:your|ihre|deine|votre|su|tu|twój|uw|din|ваш|的)\b.{0,9}\bip\b.{0,16}$"
        r"|\blast (?:login|logon|sign-?in)\b.{0,60}$"
    ),
}
"""Kind of number -> pattern of words before it by which alone it is noise (``peak memory: ``)."""
_KANJI: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_HEBREW_DAY: Final = re.compile(
    "(?<![א-ת])(?:[א-ל]?[\"״][א-ט]|[א-ל]['׳])\\s(?:ב|ל)?(?:תשרי|מר?חשוון|כסלו|טבת|שבט|אדר(?:\\s[אב]['׳])?|ניסן|אייר|סיוון"
    "|תמוז|אב|אלול)\\s(?:ה['׳])?תש[א-ת]?[\"״][א-ת]"
)
_STATEMENTS: Final = frozenset(WORDS["statements"].split())
_NEXT_WORD: Final = re.compile(rf"\s?({LETTERS})")
_DATED: Final = frozenset(WORDS["dated"].split())
_DATED_LABELS: Final = frozenset(WORDS["dated_labels"].split())
_DATE_LABELS: Final = frozenset(WORDS["date_labels"].split())
_UNTIL_DATE: Final = frozenset(WORDS["until"].split())
_DATED_SIGNS: Final = re.compile(
    rf"(?:{'|'.join(WORDS['dated_signs'].split())})[^。]{{0,12}}$|自\s?$"
    r"|(?:[\u3400-\u9fff]{2,5}[時时][间間]|(?<![\u3400-\u9fff])日時|(?<![가-힣])일시)\W{0,3}$"
)
_DATED_AFTER: Final = re.compile(rf"\s?(?:{'|'.join(WORDS['dated_after'].split())})")
_CLOCK_WORDS: Final = (
    frozenset(
        word for word in (*_SAYS_TIME, *RECENT) if len(word) > 2 - (word > "\u0590") and " " not in word
    )
    - {"date", "data", "time", "dag", "ver", "ini", "active", "token", "zeit", "hora", "czas", "tijd"}
) | frozenset((WORDS["clock"] + WORDS["run_time"]).split()).difference(
    ("completed", "within", "took", "served", "load")
)
_AT_WORDS: Final = frozenset(WORDS["at"].split())
_OPENS: Final = _DATED | _DATED_LABELS
_TODAY: Final = frozenset(_LAST_WORDS.findall(" ".join(RECENT))).union(WORDS["now"].split())
_CLOCK_LABELS: Final = _CLOCK_WORDS.union((WORDS["time_labels"] + WORDS["clock_labels"]).split())
_LAST, CHANGED = (
    re.compile(rf"(?<![a-zà-ÿ])(?:{'|'.join(WORDS[name].split())})") for name in ("last", "changed")
)
_LAW: Final = re.compile(rf"(?<!\w)(?:{'|'.join(WORDS['law'].split())})")
_LISTING: Final = re.compile(
    r"\W{0,3}(?:index of|directory listing (?:for|of)) /|.{0,99}\[to parent directory\]"
)
_LONGEST_TITLE: Final = 100
_SENTENCE_END: Final = re.compile(r"[.!?]\s|[。\x05]")
_HAS_CLOCK: Final = re.compile(r"\d[:h]\d\d")
_AS_OF: Final = re.compile(
    r"\b(?:as of|as at|correct at|it is|it's|is it|il est|nous sommes(?: le)?|es ist|son las|sono le"
    r"|het is|klockan är|本日は) ?$"
)
_AS_OF_AFTER: Final = re.compile(r"\s?(?:現在|时点|時点|更新|公開|현재|기준)")
CLOCK_BEGIN, CLOCK_END = "\x01", "\x02"
"""Signs around a clock or counter that only markup shows to be one: "2h", "17 visitors"."""
PROSE_BEGIN, PROSE_END = "\x04", "\x05"
"""Signs around a sentence that states a date."""
DATED: Final = "\x03"
"""Sign before a date that is a statement of the page by its markup, and is not masked."""
_SAYS_RUN: Final = frozenset(WORDS["run_time"].split())
_RUN_SIGNS: Final = re.compile("生成|用时|耗时|處理|处理|执行|執行|처리|생성|สร้าง")
_UNTIL: Final = frozenset(_TABLE["until"])
_UNTIL_CLOCK: Final = _UNTIL.difference(WORDS["at"].split(), ("om",))  # sluit om 21:30
VIEWS: Final = frozenset(WORDS["views"].split())
"""Words for page views, which stand beside a counter: "views", "Aufrufe"."""
_BULLET: Final = re.compile(r"[·•]\s?$")
_DAY_NAMES: Final = WEEKDAYS | frozenset(_TABLE["short_weekdays"])
_SHORT_WEEKDAY: Final = re.compile(  # Di, 10.11.2026; ti 10.11.
    rf"\b(?:{'|'.join(sorted(_TABLE['short_weekdays']))})(?:[.,]{{1,2}}|(?<!\bon)(?<!\bto))\s?$"
    r"|יום [א-ש]['׳]?,?\s?$|ថ្ងៃ[\u1780-\u17ff]{2,12}\s?ទី\s?$"
)
_CJK_RECENT: Final = re.compile(
    r"今[天日](?:是|は)?\s?(?:(?:星期|周|週)[一二三四五六日天]|[月火水木金土日]曜日?)|((?:更新|发布|發布|发表|發表|編集|编辑|投稿|公開|修改|작성|등록|수정)(?:于|於|日時?|時間|时间)?\s?:?\s?)"
    rf"(?:{'|'.join(word for word in _TABLE['recent'] if word[0] >= '一')})"
)
_NUMBER_WORDS: Final = frozenset(WORDS["numbers"].split())
_NAME_DAYS: Final = _all_and_ascii("svátek | meniny | imieniny | névnap | namnsdag | nimipäiv | γιορτάζ")
_NAME_DAY: Final = re.compile(
    rf"(?:{'|'.join(_NAME_DAYS[False])})\s?(?:\w{{0,6}})(?:má|slaví|obchodzą|dziś|dnes|har|viettä\w{{2}})?\s?:?\s[^\W\d]++"
    r"(?:(?:,| a| i| és| och| ja| και) [^\W\d]++){0,4}"
)
_CAMPAIGN: Final = re.compile(r"[?&]utm_\w{1,20}=[^&\s\"'<>]{0,200}")
"""Parameter of a link that says where the link stood, for the site's statistics."""
_AT: Final = re.compile(
    r",?(?: (?:at|um|à|a las|às|alle|o|в|о|om|kl\.?|klo|saat|lúc|ngày|pukul|ที่))?,? ?$"
)  # [sic] between a day and its clock
_ABOUT: Final = frozenset(WORDS["about"].split())
_FROM_BEFORE: Final = re.compile(f"(?:{'|'.join(WORDS['before_from'].split())})$".replace("_", " "))
_POSTED_DAY: Final = re.compile(f"(?:{'|'.join(WORDS['posted_days'].split())})日?期?の?\\s?$")
_FROM_AFTER: Final = re.compile(f"\\s?(?:{'|'.join(WORDS['before_until'].split())})".replace("_", " "))
_WEEKDAY_WORDS: Final = frozenset(word for phrase in _TABLE["weekday_phrases"] for word in phrase.split())
_BEFORE_MOMENT: Final = RECENT.union(  # for 5 timer siden
    _TABLE["weekday_phrases"],
    (phrase.split()[0] for phrase in _TABLE["weekday_phrases"]),
    _ABOUT,
    ("il y", "for", "less than", "more than"),
)
_MOMENT_TOKEN: Final = re.compile(rf"\d++|{LETTERS}")
_SHORT_DATE: Final = re.compile(
    r"[0-3]?\d([./-])[0-3]?\d\1(?:\d\d(?:\d\d)?)?|(?:19|20)\d\d([./-])[01]?\d\2[0-3]?\d\.?"
)
_ALL_RECENT: Final = RECENT.union(_all_and_ascii(WORDS["moments"])[0])
_MOMENT_WORDS: Final = (
    frozenset(word for word, bits in _MARKS.items() if bits & ~_VIEW)
    | frozenset(word for phrase in _ALL_RECENT for word in phrase.split())
    | frozenset((WORDS["time"] + WORDS["moment"]).split())
)
_HEAD: Final = 600  # characters
_GREETINGS: Final = _all_and_ascii(WORDS["greetings"])
_MOMENTS: Final = _all_and_ascii(WORDS["moments"])
_SAYS_VERSION: Final = frozenset(WORDS["version"].split())
_VERSION_SIGNS: Final = re.compile("バージョン|版本|버전|เวอร์ชัน")
CHECKSUMS: Final = re.compile(
    r"\b(?:sha-?[1235]\d{0,2}|md5|blake[23]\w?|check-?sums?|prüfsummen?|hash(?:es|wert)?|digests?|commits?"
    r"|git|revisions?|changesets?|fingerprints?|somme de contrôle|sum[ae] (?:de verificación|kontrolna"
    r"|di controllo)|soma de verificação|controlesom|контрольн\w{1,9}|хеш\w{0,9}|public key|integrity|etag)\b"
    r"|(?<![0-9a-f])[0-9a-f]{32,128}+\s{1,2}\*?[\w/+-]{1,80}+\.|校验|校驗|哈希|雜湊|チェックサム|ハッシュ|コミット|체크섬|해시|커밋"
)
"""Pattern of words by which a page is about checksums or commits, so that these are no tokens."""
# The patterns are tried only around clusters of digits (with gaps of at most 16 characters), and only if a
# cheap look finds a shape or a word there that they need: they cost 1.5 us for every character.
_BEFORE_LETTER: Final = re.compile(  # not "fa" and "pre", which in other languages say what a length is for
    r"\b(?:y a|acum|hace|hai|vor|há|för|for|před|pred|prieš|prije|pirms) [0-9]{1,3}\s$"
)
_IS_DIGIT: Final = bytes(ord("1") if chr(code) in "0123456789" else ord("0") for code in range(256))
_CLUSTER: Final = re.compile(rb"1(?>(?:0{0,16}+1)*)")
_REACH: Final = 32  # characters around a cluster that a pattern may take in
_MOST_AROUND_NUMBERS: Final = 2**18  # characters; numbers behind them count as they stand
_PROSE_CONTEXT: Final = 240
_NEAR: Final = 24  # characters before a match, of scripts without blanks
_CONTEXT: Final = 64  # characters before a match that may say what its number is
_SHAPE: Final = re.compile(
    r"[0-9](?:[0-9]{9}|[0-9]{7}t[0-9]|(?=[^0-9])(?::[0-5][0-9]|[-/.]\s?[0-9][0-9]?[-/.]\s?[0-9]|/[0-9][0-9]?\s?\("
    r"|\.[0-9][0-9]?\.|(?=[\sa-z_]|[^\x00-\x7f])\s?(?:h\s?[0-9]|[ap]\.?m\b|uhr|\w{0,2}[年月日天時时点點秒년월일시초前전ที่ก่]"
    r"|วัน|ชั่วโมง|นาที|分|分[钟鐘]|[분초일주년]\s전|(?:ms|[µμ]s|s|sec|с|мс)\b|ខែ)))"
)
_HEX_SHAPE: Final = re.compile("[0-9a-f]{8}(?:[0-9a-f]{8}|-[0-9a-f]{4}-)")
_HINTS: Final = frozenset(
    word.partition(".")[0]
    for word in (
        *(word for word, bits in _MARKS.items() if bits & (_STRONG | _WEAK | _AFTER | _BEFORE | _VIEW)),
        *_TABLE["unspaced"],
        *WORDS["hints"].split(),
        *" ".join(WORDS[name] for name in ("countdown", "left", "runs_out", "times")).split(),
    )
) - {"a", "n"}
FRENCH_AGO: Final = " y a "
_HINT_WORD: Final = re.compile(r"[^\s=:\-/#\"'_?&(),.;\[\]{}|「」（）]+")
_HANGING_HINT: Final = re.compile(_CJK_VIEWS)
# Words that are common in other languages, whose texts would be searched at each of them for nothing.
_COMMON: Final = frozenset(WORDS["common"].split())
RELATIVE_WORDS: Final = (
    frozenset(after for _, after in _UNIT_AFTER)
    | frozenset(before for before, _ in _BEFORE_UNIT)
    | frozenset(
        word
        for word in (phrase.split()[-1] for phrase in RECENT)
        if (len(word) > 3 or not word.isascii()) and not _MARKS.get(word, 0) & _UNIT
    )
) - _COMMON
"""Words of relative times: "ago", "vor", "назад", "yesterday"."""
FRENCH_UNITS: Final = frozenset(unit for before, unit in _BEFORE_UNIT if before == "a") - _COMMON
"""Units of time after the French "il y a"; its words are common ones in other languages."""
del _TABLE  # 2,000 lists, which every garbage collection of a crawl would look at


def mask(text: str) -> str:
    """Return a lower-case text with every time, date, session token and view counter replaced by `MASK`."""
    is_ascii = text.isascii()
    for moment in _MOMENTS[is_ascii]:
        text = text.replace(moment, MASK)
    if not is_ascii and any(sign in text for sign in ("昨", "今", "前天", "어제", "오늘")):
        text = _CJK_RECENT.sub(lambda match: (match[1] or "") + MASK, text)
    if not is_ascii and "תש" in text:
        text = _HEBREW_DAY.sub(_masked_hebrew_day, text)
    if "utm_" in text:
        text = _CAMPAIGN.sub("", text)
    if any(word in text for word in _NAME_DAYS[is_ascii]):
        text = _NAME_DAY.sub(MASK, text)
    head = text[:_HEAD]
    for greeting in _GREETINGS[head.isascii()]:  # by the time of day
        if greeting in head:
            text = text.replace(greeting, MASK, 1)
    # One byte for each character, whatever its script.
    digits = text.encode("ascii", "replace").translate(_IS_DIGIT)
    pieces: list[str] = []
    done, room = 0, _MOST_AROUND_NUMBERS
    masks = _Masks(text)
    for cluster in _CLUSTER.finditer(digits):
        first, last = cluster.span()
        if last <= done or not masks.may_be_noise(first, last, done):
            continue
        # Whole words only: a window that cut one would let \b match inside it.
        start = max(done, text.rfind(" ", done, max(first - _REACH, 0)) + 1)
        while True:
            end = text.find(" ", last + _REACH, last + 2 * _REACH)
            end = min(end if end >= 0 else last + 2 * _REACH, len(text), start + room)
            following = _CLUSTER.search(digits, last, end + _REACH)
            # The words before the next number stand in this window: the number belongs to it.
            if (
                following is None
                or following.end() >= start + room
                or not masks.may_be_noise(*following.span(), last)
            ):
                break
            last = following.end()
        pieces += (text[done:start], masks.of_window(start, end))
        done = end
        room -= end - start
        if not room:
            break
    pieces.append(text[done:])
    *before, behind = "".join(pieces).split(MASK)
    return _RUN.sub(MASK, MASK.join((*map(_without_day, before), behind)))


def _masked_hebrew_day(day: re.Match[str]) -> str:
    """Return the mask for a day of the Jewish calendar, or the day itself if it is a deadline."""
    before = day.string[max(day.start() - 24, 0) : day.start()]
    return day[0] if "עד" in before or "מועד" in before else MASK


def _without_day(before: str) -> str:
    """Return the text before a mask without words that belong to the masked time: "today at", "il y"."""
    at = _AT.search(before, max(len(before) - _REACH, 0))
    words = before[max(at.start() - _REACH, 0) : at.start()].rsplit(None, 3) if at is not None else []
    for size in range(min(len(words), 3), 0, -1):
        phrase = " ".join(words[-size:])
        if phrase.lstrip("([") in _BEFORE_MOMENT:
            return before[: before.rindex(words[-size], 0, at.start() if at is not None else None)]
    return before


def is_moment(text: str) -> bool:
    """Whether a text says nothing but a time, a date or a span: "2h", "yesterday", "10.11.26"."""
    tokens = _MOMENT_TOKEN.findall(text.lower())
    words = [token for token in tokens if not token.isdigit()]
    if not words:
        return _SHORT_DATE.fullmatch(text.strip()) is not None
    return _MOMENT_WORDS.issuperset(words) and (
        len(words) < len(tokens)
        or not RECENT.isdisjoint(words)
        or any(" ".join(words[first:]) in _ALL_RECENT for first in range(len(words)))
    )


def mask_relative(window: str) -> str:
    """Return a part of a text with relative times in words masked: "an hour ago", "vor einer Stunde"."""
    pieces = _BLANKS.split(window)  # words, and the blanks behind each
    masked: list[str] = []

    def last(number: int) -> str:
        return masked[-2 * number] if 2 * number <= len(masked) else ""

    for index in range(0, len(pieces), 2):
        word, blanks = pieces[index], pieces[index + 1] if index + 1 < len(pieces) else ""
        bare = word.rstrip(".,;:!?)")
        if (last(1), bare) in _UNIT_AFTER:
            if _is_before_event(" ".join(masked[:-4:2]), bare, "".join(pieces[index + 1 : index + 6])):
                masked += (word, blanks)
                continue
            taken = 2 if last(2) in _NUMBER_WORDS or last(2)[:1].isdigit() else 1
            taken += taken == 2 and last(3) in _NUMBER_WORDS  # a few minutes ago
            while last(taken + 1) in _ABOUT:
                taken += 1
        elif (last(1), bare) in _BEFORE_UNIT and (last(1) != "a" or last(2) == "y"):
            taken = 1
        elif (
            _ONE_WORD.fullmatch(last(1))
            and (last(2), bare) in _BEFORE_UNIT
            and (last(2) != "a" or last(3) == "y")
        ):
            taken = 2
        elif bare in _DAY_NAMES and (last(1) in RECENT or last(2) in RECENT):  # today is tuesday
            taken = 1 if last(1) in RECENT else 2
        elif (size := _recent_words(bare, last)) and (
            _POSTED.intersection(last(number).rstrip(":") for number in range(size, size + 3))
            or (last(size).endswith(":") and _LAST.match(last(size + 1)) is not None)  # last visit: today
        ):
            taken = size - 1
        else:
            masked += (word, blanks)
            continue
        if (last(taken + 1), last(taken + 2)) == ("y", "il"):
            taken += 2
        del masked[len(masked) - 2 * taken :]
        masked += (MASK + word[len(bare) :], blanks)
    return "".join(masked)


def _recent_words(word: str, last: Callable[[int], str]) -> int:
    """Return how many words a phrase of `RECENT` has that ends with `word`; `last(n)`: n-th word before."""
    phrase = word
    for size in range(1, 4):
        if phrase in RECENT:
            return size
        phrase = f"{last(size)} {phrase}"
    return 0


_DATES: Final = frozenset(("date", "day", "short", "month", "weekday", "vietnamese", "ngày"))
ON_THE_HOUR: Final = re.compile(r"(?<![:\d+-])\d?\d[:h][03]0(?![:\d])")
"""Time at which people meet; one clock in thirty shows such a time."""


class _Masks:
    """Masks numbers in one text, window by window; some decisions depend on the whole text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def may_be_noise(self, first: int, last: int, done: int) -> bool:
        """Whether digits at `first` to `last` may be noise, by their shape and near words from `done` on."""
        around = self._text[max(first - _REACH, done) : last + _REACH]
        return (
            _SHAPE.search(self._text, first, last + 8) is not None
            or (
                last - first > 1
                and _HEX_SHAPE.search(self._text, max(first - _REACH, 0), last + _REACH) is not None
            )
            or not _HINTS.isdisjoint(words := _HINT_WORD.findall(around))
            or ("a" in words and self._has_french_ago)
            or not (around.isascii() or _HANGING_HINT.search(around) is None)
        )

    @cached_property
    def _has_french_ago(self) -> bool:
        return FRENCH_AGO in self._text

    @cached_property
    def _has_prose(self) -> bool:
        return PROSE_BEGIN in self._text

    @cached_property
    def _is_about_checksums(self) -> bool:
        return CHECKSUMS.search(self._text) is not None

    @cached_property
    def _is_listing(self) -> bool:
        """Whether the page lists files with the days of their last changes, as servers do."""
        return _LISTING.match(self._text) is not None

    @cached_property
    def _is_legal_page(self) -> bool:
        """Whether the page's title is that of terms or a privacy policy."""
        return _LAW.search(self._text[:_LONGEST_TITLE]) is not None

    def of_window(self, start: int, end: int) -> str:
        raw = self._text[start:end]  # "1,234" and "views" in elements of their own
        window = f"{' ' * raw[0].isspace()}{' '.join(raw.split())}{' ' * raw[-1].isspace()}"
        originals: list[str] = []  # words, for each of which `short` has one character
        marks: list[int] = []  # positions of these characters
        shifts = [0]  # by how many characters the window is longer before each, and behind the last
        shortened: list[str] = []
        behind = 0
        for word in _WORD.finditer(window):
            bits = _MARKS.get(word[2])
            if bits is None:
                continue
            # "p.m." is no unit, and "3 m" is a length; "3m ago" and "il y a" are times.
            is_letter = len(word[2]) == 1 and word[2].isascii()
            is_french = word[2] == "a" and window.endswith("il y ", 0, word.start())
            is_unit = is_letter and _BEFORE_LETTER.search(window, max(word.start() - 16, 0), word.start())
            if is_letter and not word[1] and not is_french and not is_unit:
                continue
            first, last = word.span(2)
            marks.append(first - shifts[-1])
            shifts.append(shifts[-1] + len(word[2]) - 1)
            originals.append(word[2])
            shortened += (window[behind:first], chr(_FIRST + bits))
            behind = last
        short = "".join((*shortened, window[behind:]))

        def restored(begin: int, end: int) -> str:
            first, last = begin + shifts[bisect_left(marks, begin)], end + shifts[bisect_left(marks, end)]
            return window[first:last]

        def words_before(begin: int, size: int) -> str:
            before = restored(max(begin - size, 0), begin)  # a window may be a megabyte
            return before if begin >= size else self._text[max(start - size, 0) : start] + before

        period_end = -1
        pieces: list[str] = []
        done = 0
        for match in _NUMERIC.finditer(short):
            begin, end = match.span()
            kind = match.lastgroup or ""
            words = originals[bisect_left(marks, begin) : bisect_left(marks, end)]
            is_far = kind in _DATES and self._has_prose
            before = words_before(begin, _PROSE_CONTEXT if is_far else _CONTEXT)
            if kind in _DATES and (second := _second_of_period(short, match)) is not None:
                period_end = second
            number = _Number(match, words, before)
            is_noise = not (kind in _DATES and begin < period_end) and self._is_noise(kind, number)
            if is_noise and kind in ("span", "hanging", "before"):
                after = restored(end, min(end + _NEAR, len(short)))
                is_noise = not _is_before_event(before, (words or [match[0]])[-1], after)
            if is_noise:
                piece = restored(done, begin)
                if kind in ("date", "day", "short"):
                    piece = _SHORT_WEEKDAY.sub("", piece)
                pieces += (piece, MASK)
                done = end
        return "".join((*pieces, restored(done, len(short)))) if pieces else window

    def _is_change_of_terms(self, before: str, text: str) -> bool:
        """Whether a date is that of the last change of the terms that the page is about."""
        said = before[-_CONTEXT:] if self._is_legal_page and _HAS_CLOCK.search(text) is None else ""
        return CHANGED.search(said) is not None or said.rstrip(" :").endswith("stand")

    def _is_noise(self, kind: str, number: "_Number") -> bool:
        if kind in _DATES and (
            _is_statement(number) or self._is_listing or self._is_change_of_terms(number.before, number.text)
        ):
            return False
        if kind == "hex":  # digits alone are the number of a card, an account, a parcel
            return not (number.text[2:].isdecimal() or self._is_about_checksums)
        if kind in _SAID_BEFORE:
            return _SAID_BEFORE[kind].search(number.before) is not None
        return kind not in _RULES or _RULES[kind](number)


class _Number(NamedTuple):
    """A number that may be noise, or a word for a time, with the words around it."""

    match: re.Match[str]
    words: list[str]
    """Words of times and units in it, each of which is one sign in the matched text."""
    before: str

    @property
    def text(self) -> str:
        return self.match[0]

    def after(self, size: int) -> str:
        """Return the next characters."""
        end = self.match.end()
        return self.match.string[end : end + size]


def _is_statement(date: _Number) -> bool:
    """Whether a date is a statement of the page by the words around it, or by its hours."""
    before = date.before
    return (
        is_dated(before, date.after(40), " ".join((date.text, *date.words)))
        or (_has_hours(date) and _TODAY.isdisjoint(_LAST_WORDS.findall(before)[-3:]))
        or _is_on_the_hour(date)
    )


def _is_version(number: _Number) -> bool:
    return _says(number.before, _SAYS_VERSION, _VERSION_SIGNS, 1)


def _is_noise_date(date: _Number) -> bool:
    return _is_date(date.text) and not (_is_version(date) and _LAST.search(date.before[-_NEAR:]) is None)


def _is_noise_month(month: _Number) -> bool:  # you may book: may 5 seats free
    next_word = _NEXT_WORD.match(month.match.string, month.match.end())
    return next_word is None or next_word[1] not in _STATEMENTS


def _is_noise_short(date: _Number) -> bool:  # versions look like it
    return _is_date(date.text) and (len(date.text) > 8 or _says_time(date))


def _is_noise_day(day: _Number) -> bool:  # Di, 10.11.
    return not _DAY_NAMES.isdisjoint(_LAST_WORDS.findall(day.before)[-1:])


def _is_noise_era(day: _Number) -> bool:  # r8.3.10, a day of Reiwa: in Japanese alone
    return _KANJI.search(day.before[-12:]) is not None and not _is_version(day)


def _is_noise_span(span: _Number) -> bool:
    words = span.words
    return (words[0], words[-1]) in _UNIT_AFTER or (words[-2], words[-1]) in _UNIT_AFTER


def _is_noise_before(span: _Number) -> bool:
    return any((span.words[0], word) in _BEFORE_UNIT for word in span.words[1:])


def _is_noise_clock(clock: _Number) -> bool:
    match, before, text = clock.match, clock.before, clock.text
    if DATED in before[-3:]:
        return False
    if _RANGE_AFTER.match(match.string, match.end()) or _RANGE_BEFORE.search(before[-16:]):
        return False
    if _HAS_SECONDS.search(text) is not None:
        return not _is_on_the_hour(clock)
    if _begins_with_until(clock.after(_REACH)):
        return False
    return _tells_of_clock(clock) or (":" in text and _runs_out(clock))


def _is_noise_vietnamese(day: _Number) -> bool:
    return "tháng" in day.words


def _is_noise_views(views: _Number) -> bool:  # price 12, views 90; but 3 replies, 90 views
    has_label_before = not _STATED_LABELS.isdisjoint(_LAST_WORDS.findall(views.before)[-1:])
    is_next_label = _NUMBER_BEHIND.match(views.match.string, views.match.end()) is not None
    return not (has_label_before and is_next_label) or _NUMBER_AND_LABEL.search(views.before) is not None


def _says_time(number: _Number) -> bool:
    return _says(number.before, _SAYS_TIME, _TIME_SIGNS, 3)


def _is_noise_run(run: _Number) -> bool:
    """Whether a duration is how long the page took, or how long something still goes on."""
    text, words, before, after = run.text, run.words, run.before, run.after(_CONTEXT)
    said = _LAST_WORDS.findall(before)[-5:]
    if words and said[-1:] and said[-1] in _UNTIL and CHANGED.search(before[-24:]) is not None:
        return True
    if words and not _COUNTDOWN.isdisjoint(said):
        return said[-1] in _UNTIL or said[-1] in _COUNTDOWN or said[-1] in _MARKS
    if words and _counts_down(said, before, after):
        return True
    if len(text) <= 4 and words and text[-1] in "smhdw" and _BULLET.search(before) is not None:
        return True
    if words and re.fullmatch(_SHORT_UNIT, words[-1]) is None:
        return False
    if _QUERIES.search(text) is not None and (
        _RUN_AFTER.match(after) is not None or _RUN_BEFORE.search(before) is not None
    ):
        return True
    if text[-1] in "sс" and text[:-1].strip().isdecimal():  # 16 s: a spring's, a sprinter's
        return False
    return _says(before, _SAYS_RUN, _RUN_SIGNS, 9) or not _SAYS_RUN.isdisjoint(_LAST_WORDS.findall(after)[:2])


def _is_before_event(before: str, word: str, after: str) -> bool:
    """Whether a span that ends with `word` means "3 days before" rather than "3 days ago", by its neighbours.

    Many languages have one word for both: in Turkish, "Girişten 3 gün önce" is a term, "3 gün önce" a clock.
    """
    near = before[-_NEAR:]
    if _FROM_AFTER.match(after) is not None:
        return not word.isascii()
    return _FROM_BEFORE.search(f"{near.rstrip()}:{word}") is not None and _POSTED_DAY.search(near) is None


def _says_clock(before: str) -> bool:
    """Whether a time of day is a clock by the words before it: "updated 17:30", "today, 17:30".

    In "open today until 17:30" it is not, because "today" does not stand just before it.
    """
    # "Today is Saturday, 28 November 2026, at": what belongs to a date is no word between.
    words = [
        word
        for word in _LAST_WORDS.findall(before)
        if word in _SAYS_TIME or not _MARKS.get(word, 0) & _OF_DATE
    ][-4:]
    is_at = _AT_WORDS.issuperset(words[-1:])
    is_until = not _UNTIL_DATE.isdisjoint(words[-2:] if is_at else words[-1:])
    said = [at for at, word in enumerate(words) if word in _SAYS_TIME]
    has_sign = not before.isascii() and _CLOCK_SIGNS.search(before[-_NEAR:]) is not None
    expected = _TODAY | _AT_WORDS if is_until else _TODAY
    if has_sign or not said or not expected.issuperset(words[at] for at in said):
        is_label = before.rstrip().endswith(":") and CHANGED.search(before[-_REACH:]) is not None
        is_today = not before.isascii() and _TODAY_BEFORE.search(before) is not None
        return has_sign or bool(said) or is_label or is_today
    between = words[said[-1] + 1 :]
    return (
        not is_until
        and all(len(word) <= _SHORT_WORD or word in _MARKS for word in between)
        and (_OPENS.isdisjoint(words) or not _CLOCK_WORDS.isdisjoint({*words} - _TODAY))
    )


_SHORT_WORD: Final = 3
_OF_DATE: Final = _STRONG | _WEAK | _DAY_NAME | _UNIT
_AFTER_WORDS: Final = frozenset(WORDS["dated_after"].split())


def _begins_with_until(after: str) -> bool:
    """Whether the text after a time begins with "until", as in Finnish, Turkish, Hindi or Japanese."""
    words = _LAST_WORDS.findall(after)[:2]
    return _DATED_AFTER.match(after) is not None or not _AFTER_WORDS.isdisjoint(words)


_QUERIES: Final = re.compile(r"quer|abfr|requ|consul|запр|zapy")
_RUN_AFTER: Final = re.compile(
    rf"\W{{1,3}}(?:[^\W\d]{{1,6}}\s)?{_NUMBER}\s?(?:{_SHORT_UNIT}|{_any_of(_UNIT)})(?!\w)"
)

_RUN_BEFORE: Final = re.compile(r"[0-9][.,][0-9]{1,6}\s?(?:m?s|sec|seconds)[\s,|·-]{1,3}(?:with |in )?$")


def _counts_down(said: list[str], before: str, after: str) -> bool:
    """Whether a span of one unit is a countdown by its last words before, `said`, or after: "5 days left"."""
    behind, near = _LAST_WORDS.findall(_CLAUSE.split(after, 1)[0])[:2], said[-2:]
    if not _RUNS_OUT.isdisjoint((*behind[:1], "_".join(behind), "_".join(near))):
        return True
    if near[-1:] and near[-1] in _ONLY:
        return near[0] in _RUNS_OUT
    is_label = before.rstrip().endswith(":")
    return near[-1:] != [] and near[-1] in _RUNS_OUT and (is_label or near[-1] not in ("left", "remaining"))


_CLAUSE: Final = re.compile(r"[,.;:|·(]")


def _runs_out(span: _Number) -> bool:
    """Whether a span such as 2 h 34 min or 19:59 is a countdown by the words beside it."""
    after = _CLAUSE.split(span.after(_REACH), 1)[0]
    near = {*_LAST_WORDS.findall(span.before)[-4:], *_LAST_WORDS.findall(after)[:2]}
    is_countdown = not _COUNTDOWN.isdisjoint(near) and (
        ":" not in span.text or not _UNTIL_CLOCK.isdisjoint(near)
    )
    return (
        is_countdown
        or not _LEFT.isdisjoint(near)
        or _LEFT_SIGNS.search(span.before[-8:]) is not None
        or _LEFT_SIGNS.search(after[:8]) is not None
    )


_RULES: Final[dict[str, Callable[[_Number], bool]]] = {
    "date": _is_noise_date,
    "month": _is_noise_month,
    "short": _is_noise_short,
    "day": _is_noise_day,
    "era": _is_noise_era,
    "span": _is_noise_span,
    "before": _is_noise_before,
    "clock": _is_noise_clock,
    "vietnamese": _is_noise_vietnamese,
    "ngày": _is_noise_vietnamese,
    "views": _is_noise_views,
    "unix": _says_time,
    "left": _runs_out,
    "run": _is_noise_run,
}
"""Group of `_NUMERIC` -> whether such a number is noise; the others are, but for those of `_Masks`."""


def _tells_of_clock(time: _Number) -> bool:
    """Whether the words around a time say that it is a clock: "as of", "updated"."""
    match, before = time.match, time.before
    return (
        _says_clock(before)
        or _AS_OF.search(before) is not None
        or _AS_OF_AFTER.match(match.string, match.end()) is not None
    )


def _is_on_the_hour(time: _Number) -> bool:
    """Whether a time behind words is one at which people meet, and these tell of no clock or update."""
    if ON_THE_HOUR.search(time.text) is None:
        return False
    near = time.before[-_CONTEXT:] + time.after(_CONTEXT)
    if len(_EXACT_CLOCK.findall(near)) > 1:  # rows of clocks; one may be that of the news of an event
        return False
    words = _LAST_WORDS.findall(time.before)[-_DATED_REACH:]
    return (
        bool(words)
        and _CLOCK_LABELS.isdisjoint(words)
        and not says_update(time.before[-_NEAR:])
        and not _tells_of_clock(time)
    )


def _has_hours(date: _Number) -> bool:
    """Whether a date is that of an event, from one hour to another: "3 December, 10:00 - 16:00"."""
    hours = _TO_HOUR if _HAS_CLOCK.search(date.text) is not None else _HOURS
    return hours.match(date.match.string, date.match.end()) is not None


def _second_of_period(text: str, date: re.Match[str]) -> int | None:
    """Return where a period, such as 10.–12.11.2026, ends if `date` is its first or last day, else None.

    Two dates of different calendars are one day, no period.
    """
    if (other := _DATE_AFTER.match(text, date.end())) is not None:
        years = [int(year) for year in _FOUR_DIGITS.findall(date[0] + other[0])]
        return other.end() if len(years) < 2 or abs(years[0] - years[-1]) < 50 else None
    day = _DAY_BEFORE.search(text, max(date.start() - 16, 0), date.start())
    return date.end() if day is not None and 0 < int(day[1]) <= 31 else None


_PUNCTUATION: Final = ".,;:!?()[]|·•–-/\"'«»“”„"
_NO_PROSE: Final = _DATE_LABELS.union(_MARKS, _WEEKDAY_WORDS, WORDS["time_labels"].split())
_PROSE_WORDS: Final = 2
_PROSE_SIGNS: Final = 6  # of scripts without blanks
_SHORTEST_PROSE: Final = 12  # characters
_LONGEST_COUNTER: Final = 160
_SHORT_COUNTER: Final = 3
_FORUM_WORDS: Final = 3
_LONGEST_STATISTICS: Final = 4096
_NEWEST_NAMES: Final = _all_and_ascii(WORDS["newest"])[0]
_NEWEST: Final = re.compile(
    rf"((?:{'|'.join(_NEWEST_NAMES)})"
    r"(?:\s(?:is|ist|est|es|è))?[:：\s]{1,4})([^\s:：]{2,30})",
    re.I,
)
_BULLETS: Final = re.compile(r"(\s[|·•–-]\s|,\s|[.!?]\s(?=[^\W\d])|。)")
_NUMBER_SIGNS: Final = " .,'+#()"
_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))
_OTHER_DIGITS: Final = re.compile("[٠-٩۰-۹०-९০-৯੦-੯૦-૯୦-୯௦-௯౦-౯೦-೯൦-൯๐-๙໐-໙༠-༩၀-၉០-៩０-９]")
_PLAIN_DIGITS: Final = {code: str(int(chr(code))) for code in range(0x660, 0x10000) if chr(code).isdecimal()}
_SHOWN_NUMBER: Final = re.compile(
    r"\d++(?>(?:[.,'’٬٫\s]\d{3})*)(?>(?:[.,٫]\d{1,2})?)(?>(?:\s?[km]\b)?)(?:\s([^\W\d]++))?", re.I
)
_SUM: Final = re.compile(
    r"(?<![\d.,])[0-9]{1,2}\s?[+x×*−-]\s?[0-9]{1,2}\s?(?:=(?:\s?\?)?|\?)(?=\s?(?:\x1f|\Z))"
)
_AUDIENCE, _FORUM, _NOW, _WATCHING, _OFTEN = (
    frozenset(WORDS[name].split()) for name in ("audience", "forum", "now", "watching", "times")
)
_STEM: Final = 6
_FORUM_STEMS: Final = frozenset(word[:_STEM] for word in _FORUM)
_PEOPLE: Final = frozenset((WORDS["counters"] + WORDS["people"]).split()) - _WATCHING
_VISITS: Final = _AUDIENCE.union(*(WORDS[name].split() for name in ("visits", "people", "reactions")))
_COUNT_LABELS: Final = frozenset(WORDS["unspaced_counts"].split())
"""Labels of the counters of an article, before a number in an element of its own."""
_COUNTER_WORDS: Final = _VISITS.union(_FORUM, _WATCHING, _OFTEN, re.split(r"[|\s]+", WORDS["carts"])) - {""}
_CART: Final = re.compile(
    rf"(?:(?:my|your|the|view)\s)?(?:{_any_phrase('carts')})\s?[:：]?\s?\(?[0-9]{{1,3}}\)?(?:\sitems?)?"
)
_AUDIENCE_SIGNS: Final = re.compile("|".join(WORDS["audience_signs"].split()))
_COUNTER_SIGNS: Final = re.compile("|".join((WORDS["audience_signs"] + WORDS["unspaced_times"]).split()))
_FEW_WORDS: Final = 5
_MANY_TIMES: Final = re.compile(  # three times a day is a statement
    rf"[0-9]{{3}}\s?(?:{_TIMES}(?!\w)|{'|'.join(WORDS['unspaced_times'].split())})"
)
_STATED: Final = _STATEMENTS - {"antal", "total"}  # numbers of what the next word says
_STATED_LABELS: Final = _STATED | _FORUM
_NUMBER_AND_LABEL: Final = re.compile(rf"[\d{MASK}]\s[^\W\d]++\s?$")
_NUMBER_BEHIND: Final = re.compile(rf"\s?[\d{MASK}]")
_LABELLED_COUNT: Final = re.compile(r"(?:[:：#№]|n[º°o]\.?|nr\.?|num(?:ber|mer|ero)|número)\s?[0-9]")
_NO_COUNT: Final = re.compile(  # prices, hours, shares, years
    rf"[{CURRENCIES}%]|[0-9][:/–-][0-9]|[0-9][.,][0-9]{{1,2}}(?![0-9]|\s?[km]\b)|(?<![0-9.,])(?:19|20)[0-9]{{2}}(?![0-9.,])"
)
_NUMBER_OF_DATE: Final = re.compile("[0-9]++")
_DIGITS: Final = re.compile(rb"11*+")  # its literal begin makes the search fast
_WORD_AFTER: Final = re.compile(rf"(?:st|nd|rd|th|er|º|°)?\.?[\s-]?(?:de |of )?([月월]|{LETTERS})", re.I)
_WORD_BEFORE: Final = re.compile(rf"(?<![^\W\d])(?<![{_VOWEL_SIGNS}])({LETTERS})\.?[\s-]$")
_YEAR_DIGITS: Final = re.compile(r"(?:19|20)[0-9][0-9]|25[5-9][0-9]")
_UNSPACED_WORD: Final = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_UNSPACED_DATE: Final = re.compile(
    "(?:星期|周|週)[一二三四五六日天]|[月火水木金土日]曜日?|[年月日時时分秒년월일]|พ\\.?ศ|วันที่|วัน|เวลา|เดือน|น\\."
    "|ថ្ងៃ[\u1780-\u17ff]*+|ទី|ខែ[\u1780-\u17ff]*+|ឆ្នាំ|ວັນທີ|ເດືອນ"
)


def marked_prose(text: str, separator: str, joint: str = " ") -> str:
    """Return the texts of elements, joined by ``joint``, with signs that mark statements and counters.

    `PROSE_BEGIN` and `PROSE_END` surround a sentence that states a date: such a date is a statement of the
    page, one that stands alone is mostly a clock. ``text``: the elements' texts, joined by ``separator``.
    """
    plain = text
    if not text.isascii() and _OTHER_DIGITS.search(text) is not None:
        plain = text.translate(_PLAIN_DIGITS)
    # One byte for each character: a pattern that looks at each takes longer than all of the fingerprint.
    digits = plain.encode("ascii", "replace").translate(_IS_DIGIT)
    pieces: list[str] = []
    begin = end = done = 0
    is_judged = False
    statistics = 0  # the first piece with counters
    dates: list[_ShortDate] = []
    for number in _DIGITS.finditer(digits):
        first, last = number.span()
        if first >= end:  # the next text with digits
            begin = text.rfind(separator, end, first) + 1
            end = text.find(separator, last)
            end = end if end >= 0 else len(text)
            is_judged = end - begin < _SHORTEST_DATE
            if end - begin <= _LONGEST_COUNTER and (
                clocked := _with_clock_signs(text, plain, begin, end, separator)
            ):
                pieces += (text[done:begin], clocked)
                done, is_judged, statistics = end, True, statistics or len(pieces) - 1
            elif end - begin <= _LONGEST_FIELD and (
                value := _value_of_field(plain, begin, first, end, separator)
            ):
                pieces += (text[done:value], DATED)
                done, is_judged = value, True
        if not is_judged and _is_of_date(plain, first, last, begin, end):
            is_judged = True
            if end - begin >= _SHORTEST_PROSE and is_prose(plain[begin:end]):
                pieces += (text[done:begin], f"{PROSE_BEGIN} {text[begin:end]} {PROSE_END}")
                done = end
            elif end - begin <= _LONGEST_FIELD:
                label = _label_before(plain, begin, separator)
                if (day := _short_day(plain[begin:end].lower(), first - begin, label)) is not None:
                    pieces += (text[done:begin], text[begin:end])
                    done = end
                    dates.append(_ShortDate(*day, begin, len(pieces) - 1))
    for date in _listed(dates, plain, separator):
        pieces[date.piece] = f"{PROSE_BEGIN}{DATED} {pieces[date.piece]} {PROSE_END}"
    pieces.append(text[done:])
    marked = "".join(pieces)
    if statistics:
        at = sum(map(len, pieces[:statistics]))
        behind = marked[at : at + _LONGEST_STATISTICS]
        if any(name in behind.lower() for name in _NEWEST_NAMES):
            newest = _NEWEST.sub(rf"\1{CLOCK_BEGIN}\2{CLOCK_END}", behind)
            marked = marked[:at] + newest + marked[at + _LONGEST_STATISTICS :]
    return marked.replace(separator, joint)


class _ShortDate(NamedTuple):
    """Date that is most of an element's text, as "June 17" or "Minutes 5-22-2018" is."""

    form: tuple[bool, ...]
    """Whether it has a weekday, a month's name and a year."""
    day: tuple[str, ...]
    """Its numbers, and its words for days and months."""
    position: int
    piece: int
    """Index of its text."""


@lru_cache(4096)  # entries of a list have few labels, and days stand on many pages of a site
def _short_day(shown: str, at: int, label: str) -> tuple[tuple[bool, ...], tuple[str, ...]] | None:
    """Return form and day for `_ShortDate`; None: the date is a clock by its words.

    ``shown``: text of the date's element; ``at``: where a number of the date is in it; ``label``: text of
    the element before.
    """
    if _EXACT_CLOCK.search(shown) is not None:
        return None
    words = _LAST_WORDS.findall(shown)
    if (
        _says_changed(label)
        or _says_changed(shown)
        or not RECENT.isdisjoint((*words, label.rstrip(" :")))
        or not _POSTED.isdisjoint((*words, *_LAST_WORDS.findall(label)[-2:]))
        or (not shown.isascii() and _TIME_SIGNS.search(label + shown) is not None)
    ):
        return None
    kinds = [_MARKS.get(word, 0) for word in words]
    form = (
        any(kind & _DAY_NAME for kind in kinds),
        any(kind & (_STRONG | _WEAK) for kind in kinds),
        _YEAR_DIGITS.search(shown) is not None,
    )
    begin = len(shown[:at].rstrip(_DAY_SIGNS))
    return form, (*filter(_MARKS.get, words), *_NUMBER_OF_DATE.findall(shown, begin))


def _label_before(text: str, begin: int, separator: str) -> str:
    """Return the text of the element before that at `begin`, or its end, in small letters."""
    before = text[max(begin - _LONGEST_FIELD, 0) : begin].rstrip(separator + CLOCK_BEGIN + CLOCK_END)
    return before.rpartition(separator)[2].lower()


def _says_changed(label: str) -> bool:
    return _LAST.search(label) is not None or CHANGED.search(label) is not None


def _listed(dates: list[_ShortDate], text: str, separator: str) -> Iterator[_ShortDate]:
    """Yield dates of one form that stand in a list: days of meetings, which are statements, not clocks."""
    for form in {date.form for date in dates}:
        runs: list[list[_ShortDate]] = []
        for date in (date for date in dates if date.form == form):
            if not runs or date.position - runs[-1][-1].position > _LONGEST_ENTRY:
                runs.append([])
            runs[-1].append(date)
        for run in runs:
            first = run[0].position
            is_near = run[-1].position - first <= _NEAR_ENTRY
            days = {date.day for date in run}  # one day, today's, in all rows of prices
            if len(days) < 2 or (len(days) == 2 and not is_near) or _is_week_ahead(run):
                continue
            above = text[max(first - _LONGEST_ENTRY, 0) : first].lower().replace(separator, "\n")
            if not any(map(_says_changed, _HEAD_OF_COLUMN.findall(above))):
                yield from run


def _is_week_ahead(run: list[_ShortDate]) -> bool:
    """Whether dates with weekdays follow each other day by day, as in a forecast or a choice of days."""
    has_weekdays = run[0].form[0]
    if len(run) < _FEWEST_DAYS_AHEAD or not has_weekdays:
        return False
    sums = [sum(int(part) for part in date.day if part.isdecimal()) for date in run]
    return all(second - first == 1 for first, second in pairwise(sums))


_DAY_SIGNS: Final = "0123456789./- "
_FEWEST_DAYS_AHEAD: Final = 6  # courses have five days
_HEAD_OF_COLUMN: Final = re.compile(r"^[^\d\n:：]{4,30}$", re.M)
_EXACT_CLOCK: Final = re.compile(rf"\d[:h](?!00|15|30|45)[0-5]\d\b|{_HAS_SECONDS.pattern}")
"""Pattern of times at which someone wrote something: most meetings begin at quarters of an hour."""
_SHORTEST_DATE: Final = 5  # characters: "May 8"
_LONGEST_ENTRY: Final = 300
_NEAR_ENTRY: Final = 100  # characters between two dates that are a list; farther up may be today's


def _value_of_field(text: str, begin: int, first: int, end: int, separator: str) -> int:
    """Return `first`, where a time or date begins, if its label makes it a statement; else 0.

    "Boarding time: 10:25" and "Election day: 3 May" are statements, and so is "Date:" in a list with another
    label, such as venue: the day beside a clock alone is today's. ``begin``, ``end``: of the text
    of the date's element.
    """
    label, colon, day = text[begin:first].partition(":")
    if day.strip() and all(map(_MARKS.get, _LAST_WORDS.findall(day.lower()))):  # Date: Wednesday, Sept. 16th
        first -= len(day)
        label += colon
    else:
        label = text[begin:first].rstrip()
    if not label:
        label = (
            text[max(begin - _LONGEST_FIELD, 0) : begin].rstrip(separator).rpartition(separator)[2].rstrip()
        )
    has_colon = label.endswith((":", "："))
    words = _LAST_WORDS.findall(label.lower()) if has_colon else [label.rpartition(" ")[2].lower()]
    if _MOMENT_LABELS.isdisjoint(words):
        return 0
    if not names_time(label):
        value = text[first:end]
        is_hour = _PLAIN_CLOCK.match(value) is not None
        is_day = is_moment(value) and not _DATE_LABELS.isdisjoint(words)
        if not is_hour and not (has_colon and is_day and _HAS_CLOCK.search(value) is None):
            return 0
        said = f"{label} {value}" if is_hour else label
        words = [word.strip(_PUNCTUATION) for word in said.lower().split()]
        others = [word for word in words if len(word) > _SHORT_WORD and not names_time(word)]
        others = [word for word in others if not any(map(str.isdigit, word))]
        if not is_hour and len(others) == 1 and _LAST.match(others[0]) is not None:  # last day
            return first
        is_made = not is_hour and not _MADE.isdisjoint(others)
        return first if others and not is_made and not says_update(" ".join(others)) else 0
    if not has_colon:
        return 0
    before, after = text[max(begin - _LONGEST_LIST, 0) : begin], text[end : end + _LONGEST_LIST]
    pieces = (*before.split(separator)[-_NEAR_FIELDS:], *after.split(separator)[:_NEAR_FIELDS])
    labels = [found[1] for piece in pieces if (found := _FIELD.match(piece)) is not None]
    has_other = any(not names_time(label) and not says_update(label) for label in labels)
    return first if has_other else 0


def names_time(label: str) -> bool:
    """Whether a label is just a word for date, day, time or hour, with or without a colon."""
    label = label.strip().rstrip(" :：").lower()
    return label in _MOMENT_LABELS


_MOMENT_LABELS: Final = _DATE_LABELS.union(WORDS["time_labels"].split())
_MADE: Final = frozenset(WORDS["made"].split())
_PLAIN_CLOCK: Final = re.compile(
    r"(?:[01]?\d|2[0-4])(?:\s?[:h.]\s?[0-5]\d(?![:.,]?\d)(?:\s?[ap]\.?m\b)?|\s?[ap]\.?m\b)", re.I
)
_FIELD: Final = re.compile(r"\s?([^\W\d][^:：]{1,30})[:：]")
_LONGEST_FIELD: Final = 80
_LONGEST_LIST: Final = 300
_NEAR_FIELDS: Final = 7


def _with_clock_signs(text: str, plain: str, begin: int, end: int, separator: str) -> str:
    """Return the text from `begin` to `end`, whose numbers have the signs of clocks if they are noise, or "".

    Such numbers are counters of visitors, or a captcha's sum. ``plain``: `text` with ASCII digits.
    """
    shown, piece = text[begin:end], plain[begin:end].lower()
    if piece[-1] in "=? " and _SUM.search(piece) is not None:
        return _SHOWN_NUMBER.sub(_clock, shown) if _sums(plain) == 1 else ""
    words, shown_label = piece.translate(_NO_DIGITS), shown
    if not words.strip(_NUMBER_SIGNS):  # label and number in elements of their own
        before, after = plain[max(begin - _LONGEST_COUNTER, 0) : begin], plain[end : end + _LONGEST_COUNTER]
        shown_label = _FIELDS.split(before.rstrip(separator).rpartition(separator)[2])[-1].strip()
        label = shown_label.lower()
        behind = after.lstrip(separator).partition(separator)[0].lower()
        if label in _STATED_LABELS:  # replies 2, views 412
            return ""
        if label.rstrip(":：") in _COUNT_LABELS and _NO_COUNT.search(piece) is None:
            return _SHOWN_NUMBER.sub(_clock, shown)
        is_label = label.endswith((":", "：")) or _CART.fullmatch(f"{label} {piece}") is not None
        piece = f"{label} {piece}" if is_label else f"{piece} {behind}"
        words = piece.translate(_NO_DIGITS)
        shown_label += shown
    label, colon, _ = shown_label.partition(":")
    is_of_authors = bool(colon) and label.lower()[:_STEM] in _FORUM_STEMS and _times(plain, f"{label}:") > 1
    if not (is_of_authors or _may_count(words)):
        return ""
    if is_of_authors or is_counter(piece):
        return _SHOWN_NUMBER.sub(_clock, shown)
    parts = _BULLETS.split(shown)
    clocked = [
        _SHOWN_NUMBER.sub(_clock, part) if is_counter(part.translate(_PLAIN_DIGITS).lower()) else part
        for part in parts
    ]
    return "".join(clocked) if clocked != parts else ""


_FIELDS: Final = re.compile(r"(?<=\w)(?:\u3000|\s{2,}+|\s[|·•]\s)")
"""Pattern between two labels, with their values, in one line."""


@lru_cache(1)  # a page of sums asks at each
def _sums(text: str) -> int:
    return len(_SUM.findall(text))


@lru_cache(8)  # a thread asks at each author of its posts
def _times(text: str, label: str) -> int:
    return text.count(label)


@lru_cache(4096)  # the rows of a table differ in their numbers alone
def _may_count(text: str) -> bool:
    """Whether a text without its numbers has a word that stands beside counters ("visitors", "posts")."""
    return not _COUNTER_WORDS.isdisjoint(_HINT_WORD.findall(text)) or (
        not text.isascii() and _COUNTER_SIGNS.search(text) is not None
    )


def is_counter(text: str) -> bool:
    """Whether the numbers of a short text count visitors of the page, or posts and members of a forum."""
    words = {*_HINT_WORD.findall(text)}
    if _CART.fullmatch(text) is not None:
        return True
    if _NO_COUNT.search(text) is not None:
        return False
    numbers = [*_SHOWN_NUMBER.finditer(text)]
    is_single = len(numbers) == 1
    does, is_now = not words.isdisjoint(_WATCHING), not words.isdisjoint(_NOW)
    if is_single and does and numbers[0][1] in _PEOPLE and (is_now or text[0].isdigit()):
        return True  # 12 people are looking at this room
    if not words.isdisjoint(_STATED):
        return False
    if len(words & _FORUM) >= _FORUM_WORDS:  # 12 posts, 3 topics, 2 members
        return True
    label = _LABELLED_COUNT.search(text)
    if label is not None and not _VISITS.isdisjoint(_HINT_WORD.findall(text[: label.start()])):
        return True  # hits: 12
    if not words.isdisjoint(_AUDIENCE) or _AUDIENCE_SIGNS.search(text) is not None:
        is_short = is_single and sum(map(str.isalpha, words)) <= _SHORT_COUNTER
        if does or is_now or is_short:  # 12 visitors
            return True
    if is_single and len(words) <= _FEW_WORDS and _MANY_TIMES.search(text) is not None:
        return True  # consulté 1 234 fois
    if not words.isdisjoint(_PEOPLE):  # 12 people are looking at this
        return does and (is_now or label is not None or text[0].isdigit())
    return does and is_single and not words.isdisjoint(_OFTEN)  # viewed 12 times


def _clock(number: re.Match[str]) -> str:
    word = number[1] or ""  # its form follows the number: 27 відвідувачів, 33 відвідувачі
    is_counted = word.lower() in _AUDIENCE or word.lower() in _PEOPLE
    shown = number[0] if is_counted else number[0][: len(number[0]) - len(word)]
    return f"{CLOCK_BEGIN}{shown}{CLOCK_END}{'' if is_counted else word}"


def _is_of_date(text: str, first: int, last: int, begin: int, end: int) -> bool:
    """Whether digits are a year, or a day beside a month's name in the text from `begin` to `end`."""
    if last - first == 4 and _YEAR_DIGITS.match(text, first):
        return True
    if last - first > 2:
        return False
    word = _WORD_AFTER.match(text, last, end)
    if word is None and first > begin and (text[first - 1] == "-" or text[first - 1].isspace()):
        word = _WORD_BEFORE.search(text, max(first - 16, begin), first)
    return word is not None and _is_month(word[1])


def _is_month(word: str) -> bool:
    return word in "月월" or _MARKS.get(word.lower(), 0) & (_STRONG | _WEAK) > 0


def states_date(text: str) -> bool:
    """Whether a text has a year, or a day beside the name of a month."""
    return any(_is_of_date(text, *number.span(), 0, len(text)) for number in _NUMBER_OF_DATE.finditer(text))


def is_prose(piece: str) -> bool:
    """Whether a text is a sentence rather than a date with a label."""
    words = signs = 0
    for word in piece.lower().split():
        bare = (word if word.isascii() else _UNSPACED_DATE.sub("", word)).strip(_PUNCTUATION)
        if not bare or bare.removesuffix("-feira") in _NO_PROSE:
            continue
        words += _is_prose_word(bare)
        signs += 0 if bare.isascii() else len(_UNSPACED_WORD.findall(bare))
        if words >= _PROSE_WORDS or signs >= _PROSE_SIGNS:  # mostly after a few words of a long text
            return True
    return False


def _is_prose_word(word: str) -> bool:
    shortest = 2 if word > "\u02ff" else 3
    return len(word) >= shortest and not any(map(str.isdigit, word))


_DATED_REACH: Final = 4  # words
_ANNOUNCED: Final = re.compile(r"\bbe (?:[a-z]{1,20}ly )?[a-z]{1,20}")
"""Passive of what is still to be done, as in "results will be published": it tells of no clock."""
_LABEL: Final = re.compile(r"(?<![^\W\d])[^\W\d][^:：·|•\x05]{2,40}[:：]\s?$")
_VERSION_BEFORE: Final = re.compile(r"\b\d{1,4}\.\d{1,4}(?:\.[\w-]{1,12}){0,2}\]?\s?[(\[-]\s?$")
_MARKED_REACH: Final = 7  # characters, with a preposition: "le samedi 12 mai"
_SENTENCE_WORDS: Final = 5  # about a date with a clock


def is_dated(before: str, after: str, text: str = "") -> bool:
    """Whether a date is a statement by the words around it: a deadline, an event, a birth.

    ``before``, ``after``: text around it; ``text``: the date itself.
    """
    has_clock = _HAS_CLOCK.search(text) is not None
    if " be " in before:
        before = _ANNOUNCED.sub("", before)
    if before.rfind(PROSE_BEGIN + DATED) > before.rfind(PROSE_END):
        return True
    if DATED in before[-_MARKED_REACH:] or (not has_clock and _follows_version(before)):
        return True
    sentence = max(map(before.rfind, (". ", "! ", "? ", "。")))
    prose = before.rfind(PROSE_BEGIN)
    start = max(prose, sentence, 0)
    is_prose = prose > before.rfind(PROSE_END) and (
        not has_clock or _words_of_sentence(before[start:], after) >= _SENTENCE_WORDS
    )
    if not _says_dated(before, after, start if is_prose else -1, sentence + 1):
        return False
    context = before[max(start, len(before) - 2 * _CONTEXT) :]
    said = f"{context} {text} {_SENTENCE_END.split(after)[0]}"
    return _LAST.search(said) is None or CHANGED.search(said) is None


def _follows_version(before: str) -> bool:
    """Whether a text ends with a version, as "1.2.3 (" does before its date."""
    # The sign at the pattern's end is looked at first: that takes a hundredth of the search.
    return before[-2:].strip()[-1:] in "([-" and _VERSION_BEFORE.search(before) is not None


def _words_of_sentence(before: str, after: str) -> int:
    sentence = before + _SENTENCE_END.split(after)[0]
    return (
        sum(len(word) > 2 for word in _LAST_WORDS.findall(sentence))
        + len(_UNSPACED_WORD.findall(_UNSPACED_DATE.sub("", sentence))) // 3
    )


def _says_dated(before: str, after: str, prose: int, sentence: int) -> bool:
    """Whether a date is a statement by the words around it, for `is_dated`, which looks for updates as well.

    ``sentence``: position of its sentence in `before`; ``prose``: the same if it is in prose, else -1.
    """
    if prose >= 0 and (
        _CLOCK_WORDS.isdisjoint(words := _LAST_WORDS.findall(before, prose)) or _is_now_far(words)
    ):
        return _TIME_SIGNS.search(before, prose) is None and _AS_OF.search(before) is None
    words = _LAST_WORDS.findall(before, sentence)[: -_DATED_REACH - 1 : -1]
    if not _UNTIL_DATE.isdisjoint(words[:2]) and _POSTED.isdisjoint(words):
        return True
    is_label = before.rstrip().endswith((":", "：")) or words[:1] == ["date"]
    if is_label and _has_statement_label(before[sentence:]):
        return True
    for word in words:
        if word in _DATED or (is_label and word in _DATED_LABELS):
            return True
        if word in _POSTED:
            return False
    if _DATED_AFTER.match(after) is not None:
        return True
    signs = None if before.isascii() else _DATED_SIGNS.search(before, max(len(before) - _REACH, 0))
    return signs is not None and _TIME_SIGNS.search(before, signs.start()) is None


def _is_now_far(words: list[str]) -> bool:
    """Whether all clock words before a date say "now", and others stand between them and the date.

    In "It is now Monday, 3 December" the date is a clock, in "We now process orders of 3 December" not.
    """
    clocks = [at for at, word in enumerate(words) if word in _CLOCK_WORDS]
    between = words[clocks[-1] + 1 :]
    is_far = any(len(word) > _SHORT_WORD and word not in _NO_PROSE for word in between)
    return is_far and _NOW.issuperset(words[at] for at in clocks)


def _has_statement_label(text: str) -> bool:
    """Whether a text ends with a label, such as "Deadline:", that names no update, time or date."""
    label = _LABEL.search(text)
    return (
        label is not None
        and not says_update(label[0])
        and _TIME_SIGNS.search(label[0]) is None
        and _DATE_LABELS.isdisjoint(_LAST_WORDS.findall(label[0])[-1:])
    )


def says_update(label: str) -> bool:
    """Whether dates under a label, such as a column's head, are clocks: "last update", "changed"."""
    label = label.lower()
    return _says_changed(label) or not _CLOCK_LABELS.isdisjoint(_LAST_WORDS.findall(label))


def _says(before: str, words: frozenset[str], signs: re.Pattern[str], count: int) -> bool:
    """Whether one of the last `count` words of `before` is in `words`, or `signs` match its last `_NEAR`."""
    if not before.isascii() and signs.search(before[-_NEAR:]) is not None:
        return True
    return not words.isdisjoint(_LAST_WORDS.findall(before)[-count:])


_NUMERIC_DATE: Final = re.compile(r"(\d{1,4})[-/.]\s?(\d{1,2})[-/.]\s?(\d{1,4})")
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _is_date(text: str) -> bool:
    """Whether a text such as 2026-11-10 is a day of the calendar, its numbers in any order."""
    numbers = _NUMERIC_DATE.match(text)
    if numbers is None:
        return True
    first, second, third = map(int, numbers.groups())
    orders = ((second, third),) if len(numbers[1]) > 2 else ((second, first), (first, second))
    return any(1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1] for month, day in orders)
