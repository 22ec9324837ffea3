"""The house: what the documentation and the comments name exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.house.test_rooms import ARROWS
from tests.support.sources import PACKAGES, ROOT, sources

FOLDERS: Final = (*PACKAGES, "benchmarks", "example_project")
MODULES: Final = sources(*FOLDERS, "tests")
DOCS: Final = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
SOURCES: Final = {
    path.relative_to(ROOT).as_posix(): path for path in MODULES.values() if path != Path(__file__)
}

DOTTED: Final = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})(?:\.[A-Za-z_]\w*)+")
PATH: Final = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(FOLDERS)}|tests|docs)/[\w./-]*\.(?:py|md|txt|html|css)\b"
)
SAID: Final = re.compile(r'""".*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL)
"""A string or a comment of a source."""
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING: Final = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
CITED: Final = re.compile(
    r"(docs/[\w/-]+\.md), (?:\"([^\"]+)\"|(?=[A-Z]))|\"([^\"]+)\"\s+(?:in|of)\s+(docs/[\w/-]+\.md)"
)
FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"^ *```.*?^ *```$|(?<=\n\n)(?: {4,}\S[^\n]*\n)+", re.MULTILINE | re.DOTALL)
NO_SENTENCE: Final = re.compile(r"^ *(?:[|#<].*)?$", re.MULTILINE)
ITEM: Final = re.compile(r"^ *(?:[-*+]|\d+\.) +", re.MULTILINE)
SENTENCE_END: Final = re.compile(r"(?<=[.:;!?])[)*\"]*\s+(?=[\"(\[]*[A-Z`*])")
LABORATORY: Final = ("docs/lab/effectiveness.md", "docs/lab/speed.md")
"""Records of measurements, as they were written down."""
MEAN_WORDS: Final = 25
MOST_WORDS: Final = 40


