"""Compiled loops of the grouped engine that `test_replay` does not reach, and the notice of compilation."""

import ast
import logging
import multiprocessing
import os
import sys
import threading
import time
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config, njit
from numba.core import event

from tests.support.sources import MODULES, tree
from training.histories.history import ChangeHistory
from training.replaying.grouped import _new_work, partition_by_choice, scratch_memory
from training.replaying.kernels import choice, drop_stale_code, visits
from training.replaying.kernels.compiling import CodeFiles, CompileNotice, outer
from training.replaying.metrics import METRICS
from training.replaying.replay import replay

SCORES = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, 3.0, np.inf])


KERNELS = "training.replaying.kernels"


def called_without_a_way_in(tree: ast.AST, loops: set[tuple[str, str]]) -> list[str]:
    """Names in a module's tree of `loops` (module, function) by either way to take them."""
    results = []
    names = {name for _, name in loops}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            owner = ast.unparse(node.value).rpartition(".")[2]
            results += [name for module, name in loops if node.attr == name and owner in (module, "_kernels")]
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(KERNELS):
            module = node.module.rpartition(".")[2]
            results += [one.name for one in node.names if (module, one.name) in loops]
    return results


def test_no_loop_is_called_from_python_that_only_loops_may_call():
    """It has no way in: the process would end without a word."""
    kernels = {name for name in MODULES if name.startswith(KERNELS + ".")}
    loops = {
        (kernel.rpartition(".")[2], name)
        for kernel in kernels
        for name, one in vars(import_module(kernel)).items()
        if getattr(one, "targetoptions", {}).get("no_cpython_wrapper")
    }
    assert ("bits", "mix") in loops
    assert called_without_a_way_in(ast.parse("from training.replaying.kernels.bits import mix"), loops)
    assert called_without_a_way_in(ast.parse("kernels.bits.mix(1)"), loops)
    others = {name: path for name, path in MODULES.items() if name not in kernels}
    users = {name: path for name, path in others.items() if "kernels" in path.read_text(encoding="utf-8")}
    result = {name: called_without_a_way_in(tree(path), loops) for name, path in users.items()}
    assert not any(result.values()), result


@njit
def gain(keys, width, gains, work):
    """Entry to `visits.gain`, which only loops call."""
    return visits.gain(keys, width, gains, work)


@njit
def foremost(scores, sizes, k, orders):
    """Entry to `choice.foremost`, which only loops call."""
    return choice.foremost(scores, sizes, k, orders)


@given(
    groups=st.lists(st.tuples(SCORES, st.integers(0, 4)), min_size=1, max_size=60),
    share=st.floats(0, 1),
)
def test_the_foremost_groups_are_those_of_a_sort(groups, share):
    """Best first, equal ones in order, none empty, and no more than the class with the k-th page."""
    scores = np.array([score for score, _ in groups])
    sizes = np.array([size for _, size in groups], np.int32)
    k = max(1, round(share * int(sizes.sum())))
    order = [group for group in np.argsort(-scores, kind="stable").tolist() if sizes[group]]
    before = [
        int(sizes[[other for other in order if scores[other] > scores[group]]].sum()) for group in order
    ]
    expected = [group for group, pages in zip(order, before, strict=True) if pages < k]
    result = foremost(scores, sizes, k, scratch_memory(np.empty((1, len(groups))))[0])
    assert result.tolist() == expected


@given(
    functions=st.lists(st.lists(SCORES, min_size=5, max_size=5), min_size=1, max_size=8),
    sizes=st.lists(st.integers(0, 3), min_size=5, max_size=5).filter(any),
    share=st.floats(0.1, 1),
)
def test_functions_part_where_they_choose_otherwise(functions, sizes, share):
    """Together are those with the same classes of ties in the same order, as far as pages are chosen."""
    k = max(1, round(share * sum(sizes)))

    def classes(scores: list[float]) -> list[list[int]]:
        results: list[list[int]] = []
        for score in sorted({score for score, size in zip(scores, sizes, strict=True) if size}, reverse=True):
            if sum(sizes[group] for members in results for group in members) < k:
                results.append([group for group in range(5) if scores[group] == score and sizes[group]])
        return results

    expected: dict[str, list[int]] = {}
    for number, scores in enumerate(functions):
        expected.setdefault(str(classes(scores)), []).append(number)
    assert partition_by_choice(np.array(functions), np.array(sizes, np.int32), k) == list(expected.values())


@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=300, unique=True),
    shared_bits=st.integers(0, 64),
)
def test_gains_of_crowded_keys_are_those_of_sorted_keys(keys, shared_bits):
    """Keys that agree in so many of their highest bits meet on one bit of the field, and are still ranked."""
    crowded = sorted({key >> shared_bits for key in keys}, key=lambda key: hash((key, shared_bits)))
    work = _new_work(len(crowded), len(crowded), 2, 0)
    gains = np.arange(1, len(crowded) + 1) ** 2
    expected = sum(int(gains[rank]) for rank, key in enumerate(sorted(crowded)) if key & 1)
    assert gain(np.array(crowded, np.uint64), 64, gains, work) == expected


