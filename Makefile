# make build | check | test | test-versions | demo | bench | install | uninstall | clean
PREFIX ?= /usr/local
MANDIR ?= $(PREFIX)/share/man
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
	shellcheck tools/dgl-copy/dgl-copy tools/dgl-launch/dgl-launch
	shellcheck -s sh common/src/remote/job.sh tools/*/src/host.sh tests/need.sh
	shellcheck tests/cluster/cluster.sh tests/dgl/python.sh tests/dgl/version.sh tests/demo.sh tests/run.sh .ci/run
	mandoc -T lint -W warning $(TOOLS:%=man/%.1) man/dgl-tools.7

need:
	@tests/need.sh
need-test:
	@tests/need.sh test

test: need-test
	cargo build --workspace --locked
	tests/run.sh $(TESTS)

# All of DGL_VERSIONS, on real hosts; 1.1.3 and 2.1.0 can be had too.
DGL_VERSIONS ?= 0.5.3 0.6.1 0.9.1 1.0.4
test-versions: need-test
	cargo build --workspace --locked
	DGL_VERSIONS="$(DGL_VERSIONS)" cargo test -p dgl-tools-tests --test versions -- --ignored --nocapture

demo: need
	cargo build --workspace --locked
	@tests/demo.sh

bench: build
	tests/bench/planners.sh

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(TOOLS:%=target/release/%) $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man7
	install -m 644 $(TOOLS:%=man/%.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 man/dgl-tools.7 $(DESTDIR)$(MANDIR)/man7

uninstall:
	rm -f $(TOOLS:%=$(DESTDIR)$(PREFIX)/bin/%)
	rm -f $(TOOLS:%=$(DESTDIR)$(MANDIR)/man1/%.1) $(DESTDIR)$(MANDIR)/man7/dgl-tools.7

clean:
	cargo clean

.PHONY: build check need need-test test test-versions demo bench install uninstall clean
