# make build | check | test | demo | bench | install | clean
PREFIX ?= /usr/local
DESTDIR ?=
TOOLS = ipconf-check host-probe part-map part-push part-pull dgl-env dgl-spawn dgl-reap

# Building OpenSSL takes minutes; where the system has its headers, they are used.
ifeq ($(shell pkg-config --exists openssl 2>/dev/null && echo yes),yes)
export OPENSSL_NO_VENDOR = 1
endif

# cargo-nextest where it is there: its one summary line is easier to read than a page of them.
ifeq ($(shell cargo nextest --version >/dev/null 2>&1 && echo yes),yes)
RUN_TESTS = cargo nextest run --workspace --no-fail-fast
else
RUN_TESTS = cargo test --workspace --no-fail-fast
endif

build:
	cargo build --release --locked

check:
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	shellcheck -s sh common/src/remote/job.sh tools/*/src/host.sh tests/need.sh
	shellcheck tests/cluster/cluster.sh tests/bench/*.sh tests/dgl/python.sh tests/demo.sh .ci/run

test:
	tests/need.sh
	cargo build --workspace --locked
	$(RUN_TESTS)

demo:
	tests/need.sh
	cargo build --release --locked
	tests/demo.sh

bench: build
	tests/bench/planners.sh
	tests/bench/copy.sh

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(TOOLS:%=target/release/%) $(DESTDIR)$(PREFIX)/bin

clean:
	cargo clean

.PHONY: build check test demo bench install clean
