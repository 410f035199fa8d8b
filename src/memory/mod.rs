//! [`Memory`]: bytes that the CPU and the device share, counted by reference and freed with the last reference.
//!
//! [`inner`] has what the references share and its release, [`uses`] what that waits for. [`cpu`] has the CPU's methods,
//! [`sharing`] those for others' memory and other processes.
#![expect(unsafe_code, reason = "offsets the host pointer, and uses streams that the caller owns")]

mod cpu;
mod inner;
mod map;
mod raw;
mod sharing;
mod uses;

use std::fmt;
use std::ops::RangeBounds;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUstream};

use crate::allocation::Allocation;
use crate::copy::CopyRoutine;
use crate::cudarc_view::LentSlice;
use crate::driver::context::Context;
use crate::driver::{Handle, fork};
use crate::range;
use crate::{Error, MemoryKind, MemoryTypeInfo, Result, StreamRef, Vkgdr};
pub(crate) use inner::{Chunk, Home, Inner};
pub use map::{MapGuard, MapMode, Writer};
pub use raw::RawMemory;
pub use sharing::{DmaBuf, memory_of};
pub use uses::DropPolicy;
pub(crate) use uses::{UsedStream, Uses, stream_number};

/// Memory that the CPU and the device share.
///
/// Like [`bytes::Bytes`](https://docs.rs/bytes), it is a reference: [`clone`](Clone::clone) and [`slice`](Self::slice) make others
/// to the same bytes, and the last to be dropped frees them. It remembers the CUDA context that it was allocated in, so that it
/// may be used and dropped on any thread, with any context current. **It is not freed while CUDA may still use it**: see
/// [`DropPolicy`] for what that waits for.
///
/// Both sides may write at any time, and slices may overlap. The methods that copy are safe nevertheless: a race affects only
/// which bytes are seen. Slices of elements and pointers are `unsafe` to use. Offsets and ranges are in bytes from the start of the
/// memory or slice.
///
/// # Contexts
///
/// The handle retains the device's primary context as soon as memory is in it, so that only `cudaDeviceReset` ends it earlier.
/// Then only Vulkan's side of the memory is freed, and a warning is logged. **A context of `cuCtxCreate` must outlive its memory**:
/// what the driver does with a destroyed context is undefined. cudarc's `new_non_primary` (up to CUDA 13.1) makes such a context, and
/// the last `Arc` ends it: keep one until the memory was freed. Memory whose bound stream still has
/// work is freed later, at the latest by [`finish_deferred_frees`](crate::Vkgdr::finish_deferred_frees), which waits for it.
///
/// Freeing memory queries CUDA events or waits for a context, on the calling thread. During a stream capture, CUDA forbids
/// that and makes the capture invalid: drop memory before or after captures. Memory that is bound to a stream, or
/// [freed unsynchronized](Self::free_unsynchronized), may be dropped meanwhile on two conditions. Its stream must not be the
/// captured one, and the capture must be either relaxed or both thread-local and another thread's. Memory that cannot be waited
/// for because of a capture is released later, see [`Vkgdr::collect`](crate::Vkgdr::collect).
///
/// In a forked child, operations that need a driver return [`Error::Forked`], and dropping or freeing does nothing: the memory is
/// the parent's.
///
/// # Memory of a pool
///
/// Memory of a [`Pool`](crate::Pool) returns to the pool, which reuses it once the device has finished with it. It cannot be
/// exported ([`Error::Pooled`]), since it belongs to the pool.
///
/// # Examples
///
/// ```no_run
/// use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let memory = Memory::allocate(&gpu, 1 << 20, MemoryKind::Mapped)?;
/// memory.write(0, &[1_u32, 2, 3])?;
/// memory.flush(..)?;
/// println!("kernels use {:#x}", memory.device_ptr());
/// let second_half = memory.slice(1 << 19..)?;
/// drop(memory); // the slice keeps the bytes alive
/// assert_eq!(second_half.len(), 1 << 19);
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Memory {
    /// Null for device memory.
    host_ptr: Handle<*mut u8>,
    device_ptr: CUdeviceptr,
    len: usize,
    routine: CopyRoutine,
    /// What cudarc's views are of, made with the first of them. Before the reference, to end first: it knows of work that the
    /// release waits for.
    pub(crate) cuda: OnceLock<Box<LentSlice>>,
    inner: Arc<Inner>,
}

