//! The tests again on other simulated GPUs (device profiles, `sim/vulkan/src/profile.rs`).

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, Driver, say};
use crate::mutations;
use crate::stages::{Stages, python_again, rust};

/// The tests that depend on whether memory is coherent: most of the crate's.
const COHERENCE: &str = "(package(vkgdr) - kind(lib)) + package(vkgdr-gdrapi)";

/// The tests that wait for the device: under the profile late, it has not done its work when a call returns, as on a GPU.
const ORDER: &str = "package(vkgdr) + package(vkgdr-c) + package(vkgdr-gdrapi)";

/// The tests that depend on what another profile changes, as test binaries of the crate, or modules of them.
const PROFILES: [(&str, &str); 12] = [
    ("rebar", "memory::access memory::map memory::memory copy::routines copy::engine copy::policy"),
    ("bar256", "memory::cycles failures pool"),
    ("host-import-refused", "memory device failures pool stream copy::engine copy::policy interop vulkan sequences"),
    ("needs-dedicated", "failures::allocate failures::release memory::export memory::memory vulkan sequences"),
    ("two-gpus-swapped", "device stream interop memory::contexts copy::engine pool::pool"),
    ("types-11", "sequences"),
    ("gb10", "copy memory::access memory::map sequences ring"),
    ("no-bar", "failures"),
    ("no-vulkan", "sequences failures ring"),
    ("dma-buf-no-vulkan", "sequences"),
    ("no-export-of-imports", "memory::export memory::sharing sequences"),
    ("pointer-type-host", "interop copy::pinned"),
];

/// Runs everything.
pub(crate) fn run(context: &Context) -> Result {
    let driver = context.choose_driver()?;
    if driver != Driver::Simulated {
        return Err("device profiles are of the simulated GPU: VKGDR_CUDA_DRIVER=sim selects it".into());
    }
    context.need_nextest()?;
    let mut stages = Stages::default();
    for (profile, filter) in [("non-coherent", COHERENCE), ("late", ORDER)] {
        let tests = rust(context).args(["-E", filter]).env("VKGDR_TEST_PROFILE", profile);
        stages.layered(&format!("tests under the profile {profile}"), "faults", tests);
    }
    for (profile, names) in PROFILES {
        let tests = selected(context, names).env("VKGDR_TEST_PROFILE", profile);
        stages.layered(&format!("tests under the profile {profile}"), "faults", tests);
    }
    stages.run("tests detect a broken flush", || mutations::run(context));
    for profile in ["non-coherent", "late"] {
        let python = python_again(context).env("VKGDR_TEST_PROFILE", profile);
        stages.layered(&format!("Python: tests under the profile {profile}"), "faults", python);
    }
    stages.end()?;
    say("all passed");
    Ok(())
}

/// Test binaries of the crate, or modules of them: `BINARY` or `BINARY::MODULE`, separated by spaces.
fn selected<'a>(context: &'a Context, names: &str) -> Cmd<'a> {
    let filters = names.split(' ').map(|name| match name.split_once("::") {
        None => format!("(package(vkgdr) & binary(={name}))"),
        Some((binary, module)) => format!("(package(vkgdr) & binary(={binary}) & test(/^{module}::/))"),
    });
    rust(context).arg("-E").arg(filters.collect::<Vec<_>>().join(" + "))
}
