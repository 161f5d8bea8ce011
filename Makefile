# The two set-up commands are `make test` and `make demo`; each makes .venv on first use and reuses it afterwards.
# `make test-peers` has an environment of its own, .venv-peers: the tests of `make test` run without what peers bring.

# The lowest supported version comes first: it is the one most likely to break.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,\
  $(shell $(name) -c 'import sys, venv; assert (3, 11) <= sys.version_info[:2] <= (3, 13)' 2>/dev/null && echo $(name))))
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
PEERS_BIN := $(PEERS)/bin
# Set up again when pyproject.toml changes, and only then.
STAMP := .ready-$(shell cksum < pyproject.toml | tr ' ' '-')
READY := $(VENV)/$(STAMP)
PEERS_READY := $(PEERS)/$(STAMP)
PEERS_PACKAGES := $(PEERS_READY)-packages
BROWSER_READY := $(READY)-browser
SITE_READY := $(READY)-site

.PHONY: test test-all lint demo peers python test-peers test-browser types-pytorch test-gpu sanitize-gpu docs site clean

# Hundreds of processes of the tests read the bytecode that the first one writes.
unexport PYTHONDONTWRITEBYTECODE

# A file of tests stays in one process, which makes what the file shares once; one that crashes does not hang the run
# (tests/file_scheduling.py). In the order of their names the long files come first and the small ones last, so that the
# processes end together.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# `test` and `test-peers` run about half of the random cases of a test, always the same (tests/drawn_cases.py).
PYTEST_OPTIONS := --half-drawn

# Lint runs beside the tests: the type checker takes one core for a minute. What it says comes last.
test: $(READY)
	@said=$$(mktemp); status=0; $(MAKE) --no-print-directory lint >"$$said" 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_OPTIONS) -m "not gpu and not peers and not browser" || status=1; \
	wait $$lint || status=1; cat "$$said"; rm -f "$$said"; exit $$status

# Both with all random cases, the second one also if the first one fails.
test-all:
	@status=0; $(MAKE) test PYTEST_OPTIONS= || status=1; $(MAKE) test-peers PYTEST_OPTIONS= || status=1; exit $$status

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

demo: $(READY)
	$(BIN)/python examples/digits/demo.py
	$(BIN)/python examples/digits/train.py
	$(BIN)/python examples/inference_basic.py

# All of .venv-peers but AICF itself. CI does that beside `make test`: it touches nothing in the source tree.
peers: $(PEERS_PACKAGES)

# The types are checked beside the tests, as in `test`. Only files that name the marker are collected: the others are
# 15,000 tests.
test-peers: $(PEERS_READY)
	@said=$$(mktemp); status=0; $(MAKE) --no-print-directory types-pytorch >"$$said" 2>&1 & types=$$!; \
	$(PEERS_BIN)/python -m pytest $(PARALLEL) $(PYTEST_OPTIONS) -m peers $$(grep -rl --include='test_*.py' peers tests | sort) || status=1; \
	wait $$types || status=1; cat "$$said"; rm -f "$$said"; exit $$status

# Draws reports in Chromium, which the system has to have with its driver: the packages chromium and chromium-driver of
# Debian. Without it, no test runs, and pytest says why.
test-browser: $(BROWSER_READY)
	$(BIN)/python -m pytest -m browser tests/report/test_browser.py

# Pyright passes where it finds no file, so its statistics must name some.
types-pytorch: $(PEERS_READY)
	@said=$$(mktemp); status=0; $(PEERS_BIN)/pyright --pythonpath $(PEERS_BIN)/python --project aicf/pytorch --stats >"$$said" || status=1; \
	grep -q 'files checked: [1-9]' "$$said" || { echo "make: pyright found no file in aicf/pytorch" >&2; status=1; }; \
	sed '/^Completed in/,$$d' "$$said"; rm -f "$$said"; exit $$status

# With AICF_GPU_ARTIFACTS=DIR from `python -m tests.gpu.prepare DIR`, nothing is compiled on the machine with the GPU.
test-gpu: $(READY)
	$(BIN)/python -m pytest -m gpu

# Every case once under each of NVIDIA's checkers, which come with the CUDA toolkit.
sanitize-gpu: $(READY)
	$(BIN)/python -m tests.gpu.sanitize

# The documentation with search, as HTML that needs no server.
site: $(SITE_READY)
	$(BIN)/python -m aicf.tools.site build/site

docs: $(READY)
	$(BIN)/python -m aicf.tools.docgen

# Without bytecode, which Python writes for what is imported: most of the packages never is.
INSTALL := -m pip install --no-compile --quiet --disable-pip-version-check

$(READY): pyproject.toml | python
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(INSTALL) --editable '.[dev]'
	@touch $@

$(PEERS_READY): $(PEERS_PACKAGES)
	$(PEERS_BIN)/python $(INSTALL) --editable '.[dev,bench,examples]'
	@touch $@

$(PEERS_PACKAGES): pyproject.toml | python
	$(PYTHON) -m venv --clear $(PEERS)
	@$(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	extras = (project["optional-dependencies"][name] for name in ("dev", "bench", "examples")); \
	print(*project["dependencies"], *sum(extras, []), sep="\n")' > $(PEERS)/packages.txt
	$(PEERS_BIN)/python $(INSTALL) --requirement $(PEERS)/packages.txt
	@touch $@

$(BROWSER_READY): $(READY)
	$(BIN)/python $(INSTALL) --editable '.[dev,browser]'
	@touch $@

$(SITE_READY): $(READY)
	$(BIN)/python $(INSTALL) --editable '.[dev,site]'
	@touch $@

python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11, 3.12 or 3.13 with venv found; install one or pass PYTHON=..." >&2; exit 1; }

clean:
	rm -rf $(VENV) $(PEERS) build dist *.egg-info
