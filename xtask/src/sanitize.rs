//! The tests under the sanitizers, and under Miri what needs no driver, with the nightly compiler; loom's models of what is
//! lock-free.
//!
//! Each part has a folder of its own in cargo's target folder and builds everything there, the simulated driver and the
//! test layers included, which takes minutes the first time. `VKGDR_STEPS` is the number of steps of the sequences under
//! ThreadSanitizer, 10,000 by default.

use std::env;
use std::fs;
use std::path::PathBuf;

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, none_failed, parts, say, variable};

const PARTS: [&str; 6] = ["loom", "miri", "address", "thread", "c", "python"];

/// Unit tests of code that makes no foreign calls, which Miri does not know, and has no assembly.
const DRIVERLESS: [&str; 18] = [
    "access::range",
    "addresses::",
    "allocation::size",
    "copy_engine::context_engine",
    "copy_engine::policy",
    "device::deferred_frees",
    "device::memory_type",
    "diagnosis::",
    "driver::fill_pattern",
    "error",
    "flags",
    "ipc::message",
    "lock::",
    "memory::",
    "pool::",
    "stream::copy",
    "sync::",
    "vulkan::",
];

/// The tests that start threads, alone or through the simulator, without the exhaustive ones of copy plans, which start none
/// and take minutes each.
const UNDER_THREAD: [&str; 3] = [
    "--manifest-path sim/Cargo.toml --package simcuda",
    "--package vkgdr --lib --test memory --test pool --test ring --test stream --test vulkan \
     -- --skip access::copy::accesses --skip access::copy::tests",
    SEQUENCES,
];

/// The tests whose steps `VKGDR_STEPS` counts.
const SEQUENCES: &str = "--package vkgdr --test sequences";

/// Runs the parts.
pub(crate) fn run(context: &Context, asked: &[String]) -> Result {
    let mut failed = Vec::new();
    for part in parts(asked, &PARTS)? {
        say(format!("sanitizer: {part}"));
        let result = match part {
            "loom" => loom(context),
            "miri" => miri(context),
            "address" => address(context),
            "thread" => thread(context),
            "c" => c(context),
            _ => python(context),
        };
        match result {
            Ok(()) => println!("sanitizer {part}: passed"),
            Err(error) => {
                eprintln!("{part}: {error}");
                failed.push(part.to_owned());
            }
        }
    }
    none_failed(&failed)
}

/// A build instrumented by a sanitizer.
struct Instrumented<'a> {
    context: &'a Context,
    target: PathBuf,
    host: String,
    flags: String,
}

impl<'a> Instrumented<'a> {
    /// Builds the simulated driver with the sanitizer. -rdynamic exports its functions to libraries loaded at run time.
    fn new(context: &'a Context, sanitizer: &str, settings: &[(&str, &str)]) -> Result<Self> {
        let target = context.target.join(format!("sanitize-{sanitizer}"));
        let flags = format!("-Zsanitizer={sanitizer} -Clink-arg=-rdynamic");
        let this = Self { context, target, host: context.host()?, flags };
        let sim = this.command("sim/build.sh dev");
        settings.iter().fold(sim, |command, (name, value)| command.env(name, value)).run()?;
        Ok(this)
    }

    /// A command with the environment of the build. Naming the target keeps build scripts and macros uninstrumented.
    fn command(&self, line: &str) -> Cmd<'a> {
        let suppressions = self.context.root.join("tests/lsan.supp");
        self.context
            .command(line)
            .env("RUSTUP_TOOLCHAIN", "nightly")
            .env("CARGO_TARGET_DIR", &self.target)
            .env("VKGDR_SIM_DIR", self.target.join("sim"))
            .env("CARGO_BUILD_TARGET", &self.host)
            .env("RUSTFLAGS", &self.flags)
            // The sanitizers' documentation advises it for speed: the sequences are three times faster.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            // An instrumented standard library takes a minute to write the backtrace of a panic that a test expects.
            .env("RUST_BACKTRACE", "0")
            .env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", suppressions.display()))
            .env("VKGDR_CUDA_DRIVER", "sim")
            .env("VKGDR_TEST_LAYERS", "faults")
    }

    /// A run of selected tests.
    fn tests(&self, selection: &str) -> Cmd<'a> {
        let runner = "cargo nextest run --locked --profile sanitized --no-fail-fast";
        self.command(runner).args(selection.split_whitespace())
    }
}

/// Every Rust test of the crate under AddressSanitizer, which includes LeakSanitizer.
fn address(context: &Context) -> Result {
    context.need_nextest()?;
    let build = Instrumented::new(context, "address", &[])?;
    Ok(build.tests("--package vkgdr --lib --tests").run()?)
}

/// What threads share, in the crate and in the simulator. The standard library is built anew, too: else its locks are not
/// seen.
fn thread(context: &Context) -> Result {
    context.need_nextest()?;
    component(context, "rust-src")?;
    let settings = [("CARGO_UNSTABLE_BUILD_STD", "std")];
    let build = Instrumented::new(context, "thread", &settings)?;
    let suppressions = context.root.join("tests/tsan.supp");
    let more = variable("TSAN_OPTIONS").unwrap_or_default();
    let options = format!("halt_on_error=1 history_size=7 suppressions={} {more}", suppressions.display());
    let steps = variable("VKGDR_STEPS").unwrap_or_else(|| "10000".into());
    for selection in UNDER_THREAD {
        let command = build.tests(selection).env("TSAN_OPTIONS", &options);
        let command = settings.iter().fold(command, |command, (name, value)| command.env(name, value));
        // The rounds of Vulkan's tests read it, too.
        let command = if selection == SEQUENCES { command.env("VKGDR_STEPS", &steps) } else { command };
        command.run()?;
    }
    Ok(())
}

