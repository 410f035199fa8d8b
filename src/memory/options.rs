//! [`AllocateOptions`]: the kind of memory to allocate, and others to fall back on.
#![forbid(unsafe_code)]

use crate::MemoryKind;

/// Options of [`Memory::allocate_with`](super::Memory::allocate_with).
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
    kind: MemoryKind,
    /// In the order in which they are tried.
    others: [Option<MemoryKind>; MemoryKind::ALL.len() - 1],
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
        Self { kind, others: [None; MemoryKind::ALL.len() - 1], dma_buf: false }
    }

    /// Other kinds, to be tried in this order where the kinds before them are missing or exhausted. Replaces those of an
    /// earlier call; a kind counts once.
    pub fn fallback(mut self, kinds: impl IntoIterator<Item = MemoryKind>) -> Self {
        self.others = Self::new(self.kind).others;
        for kind in kinds {
            if kind != self.kind
                && !self.others().any(|other| other == kind)
                && let Some(free) = self.others.iter_mut().find(|other| other.is_none())
            {
                *free = Some(kind);
            }
        }
        self
    }

    /// Memory that network cards can register, by [`Memory::dma_buf`](crate::Memory::dma_buf). CUDA allocates it, since
    /// a card may refuse a dma-buf of Vulkan's memory. Device memory needs a GPU that exports dma-bufs (device
    /// attribute 124, CUDA 11.7). Mapped memory is a host view of that
    /// ([`Memory::map_existing`](super::Memory::map_existing)): the driver and the GPU must allow it
    /// ([`Vkgdr::supports_existing`](crate::Vkgdr::supports_existing)). The kind `Host` fails with [`Error::NoDmaBuf`]:
    /// network cards register host memory by its host pointer.
    ///
    /// [`Error::NoDmaBuf`]: crate::Error::NoDmaBuf
    pub const fn with_dma_buf(mut self) -> Self {
        self.dma_buf = true;
        self
    }

    pub(super) const fn has_dma_buf(self) -> bool {
        self.dma_buf
    }

    pub(super) const fn kind(self) -> MemoryKind {
        self.kind
    }

    pub(super) fn others(self) -> impl Iterator<Item = MemoryKind> {
        self.others.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryKind::{Device, Host, Mapped};

    #[test]
    fn each_kind_is_tried_once_and_in_order() {
        let kinds = |options: AllocateOptions| [vec![options.kind()], options.others().collect()].concat();
        assert_eq!(kinds(AllocateOptions::default()), [Mapped]);
        assert_eq!(kinds(AllocateOptions::new(Mapped).fallback([Host])), [Mapped, Host]);
        let all = AllocateOptions::new(Device).fallback([Device, Mapped, Mapped, Host, Device, Host]);
        assert_eq!(kinds(all), [Device, Mapped, Host]);
        assert_eq!(kinds(all.fallback([])), [Device]);
        assert_eq!(kinds(AllocateOptions::new(Host).fallback(MemoryKind::ALL)), [Host, Mapped, Device]);
    }
}
