//! A bounded queue from the CPU into GPU memory and one back, for a kernel that keeps running.
//!
//! [`Ring`] is the CPU's end. The kernel's is `vkgdr_ring.cuh`, whose text is [`CUDA_HEADER`]: C for device code, without
//! includes of its own. A kernel takes one argument, [`Ring::device_ptr`].
//!
//! ```text
//!               GPU memory, mapped                          host memory
//! CPU   push -> [head][message][message]  -> kernel pop     [tail] <- kernel
//! CPU   pop  <- [tail]                                      [head][answer][answer] <- kernel
//! ```
//!
//! Each side writes across PCIe and reads what is near: the kernel polls GPU memory, the CPU its caches. The guide's page
//! `docs/ring.md` says which store orders what.

#![expect(unsafe_code, reason = "shares words with a running kernel, and binds memory to streams that the caller owns")]

mod ends;
#[cfg(all(test, loom))]
mod tests;

use std::fmt;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUdeviceptr, CUstream};

use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;
use crate::{AllocateOptions, DropPolicy, Error, Memory, MemoryKind, Result, Vkgdr};
use ends::{ABORTED, CONTROL, Consumer, HEAD, Link, Producer, TAIL, UNIT, VERSION, record_len};

/// The text of `vkgdr_ring.cuh`, the kernel's end of a [`Ring`], for NVRTC or a file that nvcc includes.
pub const CUDA_HEADER: &str = include_str!("vkgdr_ring.cuh");

/// Messages to a running kernel, and its answers.
///
/// Messages are byte strings of any length up to the ring's, read in the order of the pushes. Each is in one piece of GPU
/// memory, at a multiple of 16. A push that finds no room says so; the kernel's answers wait for the CPU. One kernel uses a
/// ring at a time, by one thread (others of its block may read and write the messages). The next kernel goes on where it
/// stopped.
///
/// All methods may be called on any thread, by several at a time: each push is whole. Waits poll, and keep the CPU busy: to
/// wait for long, sleep between calls of [`try_push`](Self::try_push) and [`try_pop`](Self::try_pop).
///
/// The messages are in mapped memory, or in host memory where the GPU has none, or none left ([`kind`](Self::kind)), the answers in
/// host memory. A drop [aborts](Self::abort) the kernel. The memory is freed when the context's last ring is dropped, since
/// drivers wait for all running kernels to free memory. So where rings come and go beside one that stays, keep them for the next
/// kernel instead. The drop of the last ring waits for ever if another thread makes a ring and starts its kernel meanwhile. In a
/// forked child, a drop does nothing.
///
/// **Load the kernel's module before you make the ring**, so that the ring is dropped first. Freeing other memory and unloading
/// a module wait until the kernel has ended, which without a [`close`](Self::close) or a drop it never does.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use vkgdr::ring::Ring;
/// use vkgdr::{OpenFlags, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let ring = Ring::new(&gpu, 1 << 20, 1 << 20)?;
/// // Start a kernel with the argument ring.device_ptr() here.
/// ring.push(b"a message", Duration::from_secs(1))?;
/// let mut answer = Vec::new();
/// ring.pop(&mut answer, Duration::from_secs(1))?;
/// ring.close()?; // the kernel ends when it has read everything
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Ring {
    producer: Lock<Producer<SharedLink>>,
    consumer: Lock<Consumer<SharedLink>>,
    max_message: usize,
    device: Memory,
    host: Memory,
    /// The last field: its drop may free the memory of this ring and of others.
    dropped: Arc<Dropped>,
}

/// The memory of a context's dropped rings, freed with the last ring. Freeing it waits in the driver for all running kernels,
/// including those of other rings, which end only when those rings are dropped.
type Dropped = Lock<Vec<Memory>>;

/// Those of the contexts that have rings.
static DROPPED: Lock<Vec<(Context, Weak<Dropped>)>> = Lock::new(Vec::new());

/// The statistics of a [`Ring`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RingStats {
    /// Messages that were pushed.
    pub pushed: u64,
    /// Their bytes.
    pub pushed_bytes: u64,
    /// Stores of the head, each behind one fence for all the messages before it.
    pub publications: u64,
    /// Pushes that found too little room, counting every retry of a push that waits.
    pub full: u64,
    /// Bytes of the ring in use, headers included. A message counts until the kernel has read it and given its room back.
    pub unread_bytes: u64,
    /// Answers that were popped.
    pub popped: u64,
    /// Their bytes.
    pub popped_bytes: u64,
    /// Stores that returned the room of answers to the kernel.
    pub returns: u64,
    /// Pops that found no answer, each try of a waiting one included.
    pub empty: u64,
}

