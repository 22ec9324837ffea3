"""``make bench``: it runs every script that the documentation promises."""

import re
import subprocess
import sys
from importlib import import_module

import pytest

from tests.support.sources import ROOT

SCRIPTS = sorted(
    path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")
)
NEED_DATA = {"claimed", "first_visits", "page_pairs", "second_halves", "sized"}
"""Scripts about files that the repository does not have."""


def test_make_bench_runs_every_script() -> None:
    """The Makefile's list is the folder's scripts, and quick sizes belong to scripts."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (listed,) = re.findall(r"^BENCHMARKS := (.*)$", makefile, re.MULTILINE)
    assert sorted(listed.split()) == [name for name in SCRIPTS if name not in NEED_DATA]
    assert set(re.findall(r"^QUICK_(\w+) := ", makefile, re.MULTILINE)) <= set(SCRIPTS)


def test_the_docs_name_every_script_and_their_number() -> None:
    """docs/lab/performance.md sends to the figures of each."""
    text = (ROOT / "docs" / "lab" / "performance.md").read_text(encoding="utf-8")
    assert f"runs {len(SCRIPTS) - len(NEED_DATA)} of them at a size" in text
    assert [name for name in SCRIPTS if not re.search(rf"benchmarks[./]{name}\b", text)] == []


@pytest.mark.parametrize("name", ["store_history"])
def test_code_in_strings_still_runs(name: str) -> None:
    """What a script hands to another interpreter imports what there is."""
    source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    imports = re.findall(
        r"^(?:from|import) [^\n]*$", source.partition('"""\nimport')[2].partition('"""')[0], re.MULTILINE
    )
    assert imports
    subprocess.run([sys.executable, "-c", "\n".join(imports)], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_find_what_they_import(name: str) -> None:
    """A room that is rebuilt takes its benchmarks along."""
    assert callable(import_module(f"benchmarks.{name}").main)
