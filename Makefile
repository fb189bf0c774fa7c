# make build | site | pictures | schema | manual | agent | check | deny | test | test-fast | test-bare | test-kernel | test-versions | test-graphstorm | test-glt | test-partitioning | test-mpirun | test-matrices | test-openssh | soak | two-jobs | demo | bench | recordings | cases | verdicts | benchmark | silence | simulate | faults | fuzz | install | uninstall | dist | test-dist | clean
PREFIX ?= /usr/local
DESTDIR ?=
TOOLS = ipconf-check part-map part-push dgl-env dgl-spawn host-probe host-swap dgl-stacks dgl-reap part-pull dgl-why dgl-report
SCRIPTS = dgl-copy dgl-launch gs-copy gs-launch host-lab
COMMANDS = $(TOOLS) $(SCRIPTS)
# host-agent is not a command of users, but they may read what it does on their hosts.
PAGES = $(COMMANDS) host-agent
GUIDES = dgl.mk dgl-tools dgl-tools-admin dgl-tools-clusters dgl-tools-connect dgl-tools-faq dgl-tools-jobs dgl-tools-partition dgl-tools-stalls dgl-tools-trouble
FORMATS = dgl-tools-records
CARGO_TARGET_DIR ?= target

# Building OpenSSL takes minutes; where the system has its headers, they are used. Asked again for each target, because `need`
# may have just installed them.
export OPENSSL_NO_VENDOR ?= $(shell pkg-config --exists openssl 2>/dev/null && echo 1 || echo 0)

# The hosts' half is static, so that any host can run it, which is a matter of its last step alone: its crates are built with those of
# the tools.
build:
	cargo build --release --locked $(TOOLS:%=-p %) -p agent-checks -p agent-files -p agent-stacks -p agent-supervise
	packaging/agent.sh

# For hosts of another machine type too: make agent TARGET=aarch64-unknown-linux-gnu; `make install` then takes it along.
agent:
	packaging/agent.sh $(TARGET)

