#!/usr/bin/env bash
# Compares the gateway with the peers that are installed. ARGS are passed on to bench/run.py.
source "$(dirname "$0")/lib.sh"

install_debian python3=python3 nginx=nginx haproxy=haproxy wrk=wrk h2load=nghttp2-client openssl=openssl \
  pip3=python3-pip
[ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] || install_debian no-such-command=libnginx-mod-http-lua
install_valkey
cargo build --release --locked -p corvus
exec python3 bench/run.py "$@"
