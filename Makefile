# Common commands; `make` lists them. The work is done by scripts/ and CMake.
.DEFAULT_GOAL := help
.PHONY: help demo build bundle verify eval accuracy bench test accept lint lint-proto format tidy thread-safety asan tsan mutants fuzz coverage uncalled clean

# DEVICE=cuda... builds with the pinned CUDA toolkit, which scripts/cuda_toolkit installs.
CUDA_PACKAGES := $(if $(findstring cuda,$(DEVICE)),cuda)

help: ## this table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: ## serve a model with a coordinator and 4 workers (PROMPT WORKERS TOKENS MODE TRANSPORT DEVICE)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/demo

build: ## build the programs and libraries in build/release
	@scripts/bootstrap build
	@scripts/build release programs

bundle: ## write out/bundle/switchyard-*.tar.zst, which runs on other machines (DEVICE=cuda)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/bundle

verify: ## check GOLDEN=file (WORKERS MODE TRANSPORT DEVICE TARGET DEPLOYMENT MODEL FORMAT)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/run_program verify golden! workers mode transport device target deployment format

eval: ## measure bits per byte of TEXT=file (WINDOWS EXPECT, and the options of verify)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/run_program eval text! windows expect workers mode transport device target deployment format

accuracy: ## measure every weight scheme, wire dtype and mode (TEXT=file WINDOWS=n DEVICE MARKDOWN=1)
	@scripts/bootstrap build $(CUDA_PACKAGES)
	@scripts/accuracy $(if $(TEXT),--text "$(TEXT)") $(if $(WINDOWS),--windows $(WINDOWS)) \
	  $(if $(DEVICE),--device "$(DEVICE)") \
	  $(if $(MARKDOWN),--markdown)

test: ## build everything and run all tests (TESTS=regex for some)
	@scripts/bootstrap build test
	@scripts/test

bench: ## compare speeds with their floors (ONLY=layer,data_path,prefill,decode,contention,opening PASSES JSON)
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

clean: ## remove everything that was built
	rm -rf build out
