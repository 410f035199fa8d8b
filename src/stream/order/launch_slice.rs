//! A cudarc slice of memory that cudarc does not own, for its two events: kernel launches through cudarc wait for them
//! and record them, and take no others.
#![expect(unsafe_code, reason = "extends borrows of the slice, which does not move, to its own life")]

use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, CudaView, CudaViewMut, SyncOnDrop};

use super::pinned::{Pinned, release_context};
use crate::lock::{Lock, LockGuard};
use crate::stream::DefaultStream;

/// The view of a region that is the argument of a launch, at an address that does not change.
///
/// A region that is borrowed for a launch keeps its address: two launches share a view only if they borrow the same
/// region, and a view is replaced only when its region is no longer borrowed.
#[derive(Debug)]
struct Argument<V> {
    region: usize,
    pointer: CUdeviceptr,
    view: Pinned<V>,
}

/// The views of one kind.
type Arguments<V> = Vec<Argument<V>>;

/// A slice of the bytes of one memory, which it does not free. Ends with [`free`](Self::free) or
/// [`abandon`](Self::abandon).
#[derive(Debug)]
pub(super) struct LaunchSlice {
    slice: Pinned<CudaSlice<u8>>,
    pointer: CUdeviceptr,
    /// Live as long as the slice.
    read: &'static CudaEvent,
    write: &'static CudaEvent,
    views: Lock<Views>,
}

#[derive(Debug)]
struct Views {
    /// All of the slice.
    whole: CudaViewMut<'static, u8>,
    shared: Arguments<CudaView<'static, u8>>,
    exclusive: Arguments<CudaViewMut<'static, u8>>,
}

impl LaunchSlice {
    /// A slice of `len` bytes at `pointer`. None when the driver gives no events. The context must be current.
    ///
    /// # Safety
    ///
    /// `stream` must not be dropped before the slice.
    pub(super) unsafe fn new(stream: &Arc<DefaultStream>, pointer: CUdeviceptr, len: usize) -> Option<Self> {
        // SAFETY: the bytes are allocated while the slice exists, which does not free them.
        let make = || unsafe { stream.private().upgrade_device_ptr::<u8>(pointer, len) };
        // cudarc panics when it gets no event.
        let slice = Pinned::new(catch_unwind(AssertUnwindSafe(make)).ok()?);
        // SAFETY: the only reference: from now on the slice is used through views of it alone.
        let mut whole: CudaViewMut<'static, u8> = unsafe { slice.get_mut() }.as_view_mut();
        // SAFETY: the stream outlives the slice, by this function's contract.
        let stream: &'static CudaStream = unsafe { &*ptr::from_ref(&**stream.private()) };
        // Waits for nothing: cudarc knows no other stream of the private context.
        // SAFETY: views refer to the slice alone.
        let write = event_of(unsafe { extend(whole.slice_mut(..)) }.view_ptr_mut(stream).1);
        // SAFETY: as above.
        let read = event_of(unsafe { extend(whole.slice_mut(..)) }.view_ptr(stream).1);
        let views = Lock::new(Views { whole, shared: Vec::new(), exclusive: Vec::new() });
        // cudarc makes both events in a context that tracks them, as `DefaultStream` has.
        Some(Self { slice, pointer, read: read?, write: write?, views })
    }

