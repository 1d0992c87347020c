# Two commands do everything on a fresh machine with Python and make: `make demo` and `make test`.
# The environment is .venv, brought up to date only when requirements/dev.txt or pyproject.toml change.

PYTHON ?= python3
BIN    := .venv/bin
PY     := $(BIN)/python
DEV    := .venv/.dev

# The layers that everything later stands on, and the part of them that tests must reach.
CORE_LAYERS   := src/abreast/core/*,src/abreast/limits/*,src/abreast/store/*,src/abreast/run/*,src/abreast/jobs/plan/*,src/abreast/jobs/sample/*
CORE_COVERAGE := 97
ALL_COVERAGE  := 93

# Tests may read the time, which the rest may not, but they never sleep.
NO_SLEEP := 'lint.flake8-tidy-imports.banned-api."time.sleep".msg = "a test never sleeps: hold an item with Gate, move time with ManualClock"'

TESTED := $(shell find src tests examples -type f -not -name '*.pyc' 2>/dev/null)

# Another environment that happens to be active is not ours. Bytecode is kept: the tests start Python hundreds of times.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-ray test-python release-check first-result chaos fuzz load check static lint types contract tree coverage requirements reference check-reference commits compare format docs screenshots bench bench-asv bench-limits bench-peers bench-regression cluster corpus corpus-packages postgres served-clients live-agents agent-kills soak lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the environment

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit("abreast needs Python 3.11 or later: make PYTHON=/path/to/python3" if sys.version_info < (3, 11) else 0)'
	@echo "Making an environment in .venv (once): some seconds"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

# uv installs in a fifth of pip's time, but knows nothing of pip's settings (a mirror, a certificate): where it can't, pip does.
.venv/.uv: requirements/uv.txt .venv/.made
	@$(PY) -m pip install --quiet --no-compile --no-deps --require-hashes --only-binary :all: -r requirements/uv.txt || true
	@touch $@

# $(call install,the interpreter,what)
install = $(BIN)/uv pip install --quiet --python $(1) $(2) 2>/dev/null || $(1) -m pip install --quiet --no-compile $(2)

# What the command line, the demo and its page stand on, with the command itself: small wheels but for the engine of the
# embedded model. They are compiled when they are imported: few of their modules are.
.venv/.run: requirements/run.txt requirements/build.txt pyproject.toml .venv/.uv
	@echo "Fetching the packages of the demo into .venv (once): 45 MB, some seconds"
	@$(call install,$(PY),--no-deps --require-hashes --only-binary :all: -r requirements/run.txt -r requirements/build.txt)
	@$(call install,$(PY),--no-index --no-deps --no-build-isolation --editable .)
	@touch $@

.venv/.tools: requirements/dev.txt .venv/.uv
	@echo "Installing the tools of development into .venv (once)"
	@$(call install,$(PY),--require-hashes -r requirements/dev.txt)
	@touch $@

$(DEV): pyproject.toml .venv/.tools
	@$(call install,$(PY),--no-index --no-deps --no-build-isolation --editable .)
	@touch $@

# Ray is 70 MB: only its own tests need it, and CI.
.venv/.ray: requirements/ray.txt $(DEV)
	@echo "Installing Ray into .venv (once): 70 MB, some seconds"
	@$(call install,$(PY),--require-hashes -r requirements/ray.txt)
	@touch $@

# --- the two commands

demo: .venv/.run ## commands side by side, their lanes drawn as they run, and what to try next
	@$(BIN)/abreast demo

# .coverage exists only if the whole suite passed: `check` trusts it for as long as it is newer than what was tested.
# Its parts run beside each other: none has both processors wait for the last of its tests.
define run_suite
	@rm -f .coverage .coverage.*
	.ci/beside \
	  "$(BIN)/coverage run -m pytest -n 3 --dist worksteal --short --hypothesis-profile=quick" \
	  "$(BIN)/pytest -n 3 --dist worksteal --slow" \
	  "$(BIN)/coverage run -m pytest --ray -m 'ray and not soak' --hypothesis-profile=quick"
	@$(BIN)/coverage combine --quiet
endef

# A newcomer has an answer in minutes: the slowest tests (tests/slow.txt, tests/long.txt), those of Ray, and measuring what
# is reached, are left to CI, most examples of properties to `make soak`.
test: $(DEV) ## the suite but for its slowest tests; with CI set, all of them, measured
ifdef CI
	@$(MAKE) --no-print-directory .venv/.ray
	@$(PY) -m benchmarks.peers specify-cli  # its own projects and workflows are run
	$(run_suite)
else
	$(BIN)/pytest -n 4 --dist worksteal --quick --hypothesis-profile=quick
endif

.coverage: $(DEV) $(TESTED) | .venv/.ray
	$(run_suite)

test-ray: .venv/.ray ## the tests of the Ray executor, with a cluster of two nodes on this machine
	$(BIN)/pytest --ray -m 'ray and not soak' --hypothesis-profile=quick

# PYTHON=3.13, or the path of an interpreter; a version that isn't here is downloaded by uv. Warnings are errors, as always.
OTHER := build/env/python-$(subst /,-,$(PYTHON))

test-python: ## the suite on another Python: PYTHON=3.13; TESTS=tests/run for a part of it
	@$(MAKE) --no-print-directory PYTHON=python3 .venv/.uv
	@test -x $(OTHER)/bin/python || $(BIN)/uv venv --quiet --seed --python $(PYTHON) $(OTHER)
	@$(call install,$(OTHER)/bin/python,--require-hashes -r requirements/dev.txt)
	@$(call install,$(OTHER)/bin/python,--no-deps --no-build-isolation --editable .)
	$(OTHER)/bin/python --version
	$(OTHER)/bin/python -m pytest -n 2 --dist worksteal --short --hypothesis-profile=quick $(TESTS)

# --- what must hold

check: static coverage compare ## lint, types, import contract, tree, docstrings, coverage, docs, requirements, speed

# What needs no test to have run: CI has it done beside the tests.
static: lint types contract tree check-reference docs requirements

lint: $(DEV) ## ruff: rules, docstrings, format
	$(BIN)/ruff check .
	$(BIN)/ruff check --quiet --isolated --select TID251 --config $(NO_SLEEP) tests
	$(BIN)/ruff format --check .

types: $(DEV) ## mypy, strict; mypy and pyright over the Python of README, docs and examples
	$(BIN)/mypy
	$(PY) scripts/check_doc_types.py

contract: $(DEV) ## the arrow of imports
	$(BIN)/lint-imports --no-cache --no-logo

tree: $(DEV) ## sizes of packages, and no class name twice
	$(PY) scripts/check_tree.py

coverage: .coverage ## the two thresholds; runs the suite if anything changed since
	$(BIN)/coverage report --include='$(CORE_LAYERS)' --fail-under=$(CORE_COVERAGE)
	$(BIN)/coverage report --fail-under=$(ALL_COVERAGE)

requirements: $(DEV) ## every test that docs/requirements.md names exists
	$(PY) scripts/check_requirements.py

commits: $(DEV) ## how the commits beyond origin/main are cut
	$(PY) scripts/check_commits.py

check-reference: $(DEV) ## docs/cli.md is what the help says
	$(PY) scripts/cli_reference.py --check

# --- the rest

reference: $(DEV) ## write docs/cli.md again, from the help of every command
	$(PY) scripts/cli_reference.py

format: $(DEV) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

screenshots: $(DEV) ## the pictures of the web page in docs/images, of real runs, in Chromium
	$(PY) scripts/screenshots.py

docs: $(DEV) ## the documentation, into build/docs, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/docs

bench: $(DEV) ## measure, side by side with the peers that are installed
	$(PY) -m benchmarks

# Its notes about this machine stay in build, too.
ASV = HOME=$(CURDIR)/build/asv build/asv/bin/asv --config benchmarks/asv.conf.json

bench-asv: $(DEV) build/asv/.made ## measure plans with asv, which keeps what it measured in build/asv/results
	$(PY) -m benchmarks.plans
	@$(ASV) machine --yes > build/asv/machine.txt
	$(ASV) run --show-stderr --python=same --quick --set-commit-hash $$(git rev-parse HEAD)

bench-limits: $(DEV) ## limiters against servers with exact limits: nine scenarios over loopback, and a hundred worlds
	$(PY) -m benchmarks.limits
	$(PY) -m benchmarks.limits --virtual --worlds 100

compare: $(DEV) ## three small loads against an earlier commit: fails if this tree takes 1.5 x the time
	$(PY) -m benchmarks.regression --short

bench-regression: $(DEV) ## measure against an earlier commit, and fail if this one is slower
	$(PY) -m benchmarks.regression

corpus: $(DEV) ## candidates of every kind for functions of our own: who is taken for what
	$(PY) -m benchmarks.corpus

corpus-packages: $(DEV) ## candidates for functions of real packages, which pip fetches, by their own tests
	$(PY) -m benchmarks.packages

bench-peers: $(DEV) ## install the peers, each in an environment of its own
	$(PY) -m benchmarks.peers

# The stores' contract, the laws and crashes, with a real server and PgBouncer in front: the suite has them, too.
postgres: $(DEV) ## the tests over PostgreSQL and PgBouncer, which are installed by apt if they are missing, as root
	$(PY) scripts/postgres.py --install
	$(BIN)/pytest -n 2 --dist worksteal tests/store/postgres tests/store/test_contract.py tests/laws/test_over_postgres.py tests/crash/test_postgres.py

# Clients of `abreast serve`, in two environments beside ours: some want openai 2, some openai 3.
build/env/%/.made: requirements/%.txt | .venv/.uv
	@echo "Installing $* into build/env/$* (once): some seconds"
	@$(PYTHON) -m venv --clear build/env/$*
	@$(call install,build/env/$*/bin/python,--no-deps --require-hashes --only-binary :all: -r $<)
	@touch $@

