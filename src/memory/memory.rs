//! Memory that frees itself, safely, from any thread.
#![expect(unsafe_code, reason = "streams and early release are the caller's responsibility")]

use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUstream};

use super::binding::DropPolicy;
use super::block::Block;
use super::chunk::{Chunk, ChunkRef};
use super::region::Region;
use crate::allocation::{Allocation, Exported};
use crate::{Error, MemoryKind, Result, Vkgdr};

/// Memory that the CPU and the device share, freed when it is dropped.
///
/// It remembers the CUDA context that it was allocated in, so that it can be used and dropped on any thread,
/// whichever context is current there. Before it is freed it waits for the device, see [`DropPolicy`]. When its
/// context was destroyed first, only Vulkan's side is freed, and one line is logged.
///
/// Releasing memory asks CUDA for events or waits for a context, on this thread. CUDA forbids that while a stream is
/// captured in global mode: drop memory before or after a capture, or capture in a thread-local or relaxed mode.
///
/// In a process that is forked off, what needs a driver is refused with [`Error::Forked`], and
/// dropping or freeing does nothing: the memory is the parent's.
///
/// Reading, writing, mapping and taking parts are methods of [`Region`], to which this type dereferences.
///
/// # cudarc
///
/// `&Memory` and `&Region` go straight into cudarc's copies and kernel launches. A copy uses the whole memory or region,
/// as elements of the type that its other side has; bytes that make no whole element are left out. Copies on any stream
/// of the memory's context are waited for before the memory goes, and copies on another context's streams before they
/// return. Two things are not noticed: a kernel launch, and `memcpy_dtod` *from* our memory on another context's stream.
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
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Memory(Region);

impl Memory {
    /// Allocates `len` bytes of memory in the handle's primary context if it retains that, else in the current
    /// context, which must be one of the handle's device.
    ///
    /// The contents are undefined. The host pointer is aligned to at least 64 bytes (Vulkan's
    /// `minMemoryMapAlignment`).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`]
    /// when it is another device's, [`Error::ZeroSize`],
    /// [`Error::NoSuitableMemoryType`], [`Error::Allocation`]
    /// when there is no room or the size is larger than the heap, and
    /// what else the drivers return.
    pub fn allocate(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        Self::make(owner, || Allocation::new(owner, len, kind))
    }

    /// Memory that shares its bytes with memory that was exported, by this process or another.
    ///
    /// Where it is made and what it waits for when it is dropped is as for [`allocate`](Self::allocate). It is freed on
    /// its own; the bytes go with the last memory that shares them. The descriptor is used up, also by a failure.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate), and `VK_ERROR_INVALID_EXTERNAL_HANDLE` for what a driver knows not to be
    /// exported memory, [`Error::System`] when the process has no descriptor left.
    ///
    /// # Safety
    ///
    /// The descriptor must come from [`export_fd`](Self::export_fd) of memory with the same `len` and `kind`, on the same
    /// GPU ([`Vkgdr::uuid`]) with the same driver, and both handles must take that kind from the same memory type
    /// ([`Vkgdr::memory_type_of`]; so they do when they were opened alike). The drivers check none of this.
    pub unsafe fn import_fd(owner: &Vkgdr, fd: OwnedFd, len: usize, kind: MemoryKind) -> Result<Self> {
        // SAFETY: by this function's contract.
        let exported = unsafe { Exported::new(fd) };
        Self::make(owner, || Allocation::import(owner, &exported, len, kind))
    }

    fn make(owner: &Vkgdr, allocate: impl FnOnce() -> Result<Allocation>) -> Result<Self> {
        let block = Block::dedicated(owner, allocate)?;
        let len = block.allocation().len();
        Ok(Self::new(ChunkRef::new(Chunk::dedicated(block), len), len))
    }

    /// The first `len` bytes of a chunk.
    #[inline]
    pub(crate) fn new(chunk: ChunkRef, len: usize) -> Self {
        Self(Region::new(chunk, len))
    }

    /// All of a chunk of which the length was recorded, as when it was lent first if nothing else has used it.
    #[inline]
    pub(crate) fn lent_again(chunk: ChunkRef) -> Self {
        let len = chunk.len();
        let memory = Self(Region::new(chunk, len));
        memory.0.forget_single_use();
        memory
    }

    /// Records the length for whatever returns the chunk.
    pub(crate) fn record_len(&self) {
        self.0.chunk().set_len(self.len());
    }

    /// The id of its pool and the class of its chunk.
    #[inline]
    pub(crate) const fn place(&self) -> (u32, u16) {
        self.0.place()
    }

    /// Whether nothing else refers to its chunk, and only the CPU has used it.
    #[inline]
    pub(crate) fn is_only_use(&self) -> bool {
        self.0.is_only_use()
    }

    /// Changes the length, for another holder of the same chunk.
    #[inline]
    pub(crate) fn set_len(&mut self, len: usize) {
        self.0.set_len(len);
    }

    /// Gives up the memory for its reference to the chunk.
    #[inline]
    pub(crate) fn into_chunk(self) -> ChunkRef {
        self.0.into_chunk()
    }

