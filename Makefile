# Bulkhead's build. `make` lists the targets. Results are in bin/ (to be installed) and
# build/ (needed only for the build).

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
ifndef VERSION
VERSION := $(shell hack/version)
endif
# Another kernel for the guest, and the directory of its modules.
KERNEL  ?=
MODULES ?=
# For make bench: samples of each row, idle pods, rows (none: all), and another checkout to measure in turns
# with this one.
RUNS    ?= 20
PODS    ?= 50
ROWS    ?=
AGAINST ?=
# For make hosts: the host, the user and the scenario (empty: all of them).
HOST    ?=
RUN     ?=
ifeq ($(origin AS),default)  # make's default is the assembler
AS      :=
endif
# For make soak: the seed of its random choices, which it prints, and its duration.
SEED    ?=
SOAK    ?= 5m

# The image library without its C dependencies, gRPC without its debugging pages
# (3 MB of every shim).
TAGS       := containers_image_openpgp grpcnotrace exclude_graphdriver_btrfs exclude_graphdriver_devicemapper nri_no_wasm
MODULE     := github.com/bulkhead-project/bulkhead
LDFLAGS    := -s -w -X $(MODULE)/internal/version.Version=$(VERSION)
BUILD      := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)'
GOLANGCI   := v2.15.0
GREMLINS   := v0.6.0

SOURCES  := $(shell find . \( -path ./build -o -path ./bin -o -path ./.git -o -path ./internal/test -o -path ./tools \) -prune -o -name '*.go' ! -name '*_test.go' -print) go.mod go.sum
READER   := build/tools/diskread
WORKER   := build/tools/filework
PROGRAMS := $(addprefix bin/,$(filter-out bulkhead-guest,$(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/main.go))))))
# The library that forks a warm QEMU. On other architectures, VMs are clones.
ifeq ($(shell uname -m),x86_64)
PROGRAMS += bin/bulkhead-warm.so
endif
TOOL     := build/tools/bulkhead-guest
BUNDLE   := bin/guest/bundle.json
IMAGE    := build/busybox.tar
PAGES    := build/man/bulkhead.1
COMPLETIONS := $(addprefix build/completion/,bulkhead _bulkhead bulkhead.fish)
INSTALLER := build/images/install.tar
SERVERS  := build/images/nginx.tar build/images/redis.tar

# Tests find the programs and the guest by these variables.
export BULKHEAD_LIBEXEC := $(CURDIR)/bin
export BULKHEAD_GUEST   := $(CURDIR)/bin/guest
TEST     := env -u BULKHEAD_DATA -u BULKHEAD_STATE $(GO) test -tags '$(TAGS)'

.PHONY: help
help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  make guest KERNEL=/boot/vmlinuz MODULES=/lib/modules/6.1.0 builds the guest with another kernel."

.PHONY: build
build: $(PROGRAMS) ## compile the programs into bin/

.PHONY: guest
guest: $(BUNDLE) ## build the guest bundle (kernel, initrd) in bin/guest

.PHONY: run
run: build guest $(IMAGE) ## build, and run the demo pod examples/hello.yaml
	@bin/bulkhead image load --quiet oci-archive:$(IMAGE) localhost/busybox:demo >/dev/null
	@bin/bulkhead run --rm examples/hello.yaml

# It is kept in the user's cache, because linking it takes longer than linting. -trimpath lets clones share compiled packages.
LINTER := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bulkhead/golangci-lint-$(GOLANGCI)-$(shell $(GO) env GOVERSION)

.PHONY: lint
lint: $(LINTER) ## check the code with golangci-lint
	@GOFLAGS=-trimpath $(LINTER) run --build-tags '$(TAGS)' ./... ./tools/bench/...

$(LINTER):
	@echo "lint: building golangci-lint $(GOLANGCI) (once, some minutes)"
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 $(GO) install -trimpath -ldflags=-s github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	@mv build/tools/golangci-lint $@

.PHONY: kubeall
kubeall: ## build etcd, the control plane, the kubelet, their tests and metrics-server, once (fifteen minutes and 4 GB of caches)
	@for program in kubeall conformance agnhost nonewprivs metrics-server; do GO=$(GO) hack/build-once $$program >/dev/null || exit 1; done

.PHONY: critools
critools: ## build crictl and critest for e2e/cri, once (three minutes of a processor)
	@GO=$(GO) hack/build-once crictl >/dev/null
	@GO=$(GO) hack/build-once critest >/dev/null

.PHONY: containerd
containerd: ## build containerd 2.4 and ctr for e2e/containerd, once (three minutes of a processor)
	@GO=$(GO) hack/build-once containerd >/dev/null
	@GO=$(GO) hack/build-once ctr >/dev/null

.PHONY: test
test: build guest $(IMAGE) $(SERVERS) $(INSTALLER) build/setup-test host-images client-tree package kubeall critools containerd ## run all tests, including tests with VMs
	env -u BULKHEAD_DATA -u BULKHEAD_STATE GO='$(GO)' $(GO) run ./hack/tests '$(TAGS)'

