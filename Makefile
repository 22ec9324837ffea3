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

BENCHMARKS := fingerprint crawl_overhead politeness plan store_history panel bias promotion from_git replay \
	reproduction learn headroom
# What makes a script quick whose own size is that of the documentation's figures.
QUICK_plan := --runs 3
QUICK_panel := --runs 20
QUICK_bias := --seeds 1
QUICK_promotion := --runs 10
QUICK_replay := --quick
QUICK_reproduction := --seeds 1
QUICK_headroom := --population 20 --generations 3 --seeds 1

bench: .venv/installed
	@missed=; $(foreach script,$(BENCHMARKS),echo "== benchmarks.$(script) $(QUICK_$(script))"; \
		$(BIN)/python -m benchmarks.$(script) $(QUICK_$(script)) || missed="$$missed $(script)";) \
	test -z "$$missed" || { echo "make bench: failed or missed a target:$$missed" >&2; exit 1; }

docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/mkdocs build --quiet
	@echo "open build/site/index.html"

clean:
	rm -rf .venv build *.egg-info
