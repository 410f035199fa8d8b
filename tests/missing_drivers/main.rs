//! Without a complete driver, opening returns an error of one line with the remedy, and never panics. Where only Vulkan is
//! missing, that is the error of Vulkan's handles, and of mapped memory unless CUDA allocates it; the other kinds work.
//!
//! Each case runs in a child process whose environment lacks one part.
#![expect(unsafe_code, reason = "changes the environment of a child")]

/// Goes on in the parent; a child carries out its role, and returns.
macro_rules! parent {
    () => {
        if $crate::is_child()? {
            return Ok(());
        }
    };
}

mod cuda;
mod folder;
mod vulkan;

use std::ffi::OsString;
use std::process::Command;

use support::child;
use vkgdr::{Error, Memory, MemoryInfoSource, MemoryKind, MemoryTypeInfo, OpenFlags, RawMemory, Vkgdr};

use support::Result;

/// The child: opens in two ways, twice each, and reports why that or Vulkan fails. What needs no Vulkan must work.
const OPEN: &str = "open";
/// Like `OPEN`, after CUDA was initialised and then `VK_DRIVER_FILES` was changed to `VKGDR_TEST_VK_DRIVER_FILES`,
/// which affects later instances only.
const OPEN_WITH_OTHER_ICD: &str = "open with another ICD";
/// The child: opens, allocates and frees.
const USE: &str = "use";
/// Like `USE`, with the change of `OPEN_WITH_OTHER_ICD`.
const USE_WITH_OTHER_ICD: &str = "use with another ICD";
const OTHER_ICD: &str = "VKGDR_TEST_VK_DRIVER_FILES";
/// The number of times that a child opens.
const OPENS: usize = 4;

/// Carries out the child's role, if this process is a child.
fn is_child() -> Result<bool> {
    match child::role().as_deref() {
        None => return Ok(false),
        Some(OPEN) => open()?,
        Some(OPEN_WITH_OTHER_ICD) => {
            change_icd()?;
            open()?;
        }
        Some(USE) => use_once()?,
        Some(USE_WITH_OTHER_ICD) => {
            change_icd()?;
            use_once()?;
        }
        Some(other) => panic!("no role {other:?}"),
    }
    Ok(true)
}

/// Returns the other ICD.
fn change_icd() -> Result<OsString> {
    support::driver::initialise();
    let icd = std::env::var_os(OTHER_ICD).ok_or("the variable with the other ICD is not set")?;
    // SAFETY: no other thread runs: this child has one test, and CUDA has started no thread yet.
    unsafe { std::env::set_var("VK_DRIVER_FILES", &icd) };
    Ok(icd)
}

fn open() -> Result {
    for _ in 0..2 {
        for result in [Vkgdr::open(0, OpenFlags::empty()), Vkgdr::open_primary_context(0, OpenFlags::empty())] {
            child::say(match result.map(|gpu| (gpu.vulkan_handles().map(drop), gpu)) {
                Ok((Ok(()), gpu)) => format!("opened {}", gpu.name()),
                Ok((Err(error), gpu)) => {
                    use_without_vulkan(&gpu, &error.to_string())?;
                    error.to_string().replace('\n', "<newline>")
                }
                Err(error) => error.to_string().replace('\n', "<newline>"),
            });
        }
    }
    Ok(())
}

/// What a handle has without Vulkan. `missing` is the text of the error that says why.
fn use_without_vulkan(gpu: &Vkgdr, missing: &str) -> Result {
    // CUDA allocates mapped memory where the CPU can map what CUDA exports.
    let is_mapped = gpu.supports_existing()?;
    assert_eq!(MemoryKind::ALL.map(|kind| gpu.supports(kind)), [is_mapped, true, true]);
    assert!(gpu.memory_types().is_empty());
    let context = support::cuda::PrimaryContext::retain_and_push(0);
    if !is_mapped {
        let errors = [
            support::refused(Memory::allocate(gpu, 4096, MemoryKind::Mapped)),
            support::refused(gpu.memory_info(MemoryKind::Mapped)),
            support::refused(gpu.memory_type_of(MemoryKind::Mapped)),
            support::refused(Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT)),
        ];
        assert_eq!(errors.map(|error| error.to_string()), [missing; 4]);
    }
    let sources = [MemoryInfoSource::Cuda, MemoryInfoSource::System, MemoryInfoSource::Cuda];
    for (kind, source) in MemoryKind::ALL.into_iter().zip(sources).skip(usize::from(!is_mapped)) {
        let info = gpu.memory_info(kind)?;
        assert!(info.available > 0 && info.available <= info.total && info.source == source, "{kind}: {info:?}");
        let memory = Memory::allocate(gpu, 5000, kind)?;
        assert_eq!(memory.memory_type(), gpu.memory_type_of(kind)?);
        assert_eq!(memory.memory_type().index, MemoryTypeInfo::OUTSIDE_VULKAN);
        assert_eq!(vkgdr::pointer_device(memory.device_ptr())?, Some(0));
        let bytes = support::pattern(5000, 1);
        if kind.has_host_view() {
            support::host_write(&memory, 0, &bytes)?;
        } else {
            support::cuda::memcpy_htod(memory.device_ptr(), &bytes);
        }
        match memory.export_fd() {
            Ok(_) => assert_eq!(kind, MemoryKind::Host),
            Err(error) => assert!(matches!(error, Error::NoExport { kind: refused } if refused == kind), "{error}"),
        }
        assert!(support::device_read(memory.device_ptr(), 5000) == bytes, "{kind}");
        memory.free()?;
    }
    drop(context);
    Ok(())
}

fn use_once() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?.free()?;
    let mut raw = RawMemory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    support::free(&mut raw)?;
    child::say("used");
    Ok(())
}

/// Runs a child that opens, and checks that it gets the same error each time, in one line with all of `parts`.
#[track_caller]
fn refused(command: Command, parts: &[&str]) -> Result {
    says(&child::run(command)?, parts);
    Ok(())
}

/// As [`refused`], where the loader finds no driver. NVIDIA's headless driver, which needs no loader, may serve on a real driver:
/// then each open succeeds.
#[track_caller]
fn refused_or_headless(command: Command, parts: &[&str]) -> Result {
    let said = child::run(command)?;
    let is_open = |text: &String| text.starts_with("opened ");
    if support::driver::is_real() && said.len() == OPENS && said.iter().all(is_open) {
        return support::skip("NVIDIA's headless driver serves without the loader");
    }
    says(&said, parts);
    Ok(())
}

/// Checks that each open has said one line with all of `parts`.
#[track_caller]
fn says(said: &[String], parts: &[&str]) {
    assert_eq!(said.len(), OPENS, "{said:#?}");
    for text in said {
        assert!(!text.contains("<newline>"), "more than one line: {text}");
        for part in parts {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    }
}

#[test]
fn with_everything_in_place_it_opens() -> Result {
    parent!();
    refused(child::command(OPEN)?, &["opened "])
}