.PHONY: test-long
test-long: build guest $(IMAGE) $(SERVERS) $(INSTALLER) build/setup-test host-images client-tree package kubeall critools containerd ## run all tests with the whole tables of faults and inputs (an hour or more)
	BULKHEAD_TEST_LONG=1 $(TEST) -p 1 -parallel 2 -timeout 3h ./... ./tools/bench/...

# The tests' network reaches no package archive, and only root can create a disk.
.PHONY: host-images
host-images: build/setup-hosts
	@[ "$$(id -u)" != 0 ] || for suite in bookworm trixie; do hack/host-image $$suite >/dev/null || exit 1; done

# The clients of Debian 13, for e2e/clients.
.PHONY: client-tree
client-tree: build/setup-hosts
	@[ "$$(id -u)" != 0 ] || hack/client-tree trixie >/dev/null

.PHONY: hosts
hosts: $(IMAGE) package build/setup-test host-images critools ## test on fresh Debian 12 and 13 hosts (HOST=debian13 AS=bob RUN=network; an hour)
	BULKHEAD_TEST_HOSTS=1 $(TEST) -count=1 -timeout 4h -v -run 'TestHosts/$(HOST)/$(AS)/$(RUN)' ./e2e/hosts

.PHONY: host-today
host-today: $(IMAGE) package build/setup-test host-images critools ## run the day's part of make hosts (four minutes)
	$(TEST) -count=1 -timeout 1h -v -run 'TestToday' ./e2e/hosts

.PHONY: soak
soak: build guest $(IMAGE) ## create, use, kill and remove pods at random (SEED=1 SOAK=5m)
	SEED='$(SEED)' SOAK='$(SOAK)' $(TEST) -count=1 -timeout 4h -run '^TestSoak$$' -v ./e2e

.PHONY: bench
bench: build guest $(IMAGE) $(READER) $(WORKER) ## run the benchmark (RUNS=5 ROWS=run,exec AGAINST=../other)
	@hack/setup test || echo "bench: without podman" >&2
	@$(GO) build -tags '$(TAGS)' -o build/tools/bench ./tools/bench
	@build/tools/bench --runs $(RUNS) --pods $(PODS) --rows '$(ROWS)' --against '$(AGAINST)' --image $(IMAGE) --reader $(READER) --worker $(WORKER) $(BENCHFLAGS)

.PHONY: bench-cri
bench-cri: RUNS = 30
bench-cri: ROWS = cri
bench-cri: BENCHFLAGS = --out bench-cri.json
bench-cri: bench ## measure the CRI beside containerd and runc, as root

.PHONY: bench-oci
bench-oci: RUNS = 30
bench-oci: ROWS = oci
bench-oci: BENCHFLAGS = --out bench-oci.json
bench-oci: bench ## measure bulkhead-oci beside runc and crun, directly and below podman, docker and ctr, as root

.PHONY: bench-node
bench-node: PODS = 1000
bench-node: build guest $(IMAGE) kubeall ## measure bulkhead node with PODS=1000 concurrent pods and a runtime that answers after 10 ms
	BULKHEAD_BENCH_NODE='$(PODS) 50' $(TEST) -count=1 -timeout 15m -v -run 'TestBench$$' ./e2e/node

.PHONY: mutants
mutants: build/tools/gremlins-$(GREMLINS) ## put small faults into PKG=internal/undo, and list the faults that its quick tests miss
	@$(GO) run ./hack/mutants $< '$(TAGS)' '$(or $(PKG),$(error PKG= names no package, for example PKG=internal/undo))'

.PHONY: man
man: $(PAGES) ## write the manual pages into build/man

.PHONY: install
install: build guest man $(COMPLETIONS) ## install the files of deploy/files into $(DESTDIR)$(PREFIX)
	@hack/install install '$(PREFIX)' '$(DESTDIR)'

.PHONY: uninstall
uninstall: ## remove the installed files from $(DESTDIR)$(PREFIX)
	@hack/install uninstall '$(PREFIX)' '$(DESTDIR)'

.PHONY: packages
packages: build guest man $(COMPLETIONS) ## build a .deb, an .rpm and a .tar.gz in build/packages, and print their checksums
	@GO='$(GO)' hack/package '$(VERSION)' deb rpm tar
	@cat build/packages/SHA256SUMS

# The packages that the tests install.
.PHONY: package
package: build guest man $(COMPLETIONS)
	@GO='$(GO)' hack/package '$(VERSION)' deb rpm

# The image in deploy/kubernetes/install.yaml. A cluster's nodes must find it in a registry.
.PHONY: install-image
install-image: $(INSTALLER) ## build the image that installs Bulkhead on nodes, build/images/install.tar

