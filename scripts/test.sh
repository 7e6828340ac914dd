#!/usr/bin/env bash
# Everything that must hold, fast parts first. `scripts/test.sh lint` stops before the tests.
source "$(dirname "$0")/lib.sh"

export CARGO_INCREMENTAL=0

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

say "layers, file lengths, request path"
cargo test --locked --quiet -p xtask

[ "${1:-}" = lint ] && exit 0

say "what the tests need"
install_debian chromium=chromium node=nodejs npm=npm curl=curl openssl=openssl \
  redis-server=redis-server python3=python3 pip3=python3-pip
install_valkey
cargo nextest --version >/dev/null 2>&1 || {
  say "installing cargo-nextest"
  cargo install --locked cargo-nextest
}
npm ci --prefix tests/browser --no-audit --no-fund --silent

say "tests"
export CORVUS_REQUIRE_BROWSER=1 CORVUS_REQUIRE_STORES=1
cargo nextest run --workspace --locked --profile "${NEXTEST_PROFILE:-ci}"

say "doc tests and docs"
cargo test --workspace --locked --doc --quiet
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet --document-private-items

say "all is well"
