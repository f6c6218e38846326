# Every verb sets up what it needs: a virtual environment in .venv, from hash-pinned requirements.
# Needed beforehand: Python 3.11 or newer, git, make.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
RUN := .venv/.stamp-run
DEV := .venv/.stamp-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
DISTRIBUTIONS := pyproject.toml sdk/python/pyproject.toml

# Tests that start servers must find this checkout's `wonder`; nothing here may reach for the network.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONUNBUFFERED := 1
# Compiled code is kept, in one place: without it each test run, and each server that a test starts, compiles all
# of the project, which takes longer than most tests.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-unit test-deep check fmt gen bench bench-memory pins clean

help:  ## List these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN)  ## Start a server and chat with an agent that remembers
	@$(BIN)/python examples/demo.py

serve: $(RUN)  ## Run a server on 127.0.0.1:50051, with its data in ./wonder-data
	@$(BIN)/wonder serve

# One process more than cores, four at most: a test waits for the disk, and for the servers that it starts. Files are
# given out in the order of the collection, the longest first (tests/conftest.py).
PROCESSES := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((cores < 3 ? cores + 1 : 4)))
PARALLEL := -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

test: $(DEV)  ## Run all tests; ARGS="tests/core -k name" runs some, in one process
	@$(BIN)/python -m pytest -q $(if $(ARGS),$(ARGS),$(PARALLEL))

test-unit: $(DEV)  ## Run the tests of pure code and of the rules of the project: no process, no disk
	@$(BIN)/python -m pytest -q -m "not disk" tests/core tests/actors tests/architecture $(ARGS)

test-deep: $(DEV)  ## Run all tests with a kill at every crash point and a thousand examples of each law
	@TEST_DEPTH=deep $(BIN)/python -m pytest -q $(if $(ARGS),$(ARGS),$(PARALLEL))

check: $(DEV)  ## Check lint, format, types, contract and generated files
	@echo "ruff check" && $(BIN)/ruff check .
	@echo "ruff format" && $(BIN)/ruff format --check .
	@echo "mypy" && $(BIN)/mypy
	@echo "buf lint" && $(BIN)/buf lint
	@echo "generated code" && $(BIN)/python tools/gen.py --check
	@echo "settings document" && $(BIN)/python tools/settings_doc.py --check
	@echo "table of permissions" && $(BIN)/python tools/permissions_doc.py --check
	@echo "No problem found."

fmt: $(DEV)  ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

gen: $(DEV)  ## Generate code from proto/ docs/settings.md and the table of permissions
	@$(BIN)/python tools/gen.py
	@$(BIN)/python tools/settings_doc.py
	@$(BIN)/python tools/permissions_doc.py

bench: $(DEV)  ## Measure, each number beside its floor
	@$(BIN)/python bench/run.py $(ARGS)

bench-memory: $(DEV)  ## Measure the quality of memory search; ARGS="--data PATH" takes other data
	@$(BIN)/python bench/memory_quality.py $(ARGS)

pins:  ## Compile requirements*.in to requirements*.txt
	@test -d .venv/pins || $(PYTHON) -m venv .venv/pins
	@.venv/pins/bin/python -m pip --disable-pip-version-check --quiet install pip-tools==7.6.2
	@for name in requirements requirements-dev; do echo "$$name.txt"; \
	  .venv/pins/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o $$name.txt $$name.in || exit 1; done

clean:  ## Remove the files of these verbs; data folders stay
	@rm -rf .venv build dist *.egg-info sdk/python/*.egg-info .mypy_cache .ruff_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Wonder needs Python 3.11 or newer; found none. Name one with: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Wonder needs Python 3.11 or newer; $(PYTHON) is older. Name another with: make PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make virtual environments: \
	install its venv module (on Debian and Ubuntu the package python3-venv)."; exit 1; }

$(RUN): requirements.txt $(DISTRIBUTIONS) | $(BIN)/python
	@echo "Setting up .venv (about a minute the first time) ..."
	@$(PIP) --require-hashes -r requirements.txt
	@$(PIP) --no-build-isolation --no-deps -e . -e sdk/python
	@touch $@

$(DEV): requirements-dev.txt $(DISTRIBUTIONS) | $(BIN)/python
	@echo "Setting up .venv with the tools for development (about a minute the first time) ..."
	@$(PIP) --require-hashes -r requirements-dev.txt
	@$(PIP) --no-build-isolation --no-deps -e . -e sdk/python
	@touch $(RUN) $@
