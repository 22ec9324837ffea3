"""``python tools/try_wheel.py WHEEL``: crawl, report, learn, notify with a wheel in a fresh environment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import venv
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGES, CYCLES = 120, 10  # of fewer, a part of the history may have no change, by the port that is drawn
SPIDER = """
import scrapy

class News(scrapy.Spider):
    name = "news"
    custom_settings = {"ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_BUDGET": 1.0, "ROBOTSTXT_OBEY": False}

    async def start(self):
        for page in range(%d):
            yield scrapy.Request(f"http://127.0.0.1:{self.settings['PORT']}/{page}.html")

    def parse(self, response):
        yield {"url": response.url}
"""


class Quiet(SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def write_pages(directory: Path, cycle: int) -> None:
    """Write the site of a cycle; every third page changes in each."""
    for page in range(PAGES):
        words = " ".join(f"word{page}x{n}" for n in range(60))
        news = f"<p>What cycle {cycle} brought</p>" if page % 3 == 0 else ""
        (directory / f"{page}.html").write_text(f"<html><body><p>{words}</p>{news}</body></html>")


def main(wheel: str) -> None:
    """Try the wheel; raises CalledProcessError for the first step that fails."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        project, site = root / "project", root / "site"
        (project / "crawls" / "spiders").mkdir(parents=True)
        site.mkdir()
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (project / "scrapy.cfg").write_text("[settings]\ndefault = crawls.settings\n")
        (project / "crawls" / "__init__.py").touch()
        (project / "crawls" / "spiders" / "__init__.py").write_text(SPIDER % PAGES)
        port = server.server_address[1]
        receivers = [f"json://127.0.0.1:{port}/notice"]  # the server answers 501: the notice waits
        (project / "crawls" / "settings.py").write_text(
            f"SPIDER_MODULES = ['crawls.spiders']\nPORT = {port}\nLOG_LEVEL = 'WARNING'\n"
            f"import importlib.util\nif importlib.util.find_spec('apprise'):\n    GP4C_NOTIFY = {receivers}\n"
        )

        venv.create(root / "env", with_pip=True)
        python = str(root / "env" / "bin" / "python")

        def run(*words: str, code: int = 0) -> str:
            started_s = time.monotonic()
            done = subprocess.run(
                [python, "-m", *words], cwd=project, capture_output=True, text=True, check=False
            )
            print(f"{time.monotonic() - started_s:6.1f} s  {' '.join(words)[:90]}", flush=True)
            if done.returncode != code:
                sys.exit(f"exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            return done.stdout + done.stderr

        install = ("pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, "scrapy")
        before = set(run("pip", "freeze").splitlines())
        run(*install, wheel)
        added = sorted(set(run("pip", "freeze").splitlines()) - before)
        print(f"{len(added)} packages above Scrapy's own: {', '.join(added)}")
        size_kb = Path(wheel).stat().st_size / 1e3
        print(f"import above scrapy's: {import_ms(python):.0f} ms; wheel: {size_kb:.0f} kB")
        for cycle in range(CYCLES):
            write_pages(site, cycle)
            run("scrapy", "crawl", "news")
        assert f"{PAGES}" in run("scrapy", "gp4c", "status", "news")
        run(*install, f"{wheel}[train,notify]")
        run("scrapy", "gp4c", "report", "news", "-o", "report.html")
        run("scrapy", "gp4c", "evaluate", "news", "--warmup", "1", "--score", "default", "age")
        learn = ("--warmup", "1", "--population", "20", "--generations", "3", "--divide", "pages")
        run("scrapy", "gp4c", "learn", "news", *learn, "--protocol", "simple", "-o", "score.json")
        write_pages(site, CYCLES)
        assert "WARNING" in run("scrapy", "crawl", "news"), "a receiver that answers 501 is one warning"
        print("the wheel crawls, reports, learns and notifies")


def import_ms(python: str) -> float:
    """Time to import the package after Scrapy: the least of five runs, ms."""
    code = "import time, scrapy; t = time.perf_counter(); import scrapy_gp4c; print(time.perf_counter() - t)"
    done = [
        subprocess.run([python, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)
    ]
    return 1000 * min(float(one.stdout) for one in done)


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
