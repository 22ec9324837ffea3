"""Meaningless sentences and headlines, in English and in Japanese, drawn from a small vocabulary."""

from random import Random


def _words(text: str) -> list[str]:
    return text.split()


ADJECTIVES = _words("""quiet northern recent public early narrow wooden modern heavy local spare bright
winter shallow steady common annual gentle coastal broken cheap regional distant careful simple rural young
hollow polished yellow inland frequent ample brisk dusty formal grand humid idle joint keen lively""")
NOUNS = _words("""harbour council bridge engine valley market library village orchard railway museum teacher
budget kitchen printer ferry archive bakery concert garden hospital island journal lantern meadow
nursery office parcel quarry reservoir station theatre union vessel workshop café façade jalapeño farm
mill tower canal festival forecast survey contract cable battery compass blanket ladder mirror notebook
pipeline river saddle ticket uniform voucher window attic basin chapel depot estate furnace gallery""")
VERBS = _words("""opens replaces follows supports delays repairs measures carries answers protects finishes
joins reaches reviews shares sorts tests touches updates visits welcomes borrows checks describes enters fills
guides handles includes keeps leaves moves notes offers prepares records serves tracks uses widens""")
# All places can be written in windows-1252.
PLACES = _words("""Zürich Málaga Göteborg Brno Leeds Porto Gdynia Cork Bergen Utrecht Nantes Trieste Ghent
Split Tartu Graz Kiel Bath Lyon Parma""")
TIMES = (
    "since spring",
    "before noon",
    "after the storm",
    "for the third year",
    "without notice",
    "at low tide",
    "despite the rain",
    "by agreement",
    "for a small fee",
    "during the holidays",
    "over the summer",
)
_KANJI = (
    "山川海空森町村駅橋店本車道花雨雪風光音色朝昼夜春夏秋冬犬猫鳥魚米茶酒水火木金土石糸紙絵歌声話心手足目"
)
_PARTICLES = ("は", "が", "を", "に", "で", "と", "の", "から", "まで", "へ")
_ENDINGS = (
    "見ます",
    "行きます",
    "作りました",
    "始まります",
    "終わりました",
    "変わりません",
    "読みました",
    "です",
)


def sentence(dice: Random, japanese: bool) -> str:
    """Return a sentence of about a dozen words."""
    if japanese:
        parts = [
            "".join(dice.choices(_KANJI, k=dice.randint(1, 3))) + dice.choice(_PARTICLES)
            for _ in range(dice.randint(3, 6))
        ]
        return "".join(parts) + dice.choice(_ENDINGS) + "。"
    clause = (
        f"the {dice.choice(ADJECTIVES)} {dice.choice(NOUNS)} {dice.choice(VERBS)} the {dice.choice(NOUNS)}"
    )
    ending = (
        f" in {dice.choice(PLACES)}",
        f" {dice.choice(TIMES)}",
        f" and a {dice.choice(ADJECTIVES)} {dice.choice(NOUNS)} {dice.choice(VERBS)} every "
        f"{dice.choice(NOUNS)} of {dice.choice(PLACES)} {dice.choice(TIMES)}",
        f", while no {dice.choice(NOUNS)} {dice.choice(VERBS)} its {dice.choice(ADJECTIVES)} "
        f"{dice.choice(NOUNS)}",
    )[dice.randrange(4)]
    text = clause + ending
    return text[0].upper() + text[1:] + "."


def headline(dice: Random, japanese: bool) -> str:
    """Return a headline of six words."""
    if japanese:
        return "".join(dice.choices(_KANJI, k=8)) + dice.choice(_ENDINGS)
    words = [
        dice.choice(PLACES),
        dice.choice(ADJECTIVES),
        dice.choice(NOUNS),
        dice.choice(VERBS),
        dice.choice(ADJECTIVES),
        dice.choice(NOUNS),
    ]
    return " ".join(words).capitalize()
