//! Failures of rings: made, bound, used and dropped.
#![expect(unsafe_code, reason = "raw streams are bound")]

use support::codes;
use support::cuda::Stream;
use support::ledger::Calls;
use vkgdr::ring::Ring;
use vkgdr::{MemoryKind, Vkgdr};

use crate::place::{ENTER_AND_LEAVE, Place, SomeMemory, imports_mapped};
use crate::sweep::Sweep;
use crate::{FORCED, NONE, Result};

const FLUSH: &str = "vkFlushMappedMemoryRanges";
const INVALIDATE: &str = "vkInvalidateMappedMemoryRanges";
/// The calls that make host memory.
const PAGES: [&str; 2] = ["cuMemHostRegister", "cuMemHostGetDevicePointer"];
const UNREGISTER: &str = "cuMemHostUnregister";

fn ring(gpu: &Vkgdr) -> vkgdr::Result<Ring> {
    Ring::new(gpu, 10_000, 1000)
}

/// Runs a check in each place whose messages are in mapped memory of Vulkan.
fn each(check: impl Fn(&Place, &SomeMemory) -> Result) -> Result {
    Place::each(
        FORCED,
        |place| {
            if imports_mapped(&place.gpu) { check(place, &SomeMemory::of(&place.gpu)) } else { Ok(()) }
        },
    )
}

#[test]
fn a_failed_ring_names_the_call_and_leaves_nothing() -> Result {
    each(|place, some| {
        // Without mapped memory the messages are in host memory.
        let sweep = Sweep::of(format!("Ring::new, {}", place.name)).survived(&["vkAllocateMemory"]);
        let sweep = sweep.named(&PAGES).named(place.entering()).incidental(place.entering());
        let sweep = sweep.incidental(some.stages).incidental(some.release);
        let sweep = sweep.incidental(&["vkMapMemory", "vkCreateBuffer", UNREGISTER]);
        sweep.call(|| place.unused().and_then(|gpu| ring(&gpu)))
    })
}

#[test]
fn a_failed_binding_of_a_ring_names_the_call() -> Result {
    let place = Place::plain(NONE)?;
    let stream = Stream::create();
    let sweep = Sweep::of("Ring::bind_raw_stream").named(&["cuStreamGetCtx"]).incidental(&ENTER_AND_LEAVE);
    let sweep = sweep.settling(|| {
        stream.synchronize();
        place.gpu.collect();
    });
    let bind = |ring: Ring| {
        // SAFETY: the stream outlives the ring.
        unsafe { ring.bind_raw_stream(stream.raw()) }?;
        Ok(ring)
    };
    sweep.run(|| Ok(ring(&place.gpu)?), bind, |_| Ok(()))
}

/// The caller may destroy the stream after a failed call.
#[test]
fn a_failed_binding_of_a_ring_binds_no_part_of_it() -> Result {
    let place = Place::plain(NONE)?;
    let Some(sim) = support::simcuda() else {
        return support::skip("only the simulated driver's calls can be made to fail");
    };
    for nth in 1..=2 {
        let (ring, stream) = (ring(&place.gpu)?, Stream::create());
        // From here on a kernel may use it.
        let _ = ring.device_ptr();
        sim.fail("cuStreamGetCtx", nth, codes::UNKNOWN);
        // SAFETY: the ring is bound to the stream in no part where the call fails, and is dropped first where it does not.
        let bound = unsafe { ring.bind_raw_stream(stream.raw()) };
        sim.clear_faults();
        let records = Calls::of("cuEventRecord");
        drop(ring);
        assert!(bound.is_ok() || records.count() == Some(0), "call {nth} failed, and a part was bound");
    }
    Ok(())
}

#[test]
fn dropping_a_ring_survives_every_failure() -> Result {
    each(|place, some| {
        let sweep = Sweep::of(format!("drop of a Ring, {}", place.name)).survived(some.release);
        let sweep = sweep.survived(&[UNREGISTER, "cuCtxSynchronize"]).incidental(&ENTER_AND_LEAVE);
        sweep.incidental(&[FLUSH]).collecting(&place.gpu).drop(|| {
            let ring = ring(&place.gpu)?;
            // From here on a kernel may use it.
            let _ = ring.device_ptr();
            Ok(ring)
        })
    })
}

/// A method of a ring.
type Method = fn(&Ring) -> vkgdr::Result<()>;

#[test]
fn each_method_of_a_ring_on_memory_that_is_not_coherent_names_the_call_that_failed() -> Result {
    Place::each(FORCED, |place| {
        let gpu = &place.gpu;
        if ![MemoryKind::Mapped, MemoryKind::Host].into_iter().all(|kind| support::is_imported(gpu, kind)) {
            return support::skip("both kinds of memory must be Vulkan's");
        }
        let methods: [(&str, &[&'static str], Method); 6] = [
            ("try_push", &[FLUSH], |ring| ring.try_push(&[1; 100]).map(drop)),
            ("try_push_all", &[FLUSH], |ring| ring.try_push_all(&[&[1_u8; 9][..], &[2; 99]]).map(drop)),
            ("try_pop", &[INVALIDATE], |ring| ring.try_pop(&mut Vec::new()).map(drop)),
            ("stats", &[INVALIDATE], |ring| ring.stats().map(drop)),
            ("close", &[FLUSH], Ring::close),
            ("abort", &[FLUSH], Ring::abort),
        ];
        for (name, named, method) in methods {
            let ring = ring(gpu)?;
            Sweep::of(format!("Ring::{name}, {}", place.name)).named(named).call(|| method(&ring))?;
        }
        Ok(())
    })
}

#[test]
fn a_message_whose_flush_failed_is_sent_with_the_next() -> Result {
    let place = Place::plain(FORCED)?;
    let Some(layer) = support::vklayer() else { return support::skip("needs the fault layer") };
    if !imports_mapped(&place.gpu) {
        return Ok(());
    }
    let ring = ring(&place.gpu)?;
    layer.fail(FLUSH, 1, codes::vulkan::OUT_OF_HOST_MEMORY);
    let failed = ring.try_push(&[1; 8]);
    layer.clear_faults();
    assert_eq!(failed.err().and_then(|error| error.vulkan_code()), Some(codes::vulkan::OUT_OF_HOST_MEMORY));
    assert_eq!(ring.stats()?.unread_bytes, 0, "not sent");
    assert!(ring.try_push(&[2; 8])?);
    let stats = ring.stats()?;
    assert_eq!((stats.pushed, stats.publications, stats.unread_bytes), (2, 1, 64));
    Ok(())
}
