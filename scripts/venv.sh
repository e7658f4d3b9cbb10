#!/usr/bin/env bash
# usage: scripts/venv.sh [dev]
# Makes .venv with a2a-serve in it, versions as in constraints.txt. `dev` adds what tests, lint and types need.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh

# Prints the first Python that is new enough; with `venv`, one that can also make a virtual environment.
find_python() {
  local each wanted='import sys; sys.exit(sys.version_info < (3, 11))'
  if [ "${1:-}" = venv ]; then wanted="import ensurepip, venv; $wanted"; fi
  for each in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$each" -c "$wanted" >/dev/null 2>&1; then printf '%s' "$each"; return 0; fi
  done
  return 1
}

# Prints the Debian packages that give a good enough Python.
python_packages() {
  local python each
  if python=$(find_python); then
    if [ "$python" = python3 ]; then printf 'python3-venv'; else printf '%s-venv' "$python"; fi
  elif apt-cache policy python3 2>/dev/null | grep -qE 'Candidate: (3\.1[1-9]|3\.[2-9][0-9])'; then
    printf 'python3 python3-venv'
  else
    for each in python3.14 python3.13 python3.12 python3.11; do
      if [ -n "$(known "$each-venv")" ]; then printf '%s %s-venv' "$each" "$each"; return; fi
    done
    printf 'python3 python3-venv'
  fi
}

need_python() {
  if find_python venv >/dev/null; then return; fi
  if is_debian && is_root; then refresh_packages; fi
  # shellcheck disable=SC2046 # a list of words
  need "Python 3.11 or newer with venv" $(python_packages)
  find_python venv >/dev/null ||
    stop "There is no Python 3.11 or newer here, and this system's packages have none." "Install one, then run the same command again."
}

make_venv() {
  if .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then return; fi
  need_python
  say "Making .venv with $("$(find_python venv)" --version)"
  "$(find_python venv)" -m venv --clear .venv
}

# One line that changes on a terminal, plain lines elsewhere.
show_progress() {
  local line
  while read -r line; do
    case $line in
      Collecting*) line=${line#Collecting }; line="fetching ${line%%[ <>=!~;[]*}" ;;
      Installing*collected*) line="unpacking" ;;
      *) continue ;;
    esac
    if [ -t 1 ]; then printf '\r\033[K   %s' "$line"; else printf '   %s\n' "$line"; fi
  done
  if [ -t 1 ]; then printf '\r\033[K'; fi
}

install() {
  say "Installing $1 into .venv (a minute or so the first time)"
  # The second name constrains the build backend in newer pip; older pip does not know it and ignores it.
  PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    .venv/bin/python -m pip install --progress-bar off -c constraints.txt -e "$1" | show_progress
}

make_venv
if [ "${1:-}" = dev ]; then install '.[dev]'; else install .; fi
