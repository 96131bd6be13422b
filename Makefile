# `make` builds and grades, `make test` tests; both do their own set-up. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(CURDIR)/$(VENV)/bin
COURSE := build/course
BOOK   := build/book/_build/html/index.html
# One worker per processor; tests that share an expensive fixture share a worker. tests/conftest.py says what comes first.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder --durations 20

# nbgrader starts programs by name.
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.PHONY: all setup notebooks bundle book grade test test-fast test-long mutation confusion stability bench-grading results-check lint format clean distclean help

all: notebooks book grade ## build the stubs and the book, grade the sample submissions, say where things are
	@echo
	@echo "The book:       $(BOOK)"
	@echo "Feedback:       $(COURSE)/feedback/<student>/<assignment>/<assignment>.html"
	@echo "Class report:   $(COURSE)/report/index.html"

setup: $(VENV)/installed ## create .venv and install what requirements.txt pins

$(VENV)/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

notebooks: build/stubs ## make the stubs in notebooks/ from solutions/

build/stubs: $(VENV)/installed $(wildcard solutions/*.md) autograder/release.py autograder/templates/first_cell.py _config.yml
	@$(BIN)/autograder release
	@mkdir -p build && touch $@

bundle: $(VENV)/installed ## make the zip for a class, build/transformer-piece-by-piece.zip
	@$(BIN)/autograder bundle

book: $(VENV)/installed ## build the book, strictly: a warning is an error
	@$(BIN)/jupyter-book build . --path-output build/book -n -W --keep-going -q

grade: build/stubs ## grade the sample submissions in the sandbox
	@.ci/system-packages bwrap=bubblewrap || true
	@$(BIN)/autograder course $(COURSE) --samples
	@if $(BIN)/autograder sandbox; then sandbox=bubblewrap; else sandbox=none; fi; \
	  $(BIN)/autograder grade --course $(COURSE) --sandbox $$sandbox --cell-seconds 8 --yes --accept-unenforced

test: $(VENV)/installed ## run all tests but the long ones
	@.ci/system-packages bwrap=bubblewrap chromium=chromium
	$(PYTEST) -m "not long"

test-fast: $(VENV)/installed ## run the unit tests only
	$(PYTEST) tests/lab tests/bank tests/checks

test-long: $(VENV)/installed ## run every test
	@.ci/system-packages bwrap=bubblewrap chromium=chromium
	$(PYTEST)

mutation: $(VENV)/installed ## mutants of the reference pieces against the hidden checks
	@nice $(BIN)/python -m tests.proof.mutation

confusion: $(VENV)/installed ## which known mistake is named as which
	@nice $(BIN)/python -m tests.proof.confusion

stability: $(VENV)/installed ## verdicts over SEEDS=200 seeds, threads and algorithms; goes on where it was stopped
	@nice $(BIN)/python -m tests.proof.stability $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS))

bench-grading: $(VENV)/installed ## nbgrader autograde and ours on the same class, and larger ones: SUBMISSIONS="40 200 1000"
	@$(BIN)/python -m tests.proof.grading_speed $(if $(SUBMISSIONS),--submissions $(SUBMISSIONS))

results-check: $(VENV)/installed ## fail when the code that made a file of results/ has changed
	@$(BIN)/python -m transformer_lab.results

lint: $(VENV)/installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what was built
	rm -rf build _build .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean ## remove the virtual environment too
	rm -rf $(VENV) *.egg-info

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