# FLAGS=--cpu on a machine with much else to do.
first-result: ## how long a newcomer waits for a first useful result: from a clone, and from a wheel
	$(PYTHON) scripts/first_result.py $(FLAGS)

# PYTHONS="3.12 /opt/python3.14/bin/python3", FLAGS=--strict: a Python that can't be had is then a failure. docs/releasing.md
release-check: build/env/release/.made ## build wheel and sdist, look into them, install them by pip, uv and pipx on every Python
	build/env/release/bin/python scripts/release_check.py $(PYTHONS) $(FLAGS)

served-clients: $(DEV) build/env/clients/.made build/env/clients-openai2/.made ## real SDKs through `abreast serve`, recorded and replayed
	$(PY) -m benchmarks.served_clients

# 620 MB from npm, with an invented key, an empty home and loopback addresses alone.
live-agents: $(DEV) build/agents/.made ## claude and codex: ten of each in trees, and through `abreast serve`, replayed
	$(PY) -m benchmarks.live_agents build/agents
	$(PY) -m benchmarks.served_clients --agents build/agents --only-agents

build/agents/.made:
	mkdir -p build/agents
	npm install --no-fund --no-audit --prefix build/agents @anthropic-ai/claude-code@2.1.197 @openai/codex@0.166.0
	@touch $@