/// Options of [`Memory::allocate_with`](Memory::allocate_with).
///
/// # Examples
///
/// ```no_run
/// use vkgdr::{AllocateOptions, Memory, MemoryKind, OpenFlags, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let options = AllocateOptions::new(MemoryKind::Mapped).fallback([MemoryKind::Host]);
/// let memory = Memory::allocate_with(&gpu, 512 << 20, options)?;
/// println!("it is {} memory", memory.kind());
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct AllocateOptions {
    /// In the order in which they are tried.
    kinds: [Option<MemoryKind>; MemoryKind::ALL.len()],
    dma_buf: bool,
}

impl Default for AllocateOptions {
    /// Mapped memory.
    fn default() -> Self {
        Self::new(MemoryKind::default())
    }
}

impl AllocateOptions {
    /// Memory of one kind.
    pub const fn new(kind: MemoryKind) -> Self {
        let mut kinds = [None; MemoryKind::ALL.len()];
        kinds[0] = Some(kind);
        Self { kinds, dma_buf: false }
    }

    /// Other kinds, to be tried in this order where the kinds before them are missing or exhausted. Replaces those of an
    /// earlier call; a kind counts once.
    pub fn fallback(mut self, kinds: impl IntoIterator<Item = MemoryKind>) -> Self {
        self.kinds[1..].fill(None);
        for kind in kinds {
            if !self.kinds.contains(&Some(kind)) {
                let free = self.kinds.iter_mut().find(|kind| kind.is_none());
                *free.expect("each kind has a place") = Some(kind);
            }
        }
        self
    }

    /// Memory that network cards can register, by [`Memory::dma_buf`](crate::Memory::dma_buf). CUDA allocates it, since
    /// a card may refuse a dma-buf of Vulkan's memory. Device memory needs a GPU that exports dma-bufs (device
    /// attribute 124, CUDA 11.7). Mapped memory is a host view of that
    /// ([`Memory::map_existing`](Memory::map_existing)): the driver and the GPU must allow it
    /// ([`Vkgdr::supports_existing`](crate::Vkgdr::supports_existing)). The kind `Host` fails with [`Error::NoDmaBuf`]:
    /// network cards register host memory by its host pointer.
    ///
    /// [`Error::NoDmaBuf`]: crate::Error::NoDmaBuf
    pub const fn with_dma_buf(mut self) -> Self {
        self.dma_buf = true;
        self
    }
}