    /// The event that launches record which read the memory.
    pub(super) const fn read(&self) -> &'static CudaEvent {
        self.read
    }

    /// The event that launches record which write to the memory.
    pub(super) const fn write(&self) -> &'static CudaEvent {
        self.write
    }

    /// The argument of a launch that reads a region: `len` bytes at `pointer`.
    ///
    /// # Safety
    ///
    /// The bytes must be the slice's. While the view is used, the region whose address is `region` must be borrowed, and
    /// the slice exist.
    pub(super) unsafe fn argument<'a>(&self, region: usize, pointer: CUdeviceptr, len: usize) -> &'a CudaView<'a, u8> {
        let range = self.range(pointer, len);
        let mut views = self.views();
        let Views { whole, shared, .. } = &mut *views;
        // SAFETY: views refer to the slice alone, and live no longer.
        let view = unsafe { extend(whole.slice_mut(range)) }.into_view();
        // SAFETY: by this method's contract.
        unsafe { pin(shared, region, pointer, view).get() }
    }

    /// As [`argument`](Self::argument), for a launch that writes.
    ///
    /// # Safety
    ///
    /// As for [`argument`](Self::argument), and the region must be borrowed exclusively.
    pub(super) unsafe fn argument_mut<'a>(
        &self,
        region: usize,
        pointer: CUdeviceptr,
        len: usize,
    ) -> &'a mut CudaViewMut<'a, u8> {
        let range = self.range(pointer, len);
        let mut views = self.views();
        let Views { whole, exclusive, .. } = &mut *views;
        // SAFETY: views refer to the slice alone, and live no longer.
        let view = unsafe { extend(whole.slice_mut(range)) };
        let view: &'a mut CudaViewMut<'static, u8> = {
            // SAFETY: by this method's contract; no other view has the address of a region that is borrowed exclusively.
            unsafe { pin(exclusive, region, pointer, view).get_mut() }
        };
        // SAFETY: shortens a life that `'a` is within; a mutable reference does not shorten by itself.
        unsafe { mem::transmute::<&'a mut CudaViewMut<'static, u8>, &'a mut CudaViewMut<'a, u8>>(view) }
    }

    fn range(&self, pointer: CUdeviceptr, len: usize) -> std::ops::Range<usize> {
        let first = usize::try_from(pointer - self.pointer).unwrap_or(usize::MAX);
        first..first.saturating_add(len)
    }

    /// Frees the slice and its events, not the memory. The context must be current.
    pub(super) fn free(self) {
        // SAFETY: no launch has views any more, and the events are not used from now on.
        let slice = unsafe { self.into_slice() };
        slice.leak();
    }

    /// As [`free`](Self::free), after CUDA destroyed the events with their context.
    pub(super) fn abandon(self) {
        for event in [self.read, self.write] {
            // SAFETY: the event is forgotten, and `DefaultStream` has another reference.
            unsafe { release_context(event) };
        }
        // SAFETY: as in `free`.
        let slice = ManuallyDrop::new(unsafe { self.into_slice() });
        // SAFETY: the slice, which is forgotten, has a reference, and `DefaultStream` another.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(slice.stream())) };
    }

    /// Frees all but the slice.
    ///
    /// # Safety
    ///
    /// Neither views nor events may be used from now on.
    unsafe fn into_slice(self) -> CudaSlice<u8> {
        let Views { whole: _, shared, exclusive } = self.views.into_inner();
        // SAFETY: by this method's contract.
        shared.into_iter().for_each(|argument| drop(unsafe { argument.view.into_box() }));
        // SAFETY: by this method's contract.
        exclusive.into_iter().for_each(|argument| drop(unsafe { argument.view.into_box() }));
        // SAFETY: by this method's contract, and there are no views left.
        *unsafe { self.slice.into_box() }
    }

    fn views(&self) -> LockGuard<'_, Views> {
        self.views.lock()
    }
}

/// The view of a region among `arguments`, made by `view` unless it is there.
fn pin<V>(arguments: &mut Arguments<V>, region: usize, pointer: CUdeviceptr, view: V) -> &Pinned<V> {
    let known = arguments.iter().position(|known| known.region == region);
    let index = known.unwrap_or(arguments.len());
    match arguments.get_mut(index) {
        Some(known) if known.pointer == pointer => {}
        Some(known) => {
            let gone = mem::replace(known, Argument { region, pointer, view: Pinned::new(view) });
            // SAFETY: another region is at the address now, so that the one of this view is not borrowed.
            drop(unsafe { gone.view.into_box() });
        }
        None => arguments.push(Argument { region, pointer, view: Pinned::new(view) }),
    }
    &arguments[index].view
}

/// Extends the life of a view to that of the slice that it refers to.
///
/// # Safety
///
/// The slice must exist while the view is used.
unsafe fn extend(view: CudaViewMut<'_, u8>) -> CudaViewMut<'static, u8> {
    // SAFETY: the types differ in their lives alone; by this function's contract.
    unsafe { mem::transmute::<CudaViewMut<'_, u8>, CudaViewMut<'static, u8>>(view) }
}

/// The event that a guard would record, which is not recorded.
fn event_of(guard: SyncOnDrop<'static>) -> Option<&'static CudaEvent> {
    match &*ManuallyDrop::new(guard) {
        SyncOnDrop::Record(Some((event, _))) => Some(event),
        _ => None,
    }
}
