# make run      build what is missing and start the gateway (CONFIG=FILE, or a sample shop behind a
#               queue)
# make test     install what the tests need and run them all
# make bench    compare with nginx, HAProxy and nginx with Lua, and measure the queue engine
# make check    the fast part of `make test`: format, lints, layers

.PHONY: run test check bench fmt

run:
	@scripts/run.sh $(CONFIG)

test:
	@scripts/test.sh

check:
	@scripts/test.sh lint

bench:
	@scripts/bench.sh $(ARGS)

fmt:
	cargo fmt --all
