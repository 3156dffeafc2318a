# The words of this project. `make demo` and `make test` need Python 3.11+ with venv, and nothing else.
PYTHON ?= python3
JOBS ?= 8
BIN := .venv/bin
# Read by the demo where the machine's package manager keeps no log.
INSTALL_LOG := .venv/install.log
QUIETLY := --disable-pip-version-check --progress-bar off
OR_TELL := || { tail -n 20 $(INSTALL_LOG); echo "make: pip failed; all it said is in $(INSTALL_LOG)"; exit 1; } >&2

RELEASE_TOOLS := .state/release/installed

# Empty is off, whatever the shell says: what tests start is compiled once, and not by each process.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install lint test test-page test-long test-matrix test-upgrade test-chart test-clients test-go vendored pictures faults soak ends away demo bench docs constraints release freeze clean model
.DEFAULT_GOAL := install

install: .venv/installed

.venv/installed: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "make: Python 3.11 or newer with venv is needed (Debian: apt install python3-venv); another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "Installing what constraints.txt names into .venv: that may take a minute or two"
	@$(BIN)/python -m pip install $(QUIETLY) --require-hashes -r constraints.txt > $(INSTALL_LOG) 2>&1 $(OR_TELL)
	@echo "Installing eventbus itself: a few seconds"
	@$(BIN)/python -m pip install $(QUIETLY) --no-deps --no-build-isolation -e . >> $(INSTALL_LOG) 2>&1 $(OR_TELL)
	@touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	.ci/page-lint

# A container belongs to one worker process, hence loadgroup (tests/plugins/distribution.py). ARGS='-k watch' and the like
# go to pytest. Many tests wait for processes, so there are more workers than cores.
test: install
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

# The page, in a real Chromium; skipped with a reason where there is none. `make test` has some of it, `make test-long` all.
test-page: install
	$(BIN)/python -m pytest tests/page -m "" -n 1 $(ARGS)

# Takes the page's libraries anew from their npm packages (needs npm), and compares.
vendored:
	.ci/page-vendor $(ARGS)

# The screenshots in docs/pictures, of the demo's data; needs Chromium.
pictures: install
	$(BIN)/python docs/pictures.py

# What `make test` leaves out: the whole of what it has a thin choice of, on every kind of server, with tens of thousands
# of events, and properties with eight times as many examples. Fewer at a time: each takes more.
test-long: JOBS = 4
test-long: install
	EVENTBUS_TEST_EXAMPLES=200 $(BIN)/python -m pytest -m "volume or hypothesis" --timeout 900 -n $(JOBS) --dist loadgroup $(ARGS)

# A choice of the tests on each Python (3.11 to 3.14) and each server that this machine has; three minutes for each.
# ARGS='--server redis:8 --no-pythons' for one of them. `.ci/container-engine matrix` makes newer servers of Debian packages.
test-matrix: install
	@engine=$$(.ci/container-engine env 2> /dev/null); eval "$$engine"; $(BIN)/python -m tests.matrix -n $(JOBS) --dist loadgroup $(ARGS)

# Other people's clients: four kubectls, Python's, and JavaScript's where there is npm; fetched into .state and a cache, some
# 200 MB the first time. Then four minutes.
CLIENTS := .state/clients
test-clients: install $(CLIENTS)/made
	$(BIN)/python -m tests.clients.tools
	EVENTBUS_TEST_CLIENTS=1 $(BIN)/python -m pytest tests/clients $(GO_TESTS:%=--ignore %) -n 2 --dist loadgroup $(ARGS)

$(CLIENTS)/made: tests/clients/requirements.txt tests/clients/requirements-pages.txt tests/clients/package.json
	$(PYTHON) -m venv $(CLIENTS)/venv
	$(CLIENTS)/venv/bin/python -m pip install $(QUIETLY) --quiet -r tests/clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)/pages
	$(CLIENTS)/pages/bin/python -m pip install $(QUIETLY) --quiet -r tests/clients/requirements-pages.txt
	@mkdir -p $(CLIENTS)/node && cp tests/clients/package.json $(CLIENTS)/node/
	@if command -v npm > /dev/null; then cd $(CLIENTS)/node && npm install --silent --no-audit --no-fund; \
	  else echo "make: there is no npm, so @kubernetes/client-node is not tried"; fi
	@touch $@

