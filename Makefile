# One target per task; `make` alone lists them. The longer ones are chores of `cargo xtask` and sessions of noxfile.py.
#
# Variables: FILE (demo), BUNDLE (gpu-bundle), PREFIX, LIBDIR, DESTDIR and GDRAPI (install, uninstall, install-sim and
# uninstall-sim), QUICK, STRICT, ALL, ONLY, FROM and TO (bench, see xtask/src/bench), MINUTES (soak), SECONDS (fuzz,
# reliability), INTO (python: another environment's interpreter, which gets pycuda). From the environment:
# CARGO_TARGET_DIR, VKGDR_CUDA_DRIVER (auto, real or sim, see sim/run), PYTHON, the interpreter, and INSTALL_RUST=1.

SHELL = bash
.SHELLFLAGS = -euo pipefail -c
.DEFAULT_GOAL = help
.PHONY: help demo test validation profiles aarch64 bench soak fuzz sanitize reliability install uninstall install-sim uninstall-sim python \
    wheel gpu-bundle docs sim lint clean
MAKEFLAGS += --no-print-directory

export FILE BUNDLE PREFIX LIBDIR DESTDIR GDRAPI MINUTES
export SECONDS_EACH = $(SECONDS)
# Where rustup installs programs; a shell that was open before does not know the folder.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

target = $(or $(CARGO_TARGET_DIR),target)
nox = "$(target)"/python/tools/bin/nox
# The simulator needs a CPU Vulkan driver; a real GPU brings its own.
vulkan = vulkan $$(case $$(sim/run --driver) in sim) echo lavapipe ;; esac)
simulator = case $$(sim/run --driver) in sim) scripts/sim.sh ;; esac
demos = --package examples --example share_file --example vector_add
built = "$(target)/$(or $(CARGO_BUILD_TARGET),.)/debug/xtask"
xtask = [ -x $(built) ] || echo '==> building xtask (half a minute, once)'; cargo xtask
# root installs what a user has built: under sudo always, otherwise if root has no cargo that works. A container's only
# user may be root, who builds.
# An empty PREFIX on the command line is a shell's variable that is not set, rather than a wish for the default.
install = $(if $(PREFIX),,$(if $(filter command,$(origin PREFIX)),$(error PREFIX is empty: name a folder, or leave it out for /usr/local)))umask 022; \
    if [ "$$(id -u)" -eq 0 ] && [ -x $(built) ] && { [ "$${SUDO_USER-}" ] || ! cargo --version >/dev/null 2>&1; }; then \
        $(built) $(1); \
    elif [ "$$(id -u)" -eq 0 ] && [ "$${SUDO_USER-}" ] && ! cargo --version >/dev/null 2>&1; then \
        echo 'nothing is built yet: first run this without sudo, then again with it' >&2; \
        echo '(by sudo --preserve-env=CARGO_TARGET_DIR make ... if you have that variable, which sudo drops)' >&2; exit 1; \
    else scripts/setup.sh rust; $(xtask) $(1); fi
# Removing files needs no compiler where there is a build.
uninstall = if [ -x $(built) ] && ! cargo --version >/dev/null 2>&1; then $(built) $(1); else $(call install,$(1)); fi

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

test: ## run all tests
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) c python
	@scripts/sim.sh
	@$(xtask) test

validation: ## run the tests under Vulkan's validation layer
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) validation c python
	@scripts/sim.sh
	@$(xtask) validation

profiles: export VKGDR_CUDA_DRIVER = sim
profiles: ## run the tests on other simulated GPUs
	@scripts/setup.sh rust vulkan lavapipe c python
	@scripts/sim.sh
	@$(xtask) profiles

