# To include in the Makefile of a research repo; dgl.mk(7) describes all targets and variables:
#
#   HOSTS       = ip_config.txt              one host on each line, or a table of hosts (CSV)
#   WORKSPACE   = ~/job                      the directory of the job on every host
#   PART_CONFIG = out/g.json                 what partition_graph wrote; a rule of your own may make it
#   SCRIPTS     = code                       directories that go into the workspace
#   TRAIN       = python3 code/train.py --part-config data/g.json
#   FETCH       = 'model-*.pt'               what to bring back from the workspace
#   include dgl.mk                           by its whole path, where PREFIX is not /usr or /usr/local
#
# A job without DGL, such as a script of torch.distributed, has WORKERS in place of PART_CONFIG:
#
#   WORKERS     = gpus                       processes on each host: a number, or as many as it has GPUs
#
# Then make probe, push, train, fetch, reap, logs or why.

HOSTS ?= ip_config.txt
WORKERS ?=
NUM_TRAINERS ?= 1
NUM_SAMPLERS ?= 0
NUM_SERVERS ?= 1
RESULTS ?= results
# The name of the directory, with a dash for each character that no job's name has.
JOB ?= $(shell printf %s '$(strip $(WORKSPACE))' | sed 's|/*$$||; s|.*/||; s/[^A-Za-z0-9._-]/-/g')
RUN ?= .dgl-run
TAIL ?= 20
RETRY ?= 0
SPARES ?=
NEED ?=
NEED_FLAGS ?=

# Before a comment, make keeps the blanks of a value.
dgl_workspace = --workspace '$(or $(strip $(WORKSPACE)),$(error dgl.mk: set WORKSPACE, the directory of the job on every host))'
dgl_hosts = ipconf-check --num-servers $(NUM_SERVERS) $(IPCONF_FLAGS) '$(strip $(HOSTS))'
dgl_probe = host-probe $(dgl_workspace) --num-servers $(NUM_SERVERS) $(PROBE_FLAGS)
# The hosts to take, and the hosts that were taken.
# Only a probe knows the home of the hosts.
dgl_probed = $(or $(NEED),$(filter ~%,$(WORKSPACE)))
dgl_chosen = $(dgl_hosts)$(if $(dgl_probed), | $(dgl_probe) --format jsonl$(if $(NEED), --need $(NEED) $(NEED_FLAGS)))
dgl_taken = $(if $(NEED)$(filter-out 0,$(RETRY)),cat '$(RUN)/pushed.jsonl',$(dgl_hosts))
# The shell of a recipe becomes the last tool, after the stages before it, because make passes TERM on to that shell alone.
# $$$$ keeps the stages of two makes apart.
dgl_last = > '$(RUN)'/$@.$$$$.stages; { rm -f '$(RUN)'/$@.$$$$.stages; exec $(1); } < '$(RUN)'/$@.$$$$.stages
dgl_stages = $(dgl_probe) --format jsonl < '$(RUN)/pushed.jsonl' | \
	dgl-env $(if $(WORKERS),--role worker --num-workers $(WORKERS),--num-trainers $(NUM_TRAINERS) \
	  --num-samplers $(NUM_SAMPLERS) --num-servers $(NUM_SERVERS)) $(ENV_FLAGS) \
	  -- $(or $(TRAIN),$(error dgl.mk: set TRAIN, the command))
dgl_spawn = dgl-spawn --format human --job '$(JOB)' --log-dir '$(RUN)/logs' $(SPAWN_FLAGS)
# All hosts are probed to find out which are lost, because processes elsewhere often fail before a host's silence is noticed.
dgl_spares = '$(or $(strip $(SPARES)),$(error dgl.mk: RETRY needs SPARES, a file of hosts))'
dgl_swap = $(dgl_probe) --format jsonl < '$(RUN)/pushed.jsonl' > '$(RUN)/now.jsonl'; \
	ipconf-check --num-servers $(NUM_SERVERS) $(IPCONF_FLAGS) $(dgl_spares) | \
	$(dgl_probe) --format jsonl > '$(RUN)/spares.jsonl'; \
	host-swap --run '$(RUN)/now.jsonl' --spares '$(RUN)/spares.jsonl' < '$(RUN)/pushed.jsonl' > '$(RUN)/plan.jsonl' && \
	part-push --format jsonl $(PUSH_FLAGS) < '$(RUN)/plan.jsonl' > '$(RUN)/again.jsonl' && \
	mv '$(RUN)/again.jsonl' '$(RUN)/pushed.jsonl'
