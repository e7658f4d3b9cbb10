#!/bin/bash
# The base of every sandbox image, made without an image registry from this host's own Debian or Ubuntu package sources.
#
#   base.sh root [SUITE]   a whole root file system, as a tar on stdout (needs mmdebstrap)
#   base.sh overlay        only the host's client configuration and CA certificates, as a tar on stdout
#
# The base is for building only: it knows how this host reaches its package registries (and may hold their
# credentials), so it must not be pushed. The images made from it keep none of that but the CA certificates.
set -euo pipefail

mode=${1:?usage: base.sh root|overlay [SUITE]}
suite=${2:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
overlay=$work/overlay
marker='# a2a-serve build configuration: not for the final image'

certificates() { # the host's own, and those of its bundle that the distribution does not ship
  local to=$overlay/usr/local/share/ca-certificates
  mkdir -p "$to"
  cp -L /usr/local/share/ca-certificates/*.crt "$to/" 2>/dev/null || true
  python3 - "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$to" <<'PY'
import hashlib, pathlib, re, ssl, sys
bundle, to = map(pathlib.Path, sys.argv[1:])
def certificates(file):
    text = file.read_text(errors="replace") if file.is_file() else ""
    return re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.S)
shipped = [*pathlib.Path("/usr/share/ca-certificates").rglob("*.crt"), *to.glob("*.crt")]
known = {ssl.PEM_cert_to_DER_cert(pem) for file in shipped for pem in certificates(file)}
for pem in certificates(bundle):
    der = ssl.PEM_cert_to_DER_cert(pem)
    if der not in known:
        (to / f"host-{hashlib.sha256(der).hexdigest()[:16]}.crt").write_text(pem + "\n")
PY
}

npm_configuration() { # what npm itself says, from every level it reads: where and how to fetch, scopes, credentials
  local key value file
  command -v npm >/dev/null || return 0
  for key in registry proxy https-proxy noproxy strict-ssl replace-registry-host; do
    value=$(npm config get "$key" 2>/dev/null || true)
    case $value in '' | null | undefined) ;; *) echo "$key=$value" ;; esac
  done
  for file in "$(npm config get globalconfig 2>/dev/null)" "$(npm config get userconfig 2>/dev/null)"; do
    [ -f "$file" ] && grep -E '^(@[^:]+:registry|//)' "$file" || true
  done
}

pip_configuration() { # likewise
  python3 -m pip config list 2>/dev/null | python3 -c '
import ast, sys
keep = {"index-url", "extra-index-url", "proxy", "trusted-host", "no-index", "timeout", "default-timeout"}
sections = {}
for line in sys.stdin:
    key, _, value = line.strip().partition("=")
    section, _, name = key.rpartition(".")
    value = ast.literal_eval(value)
    if name in keep and "file:" not in value:
        sections.setdefault("global" if section.startswith(":env:") else section, {})[name] = value
for section, settings in sections.items():
    print(f"[{section}]", *(f"{name} = {value}" for name, value in settings.items()), sep="\n")
' || true
}

go_configuration() {
  local key value
  for key in GOPROXY GOSUMDB GONOSUMDB GONOPROXY GOPRIVATE; do
    value=$( (command -v go >/dev/null && go env "$key") || printenv "$key" || true)
    [ -n "$value" ] && echo "$key=$value"
  done || true
}

apt_configuration() { # `apt-config dump` prints what apt reads, whichever file said it
  apt-config dump 2>/dev/null |
    grep -iE '^Acquire::(https?|ftp)::(proxy|[^ ]*::proxy|verify-peer|cainfo)|^Acquire::Check-(Valid-Until|Date)' || true
}

make_overlay() {
  local etc=$overlay/etc
  mkdir -p "$etc/apt/apt.conf.d" "$etc/apt/auth.conf.d"
  certificates
  { echo "$marker"; npm_configuration; } >"$etc/npmrc"
  { echo "$marker"; pip_configuration; } >"$etc/pip.conf"
  { echo "$marker"; go_configuration; } >"$etc/go.env"
  { echo "$marker"; apt_configuration; } >"$etc/apt/apt.conf.d/90host"
  cp -L /etc/apt/auth.conf.d/* "$etc/apt/auth.conf.d/" 2>/dev/null || true
}

package_sources() { # of the distribution itself: other vendors' sources may be unreachable and are not needed
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [ -s "$file" ] && grep -qE "^(Suites:|deb ).*[[:space:]]$suite([[:space:]-]|\$)" "$file" && echo "$file"
  done || true
}

make_root() {
  local sources
  mapfile -t sources < <(package_sources)
  [ ${#sources[@]} -gt 0 ] || { echo "There is no package source for '$suite' in /etc/apt." >&2; exit 1; }
  mmdebstrap --quiet --variant=apt --format=tar --include=ca-certificates \
    --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="copy-in $overlay/etc $overlay/usr /" \
    --customize-hook='chroot "$1" update-ca-certificates >/dev/null 2>&1' \
    "$suite" - "${sources[@]}"
}

make_overlay
case $mode in
overlay) tar -C "$overlay" --owner=0 --group=0 -cf - . ;;
root) make_root ;;
*) echo "usage: base.sh root|overlay [SUITE]" >&2; exit 64 ;;
esac
