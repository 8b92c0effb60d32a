# Everything runs from the virtual environment in .venv, which `make setup` builds.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# `make reproduce SYSTEM=unicycle PRESET=default TRIALS=3`
SYSTEM ?= all
PRESET ?= paper
TRIALS ?= 10
SEED ?= 0
OUT ?= results

# Tests are many small problems: one BLAS thread each, and compiled programs kept between runs.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
	JAX_COMPILATION_CACHE_DIR="$(CURDIR)/.cache/jax" \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.5 \
	$(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup test lint format docs test-slow test-ray demo reproduce clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Build .venv from requirements.txt (again only when the pins or pyproject.toml change)

$(STAMP): requirements.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

test: lint docs ## Lint, build the site, then run the tests (slow ones left out)
	$(PYTEST) -n 2 --dist loadfile $(ARGS)

lint: setup ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Format the code and apply ruff's safe fixes
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

docs: setup ## Build the documentation site into build/docs; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --doctree-dir .cache/docs docs build/docs

test-slow: setup ## Run only the slow tests
	$(PYTEST) -m slow $(ARGS)

test-ray: setup ## Install ray and test sweeps over a cluster of several nodes on this machine
	$(PIP) install 'ray>=2.40'
	$(PYTEST) tests/sweeping/test_ray.py $(ARGS)

demo: setup ## Run the demonstration into results/demo
	$(BIN)/offmap demo --out $(OUT)/demo

reproduce: setup ## Reproduce the paper's tables into results/reproduce (SYSTEM, PRESET, TRIALS, SEED)
	$(BIN)/offmap reproduce $(SYSTEM) --preset $(PRESET) --trials $(TRIALS) --seed $(SEED) --out $(OUT)/reproduce

clean: ## Remove caches and build artefacts (.venv and results stay)
	rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
