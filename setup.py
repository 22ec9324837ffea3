"""Description of the package with absolute links: the page of a package index has no files beside it."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
config = ConfigParser()
config.read(ROOT / "setup.cfg", "utf-8")
SOURCE = config["metadata"]["project_urls"].partition("=")[2].strip()


def absolute(link: re.Match[str]) -> str:
    """Return a link or picture of the README with the address of the project's source."""
    return f"{link[1]}[{link[2]}]({SOURCE}/{'raw' if link[1] else 'blob'}/main/{link[3]})"


README = (ROOT / "README.md").read_text("utf-8")
setup(long_description=re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", absolute, README))
