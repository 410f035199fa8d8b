//! [`LaunchSlice`]: a `CudaSlice` that does not own its memory.
//!
//! cudarc orders a kernel launch only by the read and write events of the slices that it is given, so that our events
//! must belong to such a slice.
#![expect(unsafe_code, reason = "extends borrows of the slice, which does not move, to its own life")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, CudaView, CudaViewMut, SyncOnDrop};

use super::stable_box::{StableBox, release_context};
use crate::driver::Handle;
use crate::driver::context::keeping_current;
use crate::driver::cuda::{Cuda, cuda};
use crate::lock::{Lock, LockGuard};
use crate::stream::DefaultStream;

/// A view of a region, the argument of a launch. Its address does not change.
#[derive(Debug)]
struct Argument<V> {
    pointer: CUdeviceptr,
    view: StableBox<V>,
}

/// The views of one kind: shared ones by device address, exclusive ones by the address of their region. An exclusively
/// borrowed region does not move, so that no two launches share its view, which is replaced only after the borrow has
/// ended.
type Arguments<V> = HashMap<usize, Argument<V>>;

/// A slice of the bytes of one memory, which it does not free. Ends with [`free`](Self::free) or
/// [`abandon`](Self::abandon).
#[derive(Debug)]
pub(super) struct LaunchSlice {
    slice: StableBox<CudaSlice<u8>>,
    pointer: CUdeviceptr,
    /// The slice's events. Pointers, since references would have to be valid when the slice is freed.
    read: Handle<*mut CudaEvent>,
    write: Handle<*mut CudaEvent>,
    views: Lock<Views>,
}

/// The slices of one memory. Launches that read use them in turn, so that as many arguments can wait for their
/// launches, each with events of its own.
#[derive(Debug)]
pub(super) struct LaunchSlices {
    slices: [OnceLock<LaunchSlice>; 4],
    next: AtomicUsize,
}

impl LaunchSlices {
    pub(super) fn new(first: LaunchSlice) -> Self {
        let slices = [OnceLock::from(first), OnceLock::new(), OnceLock::new(), OnceLock::new()];
        Self { slices, next: AtomicUsize::new(0) }
    }

    /// The slice for launches that write and for copies through the only reference to the memory. Launches that write
    /// through one of several references must not record its event: a copy's guard may still be about to.
    pub(super) fn first(&self) -> &LaunchSlice {
        // Set by `new`.
        self.slices[0].get().unwrap_or_else(|| unreachable!("taken by the drop alone"))
    }

    /// The slice for launches that write through one of several references, made by `make` at its first use.
    pub(super) fn shared(&self, make: impl FnOnce() -> Option<LaunchSlice>) -> &LaunchSlice {
        self.made(1, make)
    }

    /// The slice for the next launch that reads, made by `make` at its first use.
    pub(super) fn next(&self, make: impl FnOnce() -> Option<LaunchSlice>) -> &LaunchSlice {
        self.made(self.next.fetch_add(1, Ordering::Relaxed) % self.slices.len(), make)
    }

    /// The slice with an index, made by `make` at its first use; the first slice if `make` fails.
    fn made(&self, index: usize, make: impl FnOnce() -> Option<LaunchSlice>) -> &LaunchSlice {
        let next = &self.slices[index];
        if next.get().is_none()
            && let Some(made) = make()
            && let Err(unused) = next.set(made)
        {
            // Another thread was faster. cudarc makes its own context current.
            keeping_current(|| unused.free());
        }
        next.get().unwrap_or_else(|| self.first())
    }

    /// Whether an event belongs to a slice.
    pub(super) fn have(&self, event: &CudaEvent) -> bool {
        self.slices.iter().filter_map(OnceLock::get).any(|slice| slice.has(event))
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = LaunchSlice> {
        self.slices.iter_mut().filter_map(OnceLock::take)
    }
}

#[derive(Debug)]
struct Views {
    /// All of the slice.
    whole: CudaViewMut<'static, u8>,
    shared: Arguments<CudaView<'static, u8>>,
    exclusive: Arguments<CudaViewMut<'static, u8>>,
}

impl LaunchSlice {
    /// A slice of `len` bytes at `pointer`. `None` when the driver gives no events. The context must be current.
    ///
    /// # Safety
    ///
    /// `stream` must not be dropped before the slice.
    pub(super) unsafe fn new(stream: &Arc<DefaultStream>, pointer: CUdeviceptr, len: usize) -> Option<Self> {
        // cudarc panics when it gets no event.
        let probe = cuda().and_then(Cuda::event_create).ok()?;
        // SAFETY: made above, and used by nothing.
        unsafe { cuda().ok()?.event_destroy(probe) }.ok()?;
        // SAFETY: the bytes are allocated while the slice exists, which does not free them.
        let make = || unsafe { stream.private().upgrade_device_ptr::<u8>(pointer, len) };
        let slice = StableBox::new(catch_unwind(AssertUnwindSafe(make)).ok()?);
        // SAFETY: the only reference: from now on the slice is used through views of it alone.
        let mut whole: CudaViewMut<'static, u8> = unsafe { slice.get_mut() }.as_view_mut();
        // SAFETY: the stream outlives the slice, by this function's contract.
        let stream: &'static CudaStream = unsafe { &*ptr::from_ref(&**stream.private()) };
        // Waits for nothing: cudarc knows no other stream of the private context.
        // SAFETY: views refer to the slice alone.
        let write = event_of(unsafe { extend(whole.slice_mut(..)) }.view_ptr_mut(stream).1);
        // SAFETY: as above.
        let read = event_of(unsafe { extend(whole.slice_mut(..)) }.view_ptr(stream).1);
        let views = Lock::new(Views { whole, shared: HashMap::new(), exclusive: HashMap::new() });
        // cudarc makes both events in a context that tracks them, as `DefaultStream` has.
        let handle = |event: &'static CudaEvent| Handle(ptr::from_ref(event).cast_mut());
        Some(Self { slice, pointer, read: handle(read?), write: handle(write?), views })
    }

