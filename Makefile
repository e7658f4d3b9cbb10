# What people and scripts call. Every target makes what it needs first and is quick when that is there.
# Variables, of the command line or the environment, reach the scripts through the environment.
#
#   make start [DIR=path] [AGENT=kind] [SANDBOX=local] [PORT=number]
#   make test  [ARGS="pytest arguments"] [SANDBOX=local]
#   make lint types bench images docs conformance KIT=path

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python

.PHONY: help venv start test lint types bench images docs conformance constraints clean

help:
	@sed -n 's/^#   //p' Makefile

venv: .venv/bin/a2a-serve

.venv/bin/a2a-serve: pyproject.toml constraints.txt
	@scripts/venv.sh
	@touch $@

.venv/dev: .venv/bin/a2a-serve
	@scripts/venv.sh dev
	@touch .venv/bin/a2a-serve $@

start: .venv/bin/a2a-serve
	@scripts/start.sh

test: .venv/dev
	@scripts/test.sh $(ARGS)

lint: .venv/dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	@for each in scripts/*.sh .ci/run; do bash -n "$$each" || exit 1; done

types: .venv/dev
	$(PYTHON) -m mypy

bench: .venv/dev
	$(PYTHON) -m bench $(ARGS)

images: .venv/bin/a2a-serve
	@scripts/images.sh $(KINDS)

# Writes the reference pages that are made from the code.
docs: .venv/dev
	$(PYTHON) scripts/reference.py

# KIT is a checkout of the official A2A test kit.
conformance: .venv/dev
	@test -n "$$KIT" || { echo 'usage: make conformance KIT=path' >&2; exit 2; }
	$(PYTHON) scripts/conformance.py "$$KIT"

# Writes constraints.txt from what is installed in .venv.
constraints: .venv/dev
	$(PYTHON) scripts/constraints.py

clean:
	rm -rf .venv .tools .bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
