//! [`AllocatorOptions`]: the settings of an allocator.
#![expect(unsafe_code, reason = "an option is a promise about the device")]

use gpu_allocator::AllocationSizes;

/// Options of [`Allocator::with_options`](super::Allocator::with_options): gpu-allocator's own.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct AllocatorOptions {
    pub(super) sizes: AllocationSizes,
    pub(super) device_address: bool,
}

impl AllocatorOptions {
    /// The sizes of the blocks that buffers and images share: 256 MiB, and 64 MiB of memory that the CPU sees, by default.
    pub const fn sizes(mut self, sizes: AllocationSizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Whether buffers may have device addresses in shaders (`VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT`).
    ///
    /// # Safety
    ///
    /// The allocator's device must have been made with the feature `bufferDeviceAddress`, which that of this crate is not.
    pub const unsafe fn buffer_device_address(mut self, enabled: bool) -> Self {
        self.device_address = enabled;
        self
    }
}
