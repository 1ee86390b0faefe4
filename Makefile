# One verb for each need; `make` alone lists them.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
            $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
            done)
BIN := .venv/bin
FAST_TESTS = $(wildcard tests/unit tests/properties tests/conformance tests/architecture)
# Two for each core, since many tests wait for processes; each takes 1 GB.
TESTERS = $(shell $(BIN)/python -c 'import os; print(min(6, 2 * (os.cpu_count() or 1)))')
# They share the cores: by itself BLAS has a thread for each core in each of them, which turn while they wait.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(TESTERS) --dist loadfile --max-worker-restart 0
SOAK_TESTS = $(wildcard tests/properties tests/simulation tests/integration/test_durable.py tests/integration/test_cluster_kills.py \
  tests/unit/tensor/test_sparse.py tests/unit/tensor/test_coordinates.py tests/soak)

# Tests start hundreds of processes: without compiled modules each takes a second instead of a fifth.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
FRAMEWORKS := $(basename $(notdir $(wildcard examples/training/frameworks/*.txt)))

.PHONY: help demo test check bench soak states sizes clean python .venv tools frameworks test-frameworks providers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv ## run the example pipeline
	$(BIN)/weft run examples/breast_cancer/run.yaml
	@echo
	$(BIN)/weft logs @last/evaluate -C examples/breast_cancer

test: tools ## the whole test suite
	$(PYTEST) --no-loadscope-reorder

check: tools ## format, lint, types, contracts, fast tests, diagrams: about a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	HYPOTHESIS_PROFILE=fast $(PYTEST) -m "not slow" $(FAST_TESTS)
	$(BIN)/python -m weft.testing.states --check

bench: tools ## run every benchmark and write docs/benchmarks.md; after a stop it goes on with the rows that are missing
	$(BIN)/python -m benchmarks all --keep build/benchmarks.jsonl --write docs/benchmarks.md

soak: tools ## properties and simulations with many more examples, SQL with more data: hours
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -q $(SOAK_TESTS)
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -q -m soak tests/integration tests/unit

frameworks: $(FRAMEWORKS:%=.frameworks/%/.stamp) ## environments with TensorFlow, PyTorch, JAX, XGBoost, MPI: 3 GB

test-frameworks: tools ## the examples with real frameworks, those that `make frameworks` has made: minutes
	$(BIN)/python -m pytest -q tests/frameworks

providers: .providers/fate-client/.stamp .providers/spu/.stamp .providers/torch/.stamp ## in environments of their own: SPU and PyTorch for federated jobs (2 GB), and the clients of FATE for tests

states: .venv ## draw docs/states from the transition tables
	$(BIN)/python -m weft.testing.states

sizes: ## lines of each module, longest last
	@find src tests -name '*.py' -exec wc -l {} + | sort -n

clean: ## remove all that was built or cached
	rm -rf .venv .frameworks .providers dist build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

python: ## print the interpreter that .venv is made with
	@test -n "$(PYTHON)" || { echo "Weft needs Python 3.11 or newer with its venv module" \
	  "(Debian, Ubuntu: apt-get install python3-venv); name one with: make PYTHON=..." >&2; exit 1; }
	@echo $(PYTHON)

# Modules are compiled when they are first imported: compiling all 14,000 takes longer than what is done with them.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

.venv: .venv/.stamp ## the virtual environment, with Weft and what it needs

tools: .venv/.tools ## what tests and checks need, in the same environment

# No prerequisite on `python`: it is never up to date, and would rebuild the environment each time.
.venv/.stamp: pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory python >/dev/null
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.$(EXTRAS)'
	@echo '$(EXTRAS)' >$@

# A new environment is made by one run of pip.
.venv/.tools: EXTRAS := [dev]
.venv/.tools: .venv/.stamp
	@grep -qF '[dev]' $< || $(INSTALL) -e '.[dev]'
	@touch $@

.providers/fate-client/.stamp: tests/integration/fate-client.txt
	@$(MAKE) --no-print-directory python >/dev/null
	$(PYTHON) -m venv .providers/fate-client
	.providers/fate-client/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $<
	@touch $@

# Wheels of SPU exist for Python 3.10 and 3.11, on Linux and macOS.
.providers/%/.stamp: src/weft/frontends/federated/providers/%.txt
	@$(MAKE) --no-print-directory python >/dev/null
	$(PYTHON) -m venv .providers/$*
	.providers/$*/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $<
	@touch $@

.frameworks/%/.stamp: examples/training/frameworks/%.txt
	@$(MAKE) --no-print-directory python >/dev/null
	$(PYTHON) -m venv .frameworks/$*
	.frameworks/$*/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $<
	@touch $@