agent-kills: $(DEV) ## ten replayed agents, their driver killed in ten rounds: none that finished runs again, nothing is left
	$(PY) -m benchmarks.live_agents.kills

soak: $(DEV) ## the tests that take minutes, and every property with all its examples
	$(BIN)/pytest -m soak --hypothesis-profile=soak
	$(BIN)/pytest -n 4 --dist worksteal -m 'hypothesis and not soak'

cluster: .venv/.ray ## a map, a study, optimize and a plan on PostgreSQL and two nodes of Ray, while each of them is killed
	$(PY) -m benchmarks.cluster

# ROUNDS=300 SEED=7, or FLAGS="--job plan --fault 'kill driver'": the help of the module lists them.
chaos: $(DEV) ## every job under every fault on both durable stores: what is lost, repeated, changed or left
	$(PY) -m benchmarks.chaos --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED)) $(FLAGS)

fuzz: $(DEV) ## broken files, arguments, agents' output, replies, HTTP, stores and patches: no traceback, no hang
	$(PY) -W ignore -m benchmarks.fuzz --tries 10000 --commands 200 $(if $(SEED),--seed $(SEED))

# MINUTES=3 for a shorter one.
load: $(DEV) ## a million items, 2,000 commands at once, 1,000 calls in flight for ten minutes, 200 readers
	$(PY) -m benchmarks.load --minutes $(or $(MINUTES),10)

batches: $(DEV) ## a map in batches, killed 30 times: each item is paid for once, at half the price
	$(PY) -m benchmarks.batch_kills

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(LOCK_FLAGS)

lock: .venv/.uv ## make requirements/*.txt again (LOCK_FLAGS=--upgrade for newer versions)
	$(LOCK) --output-file requirements/uv.txt requirements/uv.in
	$(LOCK) --output-file requirements/run.txt requirements/run.in
	$(LOCK) --output-file requirements/image.txt requirements/image.in
	$(LOCK) --output-file requirements/build.txt requirements/build.in
	$(LOCK) --output-file requirements/dev.txt requirements/dev.in
	$(LOCK) --output-file requirements/release.txt requirements/release.in
	$(LOCK) --output-file requirements/asv.txt requirements/asv.in
	$(LOCK) --output-file requirements/ray.txt requirements/ray.in
	$(LOCK) --output-file requirements/clients.txt requirements/clients.in
	$(LOCK) --output-file requirements/clients-openai2.txt requirements/clients-openai2.in

build/asv/.made: requirements/asv.txt requirements/run.txt | .venv/.uv
	$(PYTHON) -m venv build/asv
	@$(call install,build/asv/bin/python,--require-hashes -r requirements/asv.txt)
	@printf '%s\n' '$(CURDIR)/src' '$(CURDIR)' > "$$(build/asv/bin/python -c 'import site; print(site.getsitepackages()[0])')/abreast.pth"
	@touch $@

clean: ## remove what was built and measured; .venv stays
	rm -rf build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks examples scripts docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
