# Every command of this repository. Each sets up what it needs: Linux, Python 3.11+ and make are enough to begin.
PY := .venv/bin/python
STACK := $(PY) -m plimsoll_devkit.stack
.DEFAULT_GOAL := help
.PHONY: help demo test check up down status logs reset bench sim docs fmt
MAKEFLAGS += --no-print-directory

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/.synced: uv.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
	@sh deploy/local/bootstrap.sh

demo: .venv/.synced ## the whole story on real parts, in one command
	@$(PY) -m plimsoll_devkit.demo

test: .venv/.synced ## every check there is (SUITE="unit sim" for some of the suites)
	@$(STACK) set-up
	@$(PY) -m plimsoll_devkit.suites test $(SUITE)

check: .venv/.synced ## what needs no server: style, types, layers, fast tests
	@$(PY) -m plimsoll_devkit.suites check

up: .venv/.synced ## start everything here and leave it running (ONLY=kafka,postgres for a part)
	@$(STACK) up $(if $(ONLY),--only $(ONLY))

down: .venv/.synced ## stop it; its data stays
	@$(STACK) down

status: .venv/.synced ## what runs, where, and how it is
	@$(STACK) status

logs: .venv/.synced ## the last lines of every part (FOLLOW=1 goes on, ONLY=kafka for one)
	@$(STACK) logs $(if $(FOLLOW),--follow) $(if $(ONLY),--only $(ONLY))

reset: .venv/.synced ## stop it and throw its data away; downloads stay
	@$(STACK) reset

bench: .venv/.synced ## speed and memory, as ratios in one run
	@$(PY) -m plimsoll_devkit.bench

SEEDS ?= 200
sim: .venv/.synced ## the engine under simulated faults (SEEDS=how many, SEED=just this one)
	@$(PY) -m plimsoll_devkit.simulation --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

docs: .venv/.synced ## write the generated files again: schemas, AsyncAPI, metrics, compose.yaml
	@$(PY) -m plimsoll_devkit.reference

fmt: .venv/.synced ## put the code in order
	@$(PY) -m ruff check --fix --quiet . && $(PY) -m ruff format .
