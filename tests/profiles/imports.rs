//! Imports that a driver may refuse or describe in another way, tested through Vulkan and CUDA.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;

use support::cuda::PrimaryContext;
use support::profile::command;
use support::resources::Snapshot;
use support::{Result, child, skip};
use vkgdr::ash::vk::{self, ExternalMemoryFeatureFlags as Features, ExternalMemoryHandleTypeFlags as Handles};
use vkgdr::cudarc::driver::sys::{self, CUmemorytype, CUresult};

use crate::raw::{Imported, Raw};
use crate::{under, validated};

/// Indices of memory types of the profile `rebar`, and of those like it.
const SYSTEM: u32 = 3;
const VIDEO: u32 = 4;
const SIZE: u64 = 64 << 10;
const NO_BUFFER: vk::Buffer = vk::Buffer::null();

/// A descriptor of new memory.
fn descriptor(raw: &Raw, memory_type: u32) -> Result<OwnedFd> {
    raw.export(raw.allocate_to_export(memory_type, SIZE, NO_BUFFER)?)
}

/// CUDA's answer to the import of new memory.
fn import(raw: &Raw, memory_type: u32) -> Result<CUresult> {
    let imported = Imported::new(descriptor(raw, memory_type)?, SIZE, false);
    Ok(imported.err().unwrap_or(CUresult::CUDA_SUCCESS))
}

#[test]
fn cuda_refuses_system_memory_if_the_profile_says_so() -> Result {
    let check = |expected: CUresult| {
        move || {
            let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
            assert_eq!(import(&raw, SYSTEM)?, expected);
            assert_eq!(import(&raw, VIDEO)?, CUresult::CUDA_SUCCESS);
            Ok(())
        }
    };
    under("rebar", check(CUresult::CUDA_SUCCESS))?;
    under("host-import-refused", check(CUresult::CUDA_ERROR_NOT_SUPPORTED))
}

/// CUDA's answers to imports of memory that is dedicated, that is dedicated without the flag, and, where Vulkan allows it, that
/// is plain.
fn dedicated_imports(raw: &Raw, plain: bool) -> Result<Vec<CUresult>> {
    let (buffer, size) = raw.shared_buffer(SIZE)?;
    let imports = [(buffer, true), (buffer, false), (NO_BUFFER, true)];
    let answer = |(buffer, flag)| {
        let fd = raw.export(raw.allocate_to_export(VIDEO, size, buffer)?)?;
        Ok(Imported::new(fd, size, flag).err().unwrap_or(CUresult::CUDA_SUCCESS))
    };
    imports.into_iter().take(if plain { 3 } else { 2 }).map(answer).collect()
}

#[test]
fn cuda_takes_only_dedicated_memory_if_the_profile_says_so() -> Result {
    const GOOD: CUresult = CUresult::CUDA_SUCCESS;
    const BAD: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    let check = |expected: &'static [CUresult], told: bool| {
        move || {
            let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
            let features = raw.external_properties().external_memory_features;
            assert_eq!(features.contains(Features::DEDICATED_ONLY), told);
            assert_eq!(dedicated_imports(&raw, !told)?, expected);
            Ok(())
        }
    };
    under("rebar", check(&[GOOD; 3], false))?;
    under("needs-dedicated", check(&[GOOD, BAD, BAD], false))?;
    under("dedicated-only", check(&[GOOD, BAD], true))
}

#[test]
fn imported_memory_cannot_be_exported_again_if_the_profile_says_so() -> Result {
    if validated() {
        return skip("the validation layer ends a process that attempts this");
    }
    let check = |types: Handles, again: Option<vk::Result>| {
        move || {
            let raw = Raw::open()?;
            assert_eq!(raw.external_properties().export_from_imported_handle_types, types);
            let both = raw.import(descriptor(&raw, VIDEO)?, VIDEO, SIZE, true);
            assert_eq!(both.err(), again);
            raw.import(descriptor(&raw, VIDEO)?, VIDEO, SIZE, false)?;
            Ok(())
        }
    };
    under("rebar", check(Handles::OPAQUE_FD, None))?;
    under("no-export-of-imports", check(Handles::empty(), Some(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)))
}

#[test]
fn cuda_calls_imported_system_memory_host_memory_if_the_profile_says_so() -> Result {
    let check = |system: CUmemorytype| {
        move || {
            let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
            for (memory_type, expected) in [(SYSTEM, system), (VIDEO, CUmemorytype::CU_MEMORYTYPE_DEVICE)] {
                let imported =
                    Imported::new(descriptor(&raw, memory_type)?, SIZE, false).map_err(|code| format!("{code:?}"))?;
                assert_eq!(imported.memory_type()?, expected as u32, "of type {memory_type}");
            }
            Ok(())
        }
    };
    under("rebar", check(CUmemorytype::CU_MEMORYTYPE_DEVICE))?;
    under("pointer-type-host", check(CUmemorytype::CU_MEMORYTYPE_HOST))
}

