"""What is recorded and checked: the scenarios, and running them to comparable documents.

`record.py` writes what these functions give at the commit to compare with, the tests compare what they give
now. Each ``produce_...`` runs one process in a directory of its own; paths in what it gives are relative.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import normal

HERE = Path(__file__).parent
Document = dict[str, Any]

# --- processes

LIMIT_S = 300.0
"""A worker takes seconds, and a minute where it has to compile; one that hangs is an error, not a wait."""


def run_worker(script: Path, request: Any, directory: Path, *more: str, limit_s: float = LIMIT_S) -> Any:
    """Run one of the workers in `directory`; returns its result, None when it was killed."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "request.json").write_text(json.dumps(request))
    dropped = {"FORCE_COLOR", "NO_COLOR", "CLICOLOR", "SCRAPY_PROJECT", "TTY_COMPATIBLE"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb"}
    paths = [str(HERE / "project"), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    words = [sys.executable, str(script), *more, "request.json", "result.json"]
    try:
        done = subprocess.run(
            words,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise AssertionError(f"{script.name} has hung: stopped after {limit_s} s. {said[-2000:]}") from None
    if done.returncode < 0 and more:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads((directory / "result.json").read_text())


def unpack(name: str, target: Path) -> None:
    """Decompress a file of `normal.DATA`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(lzma.decompress((normal.DATA / f"{name}.xz").read_bytes()))


# --- crawls

SCORE_FILE = normal.DATA / "crawl-score.json"
CHAMPION = normal.DATA / "champion.json"


def command(*words: str) -> Document:
    """A step: one command of ``scrapy``."""
    return {"command": list(words)}


def runs(count: int, first: int = 1, **settings: Any) -> list[Document]:
    """Steps: so many cycles from the first one on."""
    return [{"run": {"GOLDEN_CYCLE": cycle, **settings}} for cycle in range(first, first + count)]


def looks(top: int = 15) -> list[Document]:
    """Steps: every command that shows a store."""
    return [
        command("gp4c", "export", "golden"),
        command("gp4c", "status", "golden"),
        command("gp4c", "pages", "golden", "--top", str(top)),
        command("gp4c", "pages", "golden", "--sort", "changes", "--top", str(top)),
        command("gp4c", "pages", "golden", "--sort", "last", "--match", "/p/1", "--top", str(top)),
    ]


SETTINGS: dict[str, Document] = {
    "plain": {},
    "panel": {"GP4C_PANEL": 0.3, "GP4C_BUDGET": 0.2, "GP4C_SEED": 3},
    "new_pages": {"GP4C_NEW_PAGES": 12, "GP4C_BUDGET": 6},
    "errors": {
        "GOLDEN_RULES": "errors",
        "GP4C_BUDGET": 0.5,
        "GP4C_GONE_AFTER": 2,
        "GP4C_WARMUP_VISITS": 1,
        "ROBOTSTXT_OBEY": True,
    },
    "unchanged": {
        "GOLDEN_RULES": "etags",
        "GP4C_SKIP_UNCHANGED": True,
        "GP4C_BUDGET": 0.5,
        "GP4C_WARMUP_VISITS": 1,
        "GP4C_DISTANCE": 1,
    },
    "score_file": {
        "GP4C_SCORE_FUNCTION": "crawl-score.json",
        "GP4C_WARMUP_VISITS": 0,
        "GP4C_BUDGET": 0.2,
        "GP4C_SEED": 7,
    },
    "dotted": {
        "GP4C_SCORE_FUNCTION": "golden_project.web.score",
        "GP4C_FEATURES": "golden_project.web.features",
        "GP4C_BUDGET": 0.3,
        "GP4C_WARMUP_VISITS": 1,
    },
    "library_features": {
        "GP4C_SCORE_FUNCTION": "gad + t",
        "GP4C_FEATURES": "scrapy_gp4c.fingerprint.features",
        "GP4C_BUDGET": 1.0,
    },
    "interrupted": {"GP4C_PANEL": 0.2, "GP4C_BUDGET": 0.5, "GP4C_SCORE_FUNCTION": "age"},
    "imported": {"GP4C_BUDGET": 0.4, "GOLDEN_START": False, "GP4C_WARMUP_VISITS": 1},
    "wrong": {"GP4C_BUDGET": "much"},
}
"""Settings of each crawl; the store is ``stores/NAME``."""

STEPS: dict[str, list[Document]] = {
    "plain": [*runs(6), *looks()],
    "panel": [
        *runs(5),
        *looks(),
        command("gp4c", "status", "golden", "--cycles", "2"),
        command("gp4c", "report", "golden", "-o", "panel.html"),
    ],
    "new_pages": [*runs(5), *looks()],
    "errors": [*runs(6), *looks(40)],
    "unchanged": [*runs(5), *looks(), command("gp4c", "export", "golden", "-o", "unchanged.tsv.gz")],
    "score_file": [*runs(5), *looks()],
    "dotted": [*runs(4), *looks()],
    "library_features": [*runs(4), *looks()],
    "interrupted": [
        *runs(1, GOLDEN_STOP_AT=20),
        command("gp4c", "status", "golden"),
        *runs(3),
        *runs(1, 4, GOLDEN_STOP_AT=15),
        command("gp4c", "status", "golden"),
        command("gp4c", "pages", "golden"),
        *runs(2, 4),
        *looks(),
    ],
    "imported": [
        command("gp4c", "import", "golden", "urls.txt", "--callback", "parse"),
        *runs(2),
        command("gp4c", "import", "golden", "urls.txt"),
        *runs(2, 3),
        *looks(),
    ],
    "wrong": [*runs(1), command("gp4c", "status", "golden")],
}

RESTORED = ("panel", "errors", "unchanged")
"""Crawls whose export is imported into a new store, exported again and gone on with."""

CRAWL_HELPS = [
    command("gp4c", "-h"),
    *(command("gp4c", action, "-h") for action in ("status", "pages", "export", "import", "report")),
]


def scenario(name: str, settings: Document, steps: list[Document], store: str = "") -> Document:
    """One scenario for `cycle_worker`."""
    return {"name": name, "settings": {"GP4C_STORE": f"stores/{store or name}", **settings}, "steps": steps}


def _normal_step(result: Document) -> Any:
    if result.get("out", "").startswith("# {"):  # an exported history
        return {**result, "out": normal.normal_export(result["out"])}
    return normal.normal(result)


def run_scenarios(scenarios: list[Document], directory: Path, *more: str, limit_s: float = LIMIT_S) -> Any:
    """Run scenarios in one process; returns name -> what each step gave, comparable."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCORE_FILE, directory)
    (directory / "urls.txt").write_text("".join(f"http://golden.test/p/{page}\n" for page in range(3, 33)))
    script = Path(more[0]) if more else HERE / "cycle_worker.py"
    results = run_worker(script, scenarios, directory, *more[1:], limit_s=limit_s)
    if results is None:
        return None
    return {one["name"]: [_normal_step(result) for result in results[one["name"]]] for one in scenarios}


REORDERED = ("new_pages",)
"""Crawls that later versions make in another order, and on purpose: see `record`."""


def produce_crawls(directory: Path) -> Document:
    """All crawls of `STEPS`, restored histories, and the help of the commands."""
    scenarios = [scenario(name, SETTINGS[name], steps) for name, steps in STEPS.items()]
    for name in RESTORED:
        export = scenario(name + "_exported", SETTINGS[name], [
            command("gp4c", "export", "golden", "-o", f"{name}.tsv"),
            command("gp4c", "export", "golden", "-o", "missing/there.tsv"),
        ], name)  # fmt: skip
        steps = [
            command("gp4c", "import", "golden", f"{name}.tsv"),
            command("gp4c", "export", "golden"),
            command("gp4c", "import", "golden", f"{name}.tsv"),
            *runs(1, 7),
            *looks(),
        ]
        scenarios += [export, scenario(name + "_restored", SETTINGS[name], steps)]
    scenarios.append(scenario("help", {}, CRAWL_HELPS))
    return run_scenarios(scenarios, directory)


def produce_reordered(directory: Path) -> Document:
    """The crawls of `REORDERED`."""
    return run_scenarios([scenario(name, SETTINGS[name], STEPS[name]) for name in REORDERED], directory)


# --- stores

STORE_SETTINGS: Document = {"GOLDEN_PAGES": 150, "GP4C_PANEL": 0.1, "GP4C_BUDGET": 0.3}
CLOSED_CYCLES = 6
STORES = {"closed": CLOSED_CYCLES + 1, "killed": 3, "folding": 3}
"""Store -> the cycle that the next run begins or resumes: the others were killed in, or folding, the third.

The fold that was killed is completed when the store is opened: the next run begins the fourth.
"""


WITH_JOBDIR = "jobdir"
"""A store whose third cycle was interrupted, beside the JOBDIR of that run: its queue has our marks in it."""
JOBDIR: Document = {"JOBDIR": "jobs/golden"}
JOBDIR_STOPPED_AFTER = 60


def store_steps(name: str) -> list[Document]:
    """What is done with a committed store: looked at as it is, gone on with for two runs, looked at again."""
    if name == WITH_JOBDIR:
        return [*runs(1, 3, **JOBDIR), *looks()]
    first = STORES[name] + (name == "folding")
    before = [command("gp4c", "status", "golden"), command("gp4c", "export", "golden")]
    return [*before, *runs(1, first), command("gp4c", "export", "golden"), *runs(1, first + 1), *looks()]


def unpack_stores(directory: Path) -> None:
    """Put the committed stores into ``directory/stores``."""
    for name in STORES:
        unpack(f"store-{name}", directory / "stores" / name / "data.mdb")


def produce_stores(directory: Path) -> Document:
    """Go on with every committed store."""
    unpack_stores(directory)
    scenarios = [scenario(name, STORE_SETTINGS, store_steps(name)) for name in STORES]
    return run_scenarios(scenarios, directory)


def produce_jobdir(directory: Path) -> Document:
    """Go on with the committed JOBDIR: a process of its own, because a queue that cannot be read hangs."""
    unpack(f"store-{WITH_JOBDIR}", directory / "stores" / WITH_JOBDIR / "data.mdb")
    with tarfile.open(normal.DATA / "jobdir.tar.xz") as packed:
        packed.extractall(directory / "jobs", filter="data")
    scenarios = [scenario(WITH_JOBDIR, STORE_SETTINGS, store_steps(WITH_JOBDIR))]
    results = run_scenarios(scenarios, directory, limit_s=30.0)
    return {"steps": results[WITH_JOBDIR], "scrapy": importlib.metadata.version("scrapy")}


# --- evaluate, learn and the other commands of training

MODELS = ("poisson", "bursty", "weekly", "brdc12-like")
SYNTHETIC = ["--pages", "200", "--cycles", "18", "--seed", "5"]
SCORES = [
    "random",
    "age",
    "cg",
    "nad",
    "sad",
    "aad",
    "gad",
    "t*X",
    "oracle",
    "(nad + 1) / (t + n)",
    "best.json",
]
LEARN = ["--population", "12", "--generations", "3", "--seeds", "2", "--budget", "0.1", "--jobs", "1"]
RESUMED = [
    "weekly.txt", *LEARN, "--generations", "8", "--terminals", "n,X,t,nad", "--protocol", "journal",
]  # fmt: skip
"""A run that still improves after the generation in which its recording was killed."""
PROMOTE = ["--population", "20", "--generations", "2", "--seeds", "1", "--jobs", "1"]
HELPS = ("learn", "evaluate", "experiment", "report", "from_git", "store_history", "synthetic")


def evaluations() -> dict[str, list[str]]:
    """Name -> arguments of every evaluation: all models with both clocks and both ties, and some more."""
    found = {}
    for number, model in enumerate(MODELS):
        for clock in ("visits", "cycles"):
            for ties in ("random", "order"):
                options = ["--clock", clock, "--ties", ties, "--budget", "0.1", "--seed", str(number)]
                found[f"{model}-{clock}-{ties}"] = [f"{model}.txt", *options, "--score", *SCORES]
    some = ["--score", "nad", "t * (X + 0.5)", "best.json", "oracle", "random"]
    found["part"] = ["weekly.txt", "--cycles", "4:15", "--budget", "7", "--warmup", "1", *some]
    found["default"] = ["poisson.txt"]
    found["store"] = [
        "stores/closed",
        "--budget",
        "0.2",
        "--warmup",
        "0",
        "--score",
        "age",
        "oracle",
        "X + t",
    ]
    found["refused"] = ["poisson.txt", "--score", "t +"]
    found["no-history"] = ["missing.txt"]
    return found


def training_jobs() -> dict[str, list[str]]:
    """Name -> command and arguments, in the order in which they run."""
    jobs: dict[str, list[str]] = {}
    for model in MODELS:
        jobs[f"synthetic {model}"] = ["synthetic", model, *SYNTHETIC, "-o", f"{model}.txt"]
    jobs["synthetic tsv"] = ["synthetic", "bursty", *SYNTHETIC, "-o", "bursty.tsv"]
    jobs["synthetic npz"] = ["synthetic", "bursty", *SYNTHETIC, "-o", "bursty.npz"]
    jobs["synthetic promote"] = [
        "synthetic", "brdc12-like", "--pages", "600", "--cycles", "30", "-o", "long.txt",
    ]  # fmt: skip
    jobs["synthetic refused"] = ["synthetic", "weekly", "-o", "history.doc"]
    for name, arguments in evaluations().items():
        jobs[f"evaluate {name}"] = ["evaluate", *arguments, "--json", f"evaluate-{name}.json"]
    jobs["evaluate csv"] = ["evaluate", *evaluations()["part"], "--csv", "part.csv"]
    jobs["evaluate tsv"] = ["evaluate", "bursty.tsv", "--score", "nad", "--json", "evaluate-tsv.json"]
    jobs["evaluate npz"] = ["evaluate", "bursty.npz", "--score", "nad", "--json", "evaluate-npz.json"]
    jobs["learn"] = ["learn", "brdc12-like.txt", *LEARN, "--generations", "4", "-o", "learned.json"]
    jobs["learn cycles"] = [
        "learn", "weekly.txt", *LEARN, "--clock", "cycles", "--ties", "order", "--terminals", "basic",
        "--fitness", "change_rate", "--operators", "thesis", "--parsimony", "0.001",
        "-o", "learned-cycles.json",
    ]  # fmt: skip
    jobs["learn journal"] = [
        "learn", "bursty.txt", *LEARN, "--protocol", "journal", "--fitness", "freshness",
        "--selection", "avg", "--forget", "0", "--seed", "9", "-o", "learned-journal.json",
    ]  # fmt: skip
    jobs["learn whole"] = ["learn", *RESUMED, "-o", "whole.json"]
    resumed = ["learn", *RESUMED, "--checkpoint", "checkpoint", "-o", "resumed.json"]
    jobs["learn not resumed"] = resumed
    jobs["learn resumed"] = [*resumed, "--resume"]
    jobs["learn refused"] = ["learn", "poisson.txt", *LEARN, "--terminals", "n,size"]
    promote = ["learn", "long.txt", "--promote", "champion.json", *PROMOTE]
    jobs["promote promoted"] = promote
    jobs["promote kept"] = promote
    jobs["store_history"] = ["store_history", "stores/closed", "-o", "stored.txt"]
    jobs["store_history partial"] = ["store_history", "stores/closed", "--partial", "-o", "partial.tsv"]
    jobs["from_git"] = [
        "from_git", "pages.git", "--cycles", "7", "--include", "*.md", "--mass-share", "0.4", "-o", "git.tsv",
    ]  # fmt: skip
    jobs["evaluate git"] = ["evaluate", "git.tsv", "--score", "nad", "oracle", "--json", "evaluate-git.json"]
    jobs["report score"] = ["report", "learned.json", "-o", "score.html"]
    jobs["report store"] = ["report", "stores/closed", "-o", "store.html"]
    jobs["report nothing"] = ["report", "missing", "-o", "missing.html"]
    for name in HELPS:
        jobs[f"help {name}"] = [name, "--help"]
    return jobs


def make_repository(path: Path) -> None:
    """A git repository of 12 pages, edited on eight days."""
    stream = ""
    for day in range(8):
        who = f"a <a@example.org> {1_772_409_600 + 86_400 * day + 3_600} +0000"
        stream += f"commit refs/heads/main\ncommitter {who}\ndata 5\nday {day}\n"
        for page in range(12):
            if day in (0, page % 8) or (page % 3 == 1 and day % 2) or day == 5:
                text = f"Page {page} as of day {day}\n"
                stream += f"M 644 inline {page}.{'txt' if page == 11 else 'md'}\ndata {len(text)}\n{text}\n"
    for words, given in (
        (["init", "--quiet", "--bare", "--initial-branch=main"], ""),
        (["fast-import"], stream),
    ):
        path.mkdir(exist_ok=True)
        subprocess.run(["git", "-C", path, *words], input=given, text=True, check=True, capture_output=True)


def produce_training(directory: Path) -> Document:
    """Run all of `training_jobs`: what each printed, and every file that they wrote."""
    directory.mkdir(parents=True, exist_ok=True)
    unpack_stores(directory)
    shutil.copy(CHAMPION, directory / "champion.json")
    shutil.copy(normal.DATA / "best.json", directory)
    (directory / "checkpoint").mkdir()
    unpack("checkpoint.json", directory / "checkpoint" / "checkpoint.json")
    make_repository(directory / "pages.git")
    jobs = training_jobs()
    results = run_worker(HERE / "training_worker.py", list(jobs.values()), directory)
    files: Document = {}
    for path in sorted(directory.iterdir()):
        if path.name not in ("request.json", "result.json") and path.suffix in (
            ".json",
            ".txt",
            ".tsv",
            ".csv",
        ):
            files[path.name] = file_content(path)
    return {
        "printed": {name: normal.normal(result) for name, result in zip(jobs, results, strict=True)},
        "files": files,
        "reports": {name: report_content(directory / name) for name in ("score.html", "store.html")},
        "checkpoint_left": (directory / "checkpoint").exists(),
        "reports_missing": (directory / "missing.html").exists(),
    }


def file_content(path: Path) -> Any:
    """What a written file holds, comparable."""
    text = path.read_text(encoding="utf-8")
    return normal.normal(json.loads(text)) if path.suffix == ".json" else normal.normal_text(text)


def report_content(path: Path) -> str:
    """What a report holds, comparable."""
    return normal.normal_html(path.read_text(encoding="utf-8"))


# --- the experiment

EXPERIMENT = ["--quick", "--budget", "0.1", "--jobs", "1"]
TIMED = ("timing.csv", "tables.md")


def produce_experiment(directory: Path) -> Document:
    """Run the quick experiment: what it printed, and every file that it wrote."""
    jobs = [
        ["synthetic", "poisson", "--pages", "120", "--cycles", "13", "--seed", "2", "-o", "history.txt"],
        ["experiment", "history.txt", "-o", "out", *EXPERIMENT],
        ["report", "out", "-o", "again.html"],
    ]
    printed = run_worker(HERE / "training_worker.py", jobs, directory)
    files: Document = {}
    for path in sorted((directory / "out").iterdir()):
        if path.suffix == ".png":
            files[path.name] = picture(path)
        elif path.suffix == ".html":
            files[path.name] = report_content(path)
        elif path.name in TIMED:
            files[path.name] = without_timing(path.read_text(encoding="utf-8"))
        else:
            files[path.name] = file_content(path)
    return {
        "printed": normal.normal(printed),
        "files": files,
        "again": report_content(directory / "again.html"),
        "matplotlib": importlib.metadata.version("matplotlib"),
    }


def without_timing(text: str) -> str:
    """A table in which the seconds of the rows of learning times are blanked."""
    lines = []
    for line in text.splitlines():
        separator = " | " if " | " in line else ","
        cells = line.strip("| ").split(separator)
        if len(cells) == 6 and cells[-1] in ("True", "False"):
            cells[3:5] = ["<s>", "<s>"]
            line = separator.join(cells)
        lines.append(line)
    return "\n".join(lines)


def picture(path: Path) -> Document:
    """Width and height of a PNG file, and a digest of its filtered rows, whatever their compression."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    place, rows, size = 8, b"", (0, 0)
    while place < len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        data = content[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack_from(">II", data)
        rows += data if kind == b"IDAT" else b""
        place += length + 12
    return {"size": list(size), "rows_sha256": hashlib.sha256(zlib.decompress(rows)).hexdigest()}
