# The two commands are `make run` and `make test`; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
# Programs that some tests need, each with the Debian packages that have it.
PROGRAMS := chromium=chromium prometheus=prometheus promtool=prometheus sshd=openssh-server ip=iproute2 \
	podman=podman,iptables runc=runc conmon=conmon netavark=netavark,aardvark-dns node=nodejs npm=npm
SEARCHED := PATH="$$PATH:/usr/sbin:/sbin:/usr/lib/podman"

.PHONY: help run test lint bench bench-engine bench-capacity setup weights debian soak clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

run: $(VENV)/.ready weights ## set up and run the main job on the embedded engine (under two minutes)
	$(BIN)/loadkit run

test: $(VENV)/.ready-test weights debian lint ## set up and run every check and test
	$(BIN)/pytest -n 4 --dist loadfile

lint: $(VENV)/.ready-test ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready ## accuracy and cost of the client, as ratios in one run
	$(BIN)/python benchmarks/client.py
	$(BIN)/python benchmarks/long_prompts.py
	$(BIN)/python benchmarks/parsers.py

bench-engine: $(VENV)/.ready weights ## speed of the NumPy engine beside what the machine can do
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/engine_serving.py

bench-capacity: $(VENV)/.ready ## predicted against confirmed rates, five servers of known law
	$(BIN)/python benchmarks/capacity_check.py

soak: $(VENV)/.ready ## 20 minutes at 200 streams: nothing grows, the schedule is kept
	$(BIN)/python benchmarks/soak.py --minutes 20

setup: $(VENV)/.ready ## make the virtual environment only

weights: $(VENV)/.ready
	@$(BIN)/python -m loadkit.target.weights

# Only what is missing is asked for (a node from elsewhere comes with its npm and refuses Debian's), one package after
# the other where they will not go together.
debian:
	@$(SEARCHED); missing=; packages=; \
	for pair in $(PROGRAMS); do command -v $${pair%%=*} >/dev/null && continue; \
		missing="$$missing $${pair%%=*}"; packages="$$packages $$(echo $${pair#*=} | tr , ' ')"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing for the tests:$$packages"; \
		install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@" >/dev/null; }; \
		apt-get update -qq; install $$packages || for package in $$packages; do install $$package; done; \
		for pair in $(PROGRAMS); do command -v $${pair%%=*} >/dev/null \
			|| echo "could not install $${pair#*=}: tests that need $${pair%%=*} are left out"; done; \
	else \
		echo "left out: tests that need$$missing (install$$packages, or run as root where apt is)"; \
	fi

clean: ## remove the virtual environment and caches; runs and weights stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "loadkit needs Python 3.11 or newer"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module of Python is missing; on Debian: apt-get install python3-venv"; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
