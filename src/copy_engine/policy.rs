//! [`CopyPolicy`], [`CopyThresholds`], and [`CopyPath`]: the choice between the CPU and the copy engine.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Who makes the copies of [`Memory::write_with`](crate::Memory::write_with) and
/// [`Memory::read_with`](crate::Memory::read_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CopyPolicy {
    /// One of the two by [`CopyThresholds`], once [`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies) or a copy
    /// with [`Dma`](Self::Dma) has made the copy engine in the memory's context. Until then the CPU copies, because
    /// making the engine may wait for a kernel that itself waits for this copy. Memory without a host view is always
    /// copied by the engine. The default, and what `Memory::write` and `Memory::read` do, except that these refuse
    /// memory without a view.
    #[default]
    Auto,
    /// The CPU's loads and stores.
    Cpu,
    /// The GPU's copy engine: directly from or to page-locked private memory, otherwise through pinned memory.
    Dma,
}

/// The lengths from which [`CopyPolicy::Auto`] uses the GPU's copy engine.
///
/// They apply to coherent memory that the CPU does not cache, such as `Mapped` memory of a GPU behind PCIe, in contexts in
/// which the copy engine was made ([`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies)). Cached memory
/// is always copied by the CPU, also where `VKGDR_COPY` forces a routine. With 0 the engine makes every copy, with
/// `usize::MAX` none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyThresholds {
    /// Bytes of a read.
    pub read: usize,
    /// Bytes of a write, and of a fill.
    pub write: usize,
}

impl Default for CopyThresholds {
    /// The thresholds before [`Vkgdr::set_copy_thresholds`](crate::Vkgdr::set_copy_thresholds).
    ///
    /// The CPU reads through the BAR at 0.53 to 0.72 GB/s and writes at 9.6 to 17 GB/s (gdrcopy on a V100 and an H20).
    /// A copy engine costs 5 to 10 µs to start and wait for. Then it moves 20 to 57 GB/s, limited by the CPU's copy to
    /// or from pinned memory. So reads break even at 5 to 8 KiB; long writes take about the same time either way.
    fn default() -> Self {
        Self { read: 8 << 10, write: 1 << 20 }
    }
}

/// Thresholds that any thread may change at any time.
#[derive(Debug)]
pub(crate) struct SharedThresholds {
    read: AtomicUsize,
    write: AtomicUsize,
}

impl SharedThresholds {
    pub(crate) fn get(&self) -> CopyThresholds {
        CopyThresholds { read: self.of(Direction::Read), write: self.of(Direction::Write) }
    }

    pub(crate) fn set(&self, thresholds: CopyThresholds) {
        self.read.store(thresholds.read, Ordering::Relaxed);
        self.write.store(thresholds.write, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn of(&self, direction: Direction) -> usize {
        match direction {
            Direction::Read => self.read.load(Ordering::Relaxed),
            Direction::Write => self.write.load(Ordering::Relaxed),
        }
    }
}

impl Default for SharedThresholds {
    fn default() -> Self {
        let CopyThresholds { read, write } = CopyThresholds::default();
        Self { read: read.into(), write: write.into() }
    }
}

/// The direction of a copy, as seen from private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the memory.
    Read,
    /// To the memory.
    Write,
}

/// The properties of memory that the choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryProperties {
    /// Whether the CPU has a mapping of it.
    pub(crate) host_view: bool,
    /// Whether host and device see each other's writes without flush and invalidate.
    pub(crate) coherent: bool,
    /// Whether the CPU does not cache it.
    pub(crate) write_combined: bool,
}

/// Who makes a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPath {
    /// By the CPU.
    Cpu,
    /// By the copy engine.
    Engine,
    /// By the copy engine, or by the CPU if that is not available.
    EngineOrCpu,
}

impl CopyPath {
    /// The path of a copy of `len` bytes.
    pub(crate) fn choose(policy: CopyPolicy, memory: MemoryProperties, len: usize, threshold: usize) -> Self {
        match policy {
            CopyPolicy::Cpu => Self::Cpu,
            CopyPolicy::Dma => Self::Engine,
            CopyPolicy::Auto if !memory.host_view => Self::Engine,
            // Not where memory is not coherent: a flush by another thread that wrote to the same atom would undo part
            // of the engine's write. Whether that can happen must not depend on the length.
            CopyPolicy::Auto if memory.write_combined && memory.coherent && len >= threshold => Self::EngineOrCpu,
            CopyPolicy::Auto => Self::Cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAR: MemoryProperties = MemoryProperties { host_view: true, coherent: true, write_combined: true };

    #[test]
    fn auto_leaves_large_copies_of_the_bar_to_the_copy_engine() {
        let auto = |memory, len| CopyPath::choose(CopyPolicy::Auto, memory, len, 100);
        assert_eq!(
            (auto(BAR, 99), auto(BAR, 100), auto(BAR, 101)),
            (CopyPath::Cpu, CopyPath::EngineOrCpu, CopyPath::EngineOrCpu)
        );
        let cached = MemoryProperties { write_combined: false, ..BAR };
        let non_coherent = MemoryProperties { coherent: false, ..BAR };
        for len in [0, 99, 100, usize::MAX] {
            assert_eq!((auto(cached, len), auto(non_coherent, len)), (CopyPath::Cpu, CopyPath::Cpu));
        }
    }

    #[test]
    fn auto_reaches_memory_without_a_host_view_by_the_copy_engine_only() {
        let memory = MemoryProperties { host_view: false, coherent: true, write_combined: false };
        assert_eq!(CopyPath::choose(CopyPolicy::Auto, memory, 0, usize::MAX), CopyPath::Engine);
    }

    #[test]
    fn a_path_that_was_asked_for_is_taken() {
        for memory in [
            BAR,
            MemoryProperties { host_view: false, ..BAR },
            MemoryProperties { coherent: false, write_combined: false, ..BAR },
        ] {
            for len in [0, 1, usize::MAX] {
                assert_eq!(CopyPath::choose(CopyPolicy::Cpu, memory, len, 0), CopyPath::Cpu);
                assert_eq!(CopyPath::choose(CopyPolicy::Dma, memory, len, usize::MAX), CopyPath::Engine);
            }
        }
    }

    #[test]
    fn thresholds_are_what_they_were_set_to() {
        let shared = SharedThresholds::default();
        assert_eq!(shared.get(), CopyThresholds::default());
        shared.set(CopyThresholds { read: 0, write: usize::MAX });
        assert_eq!((shared.of(Direction::Read), shared.of(Direction::Write)), (0, usize::MAX));
    }
}
