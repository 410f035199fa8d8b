//! Imports that a driver may refuse or describe in another way, tested through Vulkan and CUDA.

use std::os::fd::OwnedFd;

use support::cuda::PrimaryContext;
use support::resources::Snapshot;
use support::{Result, child, skip};
use vkgdr::ash::vk;
use vkgdr::cudarc::driver::sys::{self, CUresult};

use crate::raw::{Imported, Raw};
use crate::{aborted, under, validated};

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

/// NVIDIA's driver imports it, and the device does not see what the CPU stores afterwards.
#[test]
fn cuda_refuses_system_memory() -> Result {
    under("rebar", || {
        let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
        assert_eq!(import(&raw, SYSTEM)?, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(import(&raw, VIDEO)?, CUresult::CUDA_SUCCESS);
        Ok(())
    })
}

#[test]
fn an_import_that_may_be_exported_is_other_memory() -> Result {
    if validated() {
        return skip("the validation layer ends a process that attempts this");
    }
    under("rebar", || {
        let raw = Raw::open()?;
        let original = raw.allocate_to_export(VIDEO, SIZE, NO_BUFFER)?;
        let first = |memory| -> Result<*mut u8> { Ok(raw.map(memory, 0, vk::WHOLE_SIZE)?.cast()) };
        let mapping = first(original)?;
        for (exportable, same) in [(false, true), (true, false)] {
            let imported = first(raw.import(raw.export(original)?, VIDEO, SIZE, exportable)?)?;
            // SAFETY: both are mapped, and nothing else uses them.
            unsafe { mapping.write_volatile(7 + u8::from(same)) };
            // SAFETY: as above.
            let seen = unsafe { imported.read_volatile() };
            assert_eq!(seen == 7 + u8::from(same), same, "exportable: {exportable}");
        }
        Ok(())
    })
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
fn the_hosts_view_of_system_memory_can_be_registered_and_that_of_a_gpus_cannot() -> Result {
    under("rebar", || {
        const PAGE: usize = 4096;
        let (_context, raw) = (PrimaryContext::retain_and_push(0), Raw::open()?);
        let video = raw.allocate_to_export(VIDEO, SIZE, NO_BUFFER)?;
        let _imported = Imported::new(raw.export(video)?, SIZE, false).map_err(|code| format!("{code:?}"))?;
        let system = raw.allocate_to_export(SYSTEM, SIZE, NO_BUFFER)?;
        for (memory, expected) in [(system, CUresult::CUDA_SUCCESS), (video, CUresult::CUDA_ERROR_INVALID_VALUE)] {
            let host = raw.map(memory, 0, vk::WHOLE_SIZE)?.wrapping_add(PAGE).cast();
            let register = |flags: u32| {
                // SAFETY: the second page of the mapping.
                unsafe { sys::cuMemHostRegister_v2(host, PAGE, flags) }
            };
            for flags in [0, sys::CU_MEMHOSTREGISTER_DEVICEMAP] {
                assert_eq!(register(flags), expected);
                if expected == CUresult::CUDA_SUCCESS {
                    // SAFETY: just registered.
                    unsafe { sys::cuMemHostUnregister(host) }.result()?;
                }
            }
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
const RULES: [(&str, &str); 2] = [("handleType-00671", "rebar"), ("buffer-0", "rebar")];

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
        let Some(errors) = aborted(profile, rule)? else { return Ok(()) };
        assert!(errors.contains(rule), "{rule}: {errors}");
    }
    Ok(())
}
