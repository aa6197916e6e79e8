# `make demo` and `make test` need only Python (3.11 or newer) and make: they create .venv and
# install the package with the versions pinned in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/installed
	$(BIN)/python examples/complete_digits.py
	$(BIN)/python examples/classify_digits.py

test: .venv/installed
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: .venv/installed
	$(BIN)/pip install --quiet -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/coding.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e ".[plots,dev]"
	touch $@

clean:
	rm -rf .venv demo
