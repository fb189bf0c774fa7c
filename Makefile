# make build | check | test | demo | bench | install | clean
PREFIX ?= /usr/local
DESTDIR ?=
TOOLS = ipconf-check host-probe part-map part-push dgl-env dgl-spawn dgl-reap

# Building OpenSSL takes minutes; where the system has its headers, they are used. Asked anew for each target, because `need`
# may have just installed them.
export OPENSSL_NO_VENDOR ?= $(shell pkg-config --exists openssl 2>/dev/null && echo 1 || echo 0)

build:
	cargo build --release --locked

check:
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck -s sh common/src/remote/job.sh tools/*/src/host.sh tests/need.sh
	shellcheck tests/cluster/cluster.sh tests/dgl/python.sh tests/demo.sh .ci/run

need:
	@tests/need.sh

test: need
	cargo build --workspace --locked
	tests/run.sh $(TESTS)

demo: need
	cargo build --workspace --locked
	@tests/demo.sh

bench: build
	tests/bench/planners.sh

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(TOOLS:%=target/release/%) $(DESTDIR)$(PREFIX)/bin

clean:
	cargo clean

.PHONY: build check need test demo bench install clean
