//! The controls of the Vulkan layers in `vulkan`.
#![expect(unsafe_code, reason = "opens a library and calls its C functions")]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use crate::controls::{Controls, find};

const LAYER: &str = "VK_LAYER_VKGDR_faults";
const FILE: &str = "libvklayer.so";

/// The Vulkan layers of this process: [`Controls`] of the faults layer, and the instances watched by the messenger layer.
#[derive(Debug)]
pub struct VkLayer {
    controls: Controls,
    messenger_active: unsafe extern "C" fn() -> i32,
    validation_present: unsafe extern "C" fn() -> u64,
}

impl VkLayer {
    /// The number of live instances with a messenger. 0 means that validation errors are not reported.
    #[must_use]
    pub fn messengers_active(&self) -> usize {
        // SAFETY: takes nothing, and the library is never unloaded.
        let count = unsafe { (self.messenger_active)() };
        usize::try_from(count).unwrap_or(0)
    }

    /// The number of live instances with a messenger and the Khronos validation layer below it.
    #[must_use]
    pub fn validated_instances(&self) -> u64 {
        // SAFETY: takes nothing, and the library is never unloaded.
        unsafe { (self.validation_present)() }
    }

    fn load(library: &Library) -> Result<Self, String> {
        Ok(Self {
            controls: Controls::load(library, "vklayer")?,
            // SAFETY: the layer exports this name with this signature.
            messenger_active: unsafe { find(library, "vklayer", "messenger_active") }?,
            // SAFETY: as above.
            validation_present: unsafe { find(library, "vklayer", "validation_present") }?,
        })
    }
}

impl Deref for VkLayer {
    type Target = Controls;

    fn deref(&self) -> &Controls {
        &self.controls
    }
}

/// The layer's controls, when `VK_INSTANCE_LAYERS` names `VK_LAYER_VKGDR_faults`.
///
/// The library is `$VKGDR_LAYER_DIR/libvklayer.so`, the file that the Vulkan loader opens, so that both share one
/// state. It may be loaded before the first instance exists.
///
/// # Panics
/// When the layer is named and its library is missing or lacks a function.
#[must_use]
pub fn vklayer() -> Option<&'static VkLayer> {
    static LAYER: OnceLock<Option<VkLayer>> = OnceLock::new();
    LAYER.get_or_init(open).as_ref()
}

fn open() -> Option<VkLayer> {
    let layers = std::env::var("VK_INSTANCE_LAYERS").ok()?;
    if !layers.split(':').any(|name| name == LAYER) {
        return None;
    }
    let path = path().unwrap_or_else(|| panic!("VK_INSTANCE_LAYERS names {LAYER}, but VKGDR_LAYER_DIR has no {FILE}"));
    // SAFETY: the layer's constructors have no preconditions.
    let library = unsafe { Library::new(&path) };
    let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // The function pointers outlive this scope, so the library must never be closed.
    let library = ManuallyDrop::new(library);
    Some(VkLayer::load(&library).unwrap_or_else(|missing| panic!("{} has no {missing}: rebuild it", path.display())))
}

fn path() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("VKGDR_LAYER_DIR")?);
    Some(folder.join(FILE)).filter(|path| path.is_file())
}
