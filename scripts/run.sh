#!/usr/bin/env bash
# Builds the gateway if needed and starts it: with the given configuration, or with the example of
# the README, a sample shop behind an access queue.
source "$(dirname "$0")/lib.sh"

config="${1:-}"
say "building (the first time takes some minutes)"
cargo build --release --locked -p corvus
corvus="$(target_dir)/release/corvus"

# Ports below 1024 where they may be used, 8080 and 8443 otherwise.
http="[::]:80" https="[::]:443"
lowest="$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start 2>/dev/null || echo 1024)"
if [ "$(id -u)" -ne 0 ] && [ "$lowest" -gt 80 ]; then
  http="[::]:8080" https="[::]:8443"
fi
export CORVUS_HTTP="${CORVUS_HTTP:-$http}" CORVUS_HTTPS="${CORVUS_HTTPS:-$https}"

if [ -n "$config" ]; then
  exec "$corvus" serve --config "$config"
fi

"$corvus" sample-shop --listen 127.0.0.1:9000 &
shop=$!
trap 'kill "$shop" 2>/dev/null || true' EXIT
sleep 1
kill -0 "$shop" 2>/dev/null || fail "the sample shop needs 127.0.0.1:9000, and cannot have it"
say "the sample shop of examples/shop.yaml; CONFIG=FILE takes another configuration"
port="${CORVUS_HTTP##*:}"
[ "$port" = 80 ] && url="http://localhost/" || url="http://localhost:$port/"
echo "open $url  (two visitors at a time: a private window is another visitor)"
export CORVUS_ACCESS_LOG="${CORVUS_ACCESS_LOG:-data/access.log}"
mkdir -p data
echo "one line for each request is in $CORVUS_ACCESS_LOG"
"$corvus" serve --config examples/shop.yaml