/// The bytes for the records of a direction: room for one record with a message of `max` bytes.
fn capacity(max: usize, kind: MemoryKind) -> Result<usize> {
    if max == 0 {
        return Err(Error::ZeroSize { kind });
    }
    let limit = isize::MAX.unsigned_abs() - CONTROL - 2 * UNIT;
    record_len(max).filter(|_| max <= limit).ok_or(Error::MessageTooLong { len: max, most: limit })
}

impl Ring {
    /// Allocates a ring for messages of at most `messages` bytes and answers of at most `answers` bytes. Each direction has room
    /// for one message of that length or for several shorter ones. Each takes its length, rounded up to a multiple of 16, and
    /// 16 bytes. A message lies in one piece. So even an empty ring may have no room for a long one, until a running kernel has
    /// passed the rest before the ring's end. A program that pushes while no kernel runs asks for twice the rounded length.
    ///
    /// The context is chosen as by [`Memory::allocate`]. Allocate before a kernel runs that waits for the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::MessageTooLong`] for what exceeds the address space, and the errors of
    /// [`Memory::allocate_with`].
    pub fn new(owner: &Vkgdr, messages: usize, answers: usize) -> Result<Self> {
        let options = AllocateOptions::new(MemoryKind::Mapped).fallback([MemoryKind::Host]);
        Self::with_options(owner, messages, answers, options)
    }

    /// [`new`](Self::new) with options for the memory of the messages. In host memory, the kernel polls across PCIe.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), and [`Error::NoHostView`] for device memory.
    pub fn with_options(owner: &Vkgdr, messages: usize, answers: usize, options: AllocateOptions) -> Result<Self> {
        let message_bytes = capacity(messages, MemoryKind::Mapped)?;
        let answer_bytes = capacity(answers, MemoryKind::Host)?;
        let allocate = |len, options| {
            let memory = Memory::allocate_with(owner, CONTROL + len, options)?;
            // After a failure nothing is waited for: the kernel of another ring may run until that ring is closed.
            // SAFETY: no kernel has the address yet.
            unsafe { memory.set_drop_policy(DropPolicy::Immediate) };
            memory.write(0, &[0_u8; CONTROL]).map(|()| memory)
        };
        let device = allocate(message_bytes, options)?;
        let host = allocate(answer_bytes, AllocateOptions::new(MemoryKind::Host))?;
        // What the kernel is told, see `vkgdr_device_ring_open`.
        let [messages_at, answers_at] = [&device, &host].map(|memory| memory.device_ptr() + CONTROL as u64);
        let (message_len, answer_len) = (message_bytes as u64, answer_bytes as u64);
        device.write(0, &[VERSION, messages_at, message_len, answers_at, answer_len, host.device_ptr()])?;
        [&device, &host].into_iter().try_for_each(|memory| memory.flush(..CONTROL))?;
        let sending = SharedLink::new(&device, (&device, HEAD), (&host, TAIL))?;
        let receiving = SharedLink::new(&host, (&device, TAIL), (&host, HEAD))?;
        for memory in [&device, &host] {
            // SAFETY: it waits for the device.
            unsafe { memory.set_drop_policy(DropPolicy::WaitForStream) };
        }
        Ok(Self {
            producer: Lock::new(Producer::new(sending, message_bytes, messages)),
            consumer: Lock::new(Consumer::new(receiving, answer_bytes)),
            max_message: messages,
            dropped: DROPPED.shared(device.allocation().context()),
            device,
            host,
        })
    }

    /// Binds the ring's memory to the stream of its kernel, as [`Memory::bind_stream`]. If no other ring of the context has
    /// lived beside it, its drop then waits for nothing, and the memory is freed after the kernel. Other rings' memory waits for
    /// all work of the context.
    ///
    /// # Errors
    ///
    /// The errors of [`Memory::bind_stream`].
    pub fn bind_stream(&self, stream: &Arc<CudaStream>) -> Result<()> {
        self.device.bind_stream(stream)?;
        self.host.bind_stream(stream)
    }

