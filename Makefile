# `make` lists what there is to do.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# SQLite is a million lines of C in Go, run by one goroutine at a time: watching them for
# races finds none and makes its tests take four times as long. Everything around them is watched.
# The driver of SQL Server gives the buffers of a connection that is closed back to a pool while its
# own reader may still look at them; that is not ours to mend, and hides nothing of ours.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=github.com/microsoft/go-mssqldb=-race=false
# In CI nothing comes from the cache of an earlier run.
TESTFLAGS ?= $(RACE) -timeout=25m
ifdef CI
TESTFLAGS += -count=1
endif
# The tests of one package more than there are cores run beside each other, since most of them wait:
# for a database, for the end of a lease, for a process. What takes longest begins first.
PACKAGES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
LONGEST := ./internal/blackbox ./storage/mysql ./storage/postgres
# What starts the databases of the tests; empty where the environment names servers that run.
WITH ?= scripts/with-databases
# How many times each benchmark runs; benchstat wants 6 or more to say something.
COUNT ?= 1
# The benchmark against other queues is a module of its own, which keeps them out of this one.
PEERS := cmd/queuebox-bench
# What `make bench-peers` adds to the command line: ARGS='--measures=throughput --rounds=5'.
ARGS ?=
# How long `make stress` loads each engine.
STRESS ?= 10m

LINT := .tools/bin/golangci-lint
BENCHSTAT := .tools/bin/benchstat

.DEFAULT_GOAL := help
.PHONY: help build test check generate lint fmt demo bench bench-peers stress tools clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/queuebox-server, static.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/queuebox-server ./cmd/queuebox-server

test: ## Run all tests with the race detector, on SQLite, a private PostgreSQL and a private MariaDB.
	$(WITH) $(GO) test $(TESTFLAGS) -p=$(PACKAGES) $(LONGEST) ./...
	$(GO) test -count=1 -run Memory ./bench/cost
	cd $(PEERS) && $(GO) test $(TESTFLAGS) ./...

check: $(LINT) ## Check what is not a test: generated files, wire contract, vet, lint, dependencies.
	scripts/step 'generated files are current' scripts/check-generated
	scripts/step 'buf lint' scripts/buf lint
	scripts/step 'buf format' scripts/buf format --diff --exit-code
	scripts/step 'buf breaking' scripts/check-breaking
	scripts/step 'go mod tidy' $(GO) mod tidy -diff
	scripts/step 'go mod tidy, queuebox-bench' $(GO) -C $(PEERS) mod tidy -diff
	scripts/step 'go vet' $(GO) vet ./...
	scripts/step 'go vet, queuebox-bench' $(GO) -C $(PEERS) vet ./...
	scripts/step 'who depends on whom' $(GO) test -count=1 ./internal/deptest
	scripts/step 'golangci-lint' $(LINT) run ./...
	cd $(PEERS) && ../../scripts/step 'golangci-lint, queuebox-bench' ../../$(LINT) run ./...

generate: ## Make the generated files again (Python stubs: scripts/generate-python).
	scripts/buf generate
	$(GO) run ./internal/config/docgen docs/configuration.md

lint: $(LINT) ## Run golangci-lint alone.
	$(LINT) run ./...
	cd $(PEERS) && ../../$(LINT) run ./...

fmt: $(LINT) ## Format Go and proto files.
	$(LINT) fmt ./...
	cd $(PEERS) && ../../$(LINT) fmt ./...
	scripts/buf format -w

demo: ## Run the webhook demo from nothing on SQLite, in under a minute.
	$(GO) run ./examples/webhooks/demo

bench: ## Run the benchmarks on every engine; COUNT=6 for benchstat.
	$(WITH) $(GO) test -run '^$$' -bench . -count=$(COUNT) -timeout=60m ./bench/...

bench-peers: ## Measure this server and other queues in turns on one PostgreSQL (docs/benchmarks.md); ARGS=--help.
	$(GO) build -C $(PEERS) -o ../../bin/queuebox-bench .
	bin/queuebox-bench --json=docs/benchmarks/peers.json --markdown=docs/benchmarks.md --charts=docs/benchmarks $(ARGS)

stress: ## Run the stress test on every engine, STRESS (10m) each: order, leases, settlements over crashes.
	$(WITH) $(GO) test -count=1 -timeout=120m -v -run TestStress ./internal/stress -stress=$(STRESS)

tools: $(LINT) $(BENCHSTAT) ## Fetch or build buf, golangci-lint and benchstat under .tools/.
	scripts/buf --version

# The tools are built from tools.mod and stay until it changes. Written aside and moved,
# so that an interrupted build leaves no half of a binary.
$(LINT): tools.mod tools.sum
	mkdir -p $(@D)
	$(GO) build -modfile=tools.mod -o $@.new github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	mv $@.new $@

$(BENCHSTAT): tools.mod tools.sum
	mkdir -p $(@D)
	$(GO) build -modfile=tools.mod -o $@.new golang.org/x/perf/cmd/benchstat
	mv $@.new $@

clean: ## Remove what the other targets made, tools too.
	rm -rf bin .tools