/// C and C++ programs under AddressSanitizer and Valgrind, with the shipped library. It is not instrumented: Valgrind
/// checks its memory accesses.
fn c(context: &Context) -> Result {
    context.need_nextest()?;
    context.command("sim/build.sh").run()?;
    let filter = "test(sanitizer) + test(valgrind) + test(bad_input)";
    let tests = context.cargo("nextest run --package vkgdr-c -E").arg(filter);
    Ok(tests.env("VKGDR_CUDA_DRIVER", "sim").env("VKGDR_TEST_LAYERS", "faults").env("VKGDR_TEST_ALL", "1").run()?)
}

/// The Python tests with the extension module and the simulator under AddressSanitizer. The interpreter is not
/// instrumented: `LD_PRELOAD` loads the sanitizer's runtime, which Rust ships as an archive only. Leak detection is off,
/// since an interpreter frees little at exit; the tests count live allocations themselves.
fn python(context: &Context) -> Result {
    // pycuda is linked against its libcuda.
    context.command("sim/build.sh").run()?;
    context.nox("python").run()?;
    let build = Instrumented::new(context, "address", &[])?;
    let target = &build.target;
    // Tests start programs by it under the preloaded runtime, beside which the executable's own crashes.
    fs::copy(context.sim.join("vkgdr-sim"), target.join("sim/vkgdr-sim"))?;
    let sysroot = PathBuf::from(build.command("rustc --print sysroot").read()?.trim());
    let library = format!("lib/rustlib/{}/lib/librustc-nightly_rt.asan.a", build.host);
    let (archive, runtime) = (target.join("asan.a"), target.join("libasan-of-rust.so"));
    // Without the object file for executables, and with the C++ library, whose exception functions the runtime looks up.
    fs::copy(sysroot.join(library), &archive)?;
    context.command("ar d").arg(&archive).arg("asan_preinit.cpp.o").run()?;
    let link = context.command("cc -shared -o").arg(&runtime).arg("-Wl,--whole-archive").arg(&archive);
    let libraries = "-Wl,--no-whole-archive -lpthread -ldl -lm -lrt -Wl,--no-as-needed -lstdc++";
    link.args(libraries.split(' ')).run()?;
    build.command("cargo build --locked --package vkgdr-python").run()?;

    // The installed package's Python files beside the instrumented module; PYTHONPATH precedes the installed ones.
    let environment = context.target.join("python/nox/python");
    let packages = environment.join("lib");
    let installed =
        context.command("find").arg(&packages).args(["-type", "d", "-path", "*/site-packages/vkgdr"]).read()?;
    let package = target.join("python-package");
    context.fresh(&package)?;
    context.command("cp -r").arg(installed.trim()).arg(&package).run()?;
    let module = target.join(&build.host).join("debug/lib_vkgdr.so");
    fs::copy(module, package.join("vkgdr/_vkgdr.abi3.so"))?;

    // Reports go to files, since pytest captures the output. SIGSEGV is left alone: one test ends programs by signals.
    let reports = target.join("asan-reports");
    context.fresh(&reports)?;
    let options =
        format!("detect_leaks=0:verify_asan_link_order=0:handle_segv=0:log_path={}/report", reports.display());
    let preload = format!("LD_PRELOAD={}", runtime.display());
    let tests = build.command("sim/run env").arg(preload).arg(environment.join("bin/python"));
    // These start an interpreter without the runtime, and the instrumented package is no installed distribution.
    let left_out = "not no_driver_at_all_is_an_error_with_a_remedy and not the_rest_of_the_package_works_without_a_driver \
        and not the_version_is_that_of_the_distribution";
    // Python's own allocator would hide uses after free.
    let tests = tests.args(["-m", "pytest", "-p", "no:cacheprovider", "ffi/python/tests", "-k", left_out]);
    let tests = tests.env("PYTHONPATH", package).env("PYTHONMALLOC", "malloc").env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(tests.env("XDG_CACHE_HOME", target.join("cache")).env("ASAN_OPTIONS", options).run()?)
}

/// The unit tests that need no driver, for undefined behaviour and leaks. Isolation is off, since tests read the clock.
fn miri(context: &Context) -> Result {
    component(context, "miri")?;
    component(context, "rust-src")?;
    // Outside the sources, so that cargo does not find the runner of .cargo/config.toml.
    let _folder = context.sh.push_dir(env::temp_dir());
    let tests = context.command("cargo miri test --locked --package vkgdr --lib --manifest-path");
    // A part of its name is "memory::", and it asks the system.
    let tests =
        tests.arg(context.root.join("Cargo.toml")).args(["--", "--skip", "driver::system_memory"]).args(DRIVERLESS);
    let tests = tests.env("RUSTUP_TOOLCHAIN", "nightly").env("CARGO_TARGET_DIR", context.target.join("miri"));
    Ok(tests
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", "4")
        .env("RUST_BACKTRACE", "0")
        .env_remove("CARGO_BUILD_TARGET")
        .run()?)
}

/// The models of `src/sync.rs` and `src/ring`, in every interleaving and with every value that a load may give.
fn loom(context: &Context) -> Result {
    let tests = context.cargo("test --quiet --package vkgdr --release --lib --target-dir");
    Ok(tests.arg(context.target.join("loom")).arg("loom_tests").env("RUSTFLAGS", "--cfg loom").run()?)
}

/// Installs a component of the nightly compiler, unless it is there.
fn component(context: &Context, name: &str) -> Result {
    let command = context.command("rustup component add --toolchain nightly").arg(name);
    command
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .map_err(|_| format!("{name} cannot be installed for nightly Rust").into())
}
