# make demo and make test set up everything they need in .venv first.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
DONE = $(VENV)/.installed

.PHONY: install demo test lint docs clean

install: $(DONE)

$(DONE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("fl_audit needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $(DONE)

demo: $(DONE)
	$(BIN)/fl-audit demo

test: $(DONE)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup

lint: $(DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every broken link, missing file or unknown name is an error (with --quiet none would be). Nothing is fetched.
docs: $(DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "documentation: site/index.html"

clean:
	rm -rf $(VENV) runs site
