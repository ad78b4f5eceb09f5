# The front door: every target calls cargo, go or a script, and nothing is decided here.
# Build output stays outside the checkout, in the folder that .ci/run uses.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/glance-operator
export CARGO_TARGET_DIR ?= $(cache)/target
# As in .ci/run: with another value our own crates compile again.
export CARGO_INCREMENTAL := 0

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit e2e fuzz generate

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Always the whole workspace: another choice of packages unites other features of the dependencies
# and compiles half of them again.
demo: ## A hub and two targets on this machine, a local and a placed Glance, until Ctrl-C (DEMO_ONCE=1: until shown)
	@bash .ci/run check
	@echo "building the operator and the demo (a few minutes the first time, seconds later)" >&2
	@cargo build --quiet --locked --workspace --bins
	@$(CARGO_TARGET_DIR)/debug/demo

test: ## Everything that must be true of a commit: lints, unit tests, tests on real control planes
	bash .ci/run

lint: ## Formatting, duplicate crates, generated files, clippy
	bash .ci/run fmt duplicates generated clippy

unit: ## The tests that need no cluster
	bash .ci/run unit

fuzz: ## Random texts in every field of the custom resources, against injection (FUZZ_CASES=100000)
	FUZZ_CASES=$(or $(FUZZ_CASES),100000) cargo test --quiet --locked --workspace --lib -- policy::tests::injection

e2e: ## The tests on real control planes
	bash .ci/run build e2e

generate: ## Write the definitions of the custom resources and the chart's copies, after a change in crds/src
	cargo build --quiet --locked --workspace --example crds
	$(CARGO_TARGET_DIR)/debug/examples/crds
	cp crds/*.yaml charts/glance-operator/crds/