impl Memory {
    /// Allocates `len` bytes in the handle's primary context if it retains that, otherwise in the current context,
    /// which must belong to the handle's device.
    ///
    /// The contents are undefined. The host pointer is aligned to at least 64 bytes (Vulkan's
    /// `minMemoryMapAlignment`). On a real driver each allocation holds a file descriptor while it lives (`ulimit -n`); the
    /// allocations of a [`Pool`](crate::Pool) share one for each block.
    ///
    /// An allocation does not wait for running kernels on an H100 with driver 580; other drivers may (CUDA programming guide,
    /// "Implicit Synchronization"). When memory is short, it waits for freed memory that the device still uses, for a second at
    /// most ([`Vkgdr::set_shortage_timeout`]). It then frees that memory, which waits for running kernels.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`] when it is another device's.
    /// [`Error::Allocation`] when the size exceeds the heap or memory is exhausted (`CUDA_ERROR_OUT_OF_MEMORY` or
    /// `ENOMEM` where that does not come from Vulkan). [`Error::ZeroSize`], [`Error::NoSuitableMemoryType`],
    /// [`Error::Forked`], and other errors of the drivers.
    pub fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, |context| Allocation::new(owner, context, len, kind, owner.shortage_deadline()))
    }

    /// Like [`allocate`](Self::allocate), with kinds to fall back on: memory of the first kind that is neither missing nor
    /// exhausted. [`kind`](Self::kind) tells which it is.
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Self::allocate). If every kind is missing, exhausted or refused by a driver, the error is that of
    /// the first exhausted kind, or else of the first kind. Any other error is returned at once, such as that of the context or
    /// of a length of 0.
    pub fn allocate_with(owner: &Vkgdr, len: usize, options: AllocateOptions) -> Result<Self> {
        let make = if options.dma_buf { Allocation::allocate_by_cuda } else { Allocation::new };
        let deadline = owner.shortage_deadline();
        owner.first_kind(options.kinds.into_iter().flatten(), |kind| {
            Self::make(owner, |context| make(owner, context, len, kind, deadline))
        })
    }

    /// Allocates memory of the same kind in the context of this memory, whichever is current.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub fn allocate_beside(&self, len: usize) -> Result<Self> {
        self.inner.context().run(|| Self::allocate(self.owner(), len, self.kind()))
    }

    /// Memory of an allocation of its own.
    #[inline]
    fn make(owner: &Vkgdr, allocate: impl FnOnce(Context) -> Result<Allocation>) -> Result<Self> {
        Ok(Self::of(Inner::whole(owner.in_context(allocate)?, None)))
    }

    /// A reference to all of a memory.
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        let Inner { offset, len, .. } = *inner;
        let allocation = inner.allocation();
        let device_ptr = allocation.device_ptr() + offset as u64;
        let host_ptr = allocation.host_ptr().map_or(ptr::null_mut(), |base| base.as_ptr().wrapping_add(offset));
        let routine = allocation.routine();
        Self { host_ptr: Handle(host_ptr), device_ptr, len, routine, cuda: OnceLock::new(), inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    #[inline]
    pub(crate) fn allocation(&self) -> &Allocation {
        self.inner.allocation()
    }

    /// The offset in the allocation, in bytes.
    pub(crate) fn offset(&self) -> usize {
        let start = self.allocation().device_ptr();
        usize::try_from(self.device_ptr - start).expect("an allocation fits the address space")
    }

    /// The host address of a range.
    #[inline]
    fn host_range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        range::check(offset, len, self.len)?;
        let first = NonNull::new(self.host_ptr.0).ok_or_else(|| Error::NoHostView { kind: self.kind() })?;
        // SAFETY: `offset` is at most the length of the mapping at `host_ptr`.
        Ok(unsafe { first.add(offset) })
    }

    /// Marks the bytes as ones that the device may use from now on.
    #[inline]
    pub(crate) fn expose(&self) {
        self.inner.exposed.store(true, Ordering::Relaxed);
    }

    /// A part of the memory, with its own pointers. It keeps all of the memory alive.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::ReversedRange`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (offset, len) = range::resolve(&range, self.len)?;
        let mut part = self.clone();
        if !self.host_ptr.0.is_null() {
            part.host_ptr = Handle(self.host_ptr.0.wrapping_add(offset));
        }
        part.device_ptr += offset as u64;
        part.len = len;
        Ok(part)
    }

    /// The handle that the memory was allocated from.
    #[must_use]
    #[inline]
    pub fn owner(&self) -> &Vkgdr {
        self.allocation().owner()
    }

    /// The device address of the first byte.
    #[inline]
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.expose();
        self.device_ptr
    }

    /// The host address of the first byte; `None` for device memory.
    ///
    /// Valid while a reference to the memory lives. The device may change the bytes at any time: read and write through the
    /// pointer with volatile or atomic accesses. Kernels need the [`device_ptr`](Self::device_ptr), also on GPUs that could use the
    /// host address of mapped memory: a pool does not see such uses.
    #[inline]
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.expose_host();
        NonNull::new(self.host_ptr.0)
    }

    /// [`expose`](Self::expose) where the device can use the bytes by their host address: page-locked memory, in asynchronous
    /// copies. From other host addresses CUDA copies through pages of its own, before the call returns.
    #[inline]
    pub(crate) fn expose_host(&self) {
        if self.kind() == MemoryKind::Host {
            self.expose();
        }
    }

    /// The number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes: in an empty slice, since empty memory cannot be allocated.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The kind of memory.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.allocation().kind()
    }

    /// Whether the host and the device see each other's writes without [`flush`](Self::flush) and
    /// [`invalidate`](Self::invalidate). `flush` still orders write-combined stores for kernels that are already
    /// running.
    #[inline]
    #[must_use]
    pub fn is_coherent(&self) -> bool {
        self.allocation().memory_type().coherent
    }

    /// Whether the CPU caches the memory. If not, its stores are write-combined, and its loads slow.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.allocation().memory_type().is_cached()
    }

    /// The granularity of flushes in bytes: 1 for coherent memory, otherwise Vulkan's `nonCoherentAtomSize`, or 64 for memory
    /// that does not come from Vulkan.
    #[inline]
    #[must_use]
    pub fn non_coherent_atom_size(&self) -> usize {
        self.allocation().memory_type().flush_unit()
    }

    /// The memory's type. Its index is [`MemoryTypeInfo::OUTSIDE_VULKAN`] for memory that does not come from Vulkan.
    #[must_use]
    pub fn memory_type(&self) -> MemoryTypeInfo {
        self.allocation().memory_type().info
    }

    /// A number that all references to the same memory share, and no other live memory has.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn id(&self) -> u64 {
        Arc::as_ptr(&self.inner).addr() as u64
    }

    /// Where the C library keeps its handle of the memory, as a number, for all references; 0 without one.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn c_handle(&self) -> &std::sync::atomic::AtomicUsize {
        &self.inner.c_handle
    }

    /// The CUDA context that the memory belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.inner.context().raw()
    }

    /// A stream of the memory's context, for copies, fills and events. Any context may be current. Null and 1
    /// (`CU_STREAM_LEGACY`) are the legacy default stream of the memory's context, 2 (`CU_STREAM_PER_THREAD`) is its
    /// default stream of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::Forked`], and the errors of
    /// `cuStreamGetCtx`.
    ///
    /// # Safety
    ///
    /// The stream must outlive the last use of the returned value and its clones. Events of it must be dropped before the last
    /// handle and memory of its context.
    pub unsafe fn stream(&self, raw: CUstream) -> Result<StreamRef> {
        // SAFETY: by this method's contract.
        unsafe { StreamRef::in_context(raw, self.inner.context()) }
    }

    /// Binds the memory to a stream, which it keeps alive: [`map`](Self::map) waits for the stream, and a drop
    /// does not: the memory is freed after the work that was submitted to the stream before. The driver may then wait for running
    /// kernels, see [`Vkgdr::collect`](crate::Vkgdr::collect).
    ///
    /// Bind before the device first uses the memory. All device work on it should be submitted to this stream, be ordered before
    /// later work of it, or be announced by [`record_use`](Self::record_use). A binding to another stream, without
    /// [`unbind_stream`](Self::unbind_stream) before, makes the drop wait for the whole context. So does a view before the
    /// binding.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context, [`Error::PerThreadStream`], and
    /// [`Error::Forked`].
    pub fn bind_stream(&self, stream: &Arc<CudaStream>) -> Result<()> {
        fork::check()?;
        self.inner.bind(UsedStream::shared(stream, self.inner.context())?)
    }

    /// [`bind_stream`](Self::bind_stream) for a stream that the caller keeps alive. Null is the context's legacy default one.
    ///
    /// # Errors
    ///
    /// The errors of [`bind_stream`](Self::bind_stream) and of `cuStreamGetCtx`.
    ///
    /// # Safety
    ///
    /// The stream must stay alive until the last reference to the memory is dropped, or the memory is bound to another
    /// stream or to none. Calls for the memory that other threads began before must have returned by then, too.
    pub unsafe fn bind_raw_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: live by this method's contract.
        let stream = unsafe { self.stream(stream) }?;
        // Live for long enough by this method's contract.
        self.inner.bind(stream.into())
    }

    /// The bound stream, if any.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn bound_stream(&self) -> Option<CUstream> {
        self.inner.uses(Uses::bound_stream)
    }

    /// Waits for the bound stream and ends the binding: from then on the drop waits for the whole context, unless it
    /// waits for nothing ([`DropPolicy::Immediate`]). Does nothing if the memory is not bound.
    ///
    /// No device work on the memory should be submitted meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of `cuStreamSynchronize`, including those of earlier, asynchronous work, and
    /// [`Error::Forked`]. The memory then remains bound.
    pub fn unbind_stream(&self) -> Result<()> {
        fork::check()?;
        let Some(bound) = self.inner.uses.lock().bound.clone() else { return Ok(()) };
        bound.stream.synchronize()?;
        // Another thread may have bound the memory to another stream meanwhile.
        let before = self.inner.uses.lock().unbind(&bound);
        // Without the lock: dropping the last reference to a stream calls the driver.
        drop(before);
        Ok(())
    }

    /// Ends the binding without waiting for the stream: the drop waits for the whole context, of which the stream is. The memory
    /// must not be bound again, which would forget this stream.
    pub(crate) fn unbind_without_wait(&self) {
        let before = self.inner.uses.lock().bound.take();
        drop(before);
    }

    /// Waits for the bound stream. Does nothing if the memory is not bound.
    ///
    /// # Errors
    ///
    /// The errors of `cuStreamSynchronize`, including those of earlier, asynchronous work, and [`Error::Forked`].
    pub fn wait_for_stream(&self) -> Result<()> {
        fork::check()?;
        // The clone keeps the stream alive.
        let bound = self.inner.uses.lock().bound.clone();
        bound.map_or(Ok(()), |bound| bound.stream.synchronize())
    }

    /// Records that a stream, of any context, uses the memory. The release waits for the work that was submitted to the stream
    /// before the memory was freed. For kernels that get the plain [`device_ptr`](Self::device_ptr) on another stream than
    /// the bound one. Memory that is not bound waits for all streams of its own context anyway.
    ///
    /// The stream must stay alive until the memory is freed, as the contract of [`StreamRef`]'s constructors says. Another
    /// context must live until [`finish_deferred_frees`](crate::Vkgdr::finish_deferred_frees), if the memory is bound to a
    /// stream. The drop of unbound memory, also of a pool's, waits for the stream of another context, and for all work of its
    /// own.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn record_use(&self, stream: StreamRef) -> Result<()> {
        fork::check()?;
        self.expose();
        self.inner.uses.lock().record(stream.into());
        Ok(())
    }

    /// Whether the memory, where this is its last reference, returns to a pool without a call of a driver.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn returns_at_once(&self) -> bool {
        let home = self.inner.home.as_ref().filter(|_| self.inner.chunk.is_some());
        let is_unused = || !self.inner.exposed.load(Ordering::Relaxed) || self.inner.uses(Uses::is_unrecorded);
        home.is_some_and(|home| is_unused() && home.is_caching())
    }

    /// The device work that freeing the memory waits for.
    #[must_use]
    pub fn drop_policy(&self) -> DropPolicy {
        self.inner.uses(Uses::policy)
    }

    /// Sets whether the release waits: not at all with [`DropPolicy::Immediate`]. [`DropPolicy::WaitForContext`] holds for bound
    /// memory, too, and stays: only `Immediate` overrides it. [`DropPolicy::WaitForStream`] ends `Immediate`, and does no more:
    /// it binds nothing.
    ///
    /// # Safety
    ///
    /// With [`DropPolicy::Immediate`], no work of the device may use the memory once its last reference is dropped. This includes
    /// work that the stream was given before [`Pool::allocate_on`](crate::Pool::allocate_on) reused the memory.
    pub unsafe fn set_drop_policy(&self, policy: DropPolicy) {
        if !fork::is_forked() {
            self.inner.uses.lock().set_policy(policy);
        }
    }

    /// Drops this reference, but returns errors instead of logging them. The last reference frees the memory.
    ///
    /// # Errors
    ///
    /// The first error of the drivers. Nothing leaks: the memory is freed even then. If waiting for the device failed
    /// temporarily (during a stream capture, for example), it is freed later, as with [`DropPolicy::WaitForStream`]. Bound memory
    /// of a pool that waits for the end of a capture returns no error.
    ///
    /// # Examples
    ///
    /// Freed memory cannot be used:
    ///
    /// ```compile_fail,E0382
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// memory.free()?;
    /// memory.write(0, &[1_u8])?; // error[E0382]: borrow of moved value: `memory`
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn free(self) -> Result<()> {
        self.free_after(|_| ())
    }

    /// [`free`](Self::free) that waits for no work on the memory if this is the last reference: the device has finished with it.
    /// The driver itself may wait for running kernels, see [`Vkgdr::collect`](crate::Vkgdr::collect). While there are other
    /// references, this only drops one, and the last waits as [`DropPolicy`] says: the promise covers no use of theirs.
    ///
    /// # Errors
    ///
    /// The errors of [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// No work of the device may use the memory that was submitted through this reference or by its pointers. This includes work
    /// that the stream was given before [`Pool::allocate_on`](crate::Pool::allocate_on) reused the memory.
    pub unsafe fn free_unsynchronized(self) -> Result<()> {
        self.free_after(|uses| uses.set_policy(DropPolicy::Immediate))
    }

    /// [`free_unsynchronized`](Self::free_unsynchronized), unless the memory is bound to a stream: then [`free`](Self::free). The last
    /// reference decides, since others may bind it.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    pub unsafe fn free_unless_bound(self) -> Result<()> {
        self.free_after(|uses| {
            if uses.bound_stream().is_none() {
                uses.set_policy(DropPolicy::Immediate);
            }
        })
    }

    /// Releases the memory if this is the last reference, whose uses `set` may change before.
    #[inline]
    fn free_after(self, set: impl FnOnce(&mut Uses)) -> Result<()> {
        let Some(mut inner) = Arc::into_inner(self.into_inner()) else { return Ok(()) };
        set(inner.uses.get_mut());
        inner.release()
    }

    /// The reference to what is shared; ends the view for cudarc.
    #[inline]
    fn into_inner(self) -> Arc<Inner> {
        let Self { cuda, inner, .. } = self;
        drop(cuda);
        inner
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let Self { host_ptr, device_ptr, len, routine, ref inner, .. } = *self;
        Self { host_ptr, device_ptr, len, routine, cuda: OnceLock::new(), inner: inner.clone() }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("offset", &(self.offset() - self.inner.offset))
            .field("len", &self.len)
            .field("kind", &self.kind())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr))
            .field("host_ptr", &NonNull::new(self.host_ptr.0))
            .field("context", &self.context())
            .field("drop_policy", &self.drop_policy())
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn check<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
    check::<Memory>();
};
