#!/usr/bin/env bash
# usage: scripts/images.sh [KIND...]
# Builds the sandbox images of these agent kinds, or those that the tests use; what is up to date is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export MAKE_GOAL=${MAKE_GOAL:-images}
if [ $# = 0 ]; then set -- demo opencode claude; fi
scripts/engine.sh
scripts/base.sh
.venv/bin/a2a-serve image build "$@"
