#!/usr/bin/env bash
# usage: scripts/test.sh [PYTEST ARGUMENT...]
# From a fresh machine to green tests: engine, images, tools, pytest. SANDBOX=local leaves out what needs the engine.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
export MAKE_GOAL=test

if [ "${SANDBOX:-docker}" = local ]; then
  say "SANDBOX=local: the tests that need a Docker engine are left out"
  exec .venv/bin/python -m pytest -m 'not docker' "$@"
fi
scripts/images.sh
scripts/tools.sh
exec .venv/bin/python -m pytest "$@"
