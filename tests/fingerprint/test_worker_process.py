"""Fingerprints of large pages: made by a process, equal to those made here, whatever becomes of it."""

import asyncio
import os
import resource
import signal
import subprocess
import tracemalloc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from twisted.internet.defer import Deferred

from benchmarks.hostile_bodies import BODIES
from benchmarks.hostile_texts import HOSTILE
from scrapy_gp4c.fingerprint import (
    PageReading,
    compared_part,
    fingerprint,
    has_parts,
    main_features,
    read,
    worker_process,
)
from scrapy_gp4c.fingerprint.answers import page_text
from scrapy_gp4c.fingerprint.copy_notes import CopyState, compared, unpack
from scrapy_gp4c.fingerprint.worker_process import LARGE_BYTES, FingerprintProcess, needs_process
from scrapy_gp4c.words.normal import normalise

URL = "http://127.0.0.1/"


@pytest.fixture
def beside() -> Iterator[FingerprintProcess]:
    """Yield a maker of fingerprints, and end its process."""
    made = FingerprintProcess()
    yield made
    made.close()


async def made_reads(
    beside: FingerprintProcess, responses: list[Any], features: Any = None, with_text: bool = False
) -> list[PageReading]:
    """What is read of responses, all asked for at once."""

    async def gather() -> list[PageReading]:
        futures = [asyncio.wrap_future(beside.read(one, features, with_text=with_text)) for one in responses]
        return list(await asyncio.gather(*futures))

    results: list[PageReading] = await Deferred.fromFuture(asyncio.ensure_future(gather()))
    return results


async def made(beside: FingerprintProcess, responses: list[Any], features: Any = None) -> list[int]:
    """Fingerprints of responses, all asked for at once, without their texts."""
    reads = await made_reads(beside, responses, features)
    assert [(one.normal, one.text) for one in reads] == [(None, None)] * len(reads)
    return [one.fingerprint for one in reads]


@cache
def pages() -> list[Any]:
    """Pages of every class and several encodings, hostile texts, and one beyond what is looked at."""
    texts = [text.text(2 * LARGE_BYTES) for text in list(HOSTILE.values())[::4]]
    results: list[Any] = [TextResponse(URL, body=text.encode()) for text in texts]
    body = "<html><body><p>Grüße an alle</p><main>Größe</main>" + "<p>wörter</p>" * 20_000
    for encoding in ("utf-8", "latin-1", "utf-16", "gb18030"):
        results.append(HtmlResponse(URL, body=body.encode(encoding), encoding=encoding))
        results.append(XmlResponse(URL, body=body.encode(encoding), encoding=encoding))
    for charset in ("hex_codec", "no-such", "punycode", ""):
        headers = {"Content-Type": f"text/html; charset={charset}"}
        results.append(HtmlResponse(URL, body=body.encode("latin-1"), headers=headers))
    results.append(HtmlResponse(URL, body=(body * 6).encode()))
    return results


@pytest.mark.slow
async def test_texts_come_with_fingerprints_where_they_are_asked_for(beside: FingerprintProcess) -> None:
    """The same as are read here, by either features, in any encoding."""
    responses = pages()
    for features in (None, main_features):
        reads = await made_reads(beside, responses, features, with_text=True)
        assert reads == [read(response, features, with_text=True) for response in responses]
        assert [one.fingerprint for one in reads] == [fingerprint(one, features) for one in responses]
        texts = [page_text(response) for response in responses]
        assert [(one.normal, one.text) for one in reads] == [(normalise(text), text) for text in texts]


@pytest.mark.slow
async def test_a_process_that_is_killed_costs_no_fingerprint(beside: FingerprintProcess) -> None:
    """What it was asked is made here, and the next page has a new process."""
    responses = pages()[-3:]
    expected = [fingerprint(response) for response in responses]
    assert await made(beside, responses) == expected
    first = beside._process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert await made(beside, responses) == expected
    assert beside._process is not first


