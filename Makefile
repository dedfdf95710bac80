# Everything runs from a fresh clone: the first target that needs it makes .venv from requirements.lock.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tells on a terminal how far pip has come.
define INSTALLED
/^(Collecting|Requirement already)/ { if (n < all) n++; printf "\r  %d of %d packages", n, all; fflush() }
/^Installing collected/ { printf "\r  %d packages: unpacking ", all; fflush() }
END { printf "\r                              \r" }
endef
export INSTALLED

# grpc must not install fork handlers: providers fork from single-threaded spawners only.
export GRPC_ENABLE_FORK_SUPPORT := 0

.PHONY: help install demo test toolchains check format proto bench bench-peers soak policy-fuzz lock

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## Create .venv with the pinned dependencies and this checkout
	@:

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo 'error: Python 3.11 or newer is needed as `$(PYTHON)`' >&2; \
	       echo 'hint: apt-get install -y make git python3 python3-venv' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo 'error: `$(PYTHON)` cannot create virtual environments' >&2; \
	       echo 'hint: apt-get install -y make git python3 python3-venv' >&2; exit 1; }
	@echo 'Installing the pinned dependencies into $(VENV) (about a minute the first time)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if test -t 1 -a "$${TERM:-dumb}" != dumb; then \
	  $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --use-pep517 \
	    --requirement requirements.lock | awk -v all="$$(grep -c == requirements.lock)" "$$INSTALLED"; \
	else $(PIP) install --use-pep517 --requirement requirements.lock; fi
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## Run the demonstration: a governed conversation with real processes
	@$(BIN)/tyrum demo

test: $(STAMP) ## Run the test suite
	@$(BIN)/python -m pytest --numprocesses 2 -m 'not toolchain'

toolchains: $(STAMP) ## Run the tests that need node, openssl and other languages' compilers; minutes
	@$(BIN)/python -m pytest -m toolchain

check: $(STAMP) ## Lint, types, import rules, contracts
	@echo 'ruff check'; $(BIN)/ruff check --quiet .
	@echo 'ruff format'; $(BIN)/ruff format --check --quiet . || { echo 'hint: make format' >&2; exit 1; }
	@echo 'mypy'; $(BIN)/mypy --no-error-summary
	@echo 'import rules'; $(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log >&2; exit 1; }
	@echo 'buf lint'; $(BIN)/buf lint
	@echo 'generated code'; $(BIN)/python proto/generate.py --check

format: $(STAMP) ## Apply ruff's formatting and safe fixes
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

proto: $(STAMP) ## Regenerate the code and digests of the contracts
	@$(BIN)/python proto/generate.py

bench: $(STAMP) ## Measure
	@$(BIN)/python -m benchmarks

bench-peers: $(STAMP) ## Measure beside LangGraph and DBOS, which get an environment of their own
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install --requirement benchmarks/peers/requirements.txt
	@$(BIN)/python -m benchmarks.peers .venv-peers/bin/python

soak: $(STAMP) ## Kill gateways and providers a thousand times: nothing is lost, nothing runs twice
	@$(BIN)/python -m tests.soak

policy-fuzz: $(STAMP) ## Run 10,000 shell texts through the policy, and in bash those that it allows
	@$(BIN)/python -m tests.policy_oracle

lock: ## Rewrite requirements.lock with the newest versions that fit pyproject.toml
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	  $(PYTHON) -m venv "$$tmp/venv"; \
	  "$$tmp/venv/bin/python" -m pip --disable-pip-version-check --quiet install '.[dev]'; \
	  "$$tmp/venv/bin/python" -m pip --disable-pip-version-check freeze --exclude tyrum > "$$tmp/lock"; \
	  cat "$$tmp/lock" > requirements.lock
