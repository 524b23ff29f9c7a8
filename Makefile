# Everything a newcomer needs; each target sets itself up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test quick-test check sanitize dist docs bench evidence peers fuzz chaos clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

NATIVE := setup.py $(wildcard embedded/core/* src/prowd/nets/lowbit/native/* src/prowd/nets/lowbit/native/python/* src/prowd/nets/lowbit/c99/*)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "prowd needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(STAMP) ## watches and phones of 8 people learn exercises: local, FedAvg, ProWD and prowd-plus, three seeds
	$(BIN)/prowd compare watch

check: $(STAMP) ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test: check ## all tests, a file at a time on each worker: one more than cores, as some tests wait for processes of their own
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

quick-test: $(STAMP) ## unit tests and golden bytes only, for while you work; before a commit: make test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) tests/unit tests/golden

sanitize: $(STAMP) ## the C code under AddressSanitizer and UndefinedBehaviorSanitizer, about five minutes; Linux
	$(BIN)/python -m tests.embedded.sanitize

dist: $(STAMP) ## a release in dist/: the sdist and a wheel for Python 3.11 and newer, manylinux on Linux
	$(BIN)/python -m tests.wheel.build dist

bench: $(STAMP) ## speed of the kernels and the engine
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.engine

evidence: $(STAMP) ## the paper's experiments scaled down, on CIFAR-10, and its claims; hours, resumable; ONLY=NAME makes one
	$(BIN)/python -m experiments $(if $(ONLY),--only $(ONLY))

peers: $(STAMP) ## rounds of prowd, a bare loop, Flower's simulation and pfl, and a mixed federation; installs the peers apart
	$(BIN)/python -m benchmarks.peers

$(VENV)/.fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@touch $@

docs: $(STAMP) ## the documentation as a site in site/, every link checked; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

SECONDS ?= 200
fuzz: $(VENV)/.fuzz ## the decoder and the config loader, guided by coverage, SECONDS=200 for each of four targets; Linux
	$(BIN)/python -m fuzz --seconds $(SECONDS)

FAULTS ?= 200
MINUTES ?= 15
chaos: $(STAMP) ## kill -9, SIGSTOP, full disks: FAULTS=200 in MINUTES=15, and every run must end as if undisturbed; Linux
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos --faults $(FAULTS) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist site src/prowd/nets/lowbit/*.so
