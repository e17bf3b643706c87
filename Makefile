# `make help` lists the targets.

GO      ?= go
BIN     ?= bin
FUZZTIME ?= 30s
VERSION ?= $(shell cat VERSION)-$(shell git describe --always --dirty 2>/dev/null || echo dev)

# -v tells each package as it is compiled, which takes minutes the first time.
LAB    := $(GO) run -v ./e2e/lab/cmd/lab
LINTER := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
# Where the lab keeps the programs that it builds.
export FAIRLEAD_CACHE ?= $(HOME)/.cache/fairlead
# What is released, what tests it and what lints it are compiled alike: with other flags each would compile
# all dependencies anew.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath -buildvcs=false

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ See it work

.PHONY: demo
demo: lab-build image ## Start a cluster on this machine and show Fairlead at work (root)
	$(GO) run -v ./e2e/demo

.PHONY: demo-down
demo-down: ## Remove every trace of the demo
	$(LAB) down

##@ Build

.PHONY: build
build: ## Build both programs and the plugin of kubectl into bin/
	$(GO) build -v -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)/ ./controller ./speaker ./cmd/kubectl-fairlead

.PHONY: image
image: build ## Build build/image.tar, the image localhost/fairlead:dev (root)
	scripts/image

.PHONY: site
site: ## Build the documentation as a site with search into build/site
	$(GO) run ./docs/site

.PHONY: release
release: packages $(BIN)/helm ## Make dist/, all that is released of VERSION: docs/releasing.md (root)
	HELM=$(abspath $(BIN)/helm) scripts/release

# Helm of the version that the lab runs.
$(BIN)/helm: e2e/lab/modules/helm4/go.mod
	cd e2e/lab/modules/helm4 && $(GO) build -ldflags '-s -w' -o $(abspath $@) helm.sh/helm/v4/cmd/helm

.PHONY: publish
publish: ## Push dist/ to REGISTRY=registry.example.com/team
	@[ -n "$(REGISTRY)" ] || { echo "name where to: make publish REGISTRY=registry.example.com/team" >&2; exit 2; }
	$(GO) run ./internal/release $(if $(ARCHITECTURES),-architectures '$(ARCHITECTURES)') publish $(REGISTRY)

.PHONY: generate
generate: ## Generate code, CRDs and the chart's copy of them, the API reference and the drawings
	scripts/generate

##@ Check

# Which tests internal/testrun is to run: what these words mean, and what each share has, is in
# plan/plan.go.
SHARE ?= $(shell git rev-parse HEAD)
test:       TESTS = gate
test-share: TESTS = $(SHARE)
# CI ends what takes 90 minutes: on a slow machine it proves the gate.
test-ci:    TESTS = -begin-within=30m gate $(SHARE)
test-all:   TESTS = all

.PHONY: test
test: check-generated lint ## Prove what a merge must: a quarter of an hour (root); ends a demo

.PHONY: test-all
test-all: check-generated lint ## Run all tests in all their cases, with the race detector: hours (root); ends a demo

.PHONY: test-share
test-share: ## Run one share of test-all, SHARE=3, or that of the commit: a quarter of an hour (root); ends a demo

.PHONY: test-ci
test-ci: check-generated lint

# A share opens the site in a browser, which the gate does not.
test-all test-share test-ci: browser
# To build a second Kubernetes takes too long for a share.
test-all: test-kubernetes
.PHONY: browser
browser: packages
	@e2e/lab/install-packages chromium fonts-dejavu-core

test test-all test-share test-ci: packages emulator lab-down test-build image
	FAIRLEAD_TEST_BIN=$(FAIRLEAD_CACHE)/bin $(GO) run ./internal/testrun $(TESTS)

.PHONY: test-unit
test-unit: ## Run in short what needs no lab; without root, privileged tests are skipped
	FAIRLEAD_TEST_BIN=$(FAIRLEAD_CACHE)/bin $(GO) test -short $$($(GO) list ./... | grep -v '^fairlead.dev/fairlead/e2e/')

.PHONY: conformance
conformance: lab-down conformance-build image ## Run all of Kubernetes' own tests of Services (root); ends a demo
	FAIRLEAD_CONFORMANCE=whole $(GO) test -count=1 -timeout=120m -v ./e2e/conformance

