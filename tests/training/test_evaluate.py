"""The evaluation command: its table, its files, its refusals."""

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.named import NAMED, Named
from scrapy_gp4c.settings import Settings
from tests.support.linked import write_linked
from training import cluster, evaluate, learn
from training.comparing.evaluation import DEFAULT_SCORES
from training.evaluate import main
from training.histories.formats import write_npz, write_text, write_tsv
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.histories.reading import read_history
from training.replaying.metrics import METRICS
from training.replaying.replay import replay


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A history of 60 pages and 12 cycles as a file."""
    rng = np.random.default_rng(7)
    changed = rng.random((12, 60)) < rng.random(60) * 0.6
    path = tmp_path_factory.mktemp("history") / "h.txt.gz"
    write_text(path, ChangeHistory(changed, np.zeros(60, int)))
    return path


def test_the_json_file_holds_what_replay_found(path, tmp_path, capsys):
    """Every score exactly as given, every metric per cycle as the replay gives it, settings and digest."""
    scores = ["age", " t *  X", "oracle", "random"]
    out = tmp_path / "out.json"
    arguments = [path, "--score", *scores[:2], "--score", *scores[2:], "--budget", "0.1", "--warmup", "3"]
    arguments += ["--ties", "order", "--clock", "cycles", "--seed", "5", "--json", out]
    assert main([str(argument) for argument in arguments]) == 0
    document = json.loads(out.read_text())
    history = read_history(path)
    assert document["history"]["sha256"] == history.sha256
    assert document["history"]["scored_cycles"] == list(range(4, 13))
    settings = {"budget": 0.1, "k": 6, "warmup": 3, "ties": "order", "clock": "cycles", "seed": 5}
    settings["policy"] = "top_k"
    assert document["settings"] == settings
    assert [result["score"] for result in document["results"]] == scores
    assert [result["formula"] for result in document["results"]] == ["t", "t * X", "oracle", "random"]
    assert [result["clock"] for result in document["results"]] == ["cycles", "cycles", None, "cycles"]
    for result in document["results"]:
        expected = replay(
            history, result["score"], budget=0.1, warmup=3, ties="order", clock="cycles", seed=5
        )
        for name in METRICS:
            assert result[name]["per_cycle"] == getattr(expected, name).tolist()
            assert result[name]["mean"] == pytest.approx(getattr(expected, name).mean())
        assert result["pending"] == expected.pending.tolist()
    assert "seed 5" in capsys.readouterr().out


def test_the_csv_file_has_a_row_per_score_and_cycle(path, tmp_path):
    """Rows carry the cycle's number in the whole history, also when only a part is evaluated."""
    out, all_ = tmp_path / "out.csv", tmp_path / "out.json"
    arguments = [path, "--score", "age", "cg", "--cycles", "5:9", "--csv", out, "--json", all_]
    assert main([str(argument) for argument in arguments]) == 0
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["score"], row["cycle"]) for row in rows] == [
        (score, str(cycle)) for score in ("age", "cg") for cycle in (7, 8, 9)
    ]
    document = json.loads(all_.read_text())
    assert document["history"]["first_cycle"] == 5
    for row, freshness in zip(rows[3:], document["results"][1]["freshness"]["per_cycle"], strict=True):
        assert float(row["freshness"]) == freshness


