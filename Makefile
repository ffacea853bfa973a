# All work is done with these targets; each one installs what it needs.
# Required on the machine: make and Python 3.11 or newer (PYTHON=… selects another interpreter).

PYTHON ?= python3
N ?= 1000

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# More processes than two cores, because many tests wait for processes and leases; worksteal, because a
# few long tests at the end must not delay the others.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal
COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --group build

PROTOC := $(BIN)/python -m grpc_tools.protoc --proto_path=proto
PROTOS := $(wildcard proto/tenure/v1/*.proto)
# protoc calls its plug-ins by name.
PROTO_OUT = PATH="$(abspath $(BIN)):$$PATH" $(PROTOC) --python_out=$(1) --grpc_python_out=$(1) \
	--mypy_out=quiet:$(1) $(PROTOS)

DEV_STAMP := .venv/.dev-stamp
RUN_STAMP := .venv/.run-stamp

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-run dist run test check format proto sync-client bench bench-peers sim soak lock

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-20s%s\n' "$$target" "$$text"; done

setup: $(DEV_STAMP) ## Create .venv with all development dependencies.

# If the development set-up exists, it includes the run-time set-up.
RUN_SETUP := $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),$(RUN_STAMP))
setup-run: $(RUN_SETUP) ## Create .venv with the run-time dependencies.

$(DEV_STAMP): requirements-dev.lock pyproject.toml
$(RUN_STAMP): requirements.lock pyproject.toml

$(DEV_STAMP) $(RUN_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tenure needs Python 3.11 or newer: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet --require-hashes --no-deps -r $<
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

DIST ?= dist
dist: setup-run ## Build the wheel and the source distribution into dist, or into DIST=…
	$(BIN)/python -m hatchling build --target sdist --target wheel --directory $(DIST)

run: setup-run ## Run the demo: a server and two workers; one is killed, and its work goes on.
	$(BIN)/python -m tenure.demo

# A part is a folder of tests. Without ONLY, OTHER_TESTS is everything except tests/core.
comma := ,
PARTS := $(strip $(subst $(comma), ,$(ONLY)))
KNOWN_PARTS = $(sort $(patsubst tests/%/,%,$(filter-out %/__pycache__/,$(wildcard tests/*/))))
UNKNOWN_PARTS = $(filter-out $(KNOWN_PARTS),$(PARTS))
CORE_TESTS := $(if $(PARTS),$(filter core,$(PARTS)),core)
OTHER_TESTS := $(if $(PARTS),$(addprefix tests/,$(filter-out core,$(PARTS))),--ignore=tests/core)

test: setup ## Run all tests, or parts: make test ONLY=engine,store; core needs 100 % coverage.
	$(if $(UNKNOWN_PARTS),$(error unknown: $(UNKNOWN_PARTS); known: $(KNOWN_PARTS)))
	$(if $(CORE_TESTS),$(PYTEST) tests/core --cov=tenure.core --cov=tenure.errors --cov-branch \
		--cov-fail-under=100)
	$(if $(OTHER_TESTS),$(PYTEST) $(OTHER_TESTS))

check: setup ## Check format, lint, types and import contracts.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@rm -rf .venv/proto && mkdir -p .venv/proto
	@$(call PROTO_OUT,.venv/proto)
	@diff --recursive --brief --exclude=__pycache__ --exclude=__init__.py \
		.venv/proto/tenure/v1 src/tenure/v1 || \
		{ echo "The generated code does not match proto/: run make proto" >&2; exit 1; }
	$(BIN)/python -m tools.make_sync_client --check

format: setup ## Format the code and fix what can be fixed automatically.
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

proto: setup ## Generate src/tenure/v1 from proto/tenure/v1.
	rm -f src/tenure/v1/*_pb2*.py*
	$(call PROTO_OUT,src)

sync-client: setup ## Generate the synchronous client from the async client.
	$(BIN)/python -m tools.make_sync_client

bench: setup ## Run the benchmarks, or one of them: make bench ONLY=engine
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

# Each peer has its own environment, so that its dependencies never affect another peer or Tenure.
PEERS := $(patsubst benchmarks/peers/requirements/%.txt,.venv-peers/%/.stamp,\
	$(wildcard benchmarks/peers/requirements/*.txt))

bench-peers: $(PEERS) ## Create the environments of other task queues for make bench ONLY=peers.

.venv-peers/%/.stamp: benchmarks/peers/requirements/%.txt
	test -x .venv-peers/$*/bin/python || $(PYTHON) -m venv .venv-peers/$*
	.venv-peers/$*/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r $<
	@touch $@

sim: setup ## Run N new seeds of the simulation: make sim N=1000
	$(BIN)/python -m tests.sim --seeds $(N)

soak: setup ## Run the long tests, or one of them: make soak ONLY=…
	$(BIN)/python -m tests.soak $(if $(ONLY),--only $(ONLY))

lock: setup ## Resolve the dependencies again and write both lock files.
	$(COMPILE) --upgrade --extra postgres --output-file requirements.lock
	$(COMPILE) --upgrade --all-extras --output-file requirements-dev.lock
	@! grep -nE '://|--(extra-)?index-url|--find-links|(^|[[:space:]])/' \
		requirements.lock requirements-dev.lock || \
		{ echo "a lock file names a host or a path of this machine" >&2; exit 1; }
