# Development tasks. `make demo` and `make test` need nothing but Python 3.11+ and PyPI.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# What to install beside the package itself; .ci/run adds what the tests of optional parts need.
EXTRAS ?= dev
comma := ,
INSTALLED := $(VENV)/.thresher-installed-$(subst $(comma),-,$(EXTRAS))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
CHUNKS ?= 10000

# The tests use models that come as packages; nothing may be fetched from elsewhere.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export ANONYMIZED_TELEMETRY := False

.PHONY: help setup demo test lint package typecheck unit test-slow demo-package bench bench-scale clean

help:
	@echo "make setup      create $(VENV) and install Thresher with the development tools"
	@echo "make demo       index the sample corpus and answer a multi-hop question"
	@echo "make test       lint, type check and the fast tests"
	@echo "make test-slow  crash loops, clusters, OCR, benchmark scripts and other long tests (EXTRAS=dev,ocr,ray for all)"
	@echo "make bench      search latency at 10,000 passages (CHUNKS=100000 for more)"
	@echo "make bench-scale TEXTS=DIR KEEP=DIR   100,000 passages beside bare indexes (CHUNKS=\"100000 1000000\" for more)"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH; name one with PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	touch $(INSTALLED)

demo: setup
	$(BIN)/thresher demo

test: lint typecheck unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

package: setup
	rm -rf build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/installed .

# The source folders become the package `thresher` only when installed, so the installed package is what is checked.
typecheck: package
	MYPYPATH=build/installed $(BIN)/mypy -p thresher

unit: setup
	$(PYTEST) -m "not slow" -n 2

test-slow: setup
	$(PYTEST) -m slow -n 2 --dist loadgroup --durations=15

# An editable install hides a module or a data file that the package lacks; this does not.
demo-package: package
	PYTHONPATH=build/installed $(BIN)/python -c 'from thresher.api.cli import main; main()' demo

bench: TEXTS ?= corpus/sample/docs
bench: KEEP ?= build/bench
bench: setup
	$(BIN)/python benchmarks/scale.py --texts $(TEXTS) --keep $(KEEP) --chunks $(CHUNKS) --json $(KEEP)/scale.json \
		--only opening searching grepping own_chroma own_tantivy

bench-scale: CHUNKS := $(if $(filter command line,$(origin CHUNKS)),$(CHUNKS),100000)
bench-scale: setup
	@test -n "$(TEXTS)" && test -n "$(KEEP)" || { echo "name TEXTS=DIR (corpus.jsonl files) and KEEP=DIR" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	$(BIN)/python benchmarks/scale.py --texts $(TEXTS) --keep $(KEEP) --chunks $(CHUNKS) \
		--json $(KEEP)/scale.json --plots benchmarks/plots

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