def test_the_table_lists_all_baselines_by_default(path, capsys):
    """Without --score: every baseline and the oracle, one row each, with intervals."""
    assert main([str(path)]) == 0
    captured = capsys.readouterr()
    for name in set(DEFAULT_SCORES) - {"default", "changes", "freshness"}:  # need names of pages
        assert re.search(rf"│ {re.escape(name)} +│ +\d\.\d{{4}} ± \d\.\d{{4}} │", captured.out)
    for heading in ("change rate", "NDCG", "freshness", "harmonic staleness"):
        assert heading in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--score", "t * Y"], "Y"),
        (["--score", "age", "missing.json"], "missing.json"),
        (["--budget", "1.5"], "1.5"),
        (["--budget", "0.0"], "a budget is a share"),
        (["--warmup", "12"], "warm-up"),
        (["--cycles", "4:99"], "--cycles"),
        (["--all", "--seeds", "0"], "--seeds"),
        (["--all", "--figure", "front.pdf"], "front.pdf"),
        (["--json", "/nowhere/at/all.json", "--score", "age"], "cannot write /nowhere/at/all.json"),
    ],
)
def test_bad_input_is_told_without_a_traceback(path, capsys, arguments, said):
    """Exit code 2 and the error alone on stderr; nothing that looks like a result on stdout."""
    assert main([str(path), *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("rounds", [1, 2, 4, 7])
def test_rounds_find_what_top_k_finds(rounds: int, path: Path, tmp_path: Path) -> None:
    """For every baseline, number for number: their scores do not change within a cycle."""
    documents = []
    for policy in ("top_k", f"rounds(rounds={rounds})"):
        out = tmp_path / f"{len(documents)}.json"
        assert main([str(path), "--policy", policy, "--json", str(out)]) == 0
        documents.append(json.loads(out.read_text()))
    one, other = documents
    assert one["results"] == other["results"]
    assert [one["settings"].pop("policy"), other["settings"].pop("policy")] == ["top_k", policy]
    assert one["settings"] == other["settings"]


def test_a_policy_of_ones_own_is_replayed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its dotted path; the table's heading names it."""
    policy = "tests.support.policies.changed_hosts"
    assert main([str(path), "--score", "nad", "--policy", policy]) == 0
    assert f"policy {policy};" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [("best", "found 'best'"), ("tests.support.policies.too_many", "the policy 'broken' broke its contract")],
)
def test_a_policy_that_cannot_be_used_is_one_error(
    text: str, message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether its text cannot be read or its plan breaks the contract."""
    assert main([str(path), "--score", "nad", "--policy", text]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_all_is_a_leaderboard(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every name with its source, one's own scores too; JSON, CSV with seeds, and a figure."""
    out, rows, figure = (tmp_path / name for name in ("all.json", "all.csv", "all.svg"))
    arguments = [path, "--all", "--score", "t * sqrt(X)", "--seeds", "2", "--seed", "4", "--budget", "9"]
    arguments += ["--json", out, "--csv", rows, "--figure", figure]
    assert main([str(argument) for argument in arguments]) == 0
    text = capsys.readouterr().out
    for name in ("oracle", "whittle", "t*X", "lambda-crawl", "nutch", "t * sqrt(X)", "Apache Nutch"):
        assert f"│ {name}" in text
    assert "seeds 4 to 5" in text
    assert "●" in text
    assert "no page names: neighbours, " in text
    document = json.loads(out.read_text())
    assert document["settings"]["seeds"] == [4, 5]
    assert document["reference"] == "t*X", "the default needs names"
    known = {one["score"]: one for one in document["results"]}
    assert known["whittle"]["formula"] == parse(NAMED["whittle"].expression).text
    assert len(known["nutch"]["freshness"]["per_seed"]) == 2
    with open(rows, newline="") as file:
        seeds = [row["seed"] for row in csv.DictReader(file) if row["score"] == "nutch"]
    assert seeds == ["4"] * 10 + ["5"] * 10
    assert "lambda-crawl" in figure.read_text()


def test_a_named_function_brings_its_policy(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless `--policy` says otherwise; the others go with `top_k`."""
    policy = "rounds(rounds=3)"
    monkeypatch.setitem(NAMED, "mine", Named("t * X", "tests", "for this test", policy))
    out = tmp_path / "out.json"
    assert main([str(path), "--score", "mine", "cg", "--json", str(out)]) == 0
    assert f"mine, {policy}" in capsys.readouterr().out.replace("│\n│", "")
    document = json.loads(out.read_text())
    assert document["settings"]["policy"] == "top_k"
    assert [one.get("policy") for one in document["results"]] == [policy, None]
    assert main([str(path), "--score", "mine", "cg", "--policy", "top_k", "--json", str(out)]) == 0
    assert [one.get("policy") for one in json.loads(out.read_text())["results"]] == [None, None]


def test_default_is_what_a_crawl_does(path: Path, tmp_path: Path) -> None:
    """The same function and policy as the settings of a crawl that sets nothing; it leads a leaderboard."""
    settings = Settings.load(ScrapySettings())
    out, named = tmp_path / "out.json", tmp_path / "named.tsv"
    write_tsv(named, read_history(path))
    assert main([str(named), "--all", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["reference"] == "default"
    assert main([str(named), "--score", "default", "--json", str(out)]) == 0
    document = json.loads(out.read_text())
    result = document["results"][0]
    assert result["formula"] == settings.score_function.for_pages().formula
    assert result.get("policy", document["settings"]["policy"]) == settings.policy.text


@pytest.mark.parametrize("arguments", [["--seeds", "2"], ["--figure", "a.png"]])
def test_options_of_the_leaderboard_alone(
    path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused where they would do nothing."""
    with pytest.raises(SystemExit) as stop:
        main([str(path), *arguments])
    assert stop.value.code == 2
    assert "seeds" in capsys.readouterr().err


def test_weights_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --weighted: change rate and NDCG by weights in the table, all of them in the files."""
    rng = np.random.default_rng(3)
    changed = rng.random((9, 40)) < 0.3
    history = ChangeHistory(
        changed,
        np.zeros(40, int),
        rng.choice([1.0, 7.5], 40),
        page_names=list(map(str, range(40))),
        latency_ms=rng.integers(1, 900, 40),
    )
    write_tsv(tmp_path / "h", history)
    arguments = [str(tmp_path / "h"), "--score", "w * t", "t", "--budget", "0.2"]
    assert main(arguments) == 0
    assert "weighted" not in capsys.readouterr().out
    files = ["--json", str(tmp_path / "o.json"), "--csv", str(tmp_path / "o.csv")]
    assert main([*arguments, "--weighted", *files]) == 0
    head = capsys.readouterr().out
    assert head.count("weighted") == 2
    results = json.loads((tmp_path / "o.json").read_text())["results"]
    for result in results:
        replayed = replay(
            history, result["score"], budget=0.2, metrics=("weighted_ndcg", "ndcg", "freshness")
        )
        for name in ("weighted_ndcg", "ndcg", "freshness"):
            assert result[name]["per_cycle"] == getattr(replayed, name).tolist()
    assert results[0]["weighted_change_rate"]["mean"] > results[1]["weighted_change_rate"]["mean"]
    assert "weighted_ndcg" in (tmp_path / "o.csv").read_text().partition("\n")[0]
    assert main([*arguments, "--cost", "time"]) == 0
    assert "changes per second" in " ".join(capsys.readouterr().out.split())
    for others in (["--all"], ["--seeds", "2", "--policy", "top_k"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--weighted", *others])


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contents, and a file of groups of theirs beside them."""
    path = write_linked(tmp_path_factory.mktemp("contents") / "contents.jsonl", pages=40)
    assert cluster.main([str(path), "-o", str(path.with_suffix(".npz")), "--clusters", "4"]) == 0
    return path


def rates(contents: Path, output: Path, *more: str) -> list[float]:
    """The change rate of cb in every scored cycle."""
    command = [str(contents), "--policy", "cb(in_flight=1)", "--budget", "0.2", "--json", str(output), *more]
    assert evaluate.main(command) == 0
    (result,) = json.loads(output.read_text())["results"]
    rates: list[float] = result["change_rate"]["per_cycle"]
    return rates


@pytest.mark.slow
def test_clusters_made_anew_change_later_cycles_alone(contents: Path, tmp_path: Path) -> None:
    """After four cycles other pages are visited; up to then the groups are those of the file."""
    groups = ["--groups", str(contents.with_suffix(".npz")), "--warmup", "0"]
    stay = rates(contents, tmp_path / "stay.json", *groups)
    anew = rates(contents, tmp_path / "anew.json", *groups, "--recluster", "4")
    assert anew[:4] == stay[:4]
    assert anew[4:] != stay[4:]
    assert anew == rates(contents, tmp_path / "again.json", *groups, "--recluster", "4")


@pytest.mark.slow
def test_without_a_file_the_clusters_are_of_cycle_0(contents: Path, tmp_path: Path) -> None:
    """As `training.cluster` makes them, in longer cycles and within a part of the cycles too."""
    npz = tmp_path / "groups.npz"
    assert cluster.main([str(contents), "-o", str(npz), "--clusters", "40"]) == 0
    for more in ([], ["--every", "2"], ["--every", "2", "--cycles", "1:8"]):
        late = rates(contents, tmp_path / "late.json", *more, "--recluster", "50")
        assert late == rates(contents, tmp_path / "file.json", *more, "--groups", str(npz))
    cut = ["--every", "2", "--cycles", "3:8", "--recluster", "2"]
    assert len(rates(contents, tmp_path / "cut.json", *cut)) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--recluster", "0"], "at least 1; found 0"),
        (["--recluster", "2", "--query-log", "log"], "without --query-log"),
    ],
)
def test_what_cannot_be_reclustered_is_refused(
    more: list[str], message: str, contents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error that names the option."""
    log = tmp_path / "log"
    log.write_text("bread\t3\nstar\t1\n")
    more = [str(log) if word == "log" else word for word in more]
    assert evaluate.main([str(contents), "--policy", "cb", *more]) == 2
    assert message in capsys.readouterr().err


def test_bits_cannot_be_reclustered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They tell only when pages changed."""
    path = tmp_path / "history.npz"
    write_npz(path, generate("poisson", 40, 9, 1))
    assert evaluate.main([str(path), "--policy", "cb", "--recluster", "2"]) == 2
    assert "tells only when they changed" in capsys.readouterr().err


BESIDE = "first sight of pages found beside the history: used"


def test_first_sight_beside_a_history_is_used_and_said(tmp_path, capsys):
    """Ages and sizes of NAME.first_sight.tsv.gz, unless they are left out; `learn` reads them as well."""
    bits = np.random.default_rng(1).random((12, 60)) < np.linspace(0.0, 0.4, 60)
    names = [f"/{page % 3}/{page}" for page in range(60)]
    history = ChangeHistory(bits, np.zeros(60, np.int32), site_names=["s"], page_names=names)
    write_tsv(tmp_path / "h.tsv", history)
    lines = "".join(f"s\t{name}\t\t{100 * 3 ** (page // 20)}\n" for page, name in enumerate(names))
    (tmp_path / "h.first_sight.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    results = []
    for more in ([], ["--first-sight", str(tmp_path / "h.first_sight.tsv.gz")], ["--first-sight", "none"]):
        asked = [str(tmp_path / "h.tsv"), "--score", "default", "--json", str(tmp_path / "o.json")]
        assert main([*asked, "--budget", "0.1", *more]) == 0
        assert (BESIDE in capsys.readouterr().err) == (not more)
        results.append(json.loads((tmp_path / "o.json").read_text())["results"][0])
    assert "size_lift" in results[0]["formula"]
    assert results[0] == results[1]
    plain = replay(history, "default", budget=0.1)
    assert results[2]["ndcg"]["per_cycle"] == plain.ndcg.tolist() != results[0]["ndcg"]["per_cycle"]
    quick = ["--population", "12", "--generations", "1", "--seeds", "1", "--jobs", "1", "--budget", "0.2"]
    learned = tmp_path / "s.json"
    assert learn.main([str(tmp_path / "h.tsv"), "-o", str(learned), "--divide", "pages", *quick]) in (0, 1)
    assert BESIDE in capsys.readouterr().err


def test_the_function_in_use_and_those_of_a_crawl_are_the_first_rows(tmp_path, capsys):
    """Each under its own policy, which its row names."""
    bits = np.random.default_rng(1).random((12, 60)) < 0.2
    names = [f"/{page % 3}/{page}" for page in range(60)]
    write_tsv(tmp_path / "h.tsv", ChangeHistory(bits, np.zeros(60, np.int32), page_names=names))
    for arguments, first in (([], []), (["--in-use", "t * X"], ["t * X"]), (["--all"], [])):
        document = tmp_path / "h.json"
        assert main([str(tmp_path / "h.tsv"), *arguments, "--json", str(document)]) == 0
        rows = json.loads(document.read_text())["results"][: len(first) + 3]
        assert [row["score"] for row in rows] == [*first, "default", "changes", "freshness"]
        assert rows[-1]["policy"] == "rounds(rounds=4)"
        assert "rounds(rounds=4)" in capsys.readouterr().out
