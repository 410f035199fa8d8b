//! The part of a profile that shows in CUDA. `VKLAYER_PROFILE` names the profile, whose other part is the layer's
//! (`sim/vulkan/src/profile`).

use std::sync::LazyLock;

/// The device's properties under a profile.
pub(crate) struct Profile {
    name: &'static str,
    /// Whether Vulkan has the device, too.
    pub(crate) has_vulkan: bool,
    /// Whether system memory that Vulkan allocated can be imported.
    pub(crate) imports_system_memory: bool,
    /// Whether only dedicated allocations can be imported, and only as such.
    pub(crate) needs_dedicated: bool,
    /// Whether pointer attributes say that imported system memory is host memory.
    pub(crate) imports_are_host: bool,
}

/// Without a profile, and under all that are not listed.
const PLAIN: Profile = Profile {
    name: "",
    has_vulkan: true,
    imports_system_memory: true,
    needs_dedicated: false,
    imports_are_host: false,
};

static ALL: [Profile; 5] = [
    Profile { name: "no-vulkan", has_vulkan: false, ..PLAIN },
    Profile { name: "host-import-refused", imports_system_memory: false, ..PLAIN },
    Profile { name: "needs-dedicated", needs_dedicated: true, ..PLAIN },
    Profile { name: "dedicated-only", needs_dedicated: true, ..PLAIN },
    Profile { name: "pointer-type-host", imports_are_host: true, ..PLAIN },
];

/// The profile of this process.
pub(crate) fn profile() -> &'static Profile {
    static PROFILE: LazyLock<&Profile> = LazyLock::new(|| {
        let name = std::env::var("VKLAYER_PROFILE").unwrap_or_default();
        ALL.iter().find(|profile| profile.name == name).unwrap_or(const { &PLAIN })
    });
    *PROFILE
}
