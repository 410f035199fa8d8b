//! The choice of a memory type for each kind of memory. Calls no driver.
#![forbid(unsafe_code)]

use ash::vk::{self, MemoryPropertyFlags as Property};

use crate::{MemoryKind, OpenFlags};

/// One of a GPU's memory types, as Vulkan lists them, or the type of memory that does not come from Vulkan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryTypeInfo {
    /// Its place in Vulkan's list, from 0; [`OUTSIDE_VULKAN`](Self::OUTSIDE_VULKAN) for memory that does not come from
    /// Vulkan.
    pub index: u32,
    /// The place of its heap in Vulkan's list of heaps, from 0; [`OUTSIDE_VULKAN`](Self::OUTSIDE_VULKAN) as for `index`.
    pub heap: u32,
    /// The size of that heap in bytes.
    pub heap_size: u64,
    /// The properties of its memory.
    pub flags: vk::MemoryPropertyFlags,
}

impl MemoryTypeInfo {
    /// The index of memory that does not come from Vulkan: host memory, and
    /// memory that CUDA allocates.
    pub const OUTSIDE_VULKAN: u32 = u32::MAX;

    /// The names of the properties, as the Vulkan specification has them, without `VK_MEMORY_PROPERTY_` and `_BIT`.
    #[cfg(feature = "__internal")]
    #[doc(hidden)]
    #[must_use]
    pub fn property_names(&self) -> Vec<String> {
        // ash writes "DEVICE_LOCAL | HOST_VISIBLE".
        format!("{:?}", self.flags).split(" | ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// A memory type as a handle uses it for a kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryType {
    pub(crate) kind: MemoryKind,
    pub(crate) info: MemoryTypeInfo,
    /// Whether flush and invalidate need not reach the driver.
    pub(crate) coherent: bool,
    /// The granularity of flushes that reach the driver, in bytes: a power of two.
    pub(crate) atom: usize,
}

/// The granularity of allocations in bytes: a cache line, which is also the size of the CPU's write-combining buffers.
/// Mapped memory starts at a line, since Vulkan's `minMemoryMapAlignment` is at least 64 (specification, "Required
/// Limits").
///
/// So no line holds bytes of two allocations, and a copy may load whole lines.
pub(crate) const LINE: usize = 64;

impl MemoryType {
    /// Whether Vulkan allocates the memory. If not, CUDA does, or memory of the system is registered with it.
    pub(crate) const fn is_vulkan(&self) -> bool {
        self.info.index != MemoryTypeInfo::OUTSIDE_VULKAN
    }

    /// Whether the CPU caches this memory. If not, its stores are write-combined.
    pub(crate) const fn is_cached(&self) -> bool {
        self.info.flags.contains(Property::HOST_CACHED)
    }

    /// Whether this is the system's memory, not a GPU's. If it is imported, CUDA treats it as GPU memory, which the GPU caches.
    /// The device does not see what the CPU stores later (an H100 with driver 580). Registered pages are coherent.
    pub(crate) const fn is_system_memory(&self) -> bool {
        !self.info.flags.contains(Property::DEVICE_LOCAL)
    }

    /// The granularity of flushes in bytes: 1 where memory is coherent.
    pub(crate) const fn flush_unit(&self) -> usize {
        if self.coherent { 1 } else { self.atom }
    }

    /// The granularity of sizes in bytes: whole atoms and whole lines. They are whole atoms also where memory is coherent:
    /// an importer knows the size of memory without knowing the flags of the exporter's handle.
    pub(crate) const fn size_unit(&self) -> usize {
        if self.atom > LINE { self.atom } else { LINE }
    }

    /// The type of host memory: pages of the system's `size` bytes of memory. The CPU caches them, and the
    /// device's accesses are coherent with its caches (CUDA C++ Programming Guide, "Mapped Memory").
    pub(super) fn registered_pages(size: u64, flags: OpenFlags) -> Self {
        let properties = Property::HOST_VISIBLE | Property::HOST_COHERENT | Property::HOST_CACHED;
        Self::outside_vulkan(MemoryKind::Host, size, properties, flags)
    }

    /// A type of the system's or the device's `heap_size` bytes of memory.
    pub(super) fn outside_vulkan(kind: MemoryKind, heap_size: u64, properties: Property, flags: OpenFlags) -> Self {
        let (index, heap) = (MemoryTypeInfo::OUTSIDE_VULKAN, MemoryTypeInfo::OUTSIDE_VULKAN);
        Self::new(kind, MemoryTypeInfo { index, heap, heap_size, flags: properties }, LINE as u64, flags)
    }

    /// A type as a handle with these flags uses it.
    pub(crate) fn new(kind: MemoryKind, info: MemoryTypeInfo, atom: u64, flags: OpenFlags) -> Self {
        let coherent = match kind {
            // Without a host view there is no second view to be incoherent with.
            MemoryKind::Device => true,
            _ => info.flags.contains(Property::HOST_COHERENT) && !flags.contains(OpenFlags::FORCE_NON_COHERENT),
        };
        Self { kind, info, coherent, atom: usize::try_from(atom).expect("usize has 64 bits") }
    }
}

/// Excluded are memory that exists only while a tile is rendered, and protected memory, which the CPU and CUDA cannot access. So
/// are AMD's types, which need a feature of the device (VUID-vkAllocateMemory-deviceCoherentMemory-02790).
const UNUSABLE: Property = Property::from_raw(
    Property::LAZILY_ALLOCATED.as_raw()
        | Property::PROTECTED.as_raw()
        | Property::DEVICE_COHERENT_AMD.as_raw()
        | Property::DEVICE_UNCACHED_AMD.as_raw(),
);

/// The properties that a kind requires.
pub(super) fn required(kind: MemoryKind, flags: OpenFlags) -> Property {
    let required = match kind {
        MemoryKind::Mapped => Property::DEVICE_LOCAL | Property::HOST_VISIBLE,
        MemoryKind::Host => Property::HOST_VISIBLE | Property::HOST_CACHED,
        MemoryKind::Device => return Property::DEVICE_LOCAL,
    };
    if flags.contains(OpenFlags::REQUIRE_COHERENT) { required | Property::HOST_COHERENT } else { required }
}

/// The number of a kind's preferences that a type does not meet.
fn shortcomings(kind: MemoryKind, properties: Property) -> u32 {
    let (wanted, unwanted) = match kind {
        MemoryKind::Mapped => (Property::HOST_COHERENT, Property::empty()),
        // System memory, where there is a choice: device-local memory that the CPU caches belongs to an
        // integrated GPU.
        MemoryKind::Host => (Property::HOST_COHERENT, Property::DEVICE_LOCAL),
        // A host-visible type would take space in the BAR.
        MemoryKind::Device => (Property::empty(), Property::HOST_VISIBLE),
    };
    (wanted & !properties).as_raw().count_ones() + (unwanted & properties).as_raw().count_ones()
}

/// Every memory type, in Vulkan's order.
pub(super) fn list(memory: &vk::PhysicalDeviceMemoryProperties) -> impl Iterator<Item = MemoryTypeInfo> {
    let heaps = memory.memory_heaps_as_slice();
    (0..).zip(memory.memory_types_as_slice()).filter_map(|(index, found)| {
        let heap = found.heap_index;
        let heap_size = heaps.get(heap as usize)?.size;
        Some(MemoryTypeInfo { index, heap, heap_size, flags: found.property_flags })
    })
}

/// A type as a handle uses it for the kind that its properties say. `None` for types that CUDA and the CPU cannot share,
/// and for types that a handle with `REQUIRE_COHERENT` does not use.
pub(super) fn at(
    memory: &vk::PhysicalDeviceMemoryProperties,
    atom: u64,
    index: u32,
    flags: OpenFlags,
) -> Option<MemoryType> {
    let info = list(memory).find(|info| info.index == index && !info.flags.intersects(UNUSABLE))?;
    let kind = match (info.flags.contains(Property::HOST_VISIBLE), info.flags.contains(Property::DEVICE_LOCAL)) {
        (true, true) => MemoryKind::Mapped,
        (true, false) => MemoryKind::Host,
        (false, true) => MemoryKind::Device,
        (false, false) => return None,
    };
    let is_missing = flags.contains(OpenFlags::REQUIRE_COHERENT) && !info.flags.contains(Property::HOST_COHERENT);
    if kind.has_host_view() && is_missing { None } else { Some(MemoryType::new(kind, info, atom, flags)) }
}

/// The best memory type for a kind, the first among equals: Vulkan orders types by preference
/// (specification, "Device Memory").
pub(super) fn choose(
    memory: &vk::PhysicalDeviceMemoryProperties,
    atom: u64,
    kind: MemoryKind,
    flags: OpenFlags,
) -> Option<MemoryType> {
    let required = required(kind, flags);
    let fits = |p: Property| p.contains(required) && !p.intersects(UNUSABLE);
    let info = list(memory).filter(|t| fits(t.flags)).min_by_key(|t| shortcomings(kind, t.flags))?;
    Some(MemoryType::new(kind, info, atom, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Property = Property::DEVICE_LOCAL;
    const VISIBLE: Property = Property::HOST_VISIBLE;
    const COHERENT: Property = Property::HOST_COHERENT;

    /// The types of one heap.
    fn memory(types: &[Property]) -> vk::PhysicalDeviceMemoryProperties {
        let memory_type_count = u32::try_from(types.len()).unwrap_or_default();
        let mut memory =
            vk::PhysicalDeviceMemoryProperties { memory_type_count, memory_heap_count: 1, ..Default::default() };
        for (slot, &property_flags) in memory.memory_types.iter_mut().zip(types) {
            slot.property_flags = property_flags;
        }
        memory
    }

    #[test]
    fn coherent_types_are_preferred_and_unusable_ones_never_taken() {
        let unusable = [LOCAL | Property::LAZILY_ALLOCATED, LOCAL | Property::PROTECTED];
        for (types, expected) in [
            ([LOCAL | VISIBLE, LOCAL | VISIBLE | COHERENT], [Some(1), None, Some(0)]),
            // A host-visible type would take space in the BAR.
            ([LOCAL | VISIBLE | COHERENT, LOCAL], [Some(0), None, Some(1)]),
            (unusable, [None; 3]),
        ] {
            let found = MemoryKind::ALL.map(|kind| choose(&memory(&types), 64, kind, OpenFlags::empty()));
            assert_eq!(found.map(|found| found.map(|found| found.info.index)), expected, "{types:?}");
        }
    }

    #[test]
    fn a_type_of_the_list_is_of_the_kind_that_its_properties_say() {
        let types = [LOCAL | VISIBLE, VISIBLE | COHERENT, LOCAL, LOCAL | Property::PROTECTED, Property::empty()];
        let (host, device) = (Some(MemoryKind::Host), Some(MemoryKind::Device));
        for (flags, mapped) in [(OpenFlags::empty(), Some(MemoryKind::Mapped)), (OpenFlags::REQUIRE_COHERENT, None)] {
            let kinds = [0, 1, 2, 3, 4, 5].map(|index| at(&memory(&types), 64, index, flags).map(|found| found.kind));
            assert_eq!(kinds, [mapped, host, device, None, None, None], "{flags:?}");
        }
    }
}
