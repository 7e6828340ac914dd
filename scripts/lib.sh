# Shared by the other scripts. Source it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || fail "cargo is missing: install Rust (https://rustup.rs), then try again"

target_dir() { printf '%s' "${CARGO_TARGET_DIR:-target}"; }

# install_debian COMMAND=PACKAGE ...: installs the packages whose commands are missing.
install_debian() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    fail "please install: ${missing[*]} (no apt-get here to do it)"
  fi
  local sudo=""
  [ "$(id -u)" -eq 0 ] || sudo="sudo"
  say "installing ${missing[*]}"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "these packages could not be installed: ${missing[*]}"
}
