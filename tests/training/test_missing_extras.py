"""A command whose extra is not installed says so in one line, with the command that installs it."""

import os
import subprocess
import sys
from pathlib import Path

import training

FOLDER = Path(training.__file__).parent
COMMANDS = sorted(
    path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text() and path.stem != "__init__"
)


def test_every_command_names_the_extra(tmp_path: Path) -> None:
    """Or it needs none, and shows its help."""
    blocked = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in training.EXTRAS)
    (tmp_path / "sitecustomize.py").write_text(blocked)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(FOLDER.parent)))}
    sinners = {}
    named = []
    for command in COMMANDS:
        run = subprocess.run(
            [sys.executable, "-m", f"training.{command}", "--help"],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        lines = run.stderr.splitlines()
        if run.returncode and len(lines) == 1 and "pip install 'scrapy-gp4c[train]'" in lines[0]:
            named.append(command)
        elif run.returncode:
            sinners[command] = run.stderr
    assert sinners == {}
    assert {"learn", "evaluate", "experiment"} <= {*named}
