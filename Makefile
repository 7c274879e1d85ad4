# Every target sets up what it needs by itself; nothing has to be activated.
PYTHON ?= python3
VENV := .venv
EXTRAS_VENV := .venv-extras
RUN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# Tests run torch on one thread, so two of them use two cores.
TWO_AT_A_TIME := --numprocesses 2 --dist worksteal
TWO_FILES_AT_A_TIME := --numprocesses 2 --dist loadfile
EXTRAS := extras and not slow
# One run each, for a backend is chosen once. What is the same on all of them runs on TensorFlow alone
# (tests/keras_layer/conftest.py). JAX compiles every small operation: in tests without optimisation, and with a
# cache that all of them share.
KERAS_BACKENDS := tensorflow jax torch
JAX_IN_TESTS := JAX_DISABLE_MOST_OPTIMIZATIONS=1 JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(EXTRAS_VENV)/jax_cache \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
# Empty is unset: tests start many processes, and modules should be compiled for the first of them alone.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo environments test test-extras test-all lint types bench format clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/ready  ## the main job on embedded digits: each domain held out in turn, what helps beside ERM, table and report
	$(RUN)/gated-domains compare digits --seeds 1 --epochs 5 --rate 0.002 --out out/demo

environments: $(VENV)/ready $(EXTRAS_VENV)/ready  ## both virtual environments; with --jobs 2, at once

test: $(VENV)/ready  ## all that runs in minutes
	$(RUN)/python -m pytest $(TWO_AT_A_TIME) -m "not slow and not extras"

test-extras: $(EXTRAS_VENV)/ready  ## what needs the packages of the extras
	$(EXTRAS_VENV)/bin/python -m pytest $(TWO_FILES_AT_A_TIME) -m "$(EXTRAS)" tests/extras
	@for backend in $(KERAS_BACKENDS); do \
		echo "the Keras layer on $$backend"; \
		KERAS_BACKEND=$$backend TF_CPP_MIN_LOG_LEVEL=3 $(JAX_IN_TESTS) \
			$(EXTRAS_VENV)/bin/python -m pytest $(TWO_AT_A_TIME) -m "$(EXTRAS)" tests/keras_layer || exit 1; \
	done

test-all: EXTRAS := extras
test-all: $(VENV)/ready test-extras  ## everything, the slow tests too
	$(RUN)/python -m pytest -m "not extras"

lint: $(VENV)/ready  ## style, spelling, import direction
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/codespell
	$(RUN)/lint-imports

types: $(VENV)/ready  ## mypy, strict
	$(RUN)/mypy

bench: $(VENV)/ready $(EXTRAS_VENV)/ready  ## what layer, methods, reading data, exports, estimators and the shift test cost
	$(RUN)/python benchmarks/layer.py
	$(EXTRAS_VENV)/bin/python benchmarks/keras_layer.py
	$(RUN)/python benchmarks/methods.py
	$(RUN)/python benchmarks/loading.py
	$(EXTRAS_VENV)/bin/python benchmarks/export.py
	$(RUN)/python benchmarks/estimators.py
	$(RUN)/python benchmarks/shift_test.py

format: $(VENV)/ready  ## put files into shape
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

clean:  ## remove the environments and what tools left behind
	rm -rf $(VENV) $(EXTRAS_VENV) out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/ready: pyproject.toml
	@echo "setting up $(VENV) (a few minutes, once)"
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(EXTRAS_VENV)/ready: pyproject.toml
	@echo "setting up $(EXTRAS_VENV) (a few minutes, once)"
	$(PYTHON) -m venv $(EXTRAS_VENV)
	$(EXTRAS_VENV)/bin/python $(PIP_INSTALL) --editable '.[dev,wilds,ray,tune,keras,track,onnx,lightning,hf,alarm,lite]' timm tensorflow-cpu jax playwright
	@touch $@
