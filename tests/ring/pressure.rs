//! Full and empty rings, slow ends, and invalid arguments.

use std::time::Duration;

use support::{Result, refused};
use vkgdr::ring::Ring;
use vkgdr::{AllocateOptions, Error, MemoryKind};

use crate::{KERNELS, MOMENT, Setup, TIMEOUT, message, report};

fn timed_out<T>(result: vkgdr::Result<T>) -> bool {
    matches!(result, Err(Error::RingTimeout { .. }))
}

#[test]
fn a_ring_without_a_kernel_is_full_and_empty_and_every_wait_ends() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 100, 100)?;
    let mut answer = vec![1, 2, 3];
    assert!(ring.try_push(&message(0, 60))?);
    assert!(!ring.try_push(&message(1, 60))?);
    assert!(timed_out(ring.push(&message(1, 60), MOMENT)));
    assert!(timed_out(ring.push(&message(1, 60), Duration::ZERO)));
    assert!(!ring.try_pop(&mut answer)?);
    assert!(timed_out(ring.pop(&mut answer, MOMENT)));
    assert_eq!(ring.try_pop_into(&mut [])?, None);
    assert!(timed_out(ring.pop_into(&mut [], Duration::ZERO)));
    assert_eq!(answer, [1, 2, 3], "untouched");
    let stats = ring.stats()?;
    assert_eq!((stats.pushed, stats.popped), (1, 0));
    assert!(stats.full >= 3 && stats.empty >= 4, "{stats:?}");
    // What was refused has left nothing behind.
    setup.start(&setup.kernel(KERNELS, "check")?, &ring, [2, 0, 0])?;
    ring.push(&message(1, 60), TIMEOUT)?;
    assert_eq!(report(&ring)?, [0, 2, 120]);
    Ok(())
}

#[test]
fn a_slow_kernel_holds_the_cpu_back_and_loses_nothing() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 256, 64)?;
    setup.start(&setup.kernel(KERNELS, "check")?, &ring, [u64::MAX, 0, 200_000])?;
    for number in 0..100 {
        ring.push(&message(number, 50), TIMEOUT)?;
    }
    assert!(ring.stats()?.full > 0, "5000 bytes through 256 while the kernel takes 20 ms");
    ring.close()?;
    assert_eq!(report(&ring)?, [0, 100, 5000]);
    Ok(())
}

#[test]
fn a_message_as_long_as_the_ring_fits_and_a_longer_one_is_refused() -> Result {
    let setup = Setup::new()?;
    for most in [1, 15, 16, 17, 4000, 100_000] {
        let ring = Ring::new(&setup.gpu, most, 64)?;
        assert_eq!(ring.max_message(), most);
        let error = refused(ring.push(&vec![0; most + 1], TIMEOUT));
        assert!(
            matches!(error, Error::MessageTooLong { len, most: room } if (len, room) == (most + 1, most)),
            "{error}"
        );
        setup.start(&setup.kernel(KERNELS, "check")?, &ring, [3, 0, 0])?;
        for number in 0..3 {
            ring.push(&message(number, most), TIMEOUT)?;
        }
        assert_eq!(report(&ring)?, [0, 3, 3 * most as u64]);
    }
    Ok(())
}

#[test]
fn a_buffer_that_is_too_short_leaves_the_answer_in_the_ring() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 64, 64)?;
    setup.echo(&ring, 1)?;
    ring.push(&message(0, 33), TIMEOUT)?;
    let mut buffer = [0; 33];
    let error = refused(ring.pop_into(&mut buffer[..32], TIMEOUT));
    assert!(matches!(error, Error::MessageTooLong { len: 33, most: 32 }), "{error}");
    assert_eq!(ring.pop_into(&mut buffer, TIMEOUT)?, 33);
    assert_eq!(buffer[..], message(0, 33));
    Ok(())
}

#[test]
fn an_answer_that_is_longer_than_the_ring_is_refused_by_the_kernels_side() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 64, 16)?;
    setup.echo(&ring, 1)?;
    ring.push(&message(0, 17), TIMEOUT)?;
    ring.push(&message(1, 16), TIMEOUT)?;
    let mut answer = Vec::new();
    ring.pop(&mut answer, TIMEOUT)?;
    assert_eq!(answer, message(1, 16), "the first one got no answer");
    Ok(())
}

#[test]
fn impossible_sizes_are_refused() -> Result {
    let setup = Setup::new()?;
    for (messages, answers) in [(0, 64), (64, 0)] {
        let error = refused(Ring::new(&setup.gpu, messages, answers));
        assert!(matches!(error, Error::ZeroSize { .. }), "{error}");
    }
    for huge in [usize::MAX, isize::MAX.unsigned_abs()] {
        let error = refused(Ring::new(&setup.gpu, huge, 64));
        assert!(matches!(error, Error::MessageTooLong { len, .. } if len == huge), "{error}");
    }
    let options = |kind| AllocateOptions::new(kind);
    if setup.gpu.supports(MemoryKind::Device) {
        let error = refused(Ring::with_options(&setup.gpu, 64, 64, options(MemoryKind::Device)));
        assert!(matches!(error, Error::NoHostView { .. }), "{error}");
    }
    assert_eq!(Ring::with_options(&setup.gpu, 64, 64, options(MemoryKind::Host))?.kind(), MemoryKind::Host);
    let ring = Ring::new(&setup.gpu, 1, 1)?;
    assert_eq!(ring.kind(), if setup.gpu.supports(MemoryKind::Mapped) { MemoryKind::Mapped } else { MemoryKind::Host });
    Ok(())
}

/// A kernel that writes elsewhere than in the ring's records.
#[test]
fn words_that_no_kernel_of_the_ring_writes_are_refused() -> Result {
    let setup = Setup::new()?;
    let ring = Ring::new(&setup.gpu, 64, 64)?;
    let find = |address| support::memory_of(address).ok_or("a ring's memory is found by its address");
    let (device, _) = find(ring.device_ptr())?;
    let mut words = [0_u64; 6];
    device.read(0, &mut words)?;
    let (host, _) = find(words[5])?;
    for (offset, word) in [(512, 1000_u64), (256, 1 << 40)] {
        host.write(offset, &[word])?;
        host.flush(..)?;
    }
    assert!(ring.try_push(&[0; 64])?);
    let refused = ring.try_push(&[0; 64]);
    assert!(matches!(refused, Err(Error::RingCorrupt { what: "tail", value: 1000 })), "{refused:?}");
    let refused = ring.try_pop(&mut Vec::new());
    assert!(matches!(refused, Err(Error::RingCorrupt { what: "head", .. })), "{refused:?}");
    Ok(())
}