.PHONY: test-kubernetes
test-kubernetes: lab-down conformance-build image ## Run those that every cluster must pass on the oldest Kubernetes that is supported (root); ends a demo
	$(LAB) build kubernetes-1.31
	FAIRLEAD_OLDER_KUBERNETES=yes $(GO) test -count=1 -short -timeout=60m -v -run '^TestKubernetesServices$$' ./e2e/conformance

.PHONY: emulator
emulator: packages
	@e2e/lab/install-packages qemu-system-x86 cpio kmod

.PHONY: test-kernels
test-kernels: ## Run the packet suite in Debian's kernels, emulated, into docs/kernels.md: hours (root)
	@e2e/lab/install-packages qemu-system-x86 qemu-system-arm cpio kmod
	nice -n 10 $(GO) run ./e2e/kernels -out docs/kernels.md
	for module in selinux apparmor; do for suite in ./speaker/forwarding ./speaker/pulse/command; do \
		nice -n 10 $(GO) run ./e2e/kernels -releases bookworm -cpus max -hardened -boot "security=$$module $$module=1" -suite $$suite -run '^TestConfined' || exit; \
	done; done

.PHONY: test-pod-networks
test-pod-networks: lab-down test-build image ## Run scenarios and Kubernetes' tests with other pod networks, into docs/pod-networks.md: two hours (root)
	$(GO) run ./e2e/podnetworks -out docs/pod-networks.md

.PHONY: bench-forwarding
bench-forwarding: packages ## Compare forwarding with kube-proxy's, into docs/benchmarks/forwarding.md: hours, on an idle machine (root)
	$(LAB) build proxy
	$(GO) run ./e2e/bench forwarding $(if $(BEFORE),-before $(abspath $(BEFORE))) -out docs/benchmarks/forwarding.md

.PHONY: bench-layer2
bench-layer2: lab-build image ## Compare failover by layer 2 with MetalLB's, into docs/benchmarks/layer2.md: three hours, on an idle machine (root)
	$(LAB) build metallb proxy helm3
	$(GO) run ./e2e/bench layer2 -out docs/benchmarks/layer2.md

.PHONY: bench-bgp
bench-bgp: lab-build image ## Compare routes by BGP with MetalLB's, into docs/benchmarks/bgp.md: an hour, on an idle machine (root)
	$(LAB) build metallb frr-k8s proxy helm3
	$(GO) run ./e2e/bench bgp -rounds 4 -patience 6m -out docs/benchmarks/bgp.md

.PHONY: bench-hellos
bench-hellos: ## Simulate the hellos of up to a thousand nodes, into bin/hello-mesh.md: some ten minutes
	$(GO) test -run '^TestFigures$$' -v -timeout 120m ./speaker/pulse/hello -args -figures $(CURDIR)/$(BIN)/hello-mesh.md

.PHONY: soak-bfd
soak-bfd: packages build ## Hold BFD at 50 ms × 3 with FRR and BIRD on a busy machine: twenty minutes (root)
	$(GO) test -tags soak -run TestSoakBFD -v -timeout 30m ./speaker/bgp

.PHONY: bench-allocation
bench-allocation: packages ## Compare giving addresses with MetalLB's, into docs/benchmarks/allocation.md: half an hour, on an idle machine
	$(LAB) build metallb
	$(GO) run ./e2e/bench allocation -out docs/benchmarks/allocation.md

.PHONY: fuzz
fuzz: ## Fuzz every parser, for FUZZTIME (30s) each; FUZZ=speaker/bgp only those that match
	FUZZTIME=$(FUZZTIME) scripts/fuzz $(FUZZ)

.PHONY: lint
lint: ## Run the linters and check the formatting
	$(LINTER) run --allow-parallel-runners ./...

.PHONY: format
format: ## Format the Go code
	$(LINTER) fmt ./...

.PHONY: check-generated
check-generated:
	scripts/generate --check

##@ The lab: a cluster in network namespaces of this machine (root)

.PHONY: lab-build
lab-build: packages ## Build its programs and images, once: minutes
	$(LAB) build

.PHONY: conformance-build
conformance-build: packages
	$(LAB) build conformance helm3

.PHONY: lab-up
lab-up: lab-build ## Start it
	$(LAB) up

.PHONY: lab-down
lab-down: ## Remove every trace of it
	$(LAB) down

.PHONY: test-build
test-build: packages
	$(LAB) build conformance metallb proxy helm3 flannel kube-router
	$(GO) test -c -o build/controller.test ./controller

.PHONY: packages
packages:
	@scripts/requirements
	@e2e/lab/install-packages