#[test]
fn memory_of_another_gpu_is_refused_by_both_drivers() -> Result {
    under("two-gpus", || {
        let gpus = [Raw::open_number(0)?, Raw::open_number(1)?];
        for (number, context) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (_context, same) = (PrimaryContext::retain_and_push(context), number == context);
            let expected = if same { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE };
            let from = &gpus[usize::try_from(number)?];
            assert_eq!(import(from, VIDEO)?, expected, "from {number} to {context}");
            let imported = gpus[usize::try_from(context)?].import(descriptor(from, VIDEO)?, VIDEO, SIZE, false);
            assert_eq!(imported.err(), (!same).then_some(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        }
        Ok(())
    })
}

#[test]
fn without_vulkan_cuda_has_a_gpu_and_the_loader_no_driver() -> Result {
    under("no-vulkan", || {
        let _context = PrimaryContext::retain_and_push(0);
        let error = Raw::open().err().ok_or("there is a Vulkan device")?;
        assert_eq!(error.downcast_ref(), Some(&vk::Result::ERROR_INCOMPATIBLE_DRIVER), "{error}");
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        assert!(!maps.contains("lvp"), "lavapipe is loaded");
        Ok(())
    })
}

#[test]
fn the_hosts_view_of_imported_memory_is_registered_as_io_memory_only() -> Result {
    under("rebar", || {
        const PAGE: usize = 4096;
        let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
        for memory_type in [SYSTEM, VIDEO] {
            let memory = raw.allocate_to_export(memory_type, SIZE, NO_BUFFER)?;
            let _imported = Imported::new(raw.export(memory)?, SIZE, false).map_err(|code| format!("{code:?}"))?;
            let host = raw.map(memory, 0, vk::WHOLE_SIZE)?.wrapping_add(PAGE).cast();
            let register = |flags: u32| {
                // SAFETY: the second page of the mapping.
                unsafe { sys::cuMemHostRegister_v2(host, PAGE, flags) }
            };
            assert_eq!(register(0), CUresult::CUDA_ERROR_INVALID_VALUE, "of type {memory_type}");
            assert_eq!(register(sys::CU_MEMHOSTREGISTER_DEVICEMAP), CUresult::CUDA_ERROR_INVALID_VALUE);
            assert_eq!(register(sys::CU_MEMHOSTREGISTER_IOMEMORY), CUresult::CUDA_SUCCESS);
            // SAFETY: just registered.
            unsafe { sys::cuMemHostUnregister(host) }.result()?;
        }
        Ok(())
    })
}

#[test]
fn an_imported_descriptor_stays_open_until_the_import_is_destroyed() -> Result {
    under("rebar", || {
        let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
        // The first import opens what the drivers keep.
        assert_eq!(import(&raw, VIDEO)?, CUresult::CUDA_SUCCESS);
        let count = || Snapshot::take().fd_count();
        let fd = descriptor(&raw, VIDEO)?;
        let before = count();
        let imported = Imported::new(fd, SIZE, false).map_err(|code| format!("{code:?}"))?;
        assert!(count() >= before, "closed by the import");
        drop(imported);
        assert_eq!(count(), before - 1);
        Ok(())
    })
}

/// The rules of Vulkan that end the process when they are broken, by the last part of their names, each with a profile that
/// has it. The second had another number in earlier versions of Vulkan.
const RULES: [(&str, &str); 3] =
    [("handleType-00671", "rebar"), ("buffer-0", "rebar"), ("pNext-00639", "dedicated-only")];

fn break_a_rule(role: &str) -> Result {
    let raw = Raw::open()?;
    let (buffer, size) = raw.shared_buffer(SIZE)?;
    eprintln!("now");
    match role {
        "handleType-00671" => raw.export(raw.allocate(VIDEO, SIZE)?).map(drop),
        "buffer-0" => raw.allocate_to_export(VIDEO, size + 64, buffer).map(drop),
        _ => raw.allocate_to_export(VIDEO, size, NO_BUFFER).map(drop),
    }
}

#[test]
fn an_export_or_a_dedication_that_breaks_vulkans_rules_ends_the_process_with_the_rule() -> Result {
    if let Some(role) = child::role() {
        return break_a_rule(&role);
    }
    for (rule, profile) in RULES {
        // The validation layer does not know that the profile's device asks for it.
        if validated() && profile != "rebar" {
            continue;
        }
        let Some(mut command) = command(profile, rule)? else { return Ok(()) };
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
        let last = errors.rsplit("now\n").next().unwrap_or_default();
        assert!(last.contains(rule), "{rule}: {errors}");
    }
    Ok(())
}