dgl_has_run = [ -e '$(RUN)/logs/run.jsonl' ] || { \
	printf '%s\n' 'dgl.mk: no $(RUN)/logs/run.jsonl: nothing has run yet' \
	  '  fix: make train' >&2; exit 65; }
dgl_is_last = [ '$(RUN)/logs/run.jsonl' -nt '$(RUN)/push.begun' ] || printf '%s\n' 'dgl.mk: this run is older than the last push:' \
	  '  that push failed, or nothing has run since' >&2
dgl_goal := $(.DEFAULT_GOAL)
# Otherwise `make -j train fetch` would run both at once.
dgl_before := $(filter push train,$(MAKECMDGOALS))

# If PATH does not lead to the tools: those that were installed with this file, or built in its checkout.
dgl_here := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
dgl_built := $(or $(CARGO_TARGET_DIR),$(dgl_here)target)
export PATH := $(PATH):$(if $(wildcard $(dgl_here)Cargo.toml),$(dgl_built)/release:$(dgl_built)/debug,$(dgl_here)../bin)

probe:
	$(dgl_hosts) | $(dgl_probe) --format human

push: $(PART_CONFIG)
	@mkdir -p '$(RUN)' && : > '$(RUN)/push.begun'
	$(dgl_chosen) | \
	part-map $(dgl_workspace) $(PART_CONFIG:%=--part-config '%') $(SCRIPTS:%=--script-folder '%') $(MAP_FLAGS) \
	$(call dgl_last,part-push --format jsonl $(PUSH_FLAGS) > '$(RUN)'/pushing.$$PPID.jsonl)
	@mv '$(RUN)'/pushing.$$PPID.jsonl '$(RUN)/pushed.jsonl'

train: push
ifeq ($(RETRY),0)
	$(dgl_stages) $(call dgl_last,$(dgl_spawn))
else
	left=$(RETRY) job= ended=; pass() { ended=$$2; [ -z "$$job" ] || kill -s $$1 $$job; }; \
	trap 'pass HUP 129' HUP; trap 'pass TERM 130' INT; trap 'pass TERM 143' TERM; \
	until \
	  $(dgl_stages) $(call dgl_last,$(dgl_spawn)) & job=$$!; [ -z "$$ended" ] || kill $$job; \
	  while wait $$job; status=$$?; [ $$status -gt 128 ] && kill -0 $$job 2> /dev/null; do :; done; \
	  job=; [ $$status -eq 0 ]; \
	do \
	  [ -z "$$ended" ] || exit $$ended; [ $$left -gt 0 ] || exit $$status; left=$$((left - 1)); \
	  { $(dgl_swap); } || exit $$status; \
	done
endif

fetch: | $(dgl_before)
	@mkdir -p '$(RUN)'
	$(dgl_taken) $(call dgl_last,part-pull --format human $(dgl_workspace) --to '$(strip $(RESULTS))' \
	  $(PULL_FLAGS) $(or $(FETCH),$(error dgl.mk: set FETCH, what to bring back)))

reap:
	$(dgl_taken) | dgl-reap --format human --job '$(JOB)' $(REAP_FLAGS)

logs: | $(dgl_before)
	@$(dgl_has_run)
	@$(dgl_is_last)
	@tail -n $(TAIL) '$(RUN)'/logs/*.log

why: | $(dgl_before)
	@$(dgl_has_run)
	@$(dgl_is_last)
	@dgl-why '$(RUN)/logs/run.jsonl'

.PHONY: probe push train fetch reap logs why
# The default target stays that of the repo.
.DEFAULT_GOAL := $(dgl_goal)
