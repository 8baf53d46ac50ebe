# Common commands; `make` lists them. The work is done by scripts/ and CMake.
.DEFAULT_GOAL := help
.PHONY: help demo build install deb bundle images verify eval run-verify run-eval accuracy bench test accept lint lint-proto format tidy thread-safety asan tsan mutants fuzz coverage uncalled chart-test image-test k8s-smoke k8s-life k8s-groups k8s-models k8s-scrape k8s-drills k8s-examples k8s-doctor k8s-test k8s-up k8s-down k8s-node-test clean

# DEVICE=cuda... builds with the pinned CUDA toolkit, which scripts/cuda_toolkit installs.
CUDA_PACKAGES := $(if $(findstring cuda,$(DEVICE)),cuda)

help: ## this table
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: ## serve a model with a coordinator and 4 workers (PROMPT WORKERS TOKENS MODE TRANSPORT DEVICE)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/demo

build: ## build the programs and libraries in build/release
	@scripts/bootstrap build
	@scripts/build release programs

install: ## install programs, library and systemd units (PREFIX=/usr/local DESTDIR=)
	@scripts/bootstrap build
	@scripts/install

deb: ## write out/deb/switchyard_*.deb, which installs the same (LEVEL=6 REVISION MAINTAINER)
	@scripts/bootstrap build
	@scripts/deb

bundle: ## write out/bundle/switchyard-*.tar.zst, which runs on other machines (DEVICE=cuda)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/bundle

images: ## write out/images/*.tar, container images without a daemon (OUT, DEVICE=cuda)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/build release programs
	@$(if $(CUDA_PACKAGES),scripts/build cuda programs)
	@deploy/image/build $(or $(OUT),out/images)

# verify and eval end as their programs do: 0 within bounds, 1 outside, 2 not measured. make itself would
# end with 2 after any command that fails. With --question it ends with 1 when a command is left to run,
# and runs lines that begin with "+" all the same: so the program is such a line, and leaves a command
# when it ended with 1. Not with -n, which would run these lines, nor beside goals that --question would
# not make: there 1 becomes 2.
CHECKS := verify eval
IS_CHECK := $(and $(MAKECMDGOALS),$(if $(filter-out $(CHECKS),$(MAKECMDGOALS)),,yes))
ifeq ($(IS_CHECK)$(findstring n,$(firstword -$(MAKEFLAGS))),yes)
  MAKEFLAGS += --question
  ALWAYS := +
endif
# The file has the code until the check is finished; its name is that of this make.
CHECK_FILE := out/.$(shell echo $$PPID)
RUN_CHECK = $(ALWAYS)@mkdir -p out; scripts/bootstrap build $(CUDA_PACKAGES) || exit 2; \
  scripts/run_program $(1); code=$$?; [ $$code -lt 2 ] || exit 2; echo $$code >$(CHECK_FILE).$@
FINISH_CHECK = $(if $(filter 1,$(shell cat $(CHECK_FILE).run-$@ 2>/dev/null; \
  rm -f $(CHECK_FILE).run-$@)),@exit 1)

verify: run-verify ## check GOLDEN=file or ROWS=n (WORKERS MODE TRANSPORT DEVICE TARGET DEPLOYMENT MODEL FORMAT)
	$(FINISH_CHECK)

run-verify:
	$(call RUN_CHECK,verify $(if $(ROWS),golden,golden!) rows layer seed workers mode transport device \
	  target deployment format)

eval: run-eval ## measure bits per byte of TEXT=file (WINDOWS EXPECT, and the options of verify)
	$(FINISH_CHECK)

run-eval:
	$(call RUN_CHECK,switchyard-eval text! windows expect workers mode transport device target \
	  deployment format)

accuracy: ## measure every weight scheme, wire dtype and mode (TEXT=file WINDOWS=n DEVICE MARKDOWN=1)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/accuracy $(if $(TEXT),--text "$(TEXT)") $(if $(WINDOWS),--windows $(WINDOWS)) \
	  $(if $(DEVICE),--device "$(DEVICE)") \
	  $(if $(MARKDOWN),--markdown)

test: ## build everything and run all tests (TESTS=regex for some)
	@scripts/bootstrap build test
	@scripts/test

bench: ## compare speeds with their floors (ONLY=layer,data_path,prefill,decode,contention,opening,traces PASSES JSON)
	@scripts/bootstrap build bench
	@scripts/build release --bench acceptance codec_bench expert_kernel_bench layer_bench \
	  transport_bench
	@build/release/bench/acceptance $(if $(ONLY),--only $(ONLY)) $(if $(PASSES),--passes $(PASSES)) \
	  $(if $(JSON),--json $(JSON))

