# The front door: each target installs what it needs into .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo report test lint bench docs clean

.venv/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

demo: .venv/installed
	$(BIN)/python -m example_project.demo

report: .venv/installed
	@test -f demo/default/data.mdb || { echo "make report: run make demo first" >&2; exit 1; }
	$(BIN)/scrapy gp4c report monitor -s GP4C_STORE=demo/default -o demo/report.html

test: .venv/installed
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	for script in fingerprint crawl_overhead politeness plan from_git replay learn; do \
		echo "== benchmarks.$$script"; $(BIN)/python -m benchmarks.$$script || exit 1; done

docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

clean:
	rm -rf .venv build *.egg-info