@cache
def text_of(path: Path) -> str:
    """All of a document; of a source its comments and strings, unwrapped to one line each."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    said = " ".join(match[0].lstrip("#") + "\n" * (match[0][0] != "#") for match in SAID.finditer(text))
    return re.sub(r"\s*\n\s*", " ", said)


def test_dotted_names_exist() -> None:
    """Modules, classes and functions that a text names can be imported."""
    texts = DOCS | {name: path for name, path in SOURCES.items() if not name.startswith("tests/")}
    cited = {(name, dotted) for name, path in texts.items() for dotted in DOTTED.findall(text_of(path))}
    assert {(name, dotted) for name, dotted in cited if not resolves(dotted)} == set()


def resolves(dotted: str) -> bool:
    """Tell whether a dotted name is a module of ours, or something in one."""
    module, rest = dotted, []
    while module not in MODULES:
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
        if not module:
            return False
    target: Any = import_module(module) if rest else None
    for attribute in rest:
        if attribute in getattr(target, "__annotations__", {}):
            return True
        if not hasattr(target, attribute):
            return False
        target = getattr(target, attribute)
    return True


def test_imports_in_examples_work() -> None:
    """Every name that a code block of a document imports from this project exists."""
    missing = set()
    for name, path in DOCS.items():
        for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in FOLDERS:
                    imported = {f"{node.module}.{one.name}" for one in node.names}
                    missing |= {(name, dotted) for dotted in imported if not resolves(dotted)}
    assert missing == set()


def test_paths_exist() -> None:
    """Files of the repository that a text names exist."""
    cited = {(name, file) for name, path in (DOCS | SOURCES).items() for file in PATH.findall(text_of(path))}
    assert {(name, file) for name, file in cited if not (ROOT / file).exists()} == set()


def test_links_lead_somewhere() -> None:
    """Relative links name files, and headings in them."""
    dead = set()
    for name, document in DOCS.items():
        text = FENCE.sub("", document.read_text(encoding="utf-8"))
        for target, anchor in LINK.findall(text):
            path = (document.parent / target).resolve() if target else document
            anchors = {slug(heading) for heading in headings(path)} if anchor and path.exists() else {anchor}
            if not path.exists() or anchor not in anchors:
                dead.add((name, f"{target}#{anchor}"))
    assert dead == set()


@cache
def headings(path: Path) -> tuple[str, ...]:
    return tuple(HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8"))))


def slug(heading: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def citations(text: str) -> Iterator[tuple[str, str, bool]]:
    """Document and section that a text cites, and whether the section is quoted (else: what follows)."""
    for match in CITED.finditer(text):
        document, quoted, before, of_document = match.groups()
        if quoted or before:
            yield document or of_document, quoted or before, True
        else:
            yield document, text[match.end() :], False


def test_sections_that_code_cites_exist() -> None:
    """A docstring that says docs/X.md, "Section" names a heading there; so does one without quotes."""
    missing = set()
    for name, path in SOURCES.items():
        for document, section, quoted in citations(text_of(path)):
            known = headings(ROOT / document)
            if not (section in known if quoted else section.startswith(known)):
                missing.add((name, document, section[:40]))
    assert missing == set()


def test_the_site_has_few_pages_and_all_for_users() -> None:
    """The navigation lists the pages of docs/, the first and 14 more; those of lab/ and code/ are linked."""
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert len(listed) <= 15


def test_messages_that_troubleshooting_names_are_in_the_code() -> None:
    """A reader who looks for a line of the log finds it as the log has it."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    quoted = re.findall(r"^\| `([^`|]{20,})` \|", page, re.MULTILINE)
    texts = (text_of(path) for module, path in MODULES.items() if module.startswith("scrapy_gp4c"))
    joined = [re.sub(r"%[sd]", "...", re.sub(r'" "', "", text)) for text in texts]
    pieces = [piece.strip() for message in quoted for piece in message.split("...") if piece.strip()]
    assert len(quoted) > 8
    assert [piece for piece in pieces if not any(piece in text for text in joined)] == []


FACTS: Final = {
    r"(\d\.\d) times as many changes as (?:visiting the oldest|`age`)": {"README.md", "docs/lab/demo.md"},
    r"Scrapy (2\.\d+ to 2\.\d+)": {"README.md", "CHANGELOG.md", "docs/settings.md"},
    r"(?:was verified in|pages took) (\d+) s": {"docs/commands.md", "docs/code/store.md"},
    r"Python (3\.\d+) or newer": {"README.md", "docs/tutorial.md"},
    r"(?<=its visits \| )\d+|\d+(?= bytes of disk a page)": {"README.md", "docs/code/store.md"},
    r"(?<=Each visit to a page takes )\d+|\d+(?= bytes a further visit)": {"README.md", "docs/code/store.md"},
    r"(?<=first request \| 0\.\d\d s \| )\d\.\d+|(?<=in )\d\.\d+(?= s and)": {
        "README.md",
        "docs/code/store.md",
    },
}
"""Pattern of a figure -> the pages that state it."""


def test_pages_that_state_a_figure_agree() -> None:
    """Verification took 17 s on one page and 18 s on another."""
    for pattern, names in FACTS.items():
        figures = {name: set(re.findall(pattern, (ROOT / name).read_text("utf-8"))) for name in names}
        assert all(figures.values()), (pattern, figures)
        assert len(set.union(*figures.values())) == 1, (pattern, figures)


def test_a_wrong_citation_is_found() -> None:
    """All three ways to cite are read."""
    text = 'see docs/a.md, "One"; docs/b.md, Two things, docs/c.md has the rest; "Three" in docs/d.md'
    assert [(document, section.split(",")[0], quoted) for document, section, quoted in citations(text)] == [
        ("docs/a.md", "One", True),
        ("docs/b.md", "Two things", False),
        ("docs/d.md", "Three", True),
    ]


def test_the_picture_of_the_rooms_is_the_tested_one() -> None:
    """The table of rooms in docs/code/architecture.md allows what the test of the rooms allows."""
    text = (ROOT / "docs" / "code" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Who may import whom")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w' ,]+?) \| ([\w ]*?) ?\|", table, re.MULTILINE)
    shown = {room: set(targets.split()) for room, targets in rows if room != "room"}
    assert shown == {room: set(targets.split()) - {"nothing"} for room, targets in ARROWS.items()}


def sentences(text: str) -> list[str]:
    """Sentences of a document, without code, tables and headings; a list item begins one of its own."""
    prose = NO_SENTENCE.sub("\n\n", CODE.sub("\n", text))
    blocks = re.split(r"\n\s*\n", ITEM.sub("\n\n", LINK.sub("]", prose)))
    parts = (part.strip() for block in blocks for part in SENTENCE_END.split(block))
    return [re.sub(r"\s+", " ", part) for part in parts if re.search(r"\w", part)]


def test_sentences_are_short() -> None:
    """Sentences of a page have at most 25 words in the mean, and none has more than 40."""
    long: list[str] = []
    for name, path in DOCS.items():
        if name in LABORATORY:
            continue
        words = {sentence: len(sentence.split()) for sentence in sentences(text_of(path))}
        long += [f"{name}: {n} words: {said}" for said, n in words.items() if n > MOST_WORDS]
        if (mean := sum(words.values()) / max(len(words), 1)) > MEAN_WORDS:
            long.append(f"{name}: sentences have {mean:.1f} words in the mean")
    assert not long, "\n".join(long)


def test_a_long_sentence_is_found() -> None:
    """Sentences end at a stop before a capital or code; tables, code and headings are none."""
    text = (
        "# A heading\nOne two. `three` four: *five*\n- six; seven\n- eight [nine](ten.md) (a. B)\n\n"
        "| a | b |\n\n```sh\nmake\n```\n\n    make again\n\nLast."
    )
    assert sentences(text) == [
        "One two.", "`three` four:", "*five*", "six; seven", "eight [nine] (a.", "B)", "Last.",
    ]  # fmt: skip
