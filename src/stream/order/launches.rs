//! [`StreamOrder`] for kernel launches: prepares the events of their arguments.
//!
//! cudarc tells an argument neither the stream nor the time of its launch. A launch waits for the two events of a
//! cudarc slice, and records one of them. Before the launch, the uses that these events do not cover are joined into
//! them on a side stream, and the event that the launch overwrites is saved.
#![expect(unsafe_code, reason = "events and streams live as long as the order")]

use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaView, CudaViewMut};

use super::launch_slice::LaunchSlice;
use super::{Access, Recording, StreamOrder, User, is_complete};
use crate::Result;
use crate::driver::cuda::cuda;
use crate::driver::owned_stream::OwnedStream;
use crate::sync::get_or_try_init;

impl StreamOrder {
    /// The argument of a launch that reads a region, `len` bytes at `pointer`. The launch waits for earlier writes.
    ///
    /// # Safety
    ///
    /// The bytes must be this memory's, which must not be freed while the argument is used.
    pub(crate) unsafe fn argument<'a>(&self, pointer: CUdeviceptr, len: usize) -> &'a CudaView<'a, u8> {
        let slice = self.slices.next(|| self.make_slice());
        self.prepare_launch(slice, Access::Read);
        // SAFETY: by this method's contract; a borrowed region keeps its memory's order.
        unsafe { slice.argument(pointer, len) }
    }

    /// [`argument`](Self::argument) for a launch that writes, and waits for all earlier uses. `is_only` says whether
    /// the region is the only reference to the memory.
    ///
    /// # Safety
    ///
    /// The contract of [`argument`](Self::argument), and the region at the address `region` must be borrowed
    /// exclusively for `'a`.
    pub(crate) unsafe fn argument_mut<'a>(
        &self,
        region: usize,
        pointer: CUdeviceptr,
        len: usize,
        is_only: bool,
    ) -> &'a mut CudaViewMut<'a, u8> {
        let slice = if is_only { self.slices.first() } else { self.slices.shared(|| self.make_slice()) };
        self.prepare_launch(slice, Access::Write);
        // SAFETY: by this method's contract; a borrowed region keeps its memory's order.
        unsafe { slice.argument_mut(region, pointer, len) }
    }

    /// Joins the uses that a launch must wait for into the slice's events, and saves the event that the launch
    /// overwrites.
    fn prepare_launch(&self, slice: &LaunchSlice, access: Access) {
        let (recorded, also_awaited) = match access {
            Access::Read => (slice.read(), slice.write()),
            Access::Write => (slice.write(), slice.read()),
        };
        let mut state = self.state();
        let awaited =
            |event: &CudaEvent| ptr::eq(event, also_awaited) || (access == Access::Write && ptr::eq(event, recorded));
        let conflicting = state.uses.iter().filter(|each| each.access.conflicts_with(access));
        let mut missing: Vec<_> = conflicting.map(|each| each.event).filter(|&event| !awaited(event)).collect();
        let overwrites = access == Access::Read && state.has(slice.read());
        state.leave_to_launches(recorded, access);
        drop(state);
        // `None` if there is no event to save, or none to save it in.
        let saved = match overwrites.then(|| self.recording(User::EarlierLaunches, Access::Read, None)) {
            Some(Recording::Event(event)) => Some(event),
            _ => None,
        };

        let joined = self.context.run(|| {
            missing.retain(|event| !is_complete(event));
            if !missing.is_empty() {
                // A launch that writes waits for both events.
                missing.push(also_awaited);
                self.join(&missing, also_awaited)?;
            }
            if !overwrites || is_complete(slice.read()) {
                return Ok(());
            }
            match saved {
                Some(saved) => self.join(&[slice.read()], saved),
                None => cuda()?.context_synchronize(),
            }
        });
        if joined.is_err() {
            // The last resort; where the driver refuses this too, it refuses the launch.
            drop(self.context.run(|| cuda()?.context_synchronize()));
        }
    }

    /// One more slice of the same bytes.
    fn make_slice(&self) -> Option<LaunchSlice> {
        let (pointer, len) = self.slices.first().extent();
        // SAFETY: the order frees its slices before it drops the stream.
        let make = || Ok(unsafe { LaunchSlice::new(&self.default_stream, pointer, len) });
        self.context.run(make).ok()?
    }

    /// Records `target` after all `events`. The context must be current.
    fn join(&self, events: &[&CudaEvent], target: &CudaEvent) -> Result<()> {
        let side = get_or_try_init(&self.side, OwnedStream::new)?;
        for event in events {
            // SAFETY: events live as long as the order.
            unsafe { side.wait(event.cu_event()) }?;
        }
        // SAFETY: as above.
        unsafe { side.record(target.cu_event()) }
    }
}
