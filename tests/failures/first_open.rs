//! Failures of the first open of a process, which creates the Vulkan instance and device; each in a process of its own.
//!
//! The second open succeeds, and there is one instance and one device. Where Vulkan fails for want of memory, the first open
//! fails; otherwise it succeeds, and mapped memory fails with Vulkan's error. That Vulkan does not know the GPU is remembered,
//! and that CUDA does not start.

use support::codes;
use support::cuda::Context;
use support::driver::is_real;
use support::state::State;
use support::{free, refused, test_all};
use vkgdr::{Error, Memory, MemoryKind, RawMemory, Vkgdr};

use crate::place::only_imports_mapped;
use crate::sweep::{Seen, Sweep, Victim, judge, victims};
use crate::{LEN, NONE, Result, child};

const VULKAN: [&str; 4] =
    ["vkCreateInstance", "vkEnumeratePhysicalDevices", "vkEnumerateDeviceExtensionProperties", "vkCreateDevice"];
const NO_FAULT: &str = "none";

type Open = fn() -> vkgdr::Result<Vkgdr>;

/// Runs this test again in a child process for each call of `open` and each code, until no call is left to fail.
/// In such a child, carries out that role.
fn sweep(cuda: &[&'static str], in_context: bool, open: Open) -> Result {
    if let Some(role) = child::role() {
        return play(&role, in_context, open);
    }
    if !only_imports_mapped(&Vkgdr::open(0, NONE)?)? {
        return Ok(());
    }
    let mut seen = Seen::default();
    for victim in victims() {
        let mut most = 0;
        // On a real driver a child takes a second, and the code of a missing driver makes the library open NVIDIA's headless
        // one, which succeeds there. The first code is no such.
        for &code in &victim.codes[..if is_real() { 1 } else { victim.codes.len() }] {
            for nth in 1.. {
                let said = child::run(child::command(&format!("{} {nth} {code}", victim.name))?)?;
                match said.as_slice() {
                    [none] if none == NO_FAULT => break,
                    functions => seen.named.extend(functions.iter().cloned()),
                }
                most = most.max(nth);
                seen.faults += 1;
            }
        }
        seen.calls += most;
    }
    Sweep::of("the first open").named(&VULKAN).named(cuda).check(&seen);
    Ok(())
}

/// The child: opens for the first time while one call fails, then again, and uses the handle.
fn play(role: &str, in_context: bool, open: Open) -> Result {
    let (victim, nth, code) = parse(role)?;
    let context = in_context.then(|| Context::create(0));
    victim.controls.fail("*", nth, code);
    let opened = open();
    let (passing, is_open) = (code != codes::vulkan::INITIALIZATION_FAILED, opened.is_ok());
    let first = match &opened {
        Ok(gpu) => gpu.memory_type_of(MemoryKind::Mapped),
        Err(error) => Err(error.clone()),
    };
    let fired = victim.controls.last_fault();
    victim.controls.clear_faults();

    let mut seen = Seen::default();
    judge(fired.as_deref(), code, first.as_ref().err(), &mut seen, &format!("the first open ({role})"));
    assert!(seen.survived.is_empty(), "succeeded although {:?} failed", seen.survived);
    if fired.is_some() {
        assert_eq!(is_open, victim.name == "vulkan" && !passing, "{first:?}");
    }
    drop(opened);
    child::say(fired.as_deref().unwrap_or(NO_FAULT));
    if let Err(missing @ Error::NoVulkan { .. }) = &first {
        let again = refused(open()?.memory_type_of(MemoryKind::Mapped));
        assert_eq!(again.to_string(), missing.to_string());
        return Ok(());
    }
    if fired.as_deref() == Some("cuInit") && code != codes::OPERATING_SYSTEM {
        assert_eq!(refused(open()).to_string(), refused(first).to_string(), "a failed start is remembered");
        return Ok(());
    }

    let _context = context.unwrap_or_else(|| Context::create(0));
    let gpu = open()?;
    use_once(&gpu)?;
    let before = State::take();
    use_once(&gpu)?;
    drop(open()?);
    State::assert_unchanged(&before, "another open and use");
    drop(gpu);
    if let Some(sim) = support::simcuda() {
        assert_eq!(sim.live_objects(), sim.live_objects_of("context"), "CUDA objects but the test's context");
    }
    if let Some(layer) = support::vklayer() {
        let objects = ["instance", "device", "memory"].map(|noun| layer.live_objects_of(noun));
        assert_eq!(objects, [1, 1, 0], "Vulkan instances, devices and memories");
    }
    Ok(())
}

fn parse(role: &str) -> Result<(Victim, u64, i32)> {
    let mut words = role.split(' ');
    let mut word = || words.next().ok_or("a role is a driver, a number and a code");
    let name = word()?;
    let victim = victims().into_iter().find(|victim| victim.name == name).ok_or("no such driver")?;
    Ok((victim, word()?.parse()?, word()?.parse()?))
}

fn use_once(gpu: &Vkgdr) -> Result {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    memory.write(0, b"there")?;
    memory.free()?;
    let mut raw = RawMemory::allocate(gpu, LEN, MemoryKind::Mapped)?;
    Ok(free(&mut raw)?)
}

/// Whether opens in a context are swept, too. On a real driver only calls of Vulkan can fail.
fn sweeps_contexts() -> bool {
    let sweeps = test_all() && !is_real();
    if !sweeps {
        eprintln!("skipped: the calls of Vulkan are those of a first open without a context (set VKGDR_TEST_ALL=1)");
    }
    sweeps
}

#[test]
fn a_failed_first_open_can_be_repeated() -> Result {
    sweep(&["cuInit", "cuDeviceGetUuid", "cuDeviceGetName"], false, || Vkgdr::open(0, NONE))
}

#[test]
fn a_failed_first_open_of_the_current_context_can_be_repeated() -> Result {
    if !sweeps_contexts() {
        return Ok(());
    }
    let cuda = ["cuInit", "cuCtxGetDevice", "cuDeviceGetUuid", "cuDeviceGetName"];
    sweep(&cuda, true, || Vkgdr::open_current_context(NONE))
}

#[test]
fn a_failed_first_open_of_the_primary_context_can_be_repeated() -> Result {
    if !sweeps_contexts() {
        return Ok(());
    }
    let cuda = ["cuInit", "cuDeviceGetUuid", "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuCtxGetId"];
    sweep(&cuda, false, || Vkgdr::open_primary_context(0, NONE))
}
