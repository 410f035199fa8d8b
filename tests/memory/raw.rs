//! `RawMemory`, freed by hand. Its bytes and ranges are in `conformance`, its contexts in `contexts`.

use support::cuda::{Context, current, no_context};
use support::ledger::{Calls, Live};
use support::{Result, assert_says, free, refused, simcuda, skip, vklayer};
use vkgdr::{Error, RawMemory, Vkgdr};

use crate::{MAPPED, NONE, SIZE};

#[test]
fn after_the_free_there_are_no_pointers_and_a_second_one_does_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    let mut memory = RawMemory::allocate(&gpu, SIZE, MAPPED)?;
    free(&mut memory)?;
    assert_eq!(Live::now(), before);
    let frees = ["cuMemFree", "cuDestroyExternalMemory", "vkFreeMemory"].map(Calls::of);
    free(&mut memory)?;
    // No driver call even without a current context.
    no_context(|| free(&mut memory))?;
    for calls in frees {
        calls.assert(0, "the second free");
    }
    assert_eq!((memory.device_ptr(), memory.host_ptr()), (0, None));
    assert_eq!((memory.len(), memory.kind(), memory.is_empty()), (SIZE, MAPPED, false));
    for error in [refused(memory.flush(0, 1)), refused(memory.invalidate(0, 1)), refused(memory.flush(0, 0))] {
        assert!(matches!(error, Error::Freed), "{error}");
        assert_says(&error, &["was freed"]);
    }
    assert_eq!((memory.is_coherent(), memory.non_coherent_atom_size()), (true, 1));
    assert!(format!("{memory:?}").contains("4097"));
    Ok(())
}

#[test]
fn a_drop_does_not_free() -> Result {
    if simcuda().is_none() && vklayer().is_none() {
        return skip("this needs a ledger: the simulated driver, or VKGDR_TEST_LAYERS=faults");
    }
    // In a context of its own: the leaked memory keeps its handle, which would retain the primary one.
    let (_context, gpu) = (Context::create(0), Vkgdr::open(0, NONE)?);
    let before = Live::now();
    drop(RawMemory::allocate(&gpu, SIZE, MAPPED)?);
    assert_eq!(Live::now(), before.plus_one(MAPPED));
    Ok(())
}

#[test]
fn freeing_memory_of_a_primary_handle_may_be_the_end_of_the_handle() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let mut memory = RawMemory::allocate(&gpu, SIZE, MAPPED)?;
    drop(gpu);
    free(&mut memory)?;
    assert!(simcuda().is_none_or(|sim| sim.live_objects_of("primary") == 0));
    assert!(current().is_null());
    Ok(())
}
