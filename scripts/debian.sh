# Sourced by the other scripts: say what happens, stop with the next step, install Debian's packages.
# shellcheck shell=bash

say() { printf '== %s\n' "$*"; }

# stop SENTENCE [NEXT STEP...]: each argument is one line; empty ones are left out.
stop() {
  local line
  printf '\n!! %s\n' "$1" >&2
  shift
  for line in "$@"; do
    if [ -n "$line" ]; then printf '   %s\n' "$line" >&2; fi
  done
  exit 1
}

is_debian() {
  command -v apt-get >/dev/null || return 1
  local ids
  ids=$(. /etc/os-release && printf '%s' "${ID:-} ${ID_LIKE:-}") || return 1
  [[ " $ids " == *" debian "* || " $ids " == *" ubuntu "* ]]
}

is_root() { [ "$(id -u)" = 0 ]; }

# quietly COMMAND...: its output is kept and shown only when it fails.
quietly() {
  local log
  log=$(mktemp)
  if "$@" >"$log" 2>&1 </dev/null; then rm -f "$log"; return 0; fi
  cat "$log" >&2
  rm -f "$log"
  return 1
}

refresh_packages() {
  say "Reading Debian's package lists"
  quietly apt-get -q update || stop "apt-get update failed." "See its message above: is there a network?"
}

# known PACKAGE...: those of them that this Debian has.
known() {
  local name
  for name in "$@"; do
    if apt-cache show --no-all-versions "$name" >/dev/null 2>&1; then printf '%s ' "$name"; fi
  done
}

# need WHAT PACKAGE...: install packages as root on Debian, else tell the one command to run and stop.
need() {
  local what=$1
  shift
  if ! is_debian; then
    stop "Missing: $what." "Install it with your system's package manager, then run the same command again." "${NEED_HINT:-}"
  fi
  if ! is_root; then
    stop "Missing: $what. Run this, then the same command again:" \
      "sudo apt-get update && sudo apt-get install -y $*" "${NEED_HINT:-}"
  fi
  say "Installing $what from Debian's packages: $*"
  DEBIAN_FRONTEND=noninteractive quietly apt-get -q install -y --no-install-recommends "$@" ||
    stop "apt-get could not install $what." "See its message above."
}