$(INSTALLER): $(PROGRAMS) $(BUNDLE) $(PAGES) $(COMPLETIONS) hack/setup hack/install hack/debian-image deploy/files $(wildcard deploy/*/*) | build/setup-build
	@rm -rf build/install
	@$(MAKE) --no-print-directory -s install DESTDIR=$(CURDIR)/build/install PREFIX=/usr/local
	@mkdir -p build/install/opt
	@mv build/install/usr/local build/install/opt/bulkhead
	@rmdir build/install/usr
	@install -m 0755 deploy/install/install build/install/opt/install
	@hack/debian-image --add build/install $@ '{"Cmd": ["/opt/install"]}' busybox-static
	@rm -rf build/install

.PHONY: clean
clean: ## remove build results, but keep fetched and built dependencies
	rm -rf bin build/man build/completion build/stage build/packages $(TOOL) $(IMAGE)

# The set-up installs missing packages once. Its stamps are renewed when the list of packages
# changes.
build/setup-%: hack/setup
	@mkdir -p build
	@hack/setup $*
	@touch $@

# A program is linked again only when a source has changed, and go decides what to compile. The
# agent has no version, because it is part of every template's key.
bin/bulkhead-agent: LDFLAGS := -s -w
$(filter-out %.so,$(PROGRAMS)): bin/%: $(SOURCES) | build/setup-run
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*
	@touch $@

WARM := hypervisor/warm/preload
bin/bulkhead-warm.so: $(wildcard $(WARM)/*.c $(WARM)/*.h) | build/setup-build
	@mkdir -p $(@D)
	$(CC) -O2 -std=gnu11 -Wall -Wextra -Wconversion -Werror -fPIC -fvisibility=hidden -shared -Wl,-z,now,-z,relro -s -o $@ $(wildcard $(WARM)/*.c)

$(TOOL): $(SOURCES)
	$(BUILD) -o $@ ./cmd/bulkhead-guest
	@touch $@

# Debian's kernel is fetched once. After rm -r build/kernel, the next make fetches the newest
# one.
build/kernel/source: hack/fetch-kernel | build/setup-build
	@hack/fetch-kernel
	@touch $@

STATICS := build/crun/source build/busybox/source
$(STATICS): build/%/source: hack/build-static | build/setup-build
	@hack/build-static $*
	@touch $@

ifeq ($(KERNEL),)
KERNEL_INPUTS := build/kernel/source
KERNEL_FLAGS  := --kernel build/kernel/vmlinuz --modules build/kernel/modules --kernel-source build/kernel/source
else
KERNEL_INPUTS := $(KERNEL)
KERNEL_FLAGS  := --kernel $(KERNEL) --modules $(or $(MODULES),$(error KERNEL=$(KERNEL) needs MODULES=, the directory of its modules))
endif

# The programs in a package have its version, so every commit links them again.
ifneq ($(filter package packages hosts test test-long,$(MAKECMDGOALS)),)
$(filter-out bin/bulkhead-agent %.so,$(PROGRAMS)) $(PAGES): build/version
endif
build/version: force
	@mkdir -p build
	@echo '$(VERSION)' | cmp -s - $@ || echo '$(VERSION)' >$@

# Rewritten only when the flags change, so that switching to another kernel and back rebuilds
# the bundle.
.PHONY: force
build/guest-flags: force
	@mkdir -p build
	@echo '$(KERNEL_FLAGS)' | cmp -s - $@ || echo '$(KERNEL_FLAGS)' >$@

# It needs no C library.
build/launcher: $(wildcard guest/launcher/*) | build/setup-build
	$(CC) $$(cat guest/launcher/flags) -o $@ $(filter %.c,$^)

$(BUNDLE): bin/bulkhead-agent $(TOOL) build/crun/source build/launcher $(KERNEL_INPUTS) build/guest-flags
	@$(TOOL) bundle $(KERNEL_FLAGS) --crun-source build/crun/source --agent bin/bulkhead-agent --out $(@D)
	@touch $@

# A separate program writes them, to keep the command line small.
$(PAGES): $(SOURCES) | build/setup-run
	@rm -rf build/man
	@SOURCE_DATE_EPOCH="$$(hack/version --epoch)" $(GO) run -tags '$(TAGS)' ./hack/man '$(VERSION)' build/man

build/completion/%: SHELL_OF = $(or $(patsubst .%,%,$(suffix $@)),$(if $(filter _%,$*),zsh,bash))
$(COMPLETIONS): build/completion/%: bin/bulkhead
	@mkdir -p $(@D)
	@bin/bulkhead completion $(SHELL_OF) >$@

$(READER) $(WORKER): build/tools/%: tools/bench/%/main.go
	$(BUILD) -ldflags '-s -w' -o $@ ./tools/bench/$*

$(IMAGE): $(TOOL) build/busybox/source
	@$(TOOL) demo-image --out $@

# The images of two examples, built from Debian's packages without a registry.
build/images/nginx.tar: hack/debian-image | build/setup-build
	@hack/debian-image $@ '{"Cmd": ["nginx", "-g", "daemon off;"], "StopSignal": "SIGQUIT"}' nginx-light dash coreutils

build/images/redis.tar: hack/debian-image | build/setup-build
	@hack/debian-image $@ '{"Cmd": ["redis-server"], "WorkingDir": "/data", "User": "redis"}' redis-server dash grep

build/tools/gremlins-$(GREMLINS):
	@GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 $(GO) install -trimpath -ldflags=-s github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS)
	@mv build/tools/gremlins $@
