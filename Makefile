# Each target sets up what it needs in .venv; only Python >= 3.11 and make are expected.
PYTHON ?= python3
BIN := .venv/bin
EMPTY := build/empty
CODE := src papers tests benchmarks examples docs

.PHONY: demo test check lint types package format docs bench clean

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "idiolect needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

demo: .venv/installed ## compare six ways to learn on bundled real data and print who is helped
	@rm -rf runs/demo
	$(BIN)/idiolect run examples/demo.toml --out runs/demo

test: .venv/installed ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: lint types package ## all that is checked besides the tests; pre-commit runs the same targets

lint: .venv/installed ## format and lint
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

types: .venv/installed ## type hints
	$(BIN)/mypy

package: .venv/installed ## build wheel and sdist, install the wheel into an empty environment and use it there
	rm -rf build/package $(EMPTY)
	$(BIN)/python -m build --outdir build/package . > /dev/null
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile build/package/*.whl
	cd $(EMPTY) && bin/idiolect --help > /dev/null && bin/python -m idiolect --help > /dev/null
	cd $(EMPTY) && bin/python -c 'import idiolect, pathlib as p; assert (p.Path(idiolect.__file__).parent / "py.typed").exists()'

format: .venv/installed ## rewrite files in the house format
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: .venv/docs ## write the generated tables of the docs, build the site into build/site; warnings are errors
	$(BIN)/python docs/tables.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: .venv/installed ## every benchmark; prints ratios, writes benchmarks/results
	$(BIN)/python -m benchmarks

clean: ## forget the virtual environment and all runs
	rm -rf .venv runs build dist
