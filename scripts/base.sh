#!/usr/bin/env bash
# usage: scripts/base.sh
# Makes sure that sandbox images have a base to start from: one that is here, one from an image registry, or the
# tool that makes one from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
NEED_HINT="Or without a sandbox, at your own risk: SANDBOX=local make ${MAKE_GOAL:-start}"

has_base() {
  .venv/bin/python - <<'PY'
import sys

import docker

engine = docker.from_env(timeout=60)
tags = [tag for image in engine.images.list() for tag in image.tags]
if any(tag.startswith(("a2a-serve-base:", "debian:bookworm-slim")) for tag in tags):
    sys.exit(0)
try:
    engine.images.pull("debian", "bookworm-slim")
except (docker.errors.DockerException, OSError):
    sys.exit(1)
PY
}

if command -v mmdebstrap >/dev/null; then exit 0; fi
say "Looking for a base for the sandbox images"
if has_base; then exit 0; fi
say "No image registry answers, so the base will be made from Debian's packages"
if is_debian && is_root; then refresh_packages; fi
need "mmdebstrap" mmdebstrap
