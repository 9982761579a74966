# Shortcuts for cargo commands and the scripts in ci/; `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euc

ARGS ?=
SEEDS ?= 10000
RUNS ?= 10
TESTS ?= .
FAULTS ?= 100

.PHONY: help up check test test-etcd flaky chaos lint bench sim

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

# The dev profile, because an optimised first build takes much longer. Real nodes need root; without root, or for other
# nodes, pass ARGS.
up: ## Build and run `muster up --nodes 2`; pass other flags with ARGS="--sim-nodes 5"
	@bash ci/need cc gcc
	@if [ -z "$(ARGS)" ]; then bash ci/real-nodes .muster; fi
	cargo run --package muster --bin muster -- up $(or $(ARGS),--nodes 2)

check: ## Before every commit: formatting, clippy, tests of api and engine, checks of the tree
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --quiet --package muster-api --package muster-engine --package muster-tidy

test: ## Run all checks and tests, from formatting to 10,000 simulated clusters
	bash ci/test

test-etcd: ## Run the tests of the API server on etcd: one server, then three behind a balancer of requests
	bash ci/test-etcd

flaky: ## Rerun tests RUNS=10 times under load and count failures; TESTS=pattern selects tests
	RUNS="$(RUNS)" TESTS="$(TESTS)" JOBS="$(JOBS)" bash ci/flaky

# The version of etcd decides which faults run; `make test` uses the etcd on PATH. KIND=words selects faults by name.
chaos: ## Run FAULTS=100 faults against three servers on etcd; needs root. ETCD=path and SEED=n choose etcd and the order
	@for need in "cc gcc" "$(or $(ETCD),etcd) etcd-server" "ip iproute2" "nft nftables"; do bash ci/need $$need; done
	MUSTER_TEST_CHAOS_FAULTS="$(FAULTS)" MUSTER_TEST_CHAOS_SEED="$(SEED)" MUSTER_TEST_ETCD="$(ETCD)" \
		MUSTER_TEST_CHAOS_KIND="$(KIND)" \
		cargo test --package muster --test chaos -- --ignored --nocapture

lint: ## Check formatting, clippy, and licences, bans and sources of dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	deny=$$(bash ci/cargo-deny) && "$$deny" --workspace check licenses bans sources

bench: ## Measure the numbers in PROMISES.md; fails if one is not met
	cargo bench --package muster-engine --bench decide -- --check
	cargo bench --package muster --bench server -- --check
	cargo bench --package muster --bench controller -- --check
	cargo bench --package muster --bench up -- --check
	cargo bench --package muster --bench node -- --check
	cargo bench --package muster --bench hostile
	cargo bench --package muster-server --bench requests

sim: ## Run SEEDS=10000 simulated clusters, or replay one with SEED=n
	cargo sim $(if $(SEED),$(SEED),--seeds $(SEEDS))
