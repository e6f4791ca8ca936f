# The commands of the README. Each says what it does, installs what is missing (Debian, as root) and is quick when run
# again.
SHELL := /bin/bash
CARGO ?= cargo
PROFILE_DIR = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

.PHONY: help up down test test-all bench bench-plane fuzz build install

help:
	@echo "make up        build longshore, start a node on this machine and a sample pod on it (Ctrl-C to stop)"
	@echo "make down      remove what make up made"
	@echo "make test      everything that CI runs (25 minutes at most)"
	@echo "make test-all  also what takes long"
	@echo "make bench     measure our agent against bare CRI calls; table in docs/performance.md's form"
	@echo "make bench-plane  measure the bundled apiserver under load and idle (PLANE_FLAGS for plane-bench)"
	@echo "make fuzz      ten minutes of each fuzz target (FUZZ_SECONDS=600, FUZZ_TARGETS=\"a b\", JOBS=1)"
	@echo "make install   put the program and its systemd unit into /usr/local and /etc"

# Built once, quick when nothing changed.
build:
	@command -v cc >/dev/null || { echo "installing a C compiler"; apt-get update -q && apt-get install -y -q gcc libc6-dev; }
	@echo "building longshore (a few minutes the first time)"
	@$(CARGO) build --release -p longshore

up: build
	@$(PROFILE_DIR)/release/longshore up --install --demo

down:
	@$(PROFILE_DIR)/release/longshore down

test:
	@.ci/run

test-all:
	@.ci/run --all

bench: build
	@.ci/install
	@$(CARGO) build --release -p longshore-integration --bins
	@LONGSHORE_BIN=$(PROFILE_DIR)/release/longshore $(PROFILE_DIR)/release/testenv --containerd newest --node -- \
	  sh -c 'exec "$$0" --kubeconfig "$$KUBECONFIG" --node "$$NODE" --runtime-endpoint "$$CONTAINER_RUNTIME_ENDPOINT" \
	  --pid "$$AGENT_PID" --cgroup-parent "$$CGROUP_ROOT/bare" --json "$$BENCH_JSON" $(BENCH_FLAGS)' \
	  $(abspath $(PROFILE_DIR))/release/longshore-bench

bench-plane: build
	@$(CARGO) build --release -p longshore-integration --bin plane-bench
	@LONGSHORE_BIN=$(abspath $(PROFILE_DIR))/release/longshore $(PROFILE_DIR)/release/plane-bench $(PLANE_FLAGS)

fuzz:
	@fuzz/run

install: build
	install -D -m 0755 $(PROFILE_DIR)/release/longshore /usr/local/bin/longshore
	install -D -m 0644 systemd/longshore.service /etc/systemd/system/longshore.service
