# One target per task; `make` alone lists them. The longer ones are parts of scripts/checks.py, scripts beside it and sessions of
# noxfile.py.
#
# Variables: PARTS (test, nightly: names of `scripts/checks.py --list`), BUNDLE (gpu-bundle), PREFIX, LIBDIR,
# INCLUDEDIR, DESTDIR and GDRAPI (install, uninstall), QUICK, STRICT, ONLY, FROM and TO (bench, see benches/main.rs), INTO (python:
# another environment's interpreter, which gets pycuda). From the environment: CARGO_TARGET_DIR, VKGDR_CUDA_DRIVER (auto, real
# or sim, see sim/run), PYTHON, the interpreter, and INSTALL_RUST=1.

SHELL = bash
.SHELLFLAGS = -euo pipefail -c
.DEFAULT_GOAL = help
.PHONY: help demo test nightly bench install uninstall install-sim uninstall-sim python wheel gpu-bundle docs guide sim lint clean
MAKEFLAGS += --no-print-directory

export BUNDLE PREFIX LIBDIR INCLUDEDIR DESTDIR GDRAPI
# Where rustup installs programs; a shell that was open before does not know the folder.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

target = $(or $(CARGO_TARGET_DIR),target)
# Absolute, for programs that start in other folders. The simulator is a workspace of its own, with a target folder of its own
# unless CARGO_TARGET_DIR is one for all.
ifdef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
endif
nox = "$(target)"/python/tools/bin/nox
with_guide = "$(target)"/python/tools/bin/uv run --quiet --no-project --with-requirements scripts/requirements/guide.txt
# The simulator needs a CPU Vulkan driver; a real GPU brings its own.
vulkan = vulkan $$(case $$(sim/run --driver) in sim) echo lavapipe ;; esac)
simulator = [ $$(sim/run --driver) = real ] || $(MAKE) -C sim build
# Without optimisation: it is built as the tests are, and its simulated GPU in half the time, unless there is one.
quick = PROFILE=$(if $(wildcard $(or $(CARGO_TARGET_DIR),sim/target)/release/libsimcuda.so),release,dev)
demos = --package examples --no-default-features --example vector_add
# An empty PREFIX on the command line is a shell's variable that is not set, rather than a wish for the default; make would
# expand a dollar sign.
folders = $(if $(PREFIX),,$(if $(filter command,$(origin PREFIX)),$(error PREFIX is empty: name a folder, or leave it out \
    for /usr/local)))$(foreach name,PREFIX LIBDIR INCLUDEDIR DESTDIR,$(if $(findstring $$,$(value $(name))),$(error $(name) \
    contains a dollar sign)))

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.* ## /\1\t/p' $(MAKEFILE_LIST) \
	| while IFS=$$'\t' read -r verb text; do printf 'make %-13s %s\n' "$$verb" "$$text"; done

demo: ## run a kernel on memory that the CPU writes
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan)
	@$(simulator) $(quick)
	@cargo build --locked $(demos)
	@cargo run --quiet --locked $(demos)

test: ## run the tests that each commit must pass (PARTS=names)
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) c python
	@$(if $(PARTS),$(simulator))
	@scripts/checks.py test $(PARTS)

nightly: export VKGDR_CUDA_DRIVER = sim
nightly: ## run all that can be checked without a GPU: hours, goes on where it stopped (PARTS=names)
	@scripts/setup.sh rust vulkan lavapipe validation c c-all python aarch64
	@$(if $(PARTS),$(simulator))
	@scripts/checks.py nightly $(PARTS)

bench: ## run the benchmarks: table and JSON (QUICK=1)
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@$(simulator)
	@QUICK="$(QUICK)" ONLY="$(ONLY)" benches/run.sh $(if $(STRICT),--strict) \
	    $(if $(FROM),--from "$(FROM)") $(if $(TO),--to "$(TO)")

install: ## install the C library and vkgdr (PREFIX=/usr/local, GDRAPI=1)
	@$(folders)ffi/c/install.sh

uninstall: ## remove them
	@$(folders)ffi/c/install.sh --uninstall

install-sim: ## install vkgdr-sim (PREFIX=/usr/local)
	@$(folders)$(MAKE) -C sim install

uninstall-sim: ## remove the installed vkgdr-sim
	@$(folders)$(MAKE) -C sim uninstall

python: ## make a virtual environment with the package
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@$(MAKE) -C sim build
	@$(nox) -s python $(if $(INTO),-- "$(INTO)")

wheel: ## build and test the manylinux wheels, vkgdr-sim's too
	@sim/run --driver >/dev/null
	@scripts/setup.sh rust $(vulkan) python
	@$(MAKE) -C sim build
	@$(nox) -s build_wheel
	@$(nox) -s wheel
	@mkdir -p dist && rm -f dist/vkgdr-*.whl dist/vkgdr_sim-*.whl && cp -v "$(target)"/python/wheel/*.whl dist/
	@$(MAKE) -C sim wheel NOX="$(abspath $(target))/python/tools/bin/nox"
	@cp -v sim/dist/*.whl dist/

gpu-bundle: ## pack the tests for a GPU machine
	@scripts/setup.sh rust python
	@scripts/gpu-bundle.sh

docs: ## build the guide and the references
	@scripts/setup.sh rust python
	@echo '==> documentation (a minute the first time)'
	@RUSTDOCFLAGS='-D warnings' cargo doc --quiet --package vkgdr --no-deps --locked
	@$(MAKE) guide

# Without rustdoc's pages where there are none. A dead link fails (under --quiet mkdocs would not count warnings), and so does a
# parameter in C without a comment.
guide: export VKGDR_SITE = $(abspath $(target))/guide
guide: export NO_MKDOCS_2_WARNING = 1
guide:
	@$(with_guide) mkdocs build --strict --site-dir "$$VKGDR_SITE"
	@$(with_guide) doxygen ffi/c/Doxyfile
	@[ ! -e "$(target)/doc/vkgdr/index.html" ] || cp -a "$(target)/doc" "$$VKGDR_SITE/rust"
	@echo "$$VKGDR_SITE/index.html"

sim: ## build the simulated driver and vkgdr-sim
	@scripts/setup.sh rust vulkan lavapipe
	@$(MAKE) -C sim build

# Warnings are errors with the compiler that CI pins, and advice with any other.
pinned := $(shell sed -n 's/^export RUSTUP_TOOLCHAIN=//p' .ci/run)
lint: export DENY = $(if $(findstring rustc $(pinned) ,$(shell rustc --version 2>/dev/null)),-Dwarnings)
lint: ## check formatting, lints, types, docs, and the oldest Rust
	@scripts/setup.sh rust python oldest-rust
	@{ cargo clippy --version && cargo fmt --version; } >/dev/null 2>&1 || rustup component add clippy rustfmt
	@"$(target)"/python/tools/bin/pre-commit run --all-files

clean: ## remove all build outputs
	@cargo clean --quiet
	@$(MAKE) -C sim clean
	@rm -rf dist
