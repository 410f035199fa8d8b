//! The layer `VK_LAYER_VKGDR_messenger`: every instance gets a debug messenger.
//!
//! It adds `VK_EXT_debug_utils` where the application did not enable it. One messenger is chained into the create info,
//! for messages during the creation and destruction of the instance; another lives in between.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use ash::ext::debug_utils;
use ash::vk;

use crate::dispatch::{InstanceState, Layer, get_instance_proc_addr};
use crate::interface::{NegotiateInterface, beneath, extension_names, negotiate, text};
use crate::messages::messenger_info;
use crate::next::{CreateInstance, NextInstance};
use crate::tables::Tables;

/// The layer's state of an instance.
struct Instance {
    next: NextInstance,
    messenger: Option<Messenger>,
}

/// A live messenger.
struct Messenger {
    functions: debug_utils::InstanceFn,
    handle: vk::DebugUtilsMessengerEXT,
    /// Whether the validation layer is beneath, which sends the messages.
    validated: bool,
}

/// All instances of the process.
static INSTANCES: Tables<Instance> = Tables::new();

/// The loader's first call. The layer has no device functions: the loader leaves it out of devices' chains.
///
/// # Safety
/// `interface` is null or the loader's structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "system" fn vklayer_messenger_negotiate(interface: *mut NegotiateInterface) -> vk::Result {
    // SAFETY: the caller's promise.
    unsafe { negotiate(interface, get_instance_proc_addr::<MessengerLayer>, None) }
}

/// Instances that have a live messenger.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vklayer_messenger_active() -> i32 {
    let count = INSTANCES.count(|instance| instance.messenger.is_some());
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Instances that have a live messenger and `VK_LAYER_KHRONOS_validation` beneath it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vklayer_validation_present() -> u64 {
    INSTANCES.count(|instance| instance.messenger.as_ref().is_some_and(|messenger| messenger.validated)) as u64
}

/// The layer.
struct MessengerLayer;

impl Layer for MessengerLayer {
    type Instance = Instance;
}

impl InstanceState for Instance {
    fn all() -> &'static Tables<Self> {
        &INSTANCES
    }

    unsafe fn create(call: &CreateInstance<'_>) -> Result<Self, vk::Result> {
        if call.passive {
            // SAFETY: the caller's promise.
            return unsafe { call.pass_on(call.info) }.map(|next| Self { next, messenger: None });
        }
        // SAFETY: as above.
        unsafe { create_with_messenger(call) }
    }

    fn before_destroying(&self) {
        if let Some(Messenger { functions, handle, .. }) = &self.messenger {
            let destroy = functions.destroy_debug_utils_messenger_ext;
            // SAFETY: this instance's messenger, which nothing uses any more.
            unsafe { destroy(self.next.handle, *handle, std::ptr::null()) };
        }
    }

    fn next(&self) -> &NextInstance {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.messenger.is_none()
    }
}

/// # Safety
/// The call is the loader's.
unsafe fn create_with_messenger(call: &CreateInstance<'_>) -> Result<Instance, vk::Result> {
    let info = call.info;
    // SAFETY: the loader's call of this layer, whose link has not been taken.
    let validated = unsafe { beneath(info.p_next) }.any(is_validation);
    // SAFETY: the caller's create info.
    let names = unsafe { extensions(info) };
    let messenger = vk::DebugUtilsMessengerCreateInfoEXT { p_next: info.p_next, ..messenger_info() };
    let mut extended = info.enabled_extension_names(&names);
    extended.p_next = (&raw const messenger).cast();
    // SAFETY: the caller's promise; the added extension and structure are alive during the call.
    let next = unsafe { call.pass_on(&extended) }?;
    // SAFETY: a live instance: it was just created.
    let messenger = unsafe { create_messenger(&next, validated) };
    Ok(Instance { next, messenger })
}

/// The extensions that the application enabled, and `VK_EXT_debug_utils`.
///
/// # Safety
/// `info` is a valid create info.
unsafe fn extensions(info: &vk::InstanceCreateInfo<'_>) -> Vec<*const c_char> {
    // SAFETY: the caller's promise.
    let mut names = unsafe { extension_names(info.pp_enabled_extension_names, info.enabled_extension_count) };
    // SAFETY: the names are terminated strings.
    let present = names.iter().any(|name| unsafe { text(*name) } == Some(debug_utils::NAME));
    if !present {
        names.push(debug_utils::NAME.as_ptr());
    }
    names
}

/// # Safety
/// The instance is live.
unsafe fn create_messenger(next: &NextInstance, validated: bool) -> Option<Messenger> {
    let mut complete = true;
    let functions = debug_utils::InstanceFn::load(|name| {
        // SAFETY: the caller's promise.
        let address = unsafe { next.find(name) };
        complete &= !address.is_null() || !name.to_bytes().ends_with(b"MessengerEXT");
        address
    });
    if !complete {
        return None;
    }
    let mut handle = vk::DebugUtilsMessengerEXT::null();
    let info = messenger_info();
    let create = functions.create_debug_utils_messenger_ext;
    // SAFETY: a live instance with the extension enabled, a valid create info and output.
    let result = unsafe { create(next.handle, &raw const info, std::ptr::null(), &raw mut handle) };
    (result == vk::Result::SUCCESS).then_some(Messenger { functions, handle, validated })
}

/// Whether a layer's function lies in the library of `VK_LAYER_KHRONOS_validation`.
fn is_validation(function: vk::PFN_vkGetInstanceProcAddr) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; `info` is a valid output.
    let found = unsafe { libc::dladdr(function as *const c_void, info.as_mut_ptr()) };
    if found == 0 {
        return false;
    }
    // SAFETY: all bytes are zero or written by dladdr.
    let info = unsafe { info.assume_init() };
    // SAFETY: null or a string that lives as long as the library is loaded.
    let file: &CStr = unsafe { text(info.dli_fname) }.unwrap_or_default();
    file.to_string_lossy().contains("khronos_validation")
}
