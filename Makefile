# The one door to the project. Every target makes .venv if it is missing, broken or out of date.
PYTHON ?= python3
BIN := .venv/bin

# The stamp's name holds a checksum of what was installed and where, so that a change, a move, or an install that was
# broken off leads to a fresh environment; and so does one that no longer runs.
SUM := $(shell (cat pyproject.toml constraints.txt; pwd; $(PYTHON) --version) 2>&1 | cksum | cut -d' ' -f1)
RUNS := $(shell $(BIN)/python -c '' 2>/dev/null && test -x $(BIN)/keepset -a -x $(BIN)/ruff -a -x $(BIN)/mypy && echo yes)
READY := .venv/ready-$(SUM)$(if $(RUNS),,-again)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs clean

help:
	@echo "make demo    learn digits two at a time with a small memory: a table and a picture"
	@echo "make test    ruff, mypy and every test"
	@echo "make check   ruff and mypy alone"
	@echo "make bench   speed and memory, beside other libraries (ARGS=--slow-peers: all of them)"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make clean   remove .venv and everything built"

$(READY):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("keepset needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": try make PYTHON=python3.11")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch .venv/ready-$(SUM)

demo: $(READY)
	$(BIN)/python examples/replay.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python bench/selection.py $(ARGS)
	$(BIN)/python bench/pretraining.py

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf .venv docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