    /// A new file descriptor of the memory, from which [`import_fd`](Self::import_fd) makes memory with the same bytes,
    /// in this process or in another that got the descriptor (over a Unix socket, for example).
    ///
    /// May be called any number of times. The descriptor is closed in programs that this process starts; it holds the
    /// bytes, though not this memory, for as long as it is open. Memory that was itself imported can be exported
    /// where the driver allows it.
    ///
    /// # Errors
    ///
    /// What `vkGetMemoryFdKHR` returns, [`Error::Pooled`] for memory of a pool, which shares an allocation with other
    /// memory, and [`Error::Forked`].
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let block = self.0.block();
        if block.is_pooled() {
            return Err(Error::Pooled { operation: "export_fd" });
        }
        block.allocation().export()
    }

    /// The first byte's address on the device.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.0.device_ptr()
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes: never, since empty memory cannot be allocated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CUDA context that the memory belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.0.block().context().raw()
    }

    /// Binds the memory to a stream: [`map`](Region::map) waits for it, and a drop returns at once, with the
    /// memory freed after what the stream was given before. Keeps the stream alive.
    ///
    /// Bind before the device first uses the memory. All device work on it should be given to this stream, or be
    /// ordered before later work of it. Handing the memory to another stream's copies through cudarc is noticed,
    /// and so is binding to another stream later; both make the drop wait for the whole context. A kernel launched
    /// on another stream is not noticed.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignStream`] when the stream belongs to another context,
    /// [`Error::PerThreadStream`].
    pub fn bind_stream(&self, stream: &Arc<CudaStream>) -> Result<()> {
        self.0.chunk().bind(stream)
    }

    /// As [`bind_stream`](Self::bind_stream), for a stream that somebody else keeps alive. Null is the legacy
    /// default stream of the memory's context.
    ///
    /// # Errors
    ///
    /// As [`bind_stream`](Self::bind_stream), and what `cuStreamGetCtx` returns.
    ///
    /// # Safety
    ///
    /// The stream must stay alive until the memory and all its regions are gone, or were bound to another stream.
    pub unsafe fn bind_raw_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: live for long enough by this method's contract.
        unsafe { self.0.chunk().bind_raw(stream) }
    }

    /// The stream that the memory is bound to, if it is to one.
    #[inline]
    #[must_use]
    pub fn bound_stream(&self) -> Option<CUstream> {
        self.0.bound_stream()
    }

    /// Waits for the bound stream, and ends the binding: the drop waits for the whole context from then on, unless it
    /// was to wait for nothing. Memory that is not bound stays as it is.
    ///
    /// The device should not be given more work on the memory meanwhile.
    ///
    /// # Errors
    ///
    /// What `cuStreamSynchronize` returns, also errors of earlier, asynchronous work; the memory stays bound then.
    /// [`Error::Forked`].
    pub fn unbind_stream(&self) -> Result<()> {
        self.0.chunk().unbind()
    }

    /// Notes that `stream` is about to use the memory. If that is another stream than the bound one, the drop waits for
    /// the whole context.
    ///
    /// The stream must be one of the memory's context for that to help, see [`Region::stream`]. It is compared, never
    /// used.
    pub fn record_use(&self, stream: CUstream) {
        self.0.chunk().record_use(stream);
    }

    /// What the release waits for.
    #[must_use]
    pub fn drop_policy(&self) -> DropPolicy {
        self.0.policy()
    }

    /// Makes the release wait for nothing ([`DropPolicy::Immediate`]).
    ///
    /// # Safety
    ///
    /// When the memory and its regions are gone, no work of the device may use it.
    pub unsafe fn release_immediately(&self) {
        self.0.chunk().release_immediately();
    }

    /// The bytes as a mutable slice, see [`Region::as_mut_slice`].
    ///
    /// # Errors
    ///
    /// As [`Region::as_mut_slice`].
    ///
    /// # Safety
    ///
    /// As [`Region::as_mut_slice`].
    pub unsafe fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        // SAFETY: by this method's contract, which is the same.
        unsafe { self.0.as_mut_slice() }
    }

    /// Frees the memory, as a drop does, and reports what goes wrong. If regions of it are alive, the memory
    /// goes with the last of them.
    ///
    /// # Errors
    ///
    /// The drivers' first error. Nothing leaks: the memory has been released all the same, or, where waiting for
    /// the device failed for a reason that may pass (a stream capture, for example), goes later as with
    /// [`DropPolicy::WaitForStream`].
    ///
    /// # Examples
    ///
    /// What was freed cannot be used:
    ///
    /// ```compile_fail,E0382
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
    /// memory.free()?;
    /// memory.write(0, &[1_u8])?; // error[E0382]: borrow of moved value: `memory`
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn free(self) -> Result<()> {
        self.0.free()
    }

    /// Frees memory that the device has finished with: [`release_immediately`](Self::release_immediately) and
    /// [`free`](Self::free) in one, whatever it is bound to. Memory of a [`Pool`](crate::Pool) is given out again at once,
    /// and goes back as fast as memory that the device never had.
    ///
    /// # Errors
    ///
    /// As [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// As [`release_immediately`](Self::release_immediately).
    #[inline]
    pub unsafe fn free_idle(self) -> Result<()> {
        self.0.free_idle()
    }
}

impl Deref for Memory {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len", &self.len())
            .field("kind", &self.kind())
            .field("device_ptr", &format_args!("{:#x}", self.device_ptr()))
            .field("host_ptr", &self.host_ptr())
            .field("context", &self.context())
            .field("drop_policy", &self.drop_policy())
            .finish_non_exhaustive()
    }
}
