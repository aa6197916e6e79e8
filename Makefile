# `make demo` and `make test` need only Python (3.11 or newer) and make: they create .venv and
# install the package with the versions pinned in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# Files in the order of tests/conftest.py: long ones first.
TWO_AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test nightly coverage lint docs bench clean

demo: .venv/installed
	$(BIN)/halfseen demo --out demo/report.html

# No test takes a minute: one that hangs fails with the places where its threads stand.
test: .venv/installed
	$(BIN)/python -m pytest $(TWO_AT_ONCE) --timeout 600

nightly: .venv/installed
	$(BIN)/python -m pytest $(TWO_AT_ONCE) --nightly --timeout 3600

# Lines that tests run, in other processes too; once more without numba, whose code Python cannot see.
coverage: .venv/installed
	rm -rf .bench && mkdir .bench
	$(BIN)/coverage run -m pytest $(TWO_AT_ONCE)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -o filterwarnings="" tests/test_coding.py \
		tests/test_solvers.py tests/test_rivals.py \
		-k "cd or coordinate or solver or nearest or neighbour or reference or scikit"
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: .venv/installed
	$(BIN)/sphinx-build -W -n --keep-going -q -b html docs docs/_build/html

bench: .venv/installed
	$(BIN)/pip install --quiet -c constraints.txt -e ".[bench]"
	rm -rf .bench && mkdir .bench
	$(BIN)/python benchmarks/coding.py --small
	$(BIN)/python benchmarks/code_steps.py
	$(BIN)/python benchmarks/learning.py --small
	$(BIN)/python benchmarks/training.py digits .bench/training.jsonl --seconds 5
	$(BIN)/python benchmarks/defaults.py .bench/defaults.jsonl --small
	$(BIN)/python benchmarks/classification.py .bench/classification.jsonl --only digits --small
	$(BIN)/python benchmarks/rivals.py neighbours --small
	$(BIN)/python benchmarks/roofline.py --images 40 --device cpu
	$(BIN)/python benchmarks/speed.py digits
	$(BIN)/python benchmarks/scaling.py --sizes 2000 20000
	$(BIN)/python benchmarks/certificates.py run .bench/certificates.jsonl --small

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e ".[plots,docs,dev]"
	touch $@

clean:
	rm -rf .venv .bench demo docs/_build