async def test_a_page_that_ends_processes_is_given_up(
    beside: FingerprintProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried twice, with one line in all, and never read in the crawl, which it might end too."""
    started: list[Any] = []

    def start_badly() -> Any:
        started.append(subprocess.Popen(["sh", "-c", "kill -9 $$"], stdin=-1, stdout=-1))
        return started[-1]

    monkeypatch.setattr(worker_process, "_start", start_badly)
    monkeypatch.setattr(worker_process, "read_and_compare", None)
    responses = pages()[-2:]
    for response in responses:
        with pytest.raises(ChildProcessError):
            await made(beside, [response])
    assert len(started) == 4
    assert [record.getMessage()[:51] for record in caplog.records] == [
        "The process that reads large pages was ended by sig"
    ]


async def test_a_page_that_lacks_memory_there_is_given_up(
    beside: FingerprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crawl, which has no more memory than its process, does not try it."""
    await made(beside, pages()[-1:])
    assert beside._process is not None
    resource.prlimit(beside._process.pid, resource.RLIMIT_DATA, (1, 1))
    monkeypatch.setattr(worker_process, "read_and_compare", None)
    with pytest.raises(ChildProcessError):
        await made(beside, pages()[-1:])


def test_descriptors_beyond_those_of_select_are_no_hindrance(beside: FingerprintProcess) -> None:
    """A crawl with a thousand connections has its process as any other."""
    response = pages()[-1]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 1100:
        pytest.skip(f"this machine allows {hard} descriptors, and the test needs 1,100")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # most shells allow 1,024
    held = [os.dup(0)]
    try:
        while held[-1] <= 1024:
            held.append(os.dup(0))
        assert beside.read(response, None).result() == read(response)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert beside._process is not None


async def test_without_a_process_pages_are_fingerprinted_here(
    beside: FingerprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room for one, or an interpreter that is none: nothing is lost."""
    monkeypatch.setattr(worker_process.sys, "executable", "/no/such/python")
    responses = pages()[-2:]
    assert await made(beside, responses) == [fingerprint(response) for response in responses]


async def test_a_page_that_raises_there_is_not_read_here(
    beside: FingerprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where code was replaced under the crawl, which has no limits; the next page is read as ever."""
    monkeypatch.setattr(worker_process, "_FEATURES", (*worker_process._FEATURES, page_text))
    with pytest.raises(RuntimeError, match="IndexError"):
        await made(beside, pages()[-1:], page_text)
    assert await made(beside, pages()[-1:]) == [fingerprint(pages()[-1])]


@pytest.mark.slow
async def test_the_process_ends_with_the_crawl(beside: FingerprintProcess) -> None:
    """Closed, or killed with all its descriptors gone: no process stays."""
    await made(beside, pages()[-1:])
    process = beside._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does for who is killed
    assert process.wait(60) == 0
    await made(beside, pages()[-2:])
    process = beside._process
    assert process is not None
    beside.close()
    assert process.poll() is not None


def test_only_large_texts_go_elsewhere() -> None:
    """Small ones would wait longer than they take; what is no text, or the user's own features, stays."""
    large = b"x" * (LARGE_BYTES + 1)
    assert needs_process(TextResponse(URL, body=large), None)
    assert needs_process(HtmlResponse(URL, body=large), main_features)
    assert not needs_process(HtmlResponse(URL, body=large), lambda response: [])
    assert not needs_process(HtmlResponse(URL, body=large[1:]), None)
    assert not needs_process(Response(URL, body=large), None)
    assert needs_process(Response(URL, body=large, headers={"Content-Type": "application/x-a+json"}), None)
    assert needs_process(Response(URL, body=b"%PDF-1.4"), None)


@pytest.mark.slow
async def test_a_page_that_takes_the_process_too_long_is_given_up(
    beside: FingerprintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read in the crawl then, and the next page is read as ever."""
    slow = Response(URL, body=endless_pdf())
    with pytest.raises(TimeoutError):
        await made(beside, [slow])
    monkeypatch.setattr(worker_process, "read_and_compare", None)
    assert await made(beside, pages()[-1:]) == [fingerprint(pages()[-1])]


def test_a_waiting_page_is_not_copied_in_the_crawl(beside: FingerprintProcess) -> None:
    """A page on its way to the process costs the crawl less than two copies of it."""
    page = HtmlResponse(URL, body=b"<p>" + b"a " * 2**20, encoding="utf-8")
    tracemalloc.start()
    beside.read(page, None).result()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(page.body)


@pytest.mark.slow
def test_parts_are_cut_out_there(beside: FingerprintProcess) -> None:
    """As they are here, of every class and encoding."""
    rules = [(("//p[position() < 9]", "//main/text()", "count(//p)"), ("//main/b",)), ((), ("//p",))]
    for response in [page for page in pages() if has_parts(page, ("//p",), ())][::4]:
        for watch, ignore in rules:
            cut = beside.cut(response, None, watch, ignore).result()
            here = compared_part(response, None, watch, ignore)
            assert (cut.response.body, *cut[1:]) == (here.response.body, *here[1:])
            assert type(cut.response) is type(here.response)


@pytest.mark.slow
def test_parts_that_take_the_process_too_long_are_given_up(beside: FingerprintProcess) -> None:
    """Two million elements, each with all texts to look through."""
    slow = HtmlResponse(URL, body=b"<html><body>" + b"<p>x</p>" * 2_000_000, encoding="utf-8")
    with pytest.raises(TimeoutError):
        beside.cut(slow, None, ("//*[contains(., //p[last()])]",), ()).result()


@pytest.mark.slow
async def test_what_is_learned_of_noise_is_learned_there(beside: FingerprintProcess) -> None:
    """Reading and notes are those that are made here."""
    body = "<html><body><main>" + "".join(f"<p>w{n} words</p>" for n in range(9_000)) + "<p>{} readers</p>"
    copy: int | None = None
    packed: bytes | None = None
    for count in (17, 18, 19, 20):
        response = HtmlResponse(URL, body=body.replace("{}", str(count)).encode())
        state = None if copy is None else CopyState(copy, unpack(packed or b"").learned, 3)
        future = beside.read(response, None, copy=state)
        there = await Deferred.fromFuture(asyncio.wrap_future(future))
        there, packed_there = compared(response, there, None, copy, packed, 3)
        here, packed = compared(response, read(response), None, copy, packed, 3)
        assert (there, packed_there) == (here, packed)
        copy = here.kept_fingerprint
    assert packed is not None
    assert unpack(packed).learned


def endless_pdf() -> bytes:
    """A small PDF of pages that all unpack to megabytes of text."""
    return BODIES["PDF"].make(2**25, 1)