check: need-check
	cargo fmt --all --check
	# columns: rustfmt leaves long comments and strings as they are
	@! LC_ALL=C.UTF-8 grep -rnE --include='*.rs' '^.{101,}' common tools tests fuzz --exclude-dir=target
	# tests work in directories of their own
	cargo clippy --workspace --all-targets --locked -- -D warnings -A clippy::disallowed-methods
	cargo clippy --workspace --exclude dgl-tools-tests --exclude simulate --locked -- -D clippy::disallowed-methods
	shellcheck $(foreach script,$(SCRIPTS) dgl-tools,tools/$(script)/$(script))
	shellcheck -s sh common/remote/src/*.sh tests/need.sh tests/silence/mpi.sh tests/alone.sh tests/cases/commands.sh packaging/*.sh site/build.sh
	shellcheck examples/*/*.sbatch examples/*/*.sh
	shellcheck -s bash completions/dgl-tools.bash
	shellcheck tests/cluster/slurm.sh tests/dgl/python.sh tests/dgl/version.sh tests/bare.sh tests/dist.sh tests/debian.sh tests/kernel.sh tests/kernel/*.sh tests/kernel/init tests/venv.sh tests/pip.sh tests/torchfrtrace.sh tests/openssh.sh tests/s3.sh tests/recordings/*.sh tests/fixtures/*/*.sh tests/graphstorm/python.sh tests/glt/python.sh tests/demo/demo.sh tests/run.sh tests/silence/*.sh tests/soak.sh fuzz/run tests/bench/*.sh site/pictures.sh .ci/run
	mandoc -T lint -W warning common/wire/host-agent-protocol.7 $(PAGES:%=man/%.1) $(FORMATS:%=man/%.5) $(GUIDES:%=man/%.7)
	@tests/weight.py sum

# What tests/docs/linked.rs cannot know of dependencies: the licence texts of what is linked in, yanked versions, and known faults from
# the database of advisories.
deny:
	@cargo deny --version >/dev/null 2>&1 || { printf '%s\n' 'make deny: cargo-deny is not installed' \
		'  fix: cargo install cargo-deny --locked' >&2; exit 69; }
	cargo deny --locked check

need:
	@tests/need.sh
need-build:
	@tests/need.sh build
need-test:
	@tests/need.sh test
need-check:
	@tests/need.sh check

test: need-test
	packaging/agent.sh --dev
	cargo build --workspace --locked
	tests/run.sh $(TESTS)

# No hosts, no DGL, nothing that takes seconds, and of the system what a build needs.
test-fast: need-build
	cargo build --workspace --locked
	tests/run.sh --fast $(TESTS)

# `make demo` and `make test` on a Debian that has nothing yet; BARE=user chooses, see tests/bare.sh --help.
test-bare:
	tests/bare.sh $(BARE) -- $(TESTS)

# What needs a kernel of its own, on a Debian under QEMU; KERNEL="clock far" chooses, see tests/kernel.sh --help.
test-kernel: build
	tests/kernel.sh $(KERNEL)

# 200 jobs with random ends: some 12 minutes
soak: need
	cargo build --workspace --locked
	tests/soak.sh

# A second job of real DGL on the hosts and ports of the first, 0 to 30 s behind it, 20 times: some 9 minutes
two-jobs: need-test
	cargo build --workspace --locked
	TWO_JOBS_ROUNDS=20 tests/run.sh --long two_jobs::real_dgl

# All of DGL_VERSIONS, on real hosts; 1.1.3 and 2.1.0 can be had too.
DGL_VERSIONS ?= 0.5.3 0.6.1 0.9.1 1.0.4
test-versions: need-test
	cargo build --workspace --locked
	DGL_VERSIONS="$(DGL_VERSIONS)" tests/run.sh --long --run-ignored only versions::

# All of GRAPHSTORM_VERSIONS, on real hosts.
GRAPHSTORM_VERSIONS ?= 0.4 0.5
test-graphstorm: need-test
	cargo build --workspace --locked
	GRAPHSTORM_VERSIONS="$(GRAPHSTORM_VERSIONS)" tests/run.sh --long --run-ignored only graphstorm::

# GLT 0.2 on real hosts, in worker mode and with servers.
test-glt: need-test
	cargo build --workspace --locked
	tests/run.sh --long --run-ignored only glt::

# DGL's distributed partitioning pipeline on real hosts; DGL_TOOLS=DIR is the directory tools/ of DGL's repository, 1.0 to 2.4. Where
# mpirun and pm_dglpart are in PATH, by ParMETIS too (2.1 and later), as examples/partition/parmetis.sh builds it.
test-partitioning: need-test
	cargo build --workspace --locked
	tests/run.sh --long --run-ignored only partitioning::

# Every cell of the tables of which `make test` has a sample: shells and their files, faults and wires, ends and shapes of jobs, settings
# and connectors. TESTS=shells:: chooses.
test-matrices: need-test
	cargo build --workspace --locked
	tests/run.sh --long --run-ignored only -E 'test(the_whole_matrix_of)' $(TESTS)

# Logins with other OpenSSH clients than this machine's: those of Debian releases, or of directories with ssh and ssh-keygen.
OPENSSH ?= bullseye trixie
test-openssh: need-test
	cargo build --workspace --locked
	@for client in $(OPENSSH); do \
		case $$client in /*) ;; *) client=$$(tests/openssh.sh $$client) || exit ;; esac; \
		"$$client/ssh" -V && PATH=$$client:$$PATH tests/run.sh --long logins:: || exit; \
	done

# Agents that Open MPI's mpirun starts on real hosts.
test-mpirun: need-test
	cargo build --workspace --locked
	tests/run.sh --long --run-ignored only dial::

# DGL=1 has pip get DGL and torch where they are no packages of the system; DGL=0 does without.
demo:
	@tests/demo/demo.sh $(TOOLS:%=-p %) -p host-agent

# Tables for people, and all their figures as JSON lines in BENCH_JSON. DGL_TOOLS=DIR, the directory tools/ of DGL's repository, has its
# own scripts compared too; OLD=DIR, the directory of an older build's release binaries, that build.
BENCH_JSON ?= $(CARGO_TARGET_DIR)/bench.jsonl
bench: export BENCH_JSON := $(abspath $(BENCH_JSON))
bench: build
	rm -f '$(BENCH_JSON)'
	tests/bench/planners.sh
	tests/bench/copy.sh
	tests/bench/spawn.sh
	cargo build --release -p remote --example dialers
	tests/bench/dial.sh
	tests/bench/against.sh
	tests/bench/stacks.sh
	tests/bench/why.sh

# Real jobs of DGL that go wrong on real hosts, as records: what dgl-why is tested with. Ten minutes; FAULTS= chooses some.
recordings: need
	cargo build --workspace --locked
	tests/recordings/record.sh $(FAULTS)

# Jobs on four hosts in which one rank does not come, and which process dgl-stacks names by the connections. SILENCE= has options of
# tests/silence/trials.py, such as --program; without them it is torch over gloo.
silence: need-test
	cargo build --workspace --locked
	rm -f '$(CARGO_TARGET_DIR)/silence.jsonl'
	tests/silence/trials.py '$(CARGO_TARGET_DIR)/silence.jsonl' --python "$$(tests/dgl/python.sh)" $(SILENCE)
	TRIALS='$(abspath $(CARGO_TARGET_DIR)/silence.jsonl)' cargo test --locked --workspace --test silence -- --nocapture

# What the commands of tests/cases print, into their files.
cases: need-test
	cargo build --workspace --locked
	DGL_TOOLS_WRITE_CASES=1 cargo nextest run --locked -p dgl-tools-tests --test cases

# What dgl-why says of the recorded ends and hangs of tests/verdicts, beside the truth: the score, and all that is not right.
verdicts: need
	cargo build --workspace --locked
	cargo nextest run --locked --no-capture -p dgl-tools-tests --test verdicts

# The score of dgl-why on the logs of benchmark/, a third of which nobody has developed against.
benchmark: need-build
	cargo build --locked -p dgl-why
	benchmark/score.py --tool '$(abspath $(CARGO_TARGET_DIR))/debug/dgl-why {}'

# Schedules of faults by simulation, the first SEEDS of HOSTS hosts, for jobs and for copies: two minutes. tests/simulate/README.md says
# what a seed is.
SEEDS ?= 1000
HOSTS ?= 8
simulate: need-build
	cargo build --workspace --locked
	'$(CARGO_TARGET_DIR)/debug/simulate' --seeds $(SEEDS) --hosts $(HOSTS)
	'$(CARGO_TARGET_DIR)/debug/simulate' --copies --seeds $(SEEDS) --hosts 4

# Lets system calls of the tools and of host-agent fail, one after another: 20 minutes. FAULTS="--only push:EIO" chooses.
faults: need-test
	cargo build --workspace --locked
	tests/faults/faults.py $(FAULTS)

# Ten minutes each.
fuzz:
	fuzz/run

# BUILT=DIR installs tools that were built elsewhere: one by one, or all in the one program of packaging/dgl-tools.
ifndef BUILT
BUILT = $(CARGO_TARGET_DIR)/release
install: build
endif
PLACE = $(DESTDIR)$(PREFIX)
MAN1 = share/man/man1
# Where tools find it from bin/.
AGENTS = libexec/dgl-tools
BASH = share/bash-completion/completions
FISH = share/fish/vendor_completions.d
ZSH = share/zsh/site-functions
DATA = share/dgl-tools
DOC = share/doc/dgl-tools
EXAMPLES = $(addprefix torch/,Makefile ip_config.txt train.sbatch shared.sbatch code/data.py code/ddp.py) \
	$(addprefix dgl/,Makefile ip_config.txt train.sbatch partition.py code/train.py) \
	$(addprefix graphstorm/,Makefile ip_config.txt nc.yaml) $(addprefix glt/,workers.sh servers.sh code/sage.py) \
	partition/parmetis.sh partition/fits.jq slurm/epilog.sh prometheus/figures.jq

install:
	install -d $(addprefix $(PLACE)/,bin $(MAN1) share/man/man5 share/man/man7 $(BASH) $(FISH) $(ZSH) include $(AGENTS) $(DATA) $(DOC))
	install -m 755 $(foreach script,$(SCRIPTS) dgl-tools,tools/$(script)/$(script)) $(PLACE)/bin
	if [ -e $(BUILT)/dgl-spawn ]; then \
		install -m 755 $(TOOLS:%=$(BUILT)/%) $(PLACE)/bin; \
	else \
		install -m 755 $(BUILT)/dgl-tools $(PLACE)/$(AGENTS) && \
		for tool in $(TOOLS); do ln -sf ../$(AGENTS)/dgl-tools $(PLACE)/bin/$$tool || exit; done; \
	fi
	for agent in $(BUILT)/host-agent $(BUILT)/host-agent-*; do \
		case $$agent in *.d | *'*') ;; *) install -m 755 "$$agent" $(PLACE)/$(AGENTS) || exit ;; esac; \
	done
	install -m 644 $(PAGES:%=man/%.1) $(PLACE)/$(MAN1)
	install -m 644 $(FORMATS:%=man/%.5) $(PLACE)/share/man/man5
	install -m 644 $(GUIDES:%=man/%.7) $(PLACE)/share/man/man7
	install -m 644 completions/_dgl-tools $(PLACE)/$(ZSH)
	install -m 644 dgl.mk $(PLACE)/include
	install -m 644 README.md CHANGELOG.md SECURITY.md LICENSE $(PLACE)/$(DOC)
	for file in site/tutorials/*.md site/pictures/*; do install -D -m 644 $$file $(PLACE)/$(DOC)/$$file || exit; done
	install -m 644 common/record/records.schema.json $(PLACE)/$(DATA)
	for file in $(EXAMPLES); do install -D -m 644 examples/$$file $(PLACE)/$(DATA)/examples/$$file || exit; done
	for command in $(COMMANDS); do \
		install -m 644 completions/dgl-tools.bash $(PLACE)/$(BASH)/$$command && \
		install -m 644 completions/dgl-tools.fish $(PLACE)/$(FISH)/$$command.fish || exit; \
	done

uninstall:
	rm -f $(addprefix $(PLACE)/,$(COMMANDS:%=bin/%) bin/dgl-tools $(PAGES:%=$(MAN1)/%.1) $(FORMATS:%=share/man/man5/%.5) $(GUIDES:%=share/man/man7/%.7) \
		include/dgl.mk $(ZSH)/_dgl-tools $(COMMANDS:%=$(BASH)/%) $(COMMANDS:%=$(FISH)/%.fish))
	rm -rf $(PLACE)/$(AGENTS) $(PLACE)/$(DATA) $(PLACE)/$(DOC)

# What a release consists of, in $(CARGO_TARGET_DIR)/dist; `make dist test` tries it too. MACHINES="x86_64" chooses machine types.
dist:
	packaging/dist.sh $(MACHINES)

# Those for this machine's type on systems that have nothing else, as root; see tests/dist.sh --help.
test-dist:
	tests/dist.sh

# Tutorials, manual and the other documents as static pages, in $(CARGO_TARGET_DIR)/site.
site:
	site/build.sh

# The site's pictures again, from real jobs.
pictures: need-test
	cargo build --workspace --locked
	site/pictures.sh $(PICTURES)

# The JSON Schema of the records, from their types; a test fails where it is not up to date.
schema:
	DGL_TOOLS_WRITE_SCHEMA=1 cargo test --locked -p record --lib records_schema_json

# What manual pages have from elsewhere: the options from args.rs of each tool, the messages of dgl-tools-trouble(7) from the table of
# advice. Tests fail where they are not up to date.
manual:
	DGL_TOOLS_WRITE_MANUAL=1 cargo test --locked --workspace --test docs options::
	-DGL_TOOLS_WRITE_MANUAL=1 cargo test --locked -p verdict --lib the_manual_has_the_messages
	cargo test --locked -p verdict --lib the_manual_has_the_messages

clean:
	cargo clean

.PHONY: build agent check deny need need-build need-test need-check test test-fast test-bare test-kernel test-versions test-graphstorm test-glt test-partitioning test-mpirun test-matrices test-openssh soak two-jobs demo bench recordings cases verdicts benchmark silence simulate faults fuzz install uninstall dist test-dist site pictures schema manual clean