@pytest.mark.parametrize("ties", ["random", "order"])
@pytest.mark.parametrize("text", ["-n", "min(n, 4) - X", "0 * t", "-min(n, 3)"])
def test_a_tracked_class_may_shrink_to_nothing(text, ties):
    """A class of ties is picked from page by page, then by its lists, then taken whole; pages join it."""
    generator = np.random.default_rng(5)
    changed = generator.random((60, 600)) < generator.beta(0.3, 3, 600)
    history = ChangeHistory(changed, np.zeros(600, np.int32))
    one, other = (replay(history, text, budget=30, ties=ties, engine=e) for e in ("grouped", "dense"))
    for name in ("changed", "pending", *METRICS):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_stale_compiled_code_is_dropped(tmp_path):
    """Compiled code stays as long as no source changes: its own module, one beside it, or one elsewhere."""
    folder, other = tmp_path / "kernels", tmp_path / "score.py"
    (folder / "__pycache__").mkdir(parents=True)
    sources = [folder / "a.py", folder / "b.py", other]
    for source in sources:
        source.write_text("pass")
    compiled = folder / "__pycache__" / "a.f-1.py311.nbi"
    for changed in (*sources, None):
        if changed is not None:
            os.utime(changed, ns=(0, changed.stat().st_mtime_ns + 1))
        compiled.touch()
        drop_stale_code(folder, other)
        assert compiled.exists() == (changed is None)


def test_a_cache_that_cannot_be_written_is_left_alone(tmp_path):
    """An installation that belongs to somebody else has no such cache."""
    (tmp_path / "a.py").write_text("pass")
    drop_stale_code(tmp_path)
    assert not (tmp_path / "__pycache__").exists()


def test_processes_that_compile_at_once_keep_their_own_code(tmp_path):
    """Code is never handed out for other types, also if a process saves some while another does."""
    place = (str(tmp_path), "sampling.first_pages-1.py311", "stamp")

    class Other(CodeFiles):
        """Files of a process that read the list of files before anything was saved."""

        def _load_index(self):
            return {}

    class Slow(CodeFiles):
        """Files of a process that another one overtakes."""

        def _save_data(self, name, data):
            Other(*place).save("uint32", "code of uint32")
            super()._save_data(name, data)

    Slow(*place).save("int64", "code of int64")
    for types in ("int64", "uint32"):
        assert CodeFiles(*place).load(types) in (f"code of {types}", None)
    CodeFiles(*place).save("int64", "code of int64")
    assert CodeFiles(*place).load("int64") == "code of int64"
    assert CodeFiles(*place[:2], "other stamp").load("int64") is None


def double(number):
    return number + number


@pytest.mark.skipif(not hasattr(os, "fork"), reason="two processes that have the modules already")
def test_one_process_compiles_what_two_need_at_once(tmp_path, monkeypatch):
    """The other waits for its code, and reads it."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(2)

    class Slow(event.Listener):
        """Compilation that lasts until the other process needs the code."""

        def on_start(self, started):
            time.sleep(0.5)

        def on_end(self, ended):
            pass

    def run():
        compiled = outer(double)
        barrier.wait(60)
        with event.install_listener("numba:compile", Slow()):
            compiled(1)
        sys.exit(sum(compiled.stats.cache_misses.values()))

    processes = [forking.Process(target=run) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert sorted(process.exitcode for process in processes) == [0, 1]


def test_every_loop_keeps_its_code_in_files_of_its_types():
    """No module decorates a loop in a way of its own, whose files two processes could mix up."""
    modules = [import_module(name) for name in MODULES if name.startswith(KERNELS + ".")]
    caches = [one._cache for module in modules for one in vars(module).values() if hasattr(one, "py_func")]
    assert len(caches) > 40
    assert all(isinstance(cache._cache_file, CodeFiles) for cache in caches)


class LogHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.has_logged = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.has_logged.set()


@pytest.mark.parametrize("patience_s", [0.001, 1000.0])
def test_a_long_compilation_is_told_once(patience_s: float) -> None:
    """While it lasts, not when it is over; functions compiled within another are part of it."""
    handler, logger = LogHandler(), logging.getLogger("training.replaying.kernels.compiling")
    logger.addHandler(handler)
    teller = CompileNotice(patience_s)
    try:
        with event.install_listener("numba:compile", teller):
            for _ in range(2):
                event.start_event("numba:compile")
                event.start_event("numba:compile")
                event.end_event("numba:compile")
                if patience_s < 1:
                    assert handler.has_logged.wait(30)
                event.end_event("numba:compile")
    finally:
        logger.removeHandler(handler)
    expected = ["Compiling the replay engine for this kind of history: once, about half a minute ..."]
    assert handler.lines == (expected if patience_s < 1 else [])
