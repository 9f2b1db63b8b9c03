# Every target sets up what it needs, in .venv, and is quick when that is there.
#   make PYTHON=python3.10 VENV=.venv310 test     another Python, in an environment of its own
#   make ARGS="-k emulator" test                  arguments for pytest, python -m benchmarks or uv

VENV ?= .venv
ARGS ?=
FLIGHTS ?=

ifndef PYTHON
PYTHON := $(shell for p in python3.12 python3.11 python3.10 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
endif

SETUP = $(PYTHON) -m tools.setup --venv $(VENV)
BIN = $(VENV)/bin
WITH_JAVA = $(BIN)/python -m tools.javahome

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench docs wheel jar setup lock clean distclean python

help: ## what there is
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: python ## the main job on a year of flights, with a killed worker; FLIGHTS=N for fewer
	@$(SETUP) run --flink
	@$(WITH_JAVA) $(BIN)/flink-pubsub demo $(if $(FLIGHTS),--flights $(FLIGHTS))

test: python ## all tests
	@$(SETUP) dev --flink
	@$(WITH_JAVA) $(BIN)/python -m pytest $(ARGS)

lint: python ## format, style, types, import arrows, tracked files
	@$(SETUP) dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.check_files

bench: python ## throughput beside the official client and bare gRPC; ARGS=--json
	@$(SETUP) dev --flink
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

docs: python ## the documentation site, in site/
	@$(SETUP) dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: python ## the wheel with the jar inside, in dist/
	@$(SETUP) run --flink
	@$(BIN)/hatchling build -t wheel -d dist

jar: python ## the Java half alone, unless it is up to date
	@$(SETUP) run --flink

setup: python ## everything the other targets need
	@$(SETUP) dev --flink

lock: python ## requirements/*.txt from pyproject.toml; ARGS=--upgrade for newer versions
	@$(SETUP) run
	@$(BIN)/python -m tools.lock $(ARGS)

clean: ## removes what was built
	rm -rf dist site build src/flink_pubsub/_jar .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

distclean: clean ## removes the environment too
	rm -rf $(VENV)

python:
	@test -n "$(PYTHON)" || { echo "no Python 3.10 to 3.12 found. On Debian or Ubuntu: sudo apt-get install -y python3 python3-venv"; exit 1; }
