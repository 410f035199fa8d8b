//! The two places of an allocation: a plain context that is current, and the primary context retained by the handle.

use support::cuda::Context;
use vkgdr::{MemoryKind, OpenFlags, Vkgdr};

use crate::Result;

/// The calls that make the context of an allocation current, and the caller's again.
pub(crate) const ENTER_AND_LEAVE: [&str; 3] = ["cuCtxPushCurrent", "cuCtxGetId", "cuCtxPopCurrent"];

/// The calls that make memory of Vulkan, but for `vkMapMemory`.
pub(crate) const VULKAN_STAGES: [&str; 4] =
    ["vkAllocateMemory", "vkGetMemoryFdKHR", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"];

/// A handle and the context of its allocations.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) gpu: Vkgdr,
    // Last: the handle's memory is in this context.
    context: Option<Context>,
}

impl Place {
    /// In a plain context, which becomes current on this thread.
    pub(crate) fn plain(flags: OpenFlags) -> Result<Self> {
        let context = Context::create(0);
        Ok(Self { name: "plain context", gpu: Vkgdr::open(0, flags)?, context: Some(context) })
    }

    /// In the primary context, with none current on this thread.
    pub(crate) fn primary(flags: OpenFlags) -> Result<Self> {
        Ok(Self { name: "primary context", gpu: Vkgdr::open_primary_context(0, flags)?, context: None })
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.context.is_some()
    }

    /// The calls by which a handle without a known context comes to that of an allocation.
    pub(crate) fn entering(&self) -> &'static [&'static str] {
        if self.is_plain() { &["cuCtxGetCurrent", "cuCtxGetId", "cuCtxGetDevice"] } else { &ENTER_AND_LEAVE }
    }

    /// Runs `work` with the context of allocations current, if it is a plain one.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.context {
            Some(context) => context.with_current(work),
            None => work(),
        }
    }

    /// Runs a check in each place. Both are there in the first, so that the plain context is told from the primary one.
    pub(crate) fn each(flags: OpenFlags, check: impl Fn(&Self) -> Result) -> Result {
        [Self::plain(flags)?, Self::primary(flags)?].into_iter().try_for_each(|place| check(&place))
    }

    /// A fresh handle, which queries the current context; a used one caches the context of its last allocation.
    pub(crate) fn unused(&self) -> vkgdr::Result<Vkgdr> {
        if self.is_plain() { Vkgdr::open(0, self.gpu.flags()) } else { Ok(self.gpu.clone()) }
    }
}

impl Drop for Place {
    /// Before the context ends: what was freed may wait for events of it.
    fn drop(&mut self) {
        self.gpu.finish_deferred_frees();
    }
}

/// A kind of memory, and the drivers' calls for it.
pub(crate) struct SomeMemory {
    pub(crate) kind: MemoryKind,
    /// The calls that make it, but for `vkMapMemory`.
    pub(crate) stages: &'static [&'static str],
    /// The calls of CUDA that release it. Those of Vulkan return no result.
    pub(crate) release: &'static [&'static str],
}

impl SomeMemory {
    /// Imported memory where the GPU has some, mapped rather than device memory; otherwise registered pages.
    pub(crate) fn of(gpu: &Vkgdr) -> Self {
        let imported =
            [MemoryKind::Mapped, MemoryKind::Device].into_iter().find(|&kind| support::is_imported(gpu, kind));
        Self::of_kind(imported.unwrap_or(MemoryKind::Host))
    }

    /// Every kind that is imported or registered pages.
    pub(crate) fn each(gpu: &Vkgdr) -> impl Iterator<Item = Self> {
        let is_known = |&kind: &MemoryKind| kind == MemoryKind::Host || support::is_imported(gpu, kind);
        MemoryKind::ALL.into_iter().filter(is_known).map(Self::of_kind)
    }

    fn of_kind(kind: MemoryKind) -> Self {
        let (stages, release): (&[_], &[_]) = match kind {
            MemoryKind::Host => (&["cuMemHostRegister", "cuMemHostGetDevicePointer"], &["cuMemHostUnregister"]),
            _ => (&VULKAN_STAGES, &["cuMemFree", "cuDestroyExternalMemory"]),
        };
        Self { kind, stages, release }
    }
}

/// A kind with a host view that CUDA imports from Vulkan, mapped rather than host memory.
pub(crate) fn imported_kind(gpu: &Vkgdr) -> Option<MemoryKind> {
    [MemoryKind::Mapped, MemoryKind::Host].into_iter().find(|&kind| support::is_imported(gpu, kind))
}

/// Whether mapped memory is imported from Vulkan. Prints a skip where it is not.
pub(crate) fn imports_mapped(gpu: &Vkgdr) -> bool {
    let imports = support::is_imported(gpu, MemoryKind::Mapped);
    if !imports {
        eprintln!("skipped: needs mapped memory that CUDA imports from Vulkan");
    }
    imports
}

/// Whether mapped memory is imported from Vulkan and made in no other way if Vulkan refuses it. Prints a skip where it is not.
pub(crate) fn only_imports_mapped(gpu: &Vkgdr) -> vkgdr::Result<bool> {
    let has_second_way = gpu.supports_existing()?;
    if has_second_way {
        eprintln!("skipped: where Vulkan refuses mapped memory, CUDA allocates it");
    }
    Ok(!has_second_way && imports_mapped(gpu))
}

/// Whether the GPU is that of a device profile.
pub(crate) fn is_of(profile: &str) -> bool {
    std::env::var("VKGDR_TEST_PROFILE").is_ok_and(|name| name == profile)
}
