# Punctual. `make` alone lists the targets.

GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
BUILD   := $(GO) build -buildvcs=false -ldflags "$(LDFLAGS)"

# Whatever is built without the race detector is built one way, so that the compiler works once for binary, lint and
# tests.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath

# Linter versions differ in what they report, so the version is pinned. The linter is built once per checkout.
GOLANGCI_VERSION := v2.15.0
GOLANGCI         := .tools/golangci-lint-$(GOLANGCI_VERSION)

# Runs go test and shows its progress.
GOTEST := .tools/progress

# The slowest packages first, so that none runs alone at the end.
PKG   ?= ./store/claim ./store ./internal/prove ./httpapi ./store/jobs ./...
BENCH ?= .
SOAK  ?= 10m
FUZZ  ?= 30s
ARGS  ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  PKG=./store/runs limits test, race and microbench; ARGS=... goes to punctual dev, bench and go test (ARGS=-v shows all)"

.PHONY: run
run: build ## Build and start everything: a private Postgres, the scheduler, sample jobs
	@.ci/install postgresql
	./bin/punctual dev $(ARGS)

# What the pages load besides their own files, and what tests of the pages need. npm installs both by the lock file,
# which holds their checksums.
PAGES := httpapi/dashboard
HTMX  := $(PAGES)/assets/vendor/htmx.min.js

PAGES_NODE := $(PAGES)/npm/node_modules/.package-lock.json

$(PAGES_NODE): $(PAGES)/npm/package-lock.json
	@.ci/install nodejs npm
	cd $(PAGES)/npm && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(HTMX): $(PAGES_NODE)
	@mkdir -p $(@D)
	cp $(PAGES)/npm/node_modules/htmx.org/dist/htmx.min.js $@
	cp $(PAGES)/npm/node_modules/htmx.org/LICENSE $(@D)/htmx.LICENSE

DIR ?= /tmp/punctual-pictures

.PHONY: pictures
pictures: servers $(HTMX) ## Write pictures of the pages and their states into DIR, and replace that of the README
	@mkdir -p $(DIR)
	$(GO) test ./$(PAGES) -count=1 -timeout 15m -run '^TestInABrowser' -args -pictures=$(abspath $(DIR))
	cp $(DIR)/pages-job.png docs/

$(GOTEST): .ci/progress.go
	@$(GO) build -o $@ $<

.PHONY: build
build: $(HTMX) ## Build bin/punctual
	$(BUILD) -o bin/punctual .

# Programs that tests need besides Go. Third-party libraries verify signatures and talk to Postgres; npm installs them by
# their lock files.
LIBRARIES := $(patsubst %,testdata/%/node_modules/.package-lock.json,standardwebhooks node-postgres generators)

.PHONY: needs
needs:
	@.ci/install gcc postgresql pgbouncer promtool

.PHONY: servers
servers: needs # browsers, proxies, and servers that jobs call
	@.ci/install haproxy nginx apache2 gunicorn nodejs npm alertmanager chromium python3 psycopg openssl curl man zsh fish crun ssh-keygen

$(LIBRARIES): %/node_modules/.package-lock.json: %/package-lock.json | servers
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Packages whose tests drive real processes, browsers and proxies: `make prove` runs them all. -short leaves of them what
# needs none, and one test for each promise.
PROOFS := ./internal/prove ./internal/bench ./internal/command ./internal/privatepg ./httpapi/dashboard

# Packages in which no test starts a goroutine, so that the race detector has nothing to look for: internal/docs.
SERIAL := $(patsubst %,punctual/%,scheduler/admit scheduler/cron scheduler/domain scheduler/forecast scheduler/jobspec)
LISTED  = $(shell $(GO) list -e $(PKG)) # with -e, go test says what is wrong with a package

# Without the test cache (-count=1), because tests of prove build the binary while they run. With more tests at a time
# than there are processors, because tests mostly wait. -timeout applies to each package, so that a package that hangs
# says where. Without vet, because `make lint` vets. Linked without debug information, which takes less time; compiled as
# `make build` compiles, so that little is left to compile after it. With few collections of garbage, because heaps are
# small; replicas collect as in production.
TESTS := -vet=off -ldflags=-w -count=1

.PHONY: test
test: needs $(GOTEST) $(HTMX) ## Run the tests, on a real Postgres, but for those that drive processes and browsers
	GOGC=400 $(GOTEST) -short $(TESTS) -p 3 -parallel 3 -timeout 15m $(ARGS) $(PKG)

# With the race detector, what tests build themselves heeds GOFLAGS, too. The detector would wait for a second before each
# process ends.
RACE := CGO_ENABLED=1 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' GORACE=atexit_sleep_ms=0

.PHONY: race
race: needs $(GOTEST) $(HTMX) ## Run the same tests under the race detector
	$(RACE) GOGC=400 $(GOTEST) -race -short $(TESTS) -p 3 -parallel 3 -timeout 20m $(ARGS) $(filter-out $(SERIAL),$(LISTED))

