"""Texts for which a careless regular expression takes quadratic time, and pages of data.

Each is a head and a piece that is repeated to any length. The tests run them at a moderate size,
`benchmarks.fingerprint` at the most that a fingerprint looks at.
"""

from random import Random
from typing import Final, NamedTuple


class Hostile(NamedTuple):
    """Text of any length: ``head`` once, then ``piece`` repeated."""

    head: str
    piece: str

    def text(self, size: int) -> str:
        """Return the text of about so many bytes in UTF-8, at least one piece."""
        room = size - len(self.head.encode())
        return self.head + self.piece * max(room // len(self.piece.encode()), 1)


_DICE: Final = Random(1)
_ROW: Final = [(_DICE.randrange(10**4), _DICE.uniform(0, 100), _DICE.randrange(24)) for _ in range(500)]

HOSTILE: Final = {
    "JSON, integers": Hostile("[", "".join(f"{number}," for number, _, _ in _ROW)),
    "JSON, floats": Hostile("[", "".join(f"{share:.4f}," for _, share, _ in _ROW)),
    "JSON, objects": Hostile(
        "[", "".join(f'{{"id":{number},"price":{share:.2f},"in_stock":true}},' for number, share, _ in _ROW)
    ),
    "CSV": Hostile(
        "day,time,count,mean\n",
        "".join(f"2026-03-{1 + hour},{hour:02d}:15,{number},{share:.3f}\n" for number, share, hour in _ROW),
    ),
    "log": Hostile(
        "",
        "".join(
            f'127.0.0.1 - - [10/Oct/2026:{hour:02d}:55:36 +0000] "GET /{number} HTTP/1.1" 200 {number}\n'
            for number, _, hour in _ROW
        ),
    ),
    "version numbers": Hostile("", "1.1.1."),
    "digit, comma": Hostile("", "1,"),
    "full-width digits": Hostile("", "１，"),
    "digits of two scripts": Hostile("", "1١"),
    "circled numbers": Hostile("", "⑽"),
    "Unix times": Hostile("", "1700000000,1"),
    "Unix times, fractions": Hostile("", "1700000000.1."),
    "dates, blanks": Hostile("", "2026-01-01" + " " * 50),
    "dates, tabs": Hostile("", "2026-01-01" + "\t" * 50),
    "a date, blanks": Hostile("2026-01-01", " "),
    "january 1, tabs": Hostile("", "january 1" + "\t " * 25),
    "january 1, commas": Hostile("", "january 1,"),
    "times": Hostile("", "10:10:10.1 "),
    "times, commas": Hostile("", "10:10 , "),
    "a time, digits": Hostile("10:10:10.", "1"),
    "views of a list": Hostile("views: ", "1,"),
    "lists of views": Hostile("", "1,1,1,1,1,1,1,1,1,1 views,"),
    "groups of digits": Hostile("", "101 102 103 104 105 view; "),
    "numbers near a": Hostile("", "a 7 of many other words, "),
    "days near a": Hostile("", "a may 7 of many other words, "),
    "run time of a list": Hostile("took ", "1."),
    "run times": Hostile("", "took a b 1.1.1.1 "),
    "tokens' names": Hostile("", "csrf_1"),
    "hexadecimal": Hostile("", "abcdef01"),
    "hexadecimal, accents": Hostile("", "abcdefabcdefabcdefé1"),
    "parts of a UUID": Hostile("", "deadbeef-1234-"),
    "spans": Hostile("", "1 minute and 1 minute, "),
    "days": Hostile("", "mon.,1"),
    "times, no blank": Hostile("", "10:10" + "x" * 40),
    "combining marks": Hostile("a", "\u0301"),
    "combining marks, two classes": Hostile("a", "\u0301\u0323"),
    "combining marks, three classes": Hostile("a", "\u0315\u0300\u05ae"),
    "combining marks, half width": Hostile("a", "\u0301\uff9e"),
    "long ligature": Hostile("", "\ufdfa"),
    "long ligature, date": Hostile("", "㏠\ufdfa"),
    "long ligature, clock": Hostile("", "10:10\ufdfa"),
    "dashes": Hostile("", "—"),
    "Han": Hostile("", "漢"),
    "capital sigma": Hostile("", "Σ."),
}
