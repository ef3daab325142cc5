# Each target sets up what it needs in .venv; only Python >= 3.11 and make are expected.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format docs bench clean

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "idiolect needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: .venv/installed ## compare six ways to learn on bundled real data and print who is helped
	@rm -rf runs/demo
	$(BIN)/idiolect run examples/demo.toml --out runs/demo

test: .venv/installed ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/installed ## format, lint, types
	$(BIN)/ruff format --check src papers tests benchmarks examples docs
	$(BIN)/ruff check src papers tests benchmarks examples docs
	$(BIN)/mypy

format: .venv/installed ## rewrite files in the house format
	$(BIN)/ruff format src papers tests benchmarks examples docs
	$(BIN)/ruff check --fix src papers tests benchmarks examples docs

docs: .venv/installed ## rewrite the tables of the docs that repeat what the code says
	$(BIN)/python docs/tables.py

bench: .venv/installed ## every benchmark; prints ratios, writes benchmarks/results
	$(BIN)/python -m benchmarks

clean: ## forget the virtual environment and all runs
	rm -rf .venv runs build dist
