# Each command sets up what it needs in .venv first: the demo neither tools for tests nor those for documentation.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
FOR_DEMO = $(VENV)/.for-demo
FOR_ALL = $(VENV)/.for-all
# A worker for each core; tests of one group follow each other on one of them.
PYTEST = $(BIN)/python -m pytest --numprocesses logical --maxprocesses 16 --dist loadgroup

# Tests start hundreds of processes: what Python has compiled once is kept for them, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

define set-up
$(PYTHON) -c 'import sys; sys.exit("fl_audit needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
endef

.PHONY: reference install demo test test-all test-campaigns test-versions lint docs clean

install: $(FOR_ALL)

$(FOR_DEMO): pyproject.toml constraints.txt
	$(set-up) '.[pdf]'
	touch $@

$(FOR_ALL): pyproject.toml constraints.txt
	$(set-up) '.[dev,docs]'
	touch $(FOR_DEMO) $@

demo: $(FOR_DEMO)
	$(BIN)/fl-audit demo

# What a change is likely to break, five minutes on two cores.
test: $(FOR_ALL)
	$(PYTEST) -m 'not long'

# The same, then long statistics, most starts of Ray, notebooks, and properties with all their examples: half an hour.
test-all: test
	FL_AUDIT_EXAMPLES=all $(PYTEST) -m '(long or hypothesis) and not campaign'

# What is studied after a change of its area: statistics over hundreds of runs, and clusters whose parts are killed.
test-campaigns: $(FOR_ALL)
	$(BIN)/python -m pytest -m campaign

# The tests of the engines with other versions than the pinned ones: VERSIONS=lowest, or VERSIONS=newest.
VERSIONS ?= newest
test-versions:
	$(PYTHON) -m venv $(VENV)-$(VERSIONS)
	$(VENV)-$(VERSIONS)/bin/python -m pip install --quiet --constraint packaging/versions/$(VERSIONS).txt \
		. 'pytest>=8.3,<9.2' pytest-timeout pytest-xdist hypothesis
	PYTHONPATH=$(CURDIR) $(VENV)-$(VERSIONS)/bin/python -m pytest -m 'not campaign' tests/runs/test_embedded_ray.py \
		tests/federation/test_federation_doors.py \
		tests/federation/test_federation_engines.py tests/federation/test_federation_local_engine.py \
		tests/federation/test_federation_messages.py tests/federation/test_federation_pool.py

lint: $(FOR_ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Pages of the reference that the code writes, as they stand in the repository.
reference: $(FOR_ALL)
	$(BIN)/python docs/generation/generated.py

# Every broken link, missing file or unknown name is an error (with --quiet none would be). Nothing is fetched.
# SITE_BUILDER="-m zensical" builds the same site with Zensical, once it is installed.
SITE_BUILDER ?= -m mkdocs
docs: $(FOR_ALL)
	$(BIN)/python docs/generation/site_source.py
	NO_MKDOCS_2_WARNING=1 RELEASE="fl_audit $$($(BIN)/python -c 'import fl_audit; print(fl_audit.__version__)')" \
		REPOSITORY="$$(git remote get-url origin 2>/dev/null | sed -n 's#^\(https://.*\)\.git$$#\1#p')" \
		$(BIN)/python $(SITE_BUILDER) build --strict
	@echo "documentation: site/index.html"

clean:
	rm -rf $(VENV) runs site site-source
