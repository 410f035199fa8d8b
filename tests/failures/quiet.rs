//! Operations that call no driver and thus cannot fail: the sweep must find no call. And an allocation, which must not
//! make more calls than it needs.
#![expect(unsafe_code, reason = "looks at bytes that nothing writes to, and frees memory that is not in use")]

use support::cuda::Stream;
use support::ledger::Calls;
use vkgdr::{CopyPolicy, CopyThresholds, DropPolicy, MapMode, Memory, MemoryKind, MemoryTypeInfo};

use crate::place::{Place, SomeMemory, imports_mapped};
use crate::sweep::{Seen, victims};
use crate::{NONE, Result};

const LEN: usize = 4096;

/// Sweeps an operation that must make no driver call.
fn sweep(what: &str, operate: impl FnOnce() -> Result) -> Result {
    for victim in victims() {
        victim.controls.fail("*", 1, victim.codes[0]);
    }
    let result = operate();
    let fired: Vec<_> = victims().iter().filter_map(|victim| victim.controls.last_fault()).collect();
    victims().iter().for_each(|victim| victim.controls.clear_faults());
    assert!(fired.is_empty(), "{what} called {fired:?}");
    result.map_err(|error| format!("{what}: {error}"))?;
    Seen::default().report(what);
    Ok(())
}

#[test]
fn queries_of_a_handle_call_no_driver() -> Result {
    let place = Place::plain(NONE)?;
    let gpu = &place.gpu;
    // The first question for a kind tries to allocate it.
    let supported: Vec<_> = MemoryKind::ALL.into_iter().filter(|&kind| gpu.supports(kind)).collect();
    sweep("Vkgdr: clone, device, uuid, name, flags, supports, ==", || {
        let other = gpu.clone();
        assert_eq!((other.device(), other.uuid(), other.name()), (gpu.device(), gpu.uuid(), gpu.name()));
        assert_eq!(other.flags(), NONE);
        Ok(())
    })?;
    sweep("Vkgdr: memory_info, memory_types, memory_type_of", || {
        for &kind in &supported {
            assert!(gpu.supports(kind));
            let memory_type = gpu.memory_type_of(kind)?;
            let is_listed = memory_type.index != MemoryTypeInfo::OUTSIDE_VULKAN;
            assert_eq!(gpu.memory_types().contains(&memory_type), is_listed);
            // CUDA is asked about memory of its own.
            assert!(!support::is_imported(gpu, kind) || gpu.memory_info(kind)?.total > 0);
        }
        Ok(())
    })?;
    sweep("Vkgdr: deferred_frees, live_allocations, copy_thresholds, set_copy_thresholds", || {
        gpu.set_copy_thresholds(CopyThresholds::default());
        assert_eq!((gpu.deferred_frees(), gpu.live_allocations()), (0, 0));
        assert_eq!(gpu.copy_thresholds(), CopyThresholds::default());
        Ok(())
    })
}

#[test]
fn copies_by_the_cpu_call_no_driver() -> Result {
    let place = Place::plain(NONE)?;
    let kinds = MemoryKind::ALL.into_iter().filter(|kind| kind.has_host_view() && place.gpu.supports(*kind));
    for kind in kinds {
        let memory = Memory::allocate(&place.gpu, LEN, kind)?;
        let mut seen = [0_u8; 64];
        sweep(&format!("{kind} memory: write, read, write_with, read_with, fill, fill_pattern, writer"), || {
            memory.write(1, &[1_u8; 64])?;
            memory.read(1, &mut seen)?;
            memory.write_with(CopyPolicy::Cpu, 0, &[1_u32; 16])?;
            memory.read_with(CopyPolicy::Cpu, 0, &mut seen)?;
            memory.fill(.., 7_u32)?;
            memory.fill_pattern(..8, &[1_u16, 2])?;
            let mut writer = memory.writer();
            writer.write(3, &[1_u8])?;
            writer.finish();
            Ok(())
        })?;
        sweep(&format!("{kind} memory: region, as_slice, host_ptr, flush, invalidate and map where coherent"), || {
            let region = memory.slice(16..32)?;
            // SAFETY: nothing writes to the memory.
            assert_eq!(unsafe { region.as_slice::<u8>() }?.len(), 16);
            if region.is_coherent() {
                region.flush(..)?;
                region.invalidate(..)?;
                for mode in [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard] {
                    region.map(mode, 1..9)?.finish()?;
                }
            }
            assert!(region.host_ptr().is_some());
            drop(region);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn queries_of_memory_about_streams_call_no_driver() -> Result {
    let place = Place::plain(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&place.gpu, LEN, SomeMemory::of(&place.gpu).kind)?;
    // SAFETY: dropped after the memory.
    let used = unsafe { memory.stream(stream.raw()) }?;
    sweep("Memory: context, bound_stream, record_use, drop_policy, set_drop_policy, owner, memory_type", || {
        assert!(!memory.context().is_null());
        assert_eq!(memory.bound_stream(), None);
        memory.record_use(used)?;
        // SAFETY: the device does not use it.
        unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
        let _ = (memory.drop_policy(), memory.owner().device(), memory.memory_type(), memory.copy_routine());
        Ok(())
    })
}

#[test]
fn an_allocation_and_its_free_make_no_needless_call() -> Result {
    let place = Place::plain(NONE)?;
    if !imports_mapped(&place.gpu) {
        return Ok(());
    }
    let expected = [
        // For each side: in which context it is.
        ("cuCtxGetId", 2),
        ("cuCtxGetCurrent", 0),
        ("cuCtxGetDevice", 0),
        ("cuCtxPushCurrent", 0),
        ("cuDevicePrimaryCtxGetState", 0),
        ("cuPointerGetAttributes", 0),
        ("cuCtxSynchronize", 0),
        ("cuImportExternalMemory", 1),
        ("cuExternalMemoryGetMappedBuffer", 1),
        ("cuMemFree", 1),
        ("cuDestroyExternalMemory", 1),
        ("vkMapMemory", 1),
        ("vkGetMemoryFdKHR", 1),
        // Freeing unmaps.
        ("vkUnmapMemory", 0),
    ];
    // The context is known from here on.
    drop(Memory::allocate(&place.gpu, LEN, MemoryKind::Mapped)?);
    // Prints which drivers do not count their calls.
    victims();
    let counts = expected.map(|(name, expected)| (Calls::of(name), expected));
    let memory = Memory::allocate(&place.gpu, LEN, MemoryKind::Mapped)?;
    // SAFETY: the device has not used it.
    unsafe { memory.free_unsynchronized() }?;
    for (calls, expected) in counts {
        calls.assert(expected, "an allocation and its free");
    }
    Ok(())
}
