"""Runs commands of ``training`` in one process: ``training_worker.py REQUEST RESULT``.

REQUEST is a JSON list of ``[command, *arguments]``, where ``learn`` stands for ``python -m training.learn``;
RESULT gets exit code and output of each. One process for all: what takes time is to start one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def run(module: str, arguments: list[str]) -> Document:
    """Run one command: exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    code: Any
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if arguments == ["--help"]:  # just as ``python -m`` does
                sys.argv[1:] = arguments
                runpy.run_module(f"training.{module}", run_name="__main__", alter_sys=True)
            code = importlib.import_module(f"training.{module}").main(arguments)
        except SystemExit as end:
            code = end.code
    return {"exit": code or 0, "out": out.getvalue(), "err": err.getvalue()}


def main() -> None:
    """Run the command line."""
    request, result = map(Path, sys.argv[1:])
    warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
    done = [run(module, arguments) for module, *arguments in json.loads(request.read_text())]
    result.write_text(json.dumps(done))


if __name__ == "__main__":
    main()
