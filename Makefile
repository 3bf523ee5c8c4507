# Two commands: `make quickstart` (a first model) and `make test` (what must hold). Both make .venv if it is missing.
PYTHON ?= python3
BIN := .venv/bin

unexport PYTHONDONTWRITEBYTECODE  # each process of the tests would compile again what all of them import

.PHONY: help quickstart test test-all check fast core kernels newest oldest site results lock

help:
	@echo "make quickstart   install into .venv, then train a small BERT on Python's documentation (a few minutes)"
	@echo "make test         lint, types and all tests"
	@echo "make test-all     every combination of layouts, twenty kills: an hour"
	@echo "make fast         the tests that take less than two minutes"
	@echo "make core         the core's fast tests and the quickstart, from a wheel without the add-ons"
	@echo "make newest       these with the newest PyTorch"
	@echo "make oldest       these with the oldest PyTorch that is promised, in a venv of its own"
	@echo "make kernels      install Triton (700 MB), then the tests of our GPU kernels, which skip without it"
	@echo "make check        lint and types"
	@echo "make results      write docs/results.md from the measurements beside it"
	@echo "make lock         pin what installations get by version and digest: src/ordsmed/machines/install/lock.toml"
	@echo "make site         these pages as a site to browse and search without a server: build/site/index.html"

.venv/installed: pyproject.toml constraints.txt
	@echo "== installing into .venv (torch is large: a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/tested: .venv/installed
	@echo "== installing what the tests need"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: .venv/installed
	$(BIN)/ordsmed quickstart

check: .venv/tested
	@echo "== lint"
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	@echo "== types"
	$(BIN)/mypy

test: check
	@echo "== tests"
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-all: check
	ORDSMED_GRID=full ORDSMED_KILLS=20 $(BIN)/python -m pytest -q -n 2 --dist worksteal

kernels: .venv/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[kernels]'
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/nn/kernels tests/fake_cuda

fast: .venv/tested
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not long"

ADD_ONS := machines others serve web
CORE := build/core

core: .venv/tested
	@echo "== a wheel without the add-ons $(ADD_ONS)"
	rm -rf $(CORE)
	mkdir -p $(CORE)/source
	cp -R pyproject.toml hatch_build.py README.md LICENSE src $(CORE)/source
	rm -r $(ADD_ONS:%=$(CORE)/source/src/ordsmed/%)
	cd $(CORE)/source && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d ..
	$(BIN)/python -m venv --without-pip $(CORE)/venv
	$(BIN)/python -m pip --python $(CORE)/venv install --quiet --disable-pip-version-check --no-deps --no-index $(CORE)/*.whl
	echo "$(CURDIR)"/.venv/lib/python*/site-packages > "$$(echo $(CORE)/venv/lib/python*/site-packages)/packages.pth"
	@echo "== its tests, without those that go through the sources and verbs of all packages"
	env -u PYTHONPATH $(CORE)/venv/bin/python -m pytest -q -n 2 --dist worksteal -m "not long" --ignore tests/house --ignore tests/cli
	@echo "== a missing add-on is reported in one line, with exit status 2"
	env -u PYTHONPATH $(CORE)/venv/bin/ordsmed serve work/run; test $$? = 2
	@echo "== its quickstart"
	cd $(CORE) && env -u PYTHONPATH venv/bin/ordsmed quickstart

.venv/documented: .venv/installed
	@echo "== installing what the site needs"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

site: .venv/documented
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --nitpicky --quiet -c docs . build/site
	@echo "the pages are in build/site/index.html"

results: .venv/installed
	$(BIN)/python docs/results.py

lock: .venv/installed
	$(BIN)/python tests/kit/lock.py

newest:
	$(PYTHON) tests/measure/oldest_torch.py .venv-newest --torch 2.15.0

oldest:
	$(PYTHON) tests/measure/oldest_torch.py .venv-oldest
