"""The house: the steps of the Dockerfile in a root of their own, and the services of compose.yaml in it."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.sources import ROOT

NAMESPACES: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-euc")
"""Mounts, addresses and processes of a script, which end with it."""
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/dev", sys.base_prefix)
PACKAGES: Final = "/opt/packages"
"""Where the root has the packages of this environment, in place of an index."""
PROGRAMS: Final = ("scrapy", "dask")
"""Programs that an installation from an index would bring, and that the root lacks."""
ENVIRONMENT: Final = (
    "PATH=/opt/python/bin:/opt/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8"
    " PIP_NO_INDEX=1 PIP_NO_BUILD_ISOLATION=0"  # pip reads 0 as: no isolation
)
PAGES: Final = 20
SPIDER: Final = f"""
import scrapy

class News(scrapy.Spider):
    name = "news"
    custom_settings = {{"ADDONS": {{"scrapy_gp4c.Addon": 500}}, "GP4C_BUDGET": 1.0}}
    start_urls = [f"http://127.0.0.1:8000/{{page}}.html" for page in range({PAGES})]

    def parse(self, response):
        yield {{"url": response.url}}
"""
STEPS: Final = [
    (line.split()[0], line.partition(" ")[2])
    for line in (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
]
"""Instructions of the Dockerfile, and what follows them."""


def services(**values: str) -> dict[str, dict[str, Any]]:
    """Services of compose.yaml with values for its variables, else their defaults."""
    text = (ROOT / "compose.yaml").read_text("utf-8")
    text = re.sub(r"\$\{(\w+):-(.*?)\}", lambda match: values.get(match[1], match[2]), text)
    result: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return result


def prepare(root: Path) -> None:
    """Write the root's files: a few of the system, a project, its site, and what the image copies."""
    for name in (*SYSTEM, PACKAGES, "/opt/bin", "/proc", "/tmp", "/etc", "/src", "/project/spiders", "/site"):
        (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name, text in {
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": "root:x:0:\n",
        "etc/hosts": "127.0.0.1 localhost scheduler\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "project/scrapy.cfg": "[settings]\ndefault = settings\n",
        "project/settings.py": "SPIDER_MODULES = ['spiders']\n",
        "project/spiders/__init__.py": SPIDER,
        **{f"opt/bin/{name}": f'#!/bin/sh\nexec python -m {name} "$@"\n' for name in PROGRAMS},
        **{f"site/{page}.html": f"<p>The text of page {page}</p>" for page in range(PAGES)},
    }.items():
        (root / name).write_text(text)
    for program in (root / "opt/bin").iterdir():
        program.chmod(0o755)
    root.chmod(0o755)
    (root / "tmp").chmod(0o1777)
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    for name in (line[1:] for line in lines if line.startswith("!")):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / "src" / name)


def script(root: Path) -> str:
    """Commands that build the image's root, and crawl there: by one process, then by the fetchers."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    user, directory = "root", "/"

    def inside(command: str) -> str:
        words = (
            "chroot",
            f"--userspec={user}",
            str(root),
            "env",
            "-i",
            *shlex.split(ENVIRONMENT),
            "sh",
            "-ec",
        )
        return shlex.join([*words, f"cd {directory} && {command}"])

    lines = ["ip link set lo up", f"mount -t proc proc {root}/proc"]
    lines += [f"[ ! -e {name} ] || mount --rbind {name} {root}{name}" for name in SYSTEM]
    lines.append(f"mount --bind {packages} {root}{PACKAGES}")
    python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    seen = f"echo {PACKAGES} >$(echo /opt/python/lib/python3*/site-packages)/packages.pth"
    lines.append(inside(f"{python} -m venv /opt/python && pip uninstall --quiet --yes setuptools && {seen}"))
    for instruction, text in STEPS:
        match instruction:
            case "RUN":
                lines.append(inside(text))
            case "USER":
                user = text
            case "WORKDIR":
                directory = text
            case _:
                assert f"{instruction} {text}".startswith(("FROM python:", "COPY . /src"))
    lines.append(f"mount --bind -o ro {root}/project {root}/project")
    lines.append(inside("exec python -m http.server 8000 -d /site 2>/dev/null") + " &")
    alone = services(SPIDER="news")
    many = services(SPIDER="news", FETCHERS="tcp://scheduler:8786")
    lines.append(inside(alone["crawler"]["command"]))
    fetchers = [many["fetcher"]] * many["fetcher"]["deploy"]["replicas"]
    log = f"{root}/fetchers.log"
    for service in (many["scheduler"], *fetchers):
        lines.append(
            inside(f"exec {service['command']}") + f' 2> >(tee -a {log} >&2) & running="${{running-}} $!"'
        )
    lines.append(inside(many["crawler"]["command"]))
    # The cycle may end before the last fetcher has started: it would be killed without its last line.
    works = f"until [ $(grep -c 'works for' {log}) -ge {len(fetchers)} ]; do sleep .1; done"
    lines.append(f"timeout 60 sh -c {shlex.quote(works)}")
    lines.append("kill $running && wait $running || true")
    lines.append(inside("scrapy gp4c status news -s GP4C_STORE=/store/{spider}"))
    return "\n".join(lines)


@pytest.mark.slow
def test_the_image_and_its_services_crawl(tmp_path: Path) -> None:
    """The Dockerfile's steps install the package; its user crawls by one process, and by three fetchers."""
    try:
        subprocess.run([*NAMESPACES, "mount --bind /usr /mnt && ip link"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a root of its own takes root's rights, unshare and ip: {error}")
    prepare(tmp_path)
    done = subprocess.run([*NAMESPACES, script(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cycles = re.findall(r"^ +([12])  .{19}  .{19} +\d+ +(\d+)", done.stdout, re.MULTILINE)
    assert cycles == [("1", str(PAGES)), ("2", str(PAGES))], done.stdout + done.stderr
    works = re.search(r"Fetcher \S+ \(tcp://\S+\) works", done.stderr)
    assert works is not None
    assert "Cycle 1 finished" in done.stderr[: works.start()]
    assert done.stderr.count("leaves: it ends what it has") == 3


def test_image_nox_and_workflow_have_the_pythons_of_the_classifiers() -> None:
    """One job of the workflow tests each version; what jobs run are sessions and targets that exist."""
    classifiers = metadata("scrapy-gp4c").get_all("Classifier", [])
    pythons = {match[0] for one in classifiers if (match := re.search(r"(?<=Python :: )3\.\d+$", one))}
    image = re.match(r"python:([\d.]+)", dict(STEPS)["FROM"])
    assert image is not None
    assert image[1] in pythons
    nox = (ROOT / "noxfile.py").read_text("utf-8")
    newest, names = (
        re.search(r"python=(\[.*\])", nox),
        set(re.findall(r"^def (\w+)\(session", nox, re.MULTILINE)),
    )
    assert newest is not None
    assert set(json.loads(newest[1])) == pythons
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    sessions = jobs["matrix"]["strategy"]["matrix"]["session"]
    assert {one.partition("-")[0] for one in sessions} == names
    checked = jobs["check"]["steps"][1]["with"]["python-version"]
    assert {one.partition("-")[2] for one in sessions} - {""} == pythons - {checked}
    targets = [
        step["run"].removeprefix("make ")
        for step in jobs["release"]["steps"]
        if "make " in step.get("run", "")
    ]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []
