# The front door: each target installs what it needs into .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
# Files in their order: that of xdist begins the files of few but long tests last.
# A process that crashes fails its test: one that takes its place begins the same file, and crashes, for ever.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# All processes of tests read the same modules: their bytecode is kept, also where images switch that off.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: demo demo-learning demo-fetchers report test slow ecosystem matrix check fuzz lint bench chaos docs release-check audit clean

.venv/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

# Of the demo, whose first curve is waited for: a pip that is there already installs (--python: 22.3 and newer), and
# nothing is compiled that may not be imported. Of this switch of pip, 0 is the value that sets it; a build gets it too.
INSTALL := install --quiet --disable-pip-version-check
HAS_PIP := $(PYTHON) -c "import pip; assert tuple(map(int, pip.__version__.split('.')[:2])) >= (22, 3)" 2>/dev/null

.venv/crawling: setup.cfg pyproject.toml
	$(PYTHON) -m venv --without-pip .venv
	$(HAS_PIP) && PIP_NO_COMPILE=0 $(PYTHON) -m pip --python $(BIN)/python $(INSTALL) pip --editable . || \
		{ $(PYTHON) -m venv .venv && PIP_NO_COMPILE=0 $(BIN)/python -m pip $(INSTALL) --editable .; }
	touch $@

.venv/training: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[train]'
	touch $@

demo: .venv/crawling
	$(BIN)/python -m example_project.demo

# With a crawl that visits every page for two weeks, learns from that, and goes on at the same budget.
demo-learning: .venv/training
	$(BIN)/python -m example_project.demo --collect 14

# The demo's web crawled by one process, and by three fetchers of which one is killed a day.
demo-fetchers: .venv/installed
	$(BIN)/python -m example_project.demo --fetchers 3 --days 12 --output demo-fetchers

report: .venv/training
	@test -f demo/default/data.mdb || { echo "make report: run make demo first" >&2; exit 1; }
	$(BIN)/scrapy gp4c report monitor -s GP4C_STORE=demo/default -o demo/report.html

test: .venv/installed
	$(PYTEST) $(PARALLEL) -m 'not slow'

# The slow tests, and the property tests with 150 examples instead of 25.
slow: .venv/installed
	HYPOTHESIS_PROFILE=thorough $(PYTEST) $(PARALLEL) -m 'slow or hypothesis'

# With the plugins of others, as the registry has them.
ecosystem: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ecosystem]'
	$(PYTEST) tests/ecosystem

# Every version of Scrapy and Python that is claimed, as far as this machine has it.
matrix: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check nox
	$(BIN)/python -m nox

check: test slow ecosystem lint docs

# The property tests with examples of their own, instead of the same ones in every run.
fuzz: .venv/installed
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) $(PARALLEL)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

BENCHMARKS := first_answer demo fingerprint reactor_turns crawl_overhead archive politeness plan store_history store_directories panel bias \
	promotion from_git replay leaderboard reproduction learn learn_related headroom impact discovery calendar_trap hints policies sampling sketches fetchers gaming gaming_replay hostile_parsers year chaos
# What makes a script quick whose own size is that of the documentation's figures.
QUICK_plan := --runs 3
QUICK_demo := --days 8
QUICK_chaos := --share 0.02
QUICK_fetchers := --only cpu
QUICK_gaming := --only changes
QUICK_gaming_replay := --seeds 2
QUICK_hostile_parsers := --bytes 100000
QUICK_year := --cycles 24
QUICK_store_directories := --pages 100000
QUICK_leaderboard := --budgets 0.05 --seeds 1
QUICK_panel := --runs 20
QUICK_bias := --seeds 1
QUICK_promotion := --runs 10
QUICK_replay := --quick
QUICK_policies := --quick
QUICK_sampling := --budgets 0.05 --seeds 1
QUICK_sketches := --clusterings 1 --seeds 1
QUICK_reproduction := --seeds 1
QUICK_discovery := --cycles 10
QUICK_calendar_trap := --cycles 10
QUICK_hints := --seeds 1
QUICK_headroom := --population 20 --generations 3 --seeds 1

bench: .venv/installed
	@missed=; $(foreach script,$(BENCHMARKS),echo "== benchmarks.$(script) $(QUICK_$(script))"; \
		$(BIN)/python -m benchmarks.$(script) $(QUICK_$(script)) || missed="$$missed $(script)";) \
	test -z "$$missed" || { echo "make bench: failed or missed a target:$$missed" >&2; exit 1; }

# 20 to 40 minutes; a short part of it is in make test.
chaos: .venv/installed
	$(BIN)/python -m benchmarks.chaos

docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/zensical build --strict --config-file mkdocs.yml
	@echo "open build/site/index.html, or with the search: $(BIN)/python -m http.server -d build/site"

# Wheel and sdist, checked; then the wheel alone in a fresh environment: crawl, report, learn, notify.
release-check: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/twine check --strict build/dist/*
	$(BIN)/check-wheel-contents --toplevel scrapy_gp4c,training build/dist/*.whl
	$(BIN)/python tools/try_wheel.py build/dist/*.whl

# Known vulnerabilities of what is installed, by the index's advisory service; fails where that does not know a package.
audit: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	mkdir -p build
	$(BIN)/python -m pip freeze --exclude-editable >build/installed.txt
	@$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement build/installed.txt || { echo "make audit: not passed." \
		"'could not be audited': this index serves no advisories (its JSON API); run it where it does. Else upgrade what is named." >&2; exit 1; }

clean:
	rm -rf .venv build *.egg-info
