"""The monitored web as a process: real HTTP on loopback."""

import http.client
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from example_project.model import (
    CP1252_HOST,
    LATIN_HOST,
    NEVER,
    NO_CHARSET_HOST,
    ROBOTS_HOST,
    SLOW_HOST,
    Web,
)

ROOT = Path(__file__).resolve().parents[2]
HOSTS = 9
WEB = Web(1, HOSTS)


def start(day_file, *arguments):
    """Start the web, return the process and its first line of output."""
    command = [
        sys.executable,
        "-m",
        "example_project.web",
        "--day-file",
        str(day_file),
        "--hosts",
        str(HOSTS),
    ]
    process = subprocess.Popen(
        [*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline()


def end(process):
    """Stop the web."""
    process.terminate()
    process.communicate(timeout=30)


class Served:
    """A running web, and how to ask it."""

    def __init__(self, day_file, port):
        self.day_file, self.port = day_file, port

    def day(self, number):
        """Set the day."""
        self.day_file.write_text(f"{number}\n")

    def get(self, page_or_path, host=1, method="GET", **headers):
        """Fetch a page (by number) or a path of a host; returns status, headers, body."""
        path = page_or_path
        if not isinstance(path, str):
            host, path = int(WEB.host[path]), WEB.path(path)
        connection = http.client.HTTPConnection(WEB.address(host), self.port, timeout=30)
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    def final(self, page):
        """Fetch a page as a crawler with retries does."""
        for _ in range(3):
            answer = self.get(page)
            if answer[0] != 503:
                return answer
        return answer


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A running web."""
    day_file = tmp_path_factory.mktemp("web") / "day"
    day_file.write_text("1\n")
    process, line = start(day_file, "--port", "0")
    assert line, process.stderr.read()
    assert f"{WEB.pages} pages on {HOSTS + 1} hosts" in line
    yield Served(day_file, int(line.strip().rstrip("/").rpartition(":")[2]))
    end(process)


def test_every_page_answers_as_the_model_says(served):
    """Each page's final status follows from births, deaths and redirects."""
    served.day(25)
    pages = [page for page in range(WEB.pages) if WEB.host[page] != SLOW_HOST]
    for page in pages:
        status = served.final(page)[0]
        if WEB.born[page] > 25:
            assert status == 404
        elif WEB.gone[page] <= 25:
            assert status in (404, 410)
        elif WEB.redirects[page]:
            assert status in (301, 302)
        else:
            assert status == 200
    assert {404, 410} <= {served.get(int(page))[0] for page in np.flatnonzero(WEB.gone <= 25)}


def test_the_day_file_rules(served):
    """A page shows another version as soon as the day file holds another day, and the old one again after."""
    day = next(d for d in range(2, 40) if (WEB.changed(d) & WEB.steady & (WEB.host != SLOW_HOST)).any())
    page = int(np.flatnonzero(WEB.changed(day) & WEB.steady & (WEB.host % 4 > 0))[0])
    tags = []
    for number in (day - 1, day, day - 1):
        served.day(number)
        tags.append(served.final(page)[1]["ETag"])
    assert tags[0] != tags[1]
    assert tags[0] == tags[2]


def test_birth(served):
    """A new page answers 404 before its first day, 200 on it, and its index page links to it then."""
    page = int(np.flatnonzero((WEB.born > 2) & (WEB.host != SLOW_HOST) & (WEB.gone == NEVER))[0])
    index, link = int(WEB.first[WEB.host[page]]), f":{served.port}{WEB.path(page)}?".encode()
    served.day(WEB.born[page] - 1)
    assert served.final(page)[0] == 404
    assert link not in served.final(index)[2]
    served.day(WEB.born[page])
    assert served.final(page)[0] == 200
    assert link in served.final(index)[2]


def test_refusals(served):
    """A refusing page answers 503 as often as the model says, then properly for the rest of the day."""
    day = 33
    served.day(day)
    ordinary = WEB.steady & (WEB.host != SLOW_HOST)
    pages = np.flatnonzero(ordinary & (WEB.refusals(day) > 0))
    assert pages.size
    for page in map(int, pages):
        times = int(WEB.refusals(day)[page])
        assert [served.get(page)[0] for _ in range(times + 2)] == [503] * times + [200, 200]


def test_redirects(served):
    """A redirect leads to the page whose versions it shares."""
    served.day(3)
    for page in map(int, np.flatnonzero(WEB.redirects & (WEB.host != SLOW_HOST))):
        status, headers, _ = served.final(page)
        assert status in (301, 302)
        assert headers["Location"] == WEB.url(int(WEB.alias[page]), served.port)
        assert WEB.versions(3)[page] == WEB.versions(3)[WEB.alias[page]]


def test_validators(served):
    """ETag and Last-Modified are of the page's version: 304 while it lasts, 200 after the change."""
    ordinary = WEB.steady & (WEB.host % 4 > 0) & (WEB.host != SLOW_HOST)
    ordinary &= WEB.age_days > 0  # a date has whole seconds, and the test's days are shorter
    day = next(d for d in range(3, 40) if (WEB.changed(d) & ordinary).any())
    page = int(np.flatnonzero(WEB.changed(day) & ordinary)[0])
    served.day(day - 1)
    _, headers, first = served.final(page)
    known = {"If_None_Match": headers["ETag"]}
    dated = {"If_Modified_Since": headers["Last-Modified"]}
    for validators in (known, dated, known | dated):
        status, again, body = served.get(page, **validators)
        assert (status, body) == (304, b"")
        assert again["ETag"] == headers["ETag"]
    assert served.get(page)[2] != first  # the bytes differ, the version does not
    served.day(day)
    served.final(page)
    for validators in (known, dated, known | dated):
        assert served.get(page, **validators)[0] == 200
    assert (
        served.get(
            page, If_None_Match=known["If_None_Match"], If_Modified_Since="Fri, 01 Jan 2100 00:00:00 GMT"
        )[0]
        == 200
    )


def test_robots(served):
    """One host disallows a folder, some have no robots.txt, the others allow all."""
    assert b"Disallow: /private/" in served.get("/robots.txt", ROBOTS_HOST)[2]
    assert served.get("/robots.txt", 4)[2].endswith(b"Disallow:\n")
    assert served.get("/robots.txt", 5)[0] == 404
    assert WEB.path(int(np.flatnonzero(WEB.private)[0])).startswith("/private/")


def test_charsets(served):
    """Declared and true charset differ on the hosts that the model names."""
    served.day(1)

    def parts(host):
        _, headers, body = served.final(int(WEB.first[host]))
        return headers["Content-Type"], body

    content_type, body = parts(LATIN_HOST)
    assert "iso-8859-1" in content_type
    assert any(byte > 127 for byte in body)
    body.decode("utf-8")
    _, body = parts(CP1252_HOST)
    assert b'charset="utf-8"' in body
    with pytest.raises(UnicodeDecodeError):
        body.decode("utf-8")
    body.decode("cp1252")
    content_type, body = parts(NO_CHARSET_HOST)
    assert content_type == "text/html"
    assert b"charset" not in body


def test_slow_host_delays_only_itself(served):
    """While the slow host has not answered yet, others answer."""
    served.day(1)
    done = []
    thread = threading.Thread(target=lambda: done.append(served.get(int(WEB.first[SLOW_HOST]))[0]))
    thread.start()
    assert served.final(int(WEB.first[1]))[0] == 200
    assert done == []
    thread.join(30)
    assert done == [200]
