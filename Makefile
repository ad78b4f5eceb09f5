# The front door: every target calls cargo, go or a script, and nothing is decided here.
# Build output stays outside the checkout, in the folder that .ci/run uses.
cache := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/glance-operator
export CARGO_TARGET_DIR ?= $(cache)/target
# As in .ci/run: with another value our own crates compile again.
export CARGO_INCREMENTAL := 0

# Lets an older Go fetch the version that go.mod asks for, also where its go.env says otherwise.
export GOTOOLCHAIN ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test lint unit e2e fuzz bench generate screenshot

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Always the whole workspace: another choice of packages unites other features of the dependencies
# and compiles half of them again.
demo: ## A hub and two targets on this machine, a local and a placed Glance, until Ctrl-C (DEMO_ONCE=1: until shown)
	@bash .ci/run check
	@echo "building the operator and the demo (a few minutes the first time, seconds later)" >&2
	@cargo build --quiet --locked --workspace --bins
	@CARGO_MANIFEST_DIR="$(CURDIR)/e2e" "$(CARGO_TARGET_DIR)/debug/demo"

test: ## Everything that must be true of a commit: lints, unit tests, tests on real control planes
	bash .ci/run

lint: ## Formatting, duplicate crates, generated files, clippy
	bash .ci/run fmt duplicates generated clippy

unit: ## The tests that need no cluster
	bash .ci/run unit

fuzz: ## Look for texts in custom resources that break out of rendered files: a fuzzer where there is one (FUZZ_SECONDS=300), else random texts (FUZZ_CASES=20000)
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then \
	  cargo +nightly fuzz run --target-dir "$(cache)/fuzz" injection -- -max_total_time=$(or $(FUZZ_SECONDS),300); \
	else \
	  echo "no nightly compiler with cargo-fuzz (cargo install cargo-fuzz): random texts instead" >&2; \
	  FUZZ_CASES=$(or $(FUZZ_CASES),20000) cargo test --quiet --locked --workspace --lib -- policy::tests::injection; \
	fi

e2e: ## The tests on real control planes
	bash .ci/run build e2e

bench: ## What the operator costs, beside what was promised: the binary of the image, 100 placed Glances (fifteen minutes)
	@bash .ci/run check
	@echo "building the binary of the image and the bench (ten minutes the first time)" >&2
	@cargo build --quiet --locked --workspace --bins
	@E2E_OPERATOR="$$(.ci/binary)" CARGO_MANIFEST_DIR="$(CURDIR)/e2e" "$(CARGO_TARGET_DIR)/debug/bench"

generate: ## Write what is made from the code: custom resources, the chart's copies, tables of values, docs/reference
	cargo build --quiet --locked --workspace --bins --example crds
	CARGO_MANIFEST_DIR="$(CURDIR)/crds" "$(CARGO_TARGET_DIR)/debug/examples/crds"
	cp crds/*.yaml charts/glance-operator/crds/
	CARGO_MANIFEST_DIR="$(CURDIR)/e2e" "$(CARGO_TARGET_DIR)/debug/chart-docs"
	UPDATE_REFERENCE=1 cargo test --quiet --locked --workspace --lib -- the_reference_is_in_step

screenshot: ## Take the picture of docs/monitoring.md: seven minutes, a fleet, a Prometheus and a headless Chromium
	@mkdir -p docs/images
	E2E_SCREENSHOT=docs/images/metrics.png cargo test --locked --workspace --test it -- --nocapture --exact \
	  monitoring::every_query_of_the_dashboard_shows_something_and_the_alerts_find_what_is_wrong
