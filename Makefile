# The front door: every target calls cargo, go or a script, and nothing is decided here.
# Build output stays outside the checkout, in the folder that .ci/run uses.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/glance-operator
export CARGO_TARGET_DIR ?= $(cache)/target

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit e2e

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A hub and two targets on this machine, a local and a placed Glance, until Ctrl-C (DEMO_ONCE=1: until shown)
	cargo run --quiet --locked --package e2e --bin demo

test: ## Everything that must be true of a commit: lints, unit tests, tests on real control planes
	bash .ci/run

lint: ## Formatting, duplicate crates, clippy
	bash .ci/run fmt duplicates clippy

unit: ## The tests that need no cluster
	bash .ci/run unit

e2e: ## The tests on real control planes
	bash .ci/run build e2e
