//! The layer `VK_LAYER_VKGDR_messenger`: every instance gets a debug messenger.
//!
//! It adds `VK_EXT_debug_utils` where the application did not ask for it. One messenger is chained into the create
//! info, for what is said while the instance comes and goes; another lives between the two.
#![expect(unsafe_code, reason = "is a Vulkan layer: called by the loader, calls the next layer")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use ash::ext::debug_utils;
use ash::vk;

use crate::interface::{NegotiateInterface, beneath, entry, extension_names, is_simulator, negotiate, text};
use crate::messages::messenger_info;
use crate::next::NextInstance;
use crate::tables::Tables;

/// What the layer knows of an instance.
struct Instance {
    next: NextInstance,
    messenger: Option<Messenger>,
}

/// A live messenger.
struct Messenger {
    functions: debug_utils::InstanceFn,
    handle: vk::DebugUtilsMessengerEXT,
    /// Whether the validation layer is beneath, to feed it.
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
    unsafe { negotiate(interface, get_instance_proc_addr, None) }
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

unsafe extern "system" fn get_instance_proc_addr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    let own = match name.to_bytes() {
        b"vkGetInstanceProcAddr" => entry!(get_instance_proc_addr as PFN_vkGetInstanceProcAddr),
        b"vkCreateInstance" => entry!(create_instance as PFN_vkCreateInstance),
        b"vkDestroyInstance" => entry!(destroy_instance as PFN_vkDestroyInstance),
        _ => None,
    };
    own.or_else(|| {
        // SAFETY: null or a live instance of the caller's.
        let known = unsafe { INSTANCES.get(instance) }?;
        // SAFETY: a live instance of the caller's.
        unsafe { known.next.answer(name, None) }
    })
}

unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid create info.
    let info = unsafe { &*info };
    // SAFETY: the caller's create info.
    let simulator = unsafe { is_simulator(info) };
    let created = if simulator {
        // SAFETY: the loader's call of this layer.
        unsafe { NextInstance::create(info, allocator, instance) }.map(|next| Instance { next, messenger: None })
    } else {
        // SAFETY: as above.
        unsafe { create_with_messenger(info, allocator, instance) }
    };
    match created {
        Ok(known) => {
            // SAFETY: a live instance: it was just created.
            unsafe { INSTANCES.insert(known.next.handle, known) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

/// # Safety
/// The arguments are those of the loader's call of this layer.
unsafe fn create_with_messenger(
    info: &vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> Result<Instance, vk::Result> {
    // SAFETY: the loader's call of this layer, whose link has not been taken.
    let validated = unsafe { beneath(info.p_next) }.any(is_validation);
    // SAFETY: the caller's create info.
    let names = unsafe { extensions(info) };
    let messenger = vk::DebugUtilsMessengerCreateInfoEXT { p_next: info.p_next, ..messenger_info() };
    let mut extended = info.enabled_extension_names(&names);
    extended.p_next = (&raw const messenger).cast();
    // SAFETY: the caller's arguments with one more extension and one more structure, alive during the call.
    let next = unsafe { NextInstance::create(&raw const extended, allocator, instance) }?;
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

unsafe extern "system" fn destroy_instance(instance: vk::Instance, allocator: *const vk::AllocationCallbacks<'_>) {
    // SAFETY: null or a live instance of the caller's.
    let Some(known) = (unsafe { INSTANCES.remove(instance) }) else { return };
    if let Some(Messenger { functions, handle, .. }) = &known.messenger {
        let destroy = functions.destroy_debug_utils_messenger_ext;
        // SAFETY: this instance's messenger, which nothing uses any more.
        unsafe { destroy(instance, *handle, std::ptr::null()) };
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().destroy_instance)(instance, allocator) };
}

/// `Dl_info` of dladdr(3).
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

// SAFETY: the signature of dladdr(3).
unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// Whether a layer's function lies in the library of `VK_LAYER_KHRONOS_validation`.
fn is_validation(function: vk::PFN_vkGetInstanceProcAddr) -> bool {
    let mut info = MaybeUninit::<DlInfo>::zeroed();
    // SAFETY: any address may be asked for; `info` is a valid output.
    let found = unsafe { dladdr(function as *const c_void, info.as_mut_ptr()) };
    if found == 0 {
        return false;
    }
    // SAFETY: all bytes are zero or written by dladdr.
    let info = unsafe { info.assume_init() };
    // SAFETY: null or a string that lives as long as the library is loaded.
    let file: &CStr = unsafe { text(info.file) }.unwrap_or_default();
    file.to_string_lossy().contains("khronos_validation")
}
