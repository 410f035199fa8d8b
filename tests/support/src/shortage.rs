//! Drivers that have no room for mapped memory.

use vkgdr::Vkgdr;

use crate::{Result, SimCuda, VkLayer, codes, simcuda, skip, vklayer};

/// Drivers without room, until this is dropped.
#[derive(Debug)]
pub struct Shortage {
    vulkan: &'static VkLayer,
    /// Where CUDA allocates mapped memory that Vulkan has no room for.
    cuda: Option<&'static SimCuda>,
}

impl Shortage {
    /// Makes the next `count` allocations by Vulkan fail with `code`, and where CUDA allocates mapped memory instead, as many
    /// by CUDA. None, with a message, without the fault layer, and where a real driver's CUDA would allocate.
    ///
    /// # Errors
    /// Those of [`Vkgdr::supports_existing`].
    pub fn of(gpu: &Vkgdr, count: u64, code: i32) -> Result<Option<Self>> {
        let Some(vulkan) = vklayer() else {
            return skip("needs the fault layer (VKGDR_TEST_LAYERS=faults or validation)");
        };
        let cuda = match (gpu.supports_existing()?, simcuda()) {
            (false, _) => None,
            (true, Some(sim)) => Some(sim),
            (true, None) => {
                return skip(
                    "where Vulkan has no room for mapped memory, CUDA allocates it, and cannot be made to fail",
                );
            }
        };
        for nth in 1..=count {
            vulkan.fail("vkAllocateMemory", nth, code);
            if let Some(sim) = cuda {
                sim.fail("cuMemAlloc", nth, codes::OUT_OF_MEMORY);
            }
        }
        Ok(Some(Self { vulkan, cuda }))
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.vulkan.clear_faults();
        if let Some(sim) = self.cuda {
            sim.clear_faults();
        }
    }
}
