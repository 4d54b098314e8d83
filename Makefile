# One command each; every target is one call of `python -m testbed` or of a tool, so that nothing happens here alone.
#
#   make scenario NAME=tenant-leak SEED=42
#
# The first call makes a virtual environment in .venv and installs what constraints.txt pins.

# -- knobs ------------------------------------------------------------------------------------------------------------
# Given on the command line or in the environment; an unset knob is an empty one, and empty means the default.
NAME ?=
A ?=
B ?=
ACROSS ?=
FORMAT ?= text
SEEDS ?= 1-5
LEVELS ?= high
VARIANTS ?= first
export NAME A B ACROSS FORMAT
export EXACT MUST_SEE ACCEPT JUNIT SUMMARY ANNOTATIONS BENCH TIMINGS BENCH_BASELINE BASELINES_DIR
export SEED POLLUTION_LEVEL STACK STORE DATASET QUERIES VARIANT BLAME BACKEND REDIS_URL CHROMA_URL RESULTS_DIR
export SCENARIOS_DIR

# -- environment ------------------------------------------------------------------------------------------------------
VENV ?= .venv
EXTRAS ?= models,chroma,llama-index,chinese
DEV_EXTRAS ?= $(EXTRAS),report,docker,dev
# The pins. constraints-lowest.txt has the lowest versions that are supported, for EXTRAS=models.
CONSTRAINTS ?= constraints.txt
# Where pip finds a CPU build of torch. Empty: the default index, which on Linux serves a CUDA build of several GB.
TORCH_INDEX ?=
PYTHON ?=
comma := ,
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
DEV_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(DEV_EXTRAS))
PY := $(VENV)/bin/python
TESTBED := $(PY) -m testbed
PYTEST := $(PY) -m pytest
# Tests of one file share what is costly to make, so a file stays in one process.
PARALLEL ?= --numprocesses auto --dist loadfile
# Which docker tests: "docker and proof" are those that CI runs.
DOCKER_TESTS ?= docker

.DEFAULT_GOAL := help
.PHONY: help scenario list compare show report baseline gate doctor claims sweep matrix power attribution mutants up down ps logs test test-docker check e2e promises bench install dev clean
.NOTPARALLEL:
.DELETE_ON_ERROR:
SHELL := /bin/sh

help: ## This list.
	@echo "make scenario NAME=tenant-leak SEED=42"
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "knobs of scenario: NAME VARIANT SEED POLLUTION_LEVEL=low|medium|high|0..1 STACK STORE DATASET QUERIES"
	@echo "                   BACKEND REDIS_URL CHROMA_URL RESULTS_DIR   (a wrong value says what is allowed)"
	@echo "knobs of compare:  A B ACROSS=stack|store|seed|level FORMAT=text|markdown|csv|latex|json|html"
	@echo "knobs of baseline: those of scenario, and ACCEPT='why a worse run is recorded' MUST_SEE=0.20"
	@echo "knobs of gate:     NAME='a b' EXACT=1 MUST_SEE=0.20 JUNIT=file SUMMARY=file ANNOTATIONS=1 BENCH=folder"
	@echo "installation:      PYTHON=python3.12 VENV=.venv EXTRAS=models,chroma,llama-index,chinese TORCH_INDEX= CONSTRAINTS="

scenario: $(STAMP) ## Play a scenario: NAME=, and the knobs below.
	@$(TESTBED) run "$$NAME"

list: $(STAMP) ## The scenarios and their variants.
	@$(TESTBED) list

compare: $(STAMP) ## Recorded runs side by side: A=, B= (folder, scenario or digest, @arm).
	@$(TESTBED) compare "$$A" "$$B" --format "$$FORMAT" $(if $(ACROSS),--across "$$ACROSS")

baseline: $(STAMP) ## Make a run what the gate holds later ones to: NAME=.
	@$(TESTBED) baseline "$$NAME"

gate: $(STAMP) ## Is anything worse than its baseline? NAME= for some only.
	@$(TESTBED) gate $$NAME

show: $(STAMP) ## A recorded run again: NAME= (folder, scenario or digest).
	@$(TESTBED) show "$$NAME"

report: $(STAMP) ## A page of a recorded run, NAME= (as show); without NAME an index of all runs.
	@$(TESTBED) report $(if $(NAME),"$$NAME",--index)

doctor: $(STAMP) ## What is installed, missing, and which extra brings it.
	@$(TESTBED) doctor

sweep: $(STAMP) ## Many runs in one table: NAME= (or all), SEEDS=1-5, LEVELS=high, VARIANTS=first.
	@$(TESTBED) sweep $(NAME) --seeds "$(SEEDS)" --levels "$(LEVELS)" --variants "$(VARIANTS)"

matrix: $(STAMP) ## Every fix against every fault, on one SEED: table, CSV and picture.
	@$(TESTBED) matrix $(NAME)

mutants: $(STAMP) ## Small mistakes in the stack's code, and which rule notices each.
	@$(PY) scripts/mutants.py $(NAME)

power: $(STAMP) ## How much pollution each rule notices, and false alarms in 300 clean runs.
	@$(TESTBED) power $(NAME)

claims: $(STAMP) ## Published claims about RAG caches, measured here.
	@$(TESTBED) claims

attribution: $(STAMP) ## How often blame by replay, and the published heatmap, name the broken layer.
	@$(TESTBED) attribution

up: $(STAMP) ## Start the Docker Compose sandbox (BACKEND=compose uses it).
	@$(PY) -m testbed.stacks.containers up

down: $(STAMP) ## Stop it and remove its containers, networks and volumes.
	@$(PY) -m testbed.stacks.containers down

ps: ## The sandbox's containers.
	@docker compose ps --all

logs: ## Their last log lines.
	@docker compose logs --tail=50

test: $(DEV_STAMP) ## All tests but whole runs and Docker: seconds to minutes.
	@$(PYTEST) $(PARALLEL) --benchmark-disable -m "not e2e and not docker"

test-docker: $(DEV_STAMP) ## Tests on a real Docker engine, in a sandbox of their own.
	@$(PYTEST) tests/integration/docker -m "$(DOCKER_TESTS)"

e2e: $(DEV_STAMP) ## Whole runs through the command line, killed ones too.
	@$(PYTEST) $(PARALLEL) -m e2e

promises: $(DEV_STAMP) ## What every variant of every scenario promises, over ten seeds: an hour.
	@PROMISES=all $(PYTEST) tests/e2e/test_promises.py

check: $(DEV_STAMP) ## ruff and mypy.
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

bench: $(DEV_STAMP) ## Timings of the hot paths.
	@$(PYTEST) tests/bench --benchmark-only

install: $(STAMP) ## Only make the virtual environment.
dev: $(DEV_STAMP) ## The same with the tools that test and check.

clean: ## Remove the virtual environment and caches; results stay.
	rm -rf "$(VENV)" .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks build *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# -- installation -----------------------------------------------------------------------------------------------------
# A stamp is written last, so an installation that failed or was interrupted is done again, and so is one with other
# extras or other pins.
$(STAMP): pyproject.toml $(CONSTRAINTS) .ci/install
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" CONSTRAINTS="$(CONSTRAINTS)" sh .ci/install "$(VENV)" "$(EXTRAS)"
	@touch "$@"

$(DEV_STAMP): pyproject.toml $(CONSTRAINTS) .ci/install
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" CONSTRAINTS="$(CONSTRAINTS)" sh .ci/install "$(VENV)" "$(DEV_EXTRAS)"
	@touch "$@" "$(STAMP)"
