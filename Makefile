# One target per task; `make` alone lists them. The longer ones are scripts in scripts/.
#
# Variables: FILE (demo), BUNDLE (gpu-bundle), PREFIX, LIBDIR and DESTDIR (install, uninstall, install-sim and
# uninstall-sim), QUICK, STRICT, ALL, ONLY, FROM and TO (bench, see scripts/bench.sh), MINUTES (soak), SECONDS (fuzz,
# reliability). From the environment: CARGO_TARGET_DIR, VKGDR_CUDA_DRIVER (auto, real or sim, see sim/run) and PYTHON,
# the interpreter.

SHELL = bash
.SHELLFLAGS = -euo pipefail -c
.DEFAULT_GOAL = help
.PHONY: help demo test aarch64 bench soak fuzz sanitize reliability install uninstall install-sim uninstall-sim python \
    wheel gpu-bundle docs sim lint clean
MAKEFLAGS += --no-print-directory

# The simulator needs a CPU Vulkan driver; a real GPU brings its own.
vulkan = vulkan $$(case $$(sim/run --driver) in sim) echo lavapipe ;; esac)
demos = --package examples --example share_file --example vector_add
simulator = case $$(sim/run --driver) in sim) scripts/sim.sh ;; esac

export FILE BUNDLE PREFIX LIBDIR DESTDIR QUICK STRICT ALL ONLY FROM TO MINUTES

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.* ## /\1\t/p' $(MAKEFILE_LIST) \
	| while IFS=$$'\t' read -r verb text; do printf 'make %-13s %s\n' "$$verb" "$$text"; done

demo: ## share a file (FILE=path) with the GPU, run a kernel
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan)
	@case $$(sim/run --driver) in \
	    sim) scripts/sim.sh release $(demos) ;; \
	    real) cargo build --locked --release $(demos) ;; \
	esac
	@cargo run --quiet --locked --release --example share_file -- $${FILE:+"$$FILE"}
	@echo
	@cargo run --quiet --locked --release --example vector_add

test: ## run all tests, also under validation
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) validation c python
	@scripts/sim.sh
	@scripts/test.sh

aarch64: ## run the unit tests on an emulated AArch64 CPU
	@scripts/setup.sh rust aarch64
	@scripts/aarch64.sh

bench: ## run the benchmarks: table, JSON, plots (QUICK=1)
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@$(simulator)
	@scripts/bench.sh $${QUICK:+--quick} $${STRICT:+--strict} $${ALL:+--all} $${ONLY:+--only "$$ONLY"} \
	    $${FROM:+--from "$$FROM"} $${TO:+--to "$$TO"}

soak: ## random sequences on 16 threads for MINUTES=10
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan)
	@$(simulator)
	@scripts/soak.sh

fuzz: ## fuzz the C library and PTX, SECONDS=60 each
	@scripts/setup.sh rust vulkan lavapipe
	@SECONDS_EACH=$(SECONDS) scripts/fuzz.sh

sanitize: ## loom, Miri, sanitizers (nightly Rust)
	@scripts/setup.sh rust vulkan lavapipe c python
	@scripts/sanitize.sh

reliability: ## all long runs; write docs/reliability.md
	@scripts/setup.sh rust vulkan lavapipe validation c python
	@SECONDS_EACH=$(SECONDS) scripts/reliability.sh

install: ## install the C library (PREFIX=/usr/local)
	@scripts/install.sh

uninstall: ## remove the installed C library
	@scripts/install.sh --uninstall

install-sim: ## install vkgdr-sim (PREFIX=/usr/local)
	@scripts/install-sim.sh

uninstall-sim: ## remove the installed vkgdr-sim
	@scripts/install-sim.sh --uninstall

python: ## make a virtual environment with the package
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@scripts/sim.sh
	@scripts/python.sh package pycuda nvcc usage

wheel: ## build and test a manylinux wheel
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@scripts/sim.sh
	@scripts/wheel.sh

gpu-bundle: ## pack the tests for a GPU machine
	@scripts/setup.sh rust python
	@scripts/gpu-bundle.sh

docs: ## build the documentation
	@scripts/setup.sh rust
	@RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked
	@echo "$${CARGO_TARGET_DIR:-target}/doc/vkgdr/index.html"

sim: ## build the simulated driver and vkgdr-sim
	@scripts/setup.sh rust vulkan lavapipe
	@scripts/sim.sh

lint: ## check formatting, lints, types, docs
	@scripts/setup.sh rust python
	@scripts/lint.sh

clean: ## remove all build outputs
	@cargo clean --quiet
	@rm -rf dist
