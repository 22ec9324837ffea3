"""Change histories from git repositories, on repositories made for the purpose."""

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training import evaluate, from_git
from training.histories import git_history, git_log
from training.histories.git_history import CycleWindow, join, read_repository
from training.histories.growth import read_growth
from training.histories.reading import read_history

DAY_S = 86_400
DAY_1 = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
"""The first cycle of most windows here begins at this time: a midnight."""

QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class Repository:
    """A bare repository written with git fast-import; None deletes a file, "@x" makes a link to x."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream: list[str] = []
        git(path.parent, "init", "--quiet", "--bare", "--initial-branch=main", path.name)

    def commit(
        self,
        time_s: float,
        files: dict[str, str | None],
        message: str = "edit",
        branch: str = "main",
        more: str = "",
    ) -> None:
        """Add a commit; ``more`` are further lines of the fast-import language, such as a merge."""
        self.stream.append(f"commit refs/heads/{branch}\ncommitter a <a@example.org> {int(time_s)} +0000\n")
        self.stream.append(f"data {len(message.encode())}\n{message}\n{more}")
        for name, text in files.items():
            if text is None:
                self.stream.append(f"D {name}\n")
            else:
                mode = "120000" if text.startswith("@") else "755" if text.startswith("!") else "644"
                text = text.lstrip("!@")
                self.stream.append(f"M {mode} inline {name}\ndata {len(text.encode())}\n{text}\n")

    def done(self) -> Path:
        """Write the commits; returns the repository's path."""
        git(self.path, "fast-import", "--quiet", "--date-format=raw-permissive", stdin="".join(self.stream))
        return self.path


def git(path: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", "-C", str(path), *arguments],
        input=stdin.encode(),
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | QUIET,
    )
    return done.stdout.decode()


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path / "pages.git")


def window(cycles: int) -> CycleWindow:
    return CycleWindow(cycles, DAY_S, DAY_1 + cycles * DAY_S)


def bits(part) -> dict[str, str]:
    columns = part.changed.T.astype(int).tolist()
    return {
        path.decode(): "".join(map(str, column)) for path, column in zip(part.paths, columns, strict=True)
    }


def at(cycle: float) -> float:
    """A time in a cycle: 1.5 is the middle of the first."""
    return DAY_1 + (cycle - 1) * DAY_S


def test_a_page_changed_if_its_downloads_at_the_ends_of_two_cycles_differ(repository):
    """Edits count in their cycle; edits undone by the end of the cycle, and mode changes, do not."""
    repository.commit(at(0), {"a": "1", "b": "1", "c": "1", "d": "1"})
    repository.commit(at(1), {"a": "2"}, "at the very start of cycle 1")
    repository.commit(at(2) - 1, {"b": "2"}, "in its last second")
    repository.commit(at(2.2), {"a": "3", "c": "2"})
    repository.commit(at(2.7), {"a": "4", "c": "1"}, "c as it was")
    repository.commit(at(3.5), {"d": "!1"}, "only the mode")
    repository.commit(at(5), {"d": "9"}, "after the window")
    part = read_repository(repository.done(), window(4))
    assert bits(part) == {"a": "1100", "b": "1000", "c": "0000", "d": "0000"}
    assert part.left_out == 0


def test_pages_are_the_files_there_all_the_time(repository):
    """Deleted, added, renamed, restored and retyped files, links, and unwanted files are left out."""
    names = ["kept.md", "deleted.md", "old.md", "restored.md", "retyped.md", "other.txt"]
    repository.commit(at(0), {name: name for name in names} | {"link.md": "@kept.md", "d/deep.md": "1"})
    repository.commit(at(1.5), {"deleted.md": None, "restored.md": None, "added.md": "1", "other.txt": "2"})
    repository.commit(
        at(2.5), {"restored.md": "restored.md", "old.md": None, "new.md": "old.md", "d/deep.md": "2"}
    )
    repository.commit(at(3.5), {"retyped.md": "@kept.md"})
    repository.commit(at(4.5), {"retyped.md": "retyped.md", "kept.md": "2"})
    part = read_repository(repository.done(), window(4), include=["*.md"])
    assert bits(part) == {"kept.md": "0001", "d/deep.md": "0100"}
    assert part.left_out == 6  # deleted, old, new, restored, retyped, added