# Emulation checks each access but not their order: the x86-64 host orders accesses that an AArch64 CPU may reorder.
# An emulated program has no drivers to load, which shared_fd_tests needs.
aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
aarch64: ## run the unit tests on an emulated AArch64 CPU
	@[ "$$(uname -m)" = x86_64 ] || { echo 'for x86-64 machines; on AArch64, run make test' >&2; exit 1; }
	@scripts/setup.sh rust aarch64
	@! command -v rustup >/dev/null || rustup --quiet target add aarch64-unknown-linux-gnu
	@echo '==> unit tests on an emulated AArch64 CPU (two minutes the first time)'
	@cargo test --quiet --locked --release --package vkgdr --lib --target aarch64-unknown-linux-gnu -- --skip shared_fd_tests

bench: ## run the benchmarks: table, JSON, plots (QUICK=1)
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@$(simulator)
	@$(xtask) bench $(if $(QUICK),--quick) $(if $(STRICT),--strict) $(if $(ALL),--all) \
	    $(if $(ONLY),--only "$(ONLY)") $(if $(FROM),--from "$(FROM)") $(if $(TO),--to "$(TO)")

soak: ## random sequences on 16 threads for MINUTES=10
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan)
	@scripts/sim.sh
	@echo "==> soaking for $${MINUTES:-10} minutes: heap and resident memory at the end of each line"
	@VKGDR_TEST_LAYERS=$${VKGDR_TEST_LAYERS:-faults} MINUTES=$${MINUTES:-10} cargo test --quiet --locked --package vkgdr --test sequences -- \
	    --ignored --exact soak::the_resources_of_the_process_stay_flat --nocapture

fuzz: ## fuzz the C library, the simulated driver, PTX and messages, SECONDS=60 each
	@scripts/setup.sh rust vulkan lavapipe
	@$(xtask) fuzz

sanitize: ## loom, Miri, sanitizers (nightly Rust)
	@scripts/setup.sh rust vulkan lavapipe c python
	@$(xtask) sanitize

reliability: export VKGDR_CUDA_DRIVER = sim
reliability: ## all long runs; write docs/reliability.md
	@scripts/setup.sh rust vulkan lavapipe validation c python
	@$(xtask) reliability

install: ## install the C library and vkgdr (PREFIX=/usr/local, GDRAPI=1)
	@$(call install,install)

uninstall: ## remove them
	@$(call uninstall,install --uninstall)

install-sim: ## install vkgdr-sim (PREFIX=/usr/local)
	@$(call install,install-sim)

uninstall-sim: ## remove the installed vkgdr-sim
	@$(call uninstall,install-sim --uninstall)

python: ## make a virtual environment with the package
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@scripts/sim.sh
	@$(nox) -s python $(if $(INTO),-- "$(INTO)")

wheel: ## build and test the manylinux wheels, vkgdr-sim's too
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@scripts/sim.sh
	@$(xtask) wheel
	@$(xtask) sim-wheel
	@$(nox) -s wheel
	@case $$(sim/run --driver) in sim) $(nox) -s sim_wheel ;; esac
	@mkdir -p dist && rm -f dist/vkgdr-*.whl dist/vkgdr_sim-*.whl
	@cp -v "$(target)"/python/wheel/*.whl "$(target)"/python/sim-wheel/*.whl dist/

gpu-bundle: ## pack the tests for a GPU machine
	@scripts/setup.sh rust python
	@$(xtask) bundle

docs: ## build the guide and the references
	@scripts/setup.sh rust python
	@echo '==> documentation (a minute the first time)'
	@RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked
	@$(xtask) guide

sim: ## build the simulated driver and vkgdr-sim
	@scripts/setup.sh rust vulkan lavapipe
	@scripts/sim.sh

lint: ## check formatting, lints, types, docs
	@scripts/setup.sh rust python
	@{ cargo clippy --version && cargo fmt --version; } >/dev/null 2>&1 || rustup component add clippy rustfmt
	@"$(target)"/python/tools/bin/pre-commit run --all-files

clean: ## remove all build outputs
	@cargo clean --quiet
	@rm -rf dist
