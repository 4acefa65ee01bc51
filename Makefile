# `make` lists the targets. Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --constraint .ci/constraints.txt
TORCH := $(shell sed -n '/^torch==/p' .ci/constraints.txt)
# Further options for pip when it installs torch, for example the index of a CPU build.
TORCH_INDEX ?=
WORKERS ?= 2
ARGS ?=

# Offline unless asked otherwise: `make test HF_HUB_OFFLINE=0` also runs the tests that need the hub.
export HF_HUB_OFFLINE ?= 1
export WANDB_MODE ?= offline
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help install demo test check format clean

help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## create .venv and install ragx with its development tools

$(INSTALLED): pyproject.toml .ci/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH_INDEX) $(TORCH)
	$(PIP) --editable ".[dev]"
	touch $@

demo: $(INSTALLED)  ## train, decode, score and hot-swap RAG on the embedded knowledge base (minutes, CPU)
	$(BIN)/python scripts/demo.py $(ARGS)

test: check  ## lint, types, import rules, every test and notebook
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(INSTALLED)  ## lint, types and import rules only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy ragx scripts
	$(BIN)/lint-imports

format: $(INSTALLED)  ## reformat and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove caches (not .venv, runs or indexes)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find ragx scripts tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +
