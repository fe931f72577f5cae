# Everything a newcomer runs.  Needs Python 3.11 or later with pip and venv, make and git; the rest it fetches.

PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.made-from-lock
PIP := $(PY) -m pip -qq --disable-pip-version-check --no-input
ARGS ?=
MINUTES ?= 10
WORKERS ?= 2

# Spark's driver and workers talk over the loopback device only.
export SPARK_LOCAL_IP := 127.0.0.1

# Tests, Spark and the shell start processes by the hundred: without bytecode each compiles all sources anew.
unexport PYTHONDONTWRITEBYTECODE

# Run what follows with the Java that scripts/java finds or installs.
WITH_JAVA = JAVA_HOME="$$(scripts/java --install)" && export JAVA_HOME &&

# Say plainly what is missing, before a virtual environment is made.
define REQUIRE_PYTHON
fail() { echo "$$1" >&2; exit 1; }; \
command -v $(PYTHON) > /dev/null || fail "there is no $(PYTHON); gmdb needs Python 3.11 or later"; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "gmdb needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1); name another: make setup PYTHON=python3.12"; \
$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null \
  || fail "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
endef

.DEFAULT_GOAL := help
.PHONY: help setup kernels wheel demo test coverage soak planted check lint bench bench-spark docs lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: kernels ## Make .venv from requirements.lock, compile the kernels, and find or install Java for Spark
	@if home=$$(scripts/java --install); then echo "ready; Spark runs on $$home"; else echo "ready, all but Spark"; fi

kernels: $(STAMP) ## Compile the kernels ahead, if their sources have changed; without a linker, they are when first called
	@$(PY) -m gmdb.kernel.build --if-possible

wheel: kernels ## Make a wheel with the kernels inside, for every Python from 3.11 on, in dist
	@rm -rf build dist
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@ls dist/*.whl

demo: kernels ## Tell what gmdb does by doing it, in a minute or two: crash, recovery, SQL, Spark, a stream
	@$(WITH_JAVA) .venv/bin/gmdb demo $(ARGS)

test: kernels ## Run the test suite in WORKERS=2 processes; ARGS="-k heap" runs a part of it
	@scripts/programs --install || true
	@$(WITH_JAVA) { $(PY) -m tests.java_classes || true; } && $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

soak: kernels ## Everything at once for MINUTES=10: writers, Spark, backups, a stream; kills, power cuts, failing disks
	@$(WITH_JAVA) $(PY) -m tests.soak --minutes $(MINUTES) $(ARGS)

planted: kernels ## Plant bugs in copies of the sources, one at a time, and see that the tests find each
	@$(PY) -m tests.planted $(ARGS)

coverage: $(STAMP) ## Say which branches of the engine's lower layers the tests take; ARGS=--missing lists the others
	@$(PY) -m tests.branches --workers $(WORKERS) $(ARGS)

check: lint test ## Run ruff, mypy, the import layers, and then the test suite

lint: $(STAMP) ## Run ruff, mypy and the import layers alone
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-cache --no-logo

bench: kernels ## Measure gmdb beside SQLite and DuckDB, and how cost grows, into docs/benchmarks; ARGS="--only scan" a part
	@$(PY) -m bench $(or $(ARGS),--into docs/benchmarks)

bench-spark: kernels ## Measure Spark with gmdb beside PostgreSQL over JDBC and Parquet, into docs/benchmarks; a quarter of an hour
	@scripts/programs --install-peers || true
	@$(WITH_JAVA) $(PY) -m bench.spark $(or $(ARGS),--into docs/benchmarks)

docs: $(STAMP) ## Write docs/file_format.md again from the layouts in src/gmdb/format
	@$(PY) -m gmdb.inspect.document > docs/file_format.md.new
	@mv docs/file_format.md.new docs/file_format.md

lock: ## Resolve pyproject.toml into requirements.lock again; pins that still fit stay
	@$(REQUIRE_PYTHON)
	@set -e; made=$$(mktemp -d); trap 'rm -rf "$$made"' EXIT; \
	  $(PYTHON) -m venv "$$made"; \
	  "$$made/bin/python" -m pip --quiet --disable-pip-version-check install uv; \
	  "$$made/bin/uv" pip compile pyproject.toml --quiet --all-extras --generate-hashes --universal \
	    --python-version 3.11 --no-annotate -o requirements.lock; \
	  if grep -n '://' requirements.lock; then echo "requirements.lock must name no host" >&2; exit 1; fi

clean: ## Remove .venv and everything that a command left behind
	@rm -rf .venv build dist src/*.egg-info src/gmdb/kernel/_kernels.abi3.so .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	@rm -rf spark-warehouse metastore_db derby.log docs/file_format.md.new
	@find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@$(REQUIRE_PYTHON)
	@echo "making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@echo "installing the packages of requirements.lock, about 1.7 GB on disk; takes a minute or two"
	@$(PIP) install --require-hashes -r requirements.lock
	@echo "installing gmdb itself"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