    /// [`bind_stream`](Self::bind_stream) for a stream that the caller keeps alive.
    ///
    /// # Errors
    ///
    /// The errors of [`Memory::bind_raw_stream`].
    ///
    /// # Safety
    ///
    /// The contract of [`Memory::bind_raw_stream`].
    pub unsafe fn bind_raw_stream(&self, stream: CUstream) -> Result<()> {
        // Checked once, before either is bound: a ring of which half is bound would use the stream at its drop.
        // SAFETY: live by this method's contract.
        let stream = unsafe { self.device.stream(stream) }?;
        // Live for long enough by this method's contract; both are of one context.
        self.device.inner().bind(stream.into())?;
        self.host.inner().bind(stream.into())
    }

    /// The kernel's argument: the device address of the ring.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.device.device_ptr()
    }

    /// The kind of memory that the messages are in: mapped, or host memory where the GPU has no mapped memory, or none left.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.device.kind()
    }

    /// The length of the longest message in bytes.
    #[must_use]
    pub fn max_message(&self) -> usize {
        self.max_message
    }

    /// Pushes a message. Returns true if there was room.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLong`], [`Error::RingClosed`], [`Error::RingCorrupt`], [`Error::Forked`], and the errors of
    /// [`Memory::flush`](crate::Memory::flush), after which the message may still reach the kernel, together with
    /// the next one.
    pub fn try_push(&self, message: &[u8]) -> Result<bool> {
        Ok(self.try_push_all(&[message])? == 1)
    }

    /// Pushes messages while there is room, all of them under one fence. Returns how many were pushed. They become
    /// visible to the kernel together. They are in a slice, since an iterator would run while the ring is locked.
    ///
    /// # Errors
    ///
    /// The errors of [`try_push`](Self::try_push) for the first message. A later one that is too long ends the batch.
    pub fn try_push_all(&self, messages: &[&[u8]]) -> Result<usize> {
        fork::check()?;
        self.producer.lock().try_push(messages)
    }

    /// Pushes a message, and waits for room.
    ///
    /// # Errors
    ///
    /// [`Error::RingTimeout`] if there is no room until `timeout` has passed, and the errors of
    /// [`try_push`](Self::try_push), also if the ring is closed meanwhile.
    pub fn push(&self, message: &[u8], timeout: Duration) -> Result<()> {
        poll(timeout, "push", || Ok(self.try_push(message)?.then_some(())))
    }

    /// Pops an answer into `answer`, whose contents it replaces. Returns true if there was one.
    ///
    /// # Errors
    ///
    /// [`Error::RingClosed`] if the kernel has closed the ring and all answers were popped, or if the ring was aborted.
    /// [`Error::RingCorrupt`], [`Error::Forked`], and the errors of [`Memory::invalidate`](crate::Memory::invalidate) and
    /// [`Memory::flush`](crate::Memory::flush), after which no answer is lost.
    pub fn try_pop(&self, answer: &mut Vec<u8>) -> Result<bool> {
        fork::check()?;
        let mut consumer = self.consumer.lock();
        let Some(len) = consumer.next_len()? else { return Ok(false) };
        answer.resize(len, 0);
        consumer.take(answer)?;
        Ok(true)
    }

    /// Pops an answer into the first bytes of `buffer`. Returns its length; `None` if there is no answer.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLong`] if the buffer is too short, which leaves the answer in the ring, and the errors of
    /// [`try_pop`](Self::try_pop).
    pub fn try_pop_into(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        fork::check()?;
        let mut consumer = self.consumer.lock();
        let Some(len) = consumer.next_len()? else { return Ok(None) };
        let most = buffer.len();
        let answer = buffer.get_mut(..len).ok_or(Error::MessageTooLong { len, most })?;
        consumer.take(answer)?;
        Ok(Some(len))
    }

    /// Pops an answer into `answer`, whose contents it replaces, and waits for one.
    ///
    /// # Errors
    ///
    /// [`Error::RingTimeout`] if there is none within `timeout`, and the errors of [`try_pop`](Self::try_pop).
    pub fn pop(&self, answer: &mut Vec<u8>, timeout: Duration) -> Result<()> {
        poll(timeout, "pop", || Ok(self.try_pop(answer)?.then_some(())))
    }

    /// [`try_pop_into`](Self::try_pop_into) that waits.
    ///
    /// # Errors
    ///
    /// [`Error::RingTimeout`], and the errors of [`try_pop_into`](Self::try_pop_into).
    pub fn pop_into(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize> {
        poll(timeout, "pop", || self.try_pop_into(buffer))
    }

    /// Ends the messages: the kernel's pops fail once it has read all of them, and so does each later push. Answers can still
    /// be popped.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of [`Memory::flush`](crate::Memory::flush).
    pub fn close(&self) -> Result<()> {
        fork::check()?;
        self.producer.lock().close(0)
    }

    /// Ends the kernel's waits and its reading at once, and all pushes and pops of the CPU. Messages and answers that are on
    /// their way are lost. The kernel ends as soon as it calls a function of the ring.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of [`Memory::flush`](crate::Memory::flush).
    pub fn abort(&self) -> Result<()> {
        fork::check()?;
        let messages = self.producer.lock().close(ABORTED);
        // Also if storing the first word fails.
        let answers = self.consumer.lock().stop(ABORTED);
        messages.and(answers)
    }

    /// The ring's statistics.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and the errors of [`Memory::invalidate`](crate::Memory::invalidate).
    pub fn stats(&self) -> Result<RingStats> {
        fork::check()?;
        let (sent, unread_bytes) = {
            let mut producer = self.producer.lock();
            (producer.stats, producer.used()?)
        };
        let RingStats { popped, popped_bytes, returns, empty, .. } = self.consumer.lock().stats;
        Ok(RingStats { unread_bytes, popped, popped_bytes, returns, empty, ..sent })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The memory's release waits for the kernel.
        match self.abort() {
            Ok(()) => {}
            Err(Error::Forked) => return,
            Err(error) => log::warn!("a ring's kernel was not told to end: {error}"),
        }
        if Arc::strong_count(&self.dropped) > 1 {
            let memory = [&self.device, &self.host];
            // Their stream need not live for as long as the other rings.
            memory.iter().for_each(|memory| memory.unbind_without_wait());
            self.dropped.lock().extend(memory.map(Memory::clone));
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Ring");
        fields.field("max_message", &self.max_message).field("device", &self.device).field("host", &self.host);
        fields.finish_non_exhaustive()
    }
}

/// A direction's records and words in memory that a kernel uses.
#[derive(Debug)]
struct SharedLink {
    records: Memory,
    own: Memory,
    other: Memory,
}

impl SharedLink {
    /// A link over the records of `memory`, with words at these places.
    fn new(memory: &Memory, own: (&Memory, usize), other: (&Memory, usize)) -> Result<Self> {
        let word = |(memory, offset): (&Memory, usize)| {
            let word = memory.slice(offset..offset + size_of::<u64>())?;
            // Fails unless it is aligned and mapped.
            atomic(&word)?;
            Ok::<_, Error>(word)
        };
        Ok(Self { records: memory.slice(CONTROL..)?, own: word(own)?, other: word(other)? })
    }
}

/// A word that one side stores and the other side loads.
fn atomic(word: &Memory) -> Result<&AtomicU64> {
    let (pointer, _) = word.elements::<u64>()?;
    // SAFETY: aligned and mapped while the memory lives; the CPU uses it by atomic accesses only, once the kernel may run.
    Ok(unsafe { AtomicU64::from_ptr(pointer.as_ptr()) })
}

impl Link for SharedLink {
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.records.write_unordered(offset, bytes)
    }

    fn order_writes(&self, offset: usize, len: usize) -> Result<()> {
        self.records.flush(offset..offset + len)
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.records.invalidate(offset..offset + bytes.len())?;
        self.records.read(offset, bytes)
    }

    fn order_reads(&self) -> Result<()> {
        self.records.invalidate(..0)
    }

    /// Also empties the CPU's write-combining buffers, which may otherwise keep the word for long.
    fn store(&self, word: u64) -> Result<()> {
        atomic(&self.own)?.store(word, Ordering::Release);
        self.own.flush(..)
    }

    fn load(&self) -> Result<u64> {
        self.other.invalidate(..)?;
        Ok(atomic(&self.other)?.load(Ordering::Acquire))
    }
}

/// Repeats `work` until it has a result or the time is over. Runs `work` at least once.
fn poll<T>(timeout: Duration, operation: &'static str, mut work: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    /// Tries before the thread yields, some microseconds: about the time of a round trip over PCIe.
    const SPINS: u64 = 64;
    let mut deadline = None;
    // No `u32`: an hour has more tries.
    for tries in 0_u64.. {
        if let Some(result) = work()? {
            return Ok(result);
        }
        // The clock is read in slow calls only. A time that cannot be represented never comes.
        let deadline = deadline.get_or_insert_with(|| Instant::now().checked_add(timeout));
        if tries < SPINS {
            spin_loop()
        } else {
            thread::yield_now()
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    Err(Error::RingTimeout { operation })
}