    /// The address and the length.
    pub(super) fn extent(&self) -> (CUdeviceptr, usize) {
        (self.pointer, self.views.lock().whole.len())
    }

    /// The event that launches record if they read the memory. It lives as long as the slice.
    pub(super) const fn read(&self) -> &'static CudaEvent {
        // SAFETY: the slice does not move, and nothing uses its events after it.
        unsafe { &*self.read.0 }
    }

    /// The event that launches record if they write to the memory. It lives as long as the slice.
    pub(super) const fn write(&self) -> &'static CudaEvent {
        // SAFETY: as above.
        unsafe { &*self.write.0 }
    }

    /// Whether an event is one of the slice's two.
    pub(super) fn has(&self, event: &CudaEvent) -> bool {
        ptr::eq(event, self.read.0) || ptr::eq(event, self.write.0)
    }

    /// The argument of a launch that reads a region: `len` bytes at `pointer`.
    ///
    /// # Safety
    ///
    /// The bytes must be the slice's, which must exist while the view is used.
    pub(super) unsafe fn argument<'a>(&self, pointer: CUdeviceptr, len: usize) -> &'a CudaView<'a, u8> {
        let range = self.range(pointer, len);
        let mut views = self.views();
        let Views { whole, shared, .. } = &mut *views;
        // SAFETY: views refer to the slice alone, and live no longer.
        let view = unsafe { extend(whole.slice_mut(range)) }.into_view();
        // One view for each address: a launch takes nothing else from it.
        let address = usize::try_from(pointer).unwrap_or(usize::MAX);
        // SAFETY: by this method's contract.
        unsafe { add_argument(shared, address, pointer, view).get() }
    }

    /// [`argument`](Self::argument) for a launch that writes.
    ///
    /// # Safety
    ///
    /// The contract of [`argument`](Self::argument), and the region at the address `region` must be borrowed
    /// exclusively for `'a`.
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
            unsafe { add_argument(exclusive, region, pointer, view).get_mut() }
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
        // SAFETY: no launch uses a view any longer, and nothing uses the events from now on.
        let slice = unsafe { self.into_slice() };
        slice.leak();
    }

    /// [`free`](Self::free) after CUDA destroyed the events with their context.
    pub(super) fn abandon(self) {
        for event in [self.read(), self.write()] {
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
        shared.into_values().for_each(|argument| drop(unsafe { argument.view.into_box() }));
        // SAFETY: by this method's contract.
        exclusive.into_values().for_each(|argument| drop(unsafe { argument.view.into_box() }));
        // SAFETY: by this method's contract, and there are no views left.
        *unsafe { self.slice.into_box() }
    }

    fn views(&self) -> LockGuard<'_, Views> {
        self.views.lock()
    }
}

/// The view under `key`. Inserts `view` unless there is one of this device address.
fn add_argument<V>(arguments: &mut Arguments<V>, key: usize, pointer: CUdeviceptr, view: V) -> &StableBox<V> {
    let known = match arguments.entry(key) {
        Entry::Vacant(vacant) => return &vacant.insert(Argument { pointer, view: StableBox::new(view) }).view,
        Entry::Occupied(known) => known.into_mut(),
    };
    if known.pointer != pointer {
        let gone = mem::replace(known, Argument { pointer, view: StableBox::new(view) });
        // SAFETY: another region has the address now, so that the region of this view is not borrowed.
        drop(unsafe { gone.view.into_box() });
    }
    &known.view
}

/// Extends the lifetime of a view beyond the borrow of its slice.
///
/// # Safety
///
/// The slice must exist while the view is used.
unsafe fn extend(view: CudaViewMut<'_, u8>) -> CudaViewMut<'static, u8> {
    // SAFETY: the types differ only in their lifetimes; by this function's contract.
    unsafe { mem::transmute::<CudaViewMut<'_, u8>, CudaViewMut<'static, u8>>(view) }
}

/// The event that a guard would record. It is not recorded.
fn event_of(guard: SyncOnDrop<'static>) -> Option<&'static CudaEvent> {
    match &*ManuallyDrop::new(guard) {
        SyncOnDrop::Record(Some((event, _))) => Some(event),
        _ => None,
    }
}
