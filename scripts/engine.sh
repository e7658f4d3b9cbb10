#!/usr/bin/env bash
# usage: scripts/engine.sh
# Ends well once a Docker engine answers. As root on Debian or Ubuntu it installs and starts one where that is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
PATH=$PATH:/usr/sbin:/sbin
NEED_HINT="Or without a sandbox, at your own risk: SANDBOX=local make ${MAKE_GOAL:-start}"
LOG=/var/log/a2a-serve-dockerd.log

# The same client that the server uses, so what it cannot reach does not count.
answers() {
  .venv/bin/python -c 'import docker; docker.from_env(timeout=10).ping()' >/dev/null 2>&1
}

wait_for_answer() {
  local tries=0
  until answers; do
    tries=$((tries + 1))
    if [ "$tries" -gt 60 ]; then return 1; fi
    sleep 0.5
  done
}

has_systemd() { [ -d /run/systemd/system ]; }

install_engine() {
  local names=(docker.io docker-cli)
  if is_debian && is_root; then
    refresh_packages
    has_systemd || names+=(cgroupfs-mount)
    # Older releases have the client inside docker.io, newer ones no cgroupfs-mount.
    # shellcheck disable=SC2046 # a list of words
    need "the Docker engine" $(known "${names[@]}")
  else
    # With what the images need where no registry answers, so that one command is enough.
    need "the Docker engine" docker.io mmdebstrap '&& sudo usermod -aG docker "$USER" && newgrp docker'
  fi
}

# A bridge whose packets are larger than the way out takes them would hang at the first large answer.
mtu_of_default_route() {
  local device
  device=$(awk '$2 == "00000000" { print $1; exit }' /proc/net/route)
  cat "/sys/class/net/${device:-none}/mtu" 2>/dev/null || echo 1500
}

# No service manager (a container, a small virtual machine): mount the cgroups and run the engine ourselves.
start_in_background() {
  if command -v cgroupfs-mount >/dev/null; then
    cgroupfs-mount || true
  elif ! mountpoint -q /sys/fs/cgroup; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
  fi
  setsid dockerd --mtu="$(mtu_of_default_route)" >>"$LOG" 2>&1 </dev/null &
}

start_engine() {
  if has_systemd; then
    say "Starting the Docker engine (systemctl start docker)"
    systemctl start docker && wait_for_answer && return
    stop "The Docker engine did not start." "See: journalctl -u docker" "$NEED_HINT"
  fi
  say "Starting the Docker engine in the background (its log: $LOG)"
  start_in_background
  # An engine that was killed leaves a containerd that takes a while to go: the second try finds it gone.
  wait_for_answer || { start_in_background && wait_for_answer; } || {
    tail -n 15 "$LOG" >&2
    stop "The Docker engine did not start." "The end of its log is above." "$NEED_HINT"
  }
}

explain_unreachable() {
  if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
    stop "The Docker engine runs, but $(id -un) may not use it. Run this, then the same command again:" \
      'sudo usermod -aG docker "$USER" && newgrp docker' "$NEED_HINT"
  fi
  local start='sudo scripts/engine.sh'
  if has_systemd; then start='sudo systemctl start docker'; fi
  stop "The Docker engine is installed but does not answer. Run this, then the same command again:" "$start" "$NEED_HINT"
}

if answers; then exit 0; fi
if [ -n "${DOCKER_HOST:-}" ]; then
  stop "No Docker engine answers at DOCKER_HOST=$DOCKER_HOST." "Start it, or unset DOCKER_HOST." "$NEED_HINT"
fi
if [ "$(uname -s)" != Linux ]; then
  stop "No Docker engine answers." "Start Docker Desktop, then run the same command again." "$NEED_HINT"
fi
if ! command -v dockerd >/dev/null; then install_engine; fi
if answers; then exit 0; fi
if ! is_root; then explain_unreachable; fi
start_engine