# The tests of some files that -short leaves out or shortens.
rest = ${shell awk '/^func /{t = $$2; sub(/\(.*/, "", t)} t ~ /^Test/ && /Exhaustive\(t,|testing\.Short/{print t}' \
	$(1) | sort -u | paste -sd'|' -}

.PHONY: prove
prove: servers $(GOTEST) $(LIBRARIES) $(HTMX) ## Prove the rest of the guarantee: faults, browsers, benchmarks, all that `make test` leaves out
	$(RACE) $(GOTEST) -race $(TESTS) -p 2 -parallel 6 -timeout 40m \
		$(ARGS) $(PROOFS)
	$(GOTEST) $(TESTS) -parallel 4 -timeout 20m \
		-run '^($(call rest,store/*_test.go store/*/*_test.go))$$' $(ARGS) ./store/...

.PHONY: lint
lint: $(GOLANGCI) ## Check formatting, vet, lint, and the direction of imports
	$(GO) vet ./...
	$(GOLANGCI) run ./...

.PHONY: fmt
fmt: $(GOLANGCI) ## Format all Go files (gofumpt)
	$(GOLANGCI) fmt ./...

.PHONY: generate
generate: ## Rewrite generated files and golden files
	$(GO) generate ./...

.PHONY: bench
bench: build ## Measure throughput, lateness and cost on a private Postgres (ARGS=--only=burst picks some)
	@.ci/install postgresql
	$(BUILD) -o bin/bench ./internal/bench/cmd
	./bin/bench --json testdata/bench/latest.json $(ARGS)

.PHONY: ledger
ledger: build ## Rewrite testdata/bench/ledger.md: what a run and a request cost, by statement and by function
	@.ci/install postgresql
	$(BUILD) -o bin/bench ./internal/bench/cmd
	./bin/bench --only=ledger --ledger testdata/bench/ledger.md $(ARGS)

# Programs of peers, each in a directory of its own. npm installs packages by their lock file.
PEERS      := testdata/peers
PEERS_NODE := $(PEERS)/graphile $(PEERS)/pgboss

.PHONY: bench-peers
bench-peers: build $(PEERS_NODE:%=%/node_modules/.package-lock.json) ## Measure beside River, graphile-worker and pg-boss (three quarters of an hour)
	@.ci/install postgresql
	cd $(PEERS)/river && $(GO) build -buildvcs=false -o peer .
	cd internal/bench/peers && $(GO) run -ldflags "$(LDFLAGS)" . $(ARGS) \
		$(abspath $(PEERS)/river/peer $(PEERS)/graphile/peer $(PEERS)/pgboss/peer)

$(PEERS)/%/node_modules/.package-lock.json: $(PEERS)/%/package-lock.json
	@.ci/install nodejs npm
	cd $(<D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: microbench
microbench: ## Run the benchmarks of single functions (BENCH=regexp picks some)
	@.ci/install postgresql
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 1h $(ARGS) $(PKG)

.PHONY: fuzz
fuzz: ## Run every fuzzer (FUZZ=30s says how long each; PKG=./httpapi narrows it down)
	@.ci/install postgresql
	@for package in $$($(GO) list $(PKG)); do \
		for fuzzer in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "==> $$package $$fuzzer"; \
			$(GO) test -run '^$$' -fuzz "^$$fuzzer$$" -fuzztime $(FUZZ) -fuzzminimizetime 5x $(ARGS) $$package || exit 1; \
		done; \
	done

.PHONY: zones
zones: ## Replace the time zone data from the newest release that Debian serves
	@.ci/install zip unzip
	scheduler/cron/refresh.sh

.PHONY: release
release: $(HTMX) ## Build a release into dist/; refuses what is not committed or tagged, unless ARGS=--rehearse
	@.ci/install zip ssh-keygen
	.ci/release $(ARGS)

.PHONY: try-release
try-release: servers ## Build a release twice, install and upgrade its package, and run its image; as root, on Debian
	TRY_RELEASE=1 $(GOTEST) $(TESTS) -timeout 60m -run 'ThePackageIs|TheImageRuns|TwoBuilds' ./internal/prove

.PHONY: chart
chart: ## Lint the Helm chart; validate what it makes, and the manifests, by the schemas of Kubernetes
	.ci/chart/check

.PHONY: audit
audit: ## Verify the modules' checksums; look for known weaknesses in them, and for newer time zone data
	.ci/audit

.PHONY: soak
soak: ## Run the long tests (SOAK=10m says how long each; SEED=… repeats one)
	CGO_ENABLED=1 SOAK=$(SOAK) $(GO) test -race -run '^TestSoak' -count=1 -parallel 4 -v -timeout 0 $(ARGS) $(PKG)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist .tools

$(GOLANGCI):
	@echo "==> building golangci-lint $(GOLANGCI_VERSION), once; this takes some minutes"
	@mkdir -p .tools/tmp
	GOBIN=$(CURDIR)/.tools/tmp $(GO) install -buildvcs=false -ldflags '-s -w' \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv .tools/tmp/golangci-lint $@
	@rmdir .tools/tmp