def test_a_merge_counts_what_it_brings_to_the_first_parent_line(repository):
    """Commits of a side branch count when they are merged, at the time of the merge."""
    repository.commit(at(0), {"a": "1", "b": "1"})
    repository.stream.append("reset refs/heads/side\nfrom refs/heads/main\n\n")
    repository.commit(at(1.2), {"a": "2"}, branch="side")
    repository.commit(at(1.5), {"b": "2"})
    repository.commit(at(3.5), {"a": "2"}, more="merge refs/heads/side\n")
    part = read_repository(repository.done(), window(3))
    assert bits(part) == {"a": "001", "b": "100"}


def test_a_commit_with_a_wrong_clock_moves_the_others_by_one_place_at_most(repository):
    """A commit dated 1970 in the middle does not cut off the line before it."""
    repository.commit(at(-5), {"a": "0", "b": "0"})
    for cycle in range(1, 7):
        repository.commit(at(cycle + 0.5), {"a": str(cycle)} | ({"b": "1"} if cycle == 4 else {}))
    repository.commit(1000, {"b": "2"}, "a clock that was never set")
    repository.commit(at(7.5), {"a": "7"})
    part = read_repository(repository.done(), window(7))
    assert bits(part)["a"].count("1") >= 6
    assert "1" in bits(part)["b"]


def test_mass_commits_are_reported(repository):
    """A commit that changes at least the given share of the pages is reported with its size and message."""
    files = {f"p{i}": "1" for i in range(10)}
    repository.commit(at(0), files)
    repository.commit(at(1.2), {"p0": "2"}, "small")
    repository.commit(at(1.4), {f"p{i}": "3" for i in range(6)}, "New footer éà\n\nEverywhere.")
    repository.commit(at(2.4), {f"p{i}": "4" for i in range(4)}, "less")
    repository.commit(at(2.6), {f"p{i}": "4" for i in range(4, 8)}, "less again")
    path = repository.done()
    (mass,) = read_repository(path, window(3), mass_share=0.5).mass_commits
    assert (mass.repository, mass.pages, mass.share, mass.subject) == ("pages", 6, 0.6, "New footer éà")
    assert mass.time_s == int(at(1.4))
    assert git(path, "log", "-1", "--format=%s", mass.commit).strip() == "New footer éà"
    assert [row.pages for row in read_repository(path, window(3), mass_share=0.4).mass_commits] == [6, 4, 4]


def test_sites_are_top_directories_when_there_are_several(tmp_path):
    """A repository whose pages lie in several top directories has a site for each, else one for all."""
    parts = []
    for name, files in (
        ("archive", {"meta/terms": "1", "x/terms": "1", "README": "1"}),
        ("docs", {"src/a/b": "1", "src/c": "1"}),
        ("odd", {'"t\\tab"': "1"}),
    ):
        repository = Repository(tmp_path / name)
        repository.commit(at(0), files)
        parts.append(read_repository(repository.done(), window(1)))
    history = join(parts, "here")
    assert [
        (history.site_names[site], page) for site, page in zip(history.site, history.page_names, strict=True)
    ] == [
        ("archive", "README"),
        ("archive/meta", "meta/terms"),
        ("archive/x", "x/terms"),
        ("docs", "src/a/b"),
        ("docs", "src/c"),
        ("odd", "t%09ab"),
    ]


@settings(max_examples=15)
@given(st.data())
def test_the_history_equals_that_of_downloads_by_hand(tmp_path_factory, data):
    """Any edits: the bits are those of comparing the repository's files at the end of every cycle."""
    cycles, pages = 4, 3
    repository = Repository(tmp_path_factory.mktemp("made") / "pages")
    state = {f"p{i}": "0" for i in range(pages)}
    repository.commit(at(0), state)
    downloads = [dict(state)]
    for cycle in range(1, cycles + 1):
        edits = data.draw(st.lists(st.tuples(st.integers(0, pages - 1), st.sampled_from("012")), max_size=4))
        for position, (page, text) in enumerate(edits):
            state[f"p{page}"] = text
            repository.commit(at(cycle) + 60 * position, {f"p{page}": text})
        downloads.append(dict(state))
    part = read_repository(repository.done(), window(cycles))
    assert bits(part) == {
        page: "".join("01"[downloads[i][page] != downloads[i - 1][page]] for i in range(1, cycles + 1))
        for page in state
    }


