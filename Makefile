# make build | check | test | demo | bench | install | clean

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TOOLS = ipconf-check host-probe part-map part-push dgl-env dgl-spawn dgl-reap

# Building OpenSSL takes minutes; where the system has its headers, take the system's.
ifeq ($(shell pkg-config --exists openssl 2>/dev/null && echo yes),yes)
export OPENSSL_NO_VENDOR = 1
endif

# cargo's own, asked for only where it is used
target = $(or $(CARGO_TARGET_DIR),target)
scripts = $(shell git ls-files -co --exclude-standard -- '*.sh' .ci/run | grep -v -e '/src/')
host_scripts = $(wildcard tools/*/src/*.sh common/src/remote/*.sh)
pages = $(wildcard man/*.1 man/*.7)

.PHONY: build check test demo bench install clean

build:
	$(CARGO) build --release

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	shellcheck $(scripts)
	shellcheck -s sh $(host_scripts)
	if command -v mandoc >/dev/null; then mandoc -T lint -W warning $(pages); fi

test:
	tests/need.sh
	$(CARGO) build --workspace
	if command -v cargo-nextest >/dev/null; then \
	    $(CARGO) nextest run --workspace; \
	else \
	    $(CARGO) test --workspace --no-fail-fast; \
	fi

demo:
	tests/need.sh
	tests/demo.sh

bench: build
	tests/bench/planners.sh

install: build
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/man/man7'
	for tool in $(TOOLS); do install -m 755 "$(target)/release/$$tool" '$(DESTDIR)$(PREFIX)/bin/' || exit; done
	install -m 644 man/*.1 '$(DESTDIR)$(PREFIX)/share/man/man1/'
	install -m 644 man/*.7 '$(DESTDIR)$(PREFIX)/share/man/man7/'

clean:
	$(CARGO) clean
