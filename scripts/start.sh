#!/usr/bin/env bash
# usage: DIR=path AGENT=kind SANDBOX=docker|local PORT=number scripts/start.sh
# From a fresh machine to a running server: engine, base for the sandbox image, `a2a-serve start`.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export MAKE_GOAL=start

if [ "${SANDBOX:-docker}" = docker ]; then
  "$here/scripts/engine.sh"
  "$here/scripts/base.sh"
fi
words=("${DIR:-.}")
if [ -n "${AGENT:-}" ]; then words+=(--agent "$AGENT"); fi
if [ -n "${SANDBOX:-}" ]; then words+=(--sandbox "$SANDBOX"); fi
if [ -n "${PORT:-}" ]; then words+=(--port "$PORT"); fi
if ! command -v a2a-serve >/dev/null; then
  printf '== For the commands below, first in the other terminal: export PATH="%s:$PATH"\n' "$here/.venv/bin"
fi
exec "$here/.venv/bin/a2a-serve" start "${words[@]}"