def test_the_window_ends_with_the_last_commit_unless_told_otherwise(repository):
    """By default the newest commit is in the last cycle; a date ends with its day; a time is exact."""
    repository.commit(at(0), {"a": "1"})
    repository.commit(at(3.5), {"a": "2"})
    path = repository.done()
    first, (part,) = git_history.build([path], 2, DAY_S)
    assert first.end_s == int(at(3.5)) + 1
    assert bits(part) == {"a": "01"}
    assert git_history.parse_end("2026-03-02") == DAY_1 + DAY_S
    assert git_history.parse_end("2026-03-02T06:00") == DAY_1 + DAY_S // 4
    assert git_history.parse_end("2026-03-02T06:00+02:00") == DAY_1 + DAY_S // 6
    assert [git_history.parse_length(text) for text in ("12h", "1d", "2w")] == [43_200, DAY_S, 14 * DAY_S]


def test_the_command_writes_a_history_that_names_its_origin(tmp_path, repository, capsys):
    """The file is a TSV history with the window and commits in its head; the report lists mass commits."""
    repository.commit(at(0), {"a.md": "1", "b.md": "1", "c.txt": "1"})
    repository.commit(at(1.5), {"a.md": "2", "b.md": "2"}, "[/docs] Change all")
    path, out = repository.done(), tmp_path / "h.tsv.gz"
    end = datetime.fromtimestamp(DAY_1, UTC) + timedelta(days=1)
    arguments = [path, "--cycles", 2, "--end", f"{end:%Y-%m-%d}", "--include", "*.md", "-o", out]
    assert from_git.main([str(argument) for argument in arguments]) == 0
    history = read_history(out)
    assert history.changed.astype(int).tolist() == [[1, 1], [0, 0]]
    assert list(history.page_names) == ["a.md", "b.md"]
    shown = capsys.readouterr().out
    assert "[/docs] Change all" in shown
    assert "100%" in shown
    head = git(path, "rev-parse", "HEAD").strip()
    notes = subprocess.run(["gzip", "-dc", out], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert notes.startswith(
        f"# 2 cycles of 1d from 2026-03-02 00:00 UTC to 2026-03-04 00:00 UTC\n# pages at commit {head}\n"
    )


def test_a_shallow_clone_is_used_as_far_as_it_reaches(tmp_path, repository):
    """A window inside of a shallow clone gives what the full clone gives; a longer one is an error."""
    for cycle in range(8):
        repository.commit(at(cycle), {"a": str(cycle), "b": str(cycle // 2)})
    path = repository.done()
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=4", f"file://{path}", str(shallow))
    short = CycleWindow(2, DAY_S, int(at(7)))
    assert bits(read_repository(shallow, short)) == bits(read_repository(path, short))
    with pytest.raises(
        HistoryError, match=r"starts at 2026-03-02 .*oldest commit is of 2026-03-05 .*--unshallow"
    ):
        read_repository(shallow, window(6))


def test_a_clone_without_file_contents_is_enough(tmp_path, repository):
    """Only commits and trees are read: a blobless clone works, even without its origin."""
    repository.commit(at(0), {"a": "1", "b": "1"})
    repository.commit(at(1.5), {"a": "2"}, "half of it")
    path = repository.done()
    git(path, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{path}", str(clone))
    path.rename(tmp_path / "gone")
    part = read_repository(clone, window(2))
    assert bits(part) == {"a": "10", "b": "00"}
    assert [mass.subject for mass in part.mass_commits] == ["half of it"]


def test_what_is_no_usable_repository_is_refused(tmp_path, repository):
    """A missing or plain directory, one below the top, an empty or too young repository, no matching page."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "work" / "docs").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "work")
    for path, said in (
        (tmp_path / "missing", "is no directory"),
        (tmp_path / "plain", "git says: fatal: not a git repository"),
        (tmp_path / "work" / "docs", "inside a git repository, not its top"),
        (tmp_path / "work", "git says: fatal: ambiguous argument 'HEAD'"),
    ):
        with pytest.raises(HistoryError, match=said) as caught:
            read_repository(path, window(2))
        assert str(path) in str(caught.value)
    repository.commit(at(1.5), {"a": "1"})
    path = repository.done()
    with pytest.raises(HistoryError, match="it is younger than that"):
        read_repository(path, window(2))
    with pytest.raises(HistoryError, match=r"no file that matches '\*\.md' .*0 match at the start"):
        read_repository(path, CycleWindow(1, DAY_S, int(at(4))), include=["*.md"])


def test_the_repository_asked_for_is_read_whatever_the_environment_says(tmp_path, repository, monkeypatch):
    """In a git hook GIT_DIR names another repository; it is not the one that was asked for."""
    repository.commit(at(0), {"a": "1"})
    path = repository.done()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert bits(read_repository(path, window(1))) == {"a": "0"}


def test_a_repository_runs_no_program_of_its_own(tmp_path, repository):
    """A repository is data: what its configuration, attributes and hooks name is not started."""
    repository.commit(at(0), {"a": "1", "b": "1", ".gitattributes": "* diff=evil filter=evil merge=evil\n"})
    repository.commit(at(1.5), {"a": "2"})
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", f"file://{repository.done()}", str(clone))
    program = tmp_path / "program"
    ran = tmp_path / "ran"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\n')
    program.chmod(0o755)
    names = ["core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass"]
    names += ["diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver"]
    names += [f"filter.evil.{kind}" for kind in ("clean", "smudge", "process")]
    names += ["gpg.program", "gpg.ssh.program", "credential.helper", "pager.log", "pager.diff-tree"]
    names += ["core.gitProxy", "uploadpack.packObjectsHook", "interactive.diffFilter"]
    for name in names:
        git(clone, "config", name, str(program))
    commands = ("log", "rev-list", "rev-parse", "ls-tree", "diff-tree", "diff", "st")
    for command in commands:
        git(clone, "config", f"alias.{command}", f"!{program}")
    for name, value in (("log.showSignature", "true"), ("core.fsmonitorHookVersion", "2")):
        git(clone, "config", name, value)
    git(clone, "config", "remote.origin.url", f"ext::{program}")
    git(clone, "config", "protocol.ext.allow", "always")
    git(clone, "config", "remote.origin.promisor", "true")
    git(clone, "config", "extensions.partialClone", "origin")
    git(clone, "config", "core.repositoryFormatVersion", "1")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    git(clone, "config", "core.hooksPath", str(hooks))
    for folder in (hooks, clone / ".git" / "hooks"):
        for hook in ("post-index-change", "post-checkout", "reference-transaction", "pre-auto-gc"):
            (folder / hook).write_text(program.read_text())
            (folder / hook).chmod(0o755)
    (clone / "a").write_text("touched")
    assert bits(read_repository(clone, window(2))) == {".gitattributes": "00", "a": "10", "b": "00"}
    first = git(clone, "rev-list", "--max-parents=0", "HEAD").strip()
    (tmp_path / "ran").unlink(missing_ok=True)
    assert git_log.subjects(clone, [first]) == ["edit"]
    tree = git(repository.path, "rev-parse", "HEAD^{tree}").strip()  # missing: git would ask the remote
    packs = list((clone / ".git" / "objects").rglob("*.pack"))
    for pack in packs:
        pack.chmod(0o644)
        pack.write_bytes(b"")
    with pytest.raises(HistoryError):
        list(git_log.files(clone, tree))
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_git_that_fails_on_the_way_is_reported(repository):
    """A commit that git cannot find is an error with git's own words, not a shorter history."""
    repository.commit(at(0), {"a": "1"})
    path = repository.done()
    head = git(path, "rev-parse", "HEAD").strip()
    with pytest.raises(HistoryError, match=r"cannot read .* as a git repository"):
        list(git_log.differences(path, [(head, "1" * 40), ("2" * 40, head)], lambda: None))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cycles", "0"], "--cycles: expected a number of at least 1; found 0"),
        (["--cycles", "2", "--cycle-length", "1m"], "length of a cycle: .*found '1m'"),
        (["--cycles", "2", "--cycle-length", "0d"], "length of a cycle: .*found '0d'"),
        (["--cycles", "2", "--end", "tomorrow"], "--end: expected a date such as 2026-07-31.*'tomorrow'"),
        (["--cycles", "2", "--mass-share", "20"], "--mass-share: .*found 20"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, repository, capsys, arguments, said):
    """No traceback, no file: one line that names the option, what was expected and what was found."""
    repository.commit(at(0), {"a": "1"})
    path, out = repository.done(), tmp_path / "h.tsv"
    assert from_git.main([str(path), *arguments, "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error)
    assert not out.exists()


def test_what_sitemaps_would_claim_of_a_repository_is_replayed(
    tmp_path: Path, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """A claim of every change in its cycle: with it the default finds more."""
    names = [f"d{number % 3}/p{number}.md" for number in range(30)]
    repository.commit(at(0), dict.fromkeys(names, "0"))
    for day in range(1, 13):
        repository.commit(at(day), {names[7 * day % 30]: str(day), names[11 * day % 30]: str(day)})
    out, claims = tmp_path / "h.tsv", tmp_path / "claims.tsv.gz"
    path, end = str(repository.done()), datetime.fromtimestamp(DAY_1, UTC) + timedelta(days=12)
    window = ["--cycles", "12", "--end", f"{end:%Y-%m-%d}"]
    assert from_git.main([path, *window, "--claims", str(claims), "-o", str(out)]) == 0
    history = read_history(out)
    assert f"{int(history.changed.sum())} claims" in capsys.readouterr().out
    ndcg = {}
    for name, arguments in (("without", []), ("with", ["--claims", str(claims)])):
        document = tmp_path / f"{name}.json"
        options = ["--score", "default", "--budget", "0.1", "--json", str(document)]
        assert evaluate.main([str(out), *options, *arguments]) == 0
        ndcg[name] = json.loads(document.read_text())["results"][0]["ndcg"]["mean"]
    assert ndcg["with"] > ndcg["without"]


def test_two_repositories_of_one_name_are_refused(tmp_path):
    """Their sites would mix."""
    paths = []
    for parent in ("x", "y"):
        (tmp_path / parent).mkdir()
        repository = Repository(tmp_path / parent / "docs")
        repository.commit(at(0), {"a": "1"})
        paths.append(repository.done())
    with pytest.raises(HistoryError, match="two repositories are named 'docs'"):
        git_history.build(paths, 1, DAY_S)


def test_the_edges_of_a_window_are_equally_far_apart():
    """D + 1 edges, the last one at the end."""
    edges = CycleWindow(3, 10, 100).edges()
    assert np.array_equal(edges, [70, 80, 90, 100])


def test_files_that_appear_have_a_birth_and_a_finder(repository: Repository, tmp_path: Path) -> None:
    """Found by the index page of their directory, else by the directory; what went away is left out."""
    repository.commit(
        DAY_1 - 9, {"README.md": "a", "news/old.txt": "a", "guide/index.html": "a", "gone": "a"}
    )
    repository.commit(DAY_1 + 9, {"news/new.txt": "b", "guide/more/deep.txt": "b", "gone": None})
    repository.commit(DAY_1 + DAY_S + 9, {"guide/late.html": "c", "news/old.txt": "c", "README.md": "c"})
    path = tmp_path / "x.npz"
    days = ("--cycles", "2", "--end", "2026-03-03")
    assert from_git.main(["--growth", *days, "-o", str(path), str(repository.done())]) == 0
    grown = read_growth(path)
    names = list(grown.history.page_names or ())
    born = dict(zip(names, grown.born.tolist(), strict=True))
    finder = {
        name: "-" if by < 0 else names[by] for name, by in zip(names, grown.finder.tolist(), strict=True)
    }
    assert born == {
        "README.md": 0,
        "news/": 0,
        "news/old.txt": 0,
        "news/new.txt": 1,
        "guide/index.html": 0,
        "guide/more/": 1,
        "guide/more/deep.txt": 1,
        "guide/late.html": 2,
    }
    assert finder == {
        "README.md": "-",
        "news/": "README.md",
        "news/old.txt": "news/",
        "news/new.txt": "news/",
        "guide/index.html": "README.md",
        "guide/more/": "guide/index.html",
        "guide/more/deep.txt": "guide/more/",
        "guide/late.html": "guide/index.html",
    }
    changed = {name: grown.history.changed[:, page].tolist() for page, name in enumerate(names)}
    assert changed["news/"] == [True, False]  # a list shows what is new
    assert changed["news/old.txt"] == [False, True]
    assert changed["guide/more/"] == changed["guide/late.html"] == [False, False]
    assert read_history(path).pages == 4
    assert evaluate.main([str(path), "--growth", "--warmup", "1", "--json", str(tmp_path / "j")]) == 0
    assert evaluate.main([str(path), "--growth", "--discovery", "2"]) == 2
    for option in ("--claims", "--first-sight"):
        assert evaluate.main([str(path), "--growth", option, str(path)]) == 2
    assert evaluate.main([str(path), "--score", "brought"]) == 2