lint: ## check the formatting of every C++ file (clang-format 14)
	@scripts/bootstrap lint
	@scripts/lint

lint-proto: ## check proto/ with a pinned buf from npm
	@scripts/bootstrap lint
	@scripts/lint_proto

format: ## reformat every C++ file
	@scripts/bootstrap lint
	@scripts/lint --fix

tidy: ## run clang-tidy on files changed since BASE (default: main); ALL=1 for all files
	@scripts/bootstrap build test lint
	@scripts/tidy

thread-safety: ## what each mutex guards, checked by clang's -Wthread-safety
	@scripts/bootstrap build test fuzz
	@scripts/thread_safety

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/bootstrap build test
	@PRESET=asan scripts/test

tsan: ## run the tests of cores, queues and rings with ThreadSanitizer
	@scripts/bootstrap build test
	@PRESET=tsan scripts/test

mutants: ## check that each seeded bug is caught by its check (NAMES="a b" for some)
	@scripts/bootstrap build test
	@scripts/mutants $(NAMES)

fuzz: ## fuzz the readers of untrusted files for SECONDS=60 each
	@scripts/fuzz $(or $(SECONDS),60)

accept: ## run all release checks and print one table (DRILLS=20 kills of each kind)
	@scripts/bootstrap build test
	@scripts/accept --drills $(or $(DRILLS),20)

coverage: ## measure line coverage of each layer (MINIMUM=85 fails below it)
	@scripts/bootstrap build test
	@scripts/coverage

uncalled: ## functions of the product that no program calls, each explained in tests/uncalled.tsv
	@scripts/bootstrap build
	@scripts/uncalled

chart-test: ## the Helm chart without a cluster: renders, refusals, policies, alerts (UPDATE_GOLDENS=1)
	@scripts/bootstrap test k8s
	@/usr/bin/python3 -B tests/helm/chart_test.py
	@/usr/bin/python3 -B tests/helm/upgrade_test.py
	@/usr/bin/python3 -B tests/helm/values_test.py
	@/usr/bin/python3 -B tests/helm/kinds_test.py
	@/usr/bin/python3 -B tests/helm/alerts_test.py
	@/usr/bin/python3 -B tests/helm/sizing_test.py
	@/usr/bin/python3 -B tests/helm/context_test.py

image-test: ## the container images: reproducible, whole, and they serve
	@scripts/bootstrap build test
	@scripts/build release programs
	@/usr/bin/python3 -B tests/image/image_test.py . build/release

# For a cluster that KUBECONFIG names: the CONTEXT that may be changed, and the REGISTRY, with its path, that images come from.
ON_CLUSTER = $(if $(CONTEXT),--context '$(CONTEXT)') $(if $(REGISTRY),--prefix '$(REGISTRY)')

k8s-smoke: ## install the Helm chart on a Kubernetes of its own, test it, lose a worker, uninstall it (CONTEXT REGISTRY with KUBECONFIG)
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/smoke_test.py $(ON_CLUSTER)

k8s-life: ## change a release there in every planned way, and some others, while clients generate (the same)
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/life_test.py $(ON_CLUSTER)

k8s-groups: ## pools as LeaderWorkerSet and DisaggregatedSet there, with their real controller
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/groups_test.py

k8s-models: ## several models and pools of one phase there, and what `helm test` does not let through
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/models_test.py

k8s-examples: ## every example of the chart there, with machines, GPUs and racks that only the scheduler knows
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/examples_test.py

k8s-scrape: ## scrape a release there with a real Prometheus, and lose a worker
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/scrape_test.py

k8s-drills: ## what strangers find and can do there: ports, floods, secrets, another build
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/drills_test.py

k8s-doctor: ## eight faults planted there, each found by `syctl doctor` and put right as it says
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/doctor_test.py

k8s-test: ## all of these on one node, with a report in out/k8s-report.md; about half an hour
	@scripts/bootstrap build test k8s
	@scripts/build release programs
	@/usr/bin/python3 -B tests/helm/everything.py --report out/k8s-report.md

k8s-up: ## start a single-node Kubernetes on this machine (needs root; tests/k8s/README.md)
	@scripts/bootstrap k8s
	@tests/k8s/cluster up

k8s-down: ## end it and remove everything it made
	@tests/k8s/cluster down

k8s-node-test: ## what holds on that node, and that it leaves nothing behind
	@scripts/bootstrap k8s
	@tests/k8s/node_test.py

clean: ## remove everything that was built
	rm -rf build out
