//! Allocations with kinds to fall back on.

use support::codes::{self, vulkan};
use support::cuda::no_context;
use support::ledger::Live;
use support::{Controls, Result, Shortage, assert_says, refused, skip};
use vkgdr::MemoryKind::{Device, Host, Mapped};
use vkgdr::{AllocateOptions, Error, Memory};

use crate::NONE;

const SIZE: usize = 5000;

fn to_all() -> AllocateOptions {
    AllocateOptions::new(Mapped).fallback([Host, Device])
}

#[test]
fn the_first_kind_is_taken_where_there_is_some() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in support::supported(&gpu, &[Mapped, Host, Device]) {
        let memory = Memory::allocate_with(&gpu, SIZE, AllocateOptions::new(kind).fallback([Device, Mapped, Host]))?;
        assert_eq!((memory.kind(), memory.len()), (kind, SIZE));
    }
    Ok(())
}

#[test]
fn the_next_kind_is_taken_where_one_is_exhausted_and_the_memory_says_which() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for expected in [Host, Device] {
        for code in [vulkan::OUT_OF_DEVICE_MEMORY, vulkan::OUT_OF_HOST_MEMORY] {
            let Some(shortage) = Shortage::of(&gpu, 1, code)? else { return Ok(()) };
            let memory = Memory::allocate_with(&gpu, SIZE, AllocateOptions::new(Mapped).fallback([expected]));
            drop(shortage);
            assert_eq!(memory?.kind(), expected);
        }
    }
    Ok(())
}

#[test]
fn where_no_kind_is_left_the_error_is_the_first_ones_and_nothing_stays() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let live = Live::now();
    let Some(shortage) = Shortage::of(&gpu, 2, vulkan::OUT_OF_DEVICE_MEMORY)? else { return Ok(()) };
    let error = refused(Memory::allocate_with(&gpu, SIZE, AllocateOptions::new(Mapped).fallback([Device])));
    drop(shortage);
    assert!(matches!(error, Error::Allocation { kind: Mapped, .. }), "{error}");
    assert_eq!(Live::now(), live);
    // Larger than every heap.
    let error = refused(Memory::allocate_with(&gpu, isize::MAX as usize - 8191, to_all()));
    assert!(matches!(error, Error::Allocation { kind: Mapped, operation: None, .. }), "{error}");
    Ok(())
}

#[test]
fn errors_that_every_kind_would_have_are_returned_at_once() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let error = refused(Memory::allocate_with(&gpu, 0, to_all()));
    assert!(matches!(error, Error::ZeroSize { kind: Mapped }), "{error}");
    let error = no_context(|| refused(Memory::allocate_with(&gpu, SIZE, to_all())));
    assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT"]);
    let (Some(layer), Some(sim)) = (support::vklayer(), support::simcuda()) else {
        return skip("needs the fault layer and the simulated CUDA driver");
    };
    // No descriptors are left, whatever the kind, or the context is broken.
    let faults: [(&Controls, _, _, &[&str]); 4] = [
        (layer, "vkGetMemoryFdKHR", vulkan::TOO_MANY_OBJECTS, &["ulimit -n"]),
        (layer, "vkGetMemoryFdKHR", vulkan::INVALID_EXTERNAL_HANDLE, &["ulimit -n"]),
        (sim, "cuImportExternalMemory", codes::OPERATING_SYSTEM, &["ulimit -n"]),
        (sim, "cuImportExternalMemory", codes::ILLEGAL_ADDRESS, &[]),
    ];
    for (controls, function, code, says) in faults {
        controls.fail(function, 1, code);
        let error = refused(Memory::allocate_with(&gpu, SIZE, to_all()));
        controls.clear_faults();
        assert_says(&error, &[&[function], says].concat());
    }
    Ok(())
}

#[test]
fn the_next_kind_is_taken_where_a_driver_refuses_one() -> Result {
    let Some(sim) = support::simcuda() else { return skip("needs the simulated CUDA driver") };
    let (_context, gpu) = support::open(NONE)?;
    for (function, kind, expected) in [("cuImportExternalMemory", Mapped, Host), ("cuMemHostRegister", Host, Device)] {
        sim.fail(function, 1, codes::NOT_SUPPORTED);
        let memory = Memory::allocate_with(&gpu, SIZE, AllocateOptions::new(kind).fallback([Host, Device]));
        sim.clear_faults();
        assert_eq!(memory?.kind(), expected);
    }
    Ok(())
}
