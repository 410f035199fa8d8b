//! Memory for network cards: a descriptor of a [`Region`] that they can register.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use super::region::Region;
use crate::Result;
use crate::driver::process;

/// A descriptor of device memory that a network card can register: the arguments of
/// `ibv_reg_dmabuf_mr(pd, offset, len, iova, fd, access)`.
#[derive(Debug)]
pub struct DmaBuf {
    /// The descriptor, a dma-buf. It keeps the pages alive.
    pub fd: OwnedFd,
    /// Where the memory begins in the dma-buf, in bytes.
    pub offset: u64,
    /// The bytes of the memory.
    pub len: usize,
}

impl Region {
    /// A new descriptor of the memory that a network card can register, with the place of this region in it.
    ///
    /// For memory that CUDA allocated: with [`AllocateOptions::with_dma_buf`](crate::AllocateOptions::with_dma_buf), video
    /// memory of a handle without Vulkan, and existing memory ([`Mapping`](crate::Mapping)). The pages stay alive while the
    /// descriptor or a registration does. Their bytes are this memory's only until it is freed: end the registration first.
    ///
    /// # Errors
    ///
    /// [`Error::NoDmaBuf`](crate::Error::NoDmaBuf) for other memory, [`Error::NoMapping`](crate::Error::NoMapping) for
    /// existing memory that was freed, [`Error::Forked`](crate::Error::Forked), and the errors of entering the memory's context
    /// and of `cuMemGetHandleForAddressRange`.
    pub fn dma_buf(&self) -> Result<DmaBuf> {
        process::check()?;
        let block = self.block();
        let (fd, start) = block.context().run(|| block.allocation().dma_buf())?;
        // From here on a card may use the memory.
        let offset = start + (self.device_ptr() - block.allocation().device_ptr());
        Ok(DmaBuf { fd, offset, len: self.len() })
    }
}