# client-go itself, its informer and its recorder, and a real kube-apiserver to import from, compiled from Debian's source
# package of Kubernetes: needs Go and apt-get.
GO_CLIENT := $(CLIENTS)/go
GO_TESTS := tests/clients/test_client_go.py tests/clients/test_kube_apiserver.py
test-go: install
	tests/clients/build_kubernetes $(GO_CLIENT)
	EVENTBUS_TEST_CLIENTS=1 $(BIN)/python -m pytest $(GO_TESTS) $(ARGS)

# Everything that can go wrong, each with its control run; about ten minutes. The table at the end is that of
# docs/reliability.md. ARGS='-k failover' for one of them, EVENTBUS_TEST_SEED=… for a seed that was printed.
faults: install
	EVENTBUS_TEST_FAULTS=long $(BIN)/python -m pytest tests/faults -m "" -n 2 --timeout 300 $(ARGS)

# Upgrade and rollback under load, from the wheel of the last tag (or EVENTBUS_TEST_OLD_WHEEL) to that of this tree.
test-upgrade: install
	EVENTBUS_TEST_FAULTS=long $(BIN)/python -m pytest tests/faults/test_builds.py -m "" -k wheels --timeout 300 $(ARGS)

# Adds the stored formats of this build to those that each later build must read: make freeze VERSION=0.1.0
freeze: install
	$(BIN)/python -m tests.freeze $(VERSION)

MINUTES ?= 30
soak: install
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(ARGS)

RUNS ?= 20
# The ends of a process that races decide, RUNS times each; RUNS=100 takes some eleven minutes on two quiet cores.
# ARGS='-k during' for others of the table in docs/reliability.md.
ends: install
	$(BIN)/python -m tests.faults.ends --runs $(RUNS) $(ARGS)

# Redis away under an agent for AWAY seconds, for real: nothing of its pods ends, and all is told afterwards.
AWAY ?= 600
away: install
	EVENTBUS_TEST_AWAY_S=$(AWAY) $(BIN)/python -m pytest tests/acceptance/test_agent_long.py -m "" -k redis_is_away -s $(ARGS)

demo: install
	$(BIN)/python -m examples.demo

# 10 000 random steps against a store that is killed, flushed, trimmed and cut off.
model: install
	EVENTBUS_TEST_STEPS=10000 $(BIN)/python -m pytest tests/integration/test_informers_model.py -m "" $(ARGS)

# Ours beside the peers: three rounds (ROUNDS=1) of three to eight minutes, the busier the machine; ONLY=ours takes two.
bench: install
	$(BIN)/python -m benchmarks $(ONLY)

docs: install
	$(BIN)/python docs/cli_page.py
	$(BIN)/python docs/settings_page.py
	$(BIN)/python docs/build_site.py

# Pins every package for every platform, with all hashes; see CONTRIBUTING.md.
constraints:
	$(PYTHON) -m venv .state/pin
	.state/pin/bin/python -m pip install --quiet --disable-pip-version-check uv
	.state/pin/bin/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file constraints.txt $(UPGRADE)
	.state/pin/bin/uv pip compile pyproject.toml --extra all --universal --python-version 3.11 --constraints constraints.txt \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file constraints-runtime.txt
	for group in release chart; do .state/pin/bin/uv pip compile --group $$group --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file .ci/$$group-tools.txt $(UPGRADE) || exit; done

# Checks, writes the changelog, builds wheel and sdist in dist/, commits and tags: make release VERSION=0.1.0
# DRY_RUN=1 changes nothing outside dist/, TESTS=1 runs the tests first.
release: install $(RELEASE_TOOLS)
	@DRY_RUN=$(DRY_RUN) TESTS=$(TESTS) .ci/release $(VERSION)

# Renders the Helm chart with Helm's own engine, and checks the manifests with the schemas of Kubernetes and our commands.
test-chart: install .state/chart/installed
	.state/chart/bin/python .ci/chart

$(RELEASE_TOOLS) .state/chart/installed: .state/%/installed: .ci/%-tools.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install $(QUIETLY) --quiet --require-hashes -r $<
	@touch $@

clean:
	rm -rf .venv .state .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
