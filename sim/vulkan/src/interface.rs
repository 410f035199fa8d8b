//! The interface between the Vulkan loader and a layer, version 2, and how a layer reaches the next one.
//!
//! The types are those of `vk_layer.h`; the rules are in the loader's `LoaderLayerInterface.md`. A layer finds the
//! next one through a link in the create info and advances the link. It must look up the next layer's functions during
//! the creation: later, the loader answers with the layer's own functions.
#![expect(unsafe_code, reason = "reads structures that the Vulkan loader passes")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use ash::vk;

/// `PFN_vkGetPhysicalDeviceProcAddr`, only passed along.
type GetPhysicalDeviceProcAddr = vk::PFN_vkVoidFunction;

/// The version of the interface that the layers speak.
const INTERFACE_VERSION: u32 = 2;
/// `LAYER_NEGOTIATE_INTERFACE_STRUCT`
const NEGOTIATE_STRUCTURE: i32 = 1;
/// `VK_LAYER_LINK_INFO`
const LINK_INFO: i32 = 0;

/// `VkNegotiateLayerInterface`
#[repr(C)]
pub(crate) struct NegotiateInterface {
    s_type: i32,
    p_next: *mut c_void,
    version: u32,
    get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    get_physical_device_proc_addr: GetPhysicalDeviceProcAddr,
}

/// `VkLayerInstanceLink`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct InstanceLink {
    next: *mut Self,
    pub(crate) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    get_physical_device_proc_addr: GetPhysicalDeviceProcAddr,
}

/// `VkLayerDeviceLink`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DeviceLink {
    next: *mut Self,
    get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    pub(crate) get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
}

/// The common part of `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`, whose unions begin with the link.
#[repr(C)]
struct LinkInfo<Link> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    function: i32,
    link: *mut Link,
}

/// A link of the layer chain.
pub(crate) trait Link: Copy {
    /// The `sType` of the structure that carries it.
    const STRUCTURE: vk::StructureType;

    /// The link for the layer below.
    fn next(&self) -> *mut Self;
}

impl Link for InstanceLink {
    const STRUCTURE: vk::StructureType = vk::StructureType::LOADER_INSTANCE_CREATE_INFO;

    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Link for DeviceLink {
    const STRUCTURE: vk::StructureType = vk::StructureType::LOADER_DEVICE_CREATE_INFO;

    fn next(&self) -> *mut Self {
        self.next
    }
}

impl InstanceLink {
    /// The next layer's `vkCreateInstance`.
    pub(crate) fn create_instance(self) -> vk::PFN_vkCreateInstance {
        let global = ash::EntryFnV1_0::load(|name| {
            // SAFETY: the next layer's function, asked for a global name.
            address(unsafe { (self.get_instance_proc_addr)(vk::Instance::null(), name.as_ptr()) })
        });
        global.create_instance
    }
}

impl DeviceLink {
    /// The next layer's `vkCreateDevice`.
    ///
    /// # Safety
    /// The instance is the one whose device is being created through this link.
    pub(crate) unsafe fn create_device(self, instance: vk::Instance) -> Option<vk::PFN_vkCreateDevice> {
        // SAFETY: the caller's promise: a live instance and the next layer's function.
        let function = unsafe { (self.get_instance_proc_addr)(instance, c"vkCreateDevice".as_ptr()) }?;
        // SAFETY: the type that Vulkan gives this name.
        Some(unsafe { std::mem::transmute::<unsafe extern "system" fn(), vk::PFN_vkCreateDevice>(function) })
    }
}

/// Answers `vkNegotiateLoaderLayerInterfaceVersion` for a layer.
///
/// The layers have no physical-device extension functions of their own, so the loader skips them there.
///
/// # Safety
/// `interface` is null or the loader's structure.
pub(crate) unsafe fn negotiate(
    interface: *mut NegotiateInterface,
    get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let Some(interface) = (unsafe { interface.as_mut() }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if interface.s_type != NEGOTIATE_STRUCTURE || interface.version < INTERFACE_VERSION {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    interface.version = INTERFACE_VERSION;
    interface.get_instance_proc_addr = Some(get_instance_proc_addr);
    interface.get_device_proc_addr = get_device_proc_addr;
    interface.get_physical_device_proc_addr = None;
    vk::Result::SUCCESS
}

/// Takes this layer's link from a create info's chain, and replaces it by the next layer's.
///
/// # Safety
/// `p_next` is the chain of the create info that the loader passed to this layer's create function.
pub(crate) unsafe fn take_link<L: Link>(p_next: *const c_void) -> Option<L> {
    // SAFETY: the caller's promise.
    let info = unsafe { find_link::<L>(p_next) }?;
    // SAFETY: a link info carries a link, which the loader keeps during the call.
    let link = unsafe { *info.link };
    info.link = link.next();
    Some(link)
}

/// The `vkGetInstanceProcAddr` of every layer beneath this one, the driver's side last.
///
/// # Safety
/// As for [`take_link`], which comes later; the result is used before the create function returns.
pub(crate) unsafe fn beneath(p_next: *const c_void) -> impl Iterator<Item = vk::PFN_vkGetInstanceProcAddr> {
    // SAFETY: the caller's promise.
    let first = unsafe { find_link::<InstanceLink>(p_next) }.map_or(std::ptr::null_mut(), |info| info.link);
    // SAFETY: null or a link, all of which the loader keeps during the call.
    let read = |link: *mut InstanceLink| unsafe { link.as_ref() }.copied();
    std::iter::successors(read(first), move |link| read(link.next)).map(|link| link.get_instance_proc_addr)
}

/// The structure of a create info's chain that carries this layer's link.
///
/// # Safety
/// As for [`take_link`].
unsafe fn find_link<'a, L: Link>(p_next: *const c_void) -> Option<&'a mut LinkInfo<L>> {
    // SAFETY: the caller's promise.
    let marked = unsafe { chain(p_next) }.filter(|(kind, _)| *kind == L::STRUCTURE);
    // SAFETY: this type marks the loader's structures, which layers may change.
    let mut infos = marked.map(|(_, node)| unsafe { node.cast::<LinkInfo<L>>().as_mut() });
    infos.find(|info| info.function == LINK_INFO && !info.link.is_null())
}

/// The structures of a `pNext` chain, each with its type.
///
/// # Safety
/// The chain is valid for as long as the result is used.
pub(crate) unsafe fn chain(p_next: *const c_void) -> impl Iterator<Item = (vk::StructureType, NonNull<c_void>)> {
    let mut rest = p_next.cast_mut();
    std::iter::from_fn(move || {
        let node = NonNull::new(rest)?;
        // SAFETY: every structure of a chain begins with its type and the next one.
        let header = unsafe { node.cast::<vk::BaseOutStructure<'_>>().read() };
        rest = header.p_next.cast();
        Some((header.s_type, node))
    })
}

/// An array of the caller's, which may be null when its length is 0.
///
/// # Safety
/// As said, for as long as the result is used.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: u32) -> &'a [T] {
    if count == 0 || pointer.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, count as usize) }
}

/// The names of extensions in a create info.
///
/// # Safety
/// An array of this length; it may be null when that is 0.
pub(crate) unsafe fn extension_names(names: *const *const c_char, count: u32) -> Vec<*const c_char> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(names, count as usize) }.to_vec()
}

/// Writes a list of extensions as Vulkan's functions do: without an array, its length.
///
/// # Safety
/// `count` is writable, and `properties` null or writable for that many.
pub(crate) unsafe fn list_extensions(
    extensions: &[vk::ExtensionProperties],
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    // SAFETY: the caller's promise.
    let count = unsafe { &mut *count };
    if properties.is_null() {
        *count = u32::try_from(extensions.len()).unwrap_or_default();
        return vk::Result::SUCCESS;
    }
    let room = (*count as usize).min(extensions.len());
    // SAFETY: the caller's array has room for `*count` of them.
    unsafe { properties.copy_from_nonoverlapping(extensions.as_ptr(), room) };
    *count = u32::try_from(room).unwrap_or_default();
    if room < extensions.len() { vk::Result::INCOMPLETE } else { vk::Result::SUCCESS }
}

/// Whether an instance is the simulated CUDA driver's own.
///
/// # Safety
/// `info` is a valid create info.
pub(crate) unsafe fn is_simulator(info: &vk::InstanceCreateInfo<'_>) -> bool {
    // SAFETY: the caller's promise: null or a valid structure.
    let application = unsafe { info.p_application_info.as_ref() };
    let name = application.map_or(std::ptr::null(), |application| application.p_application_name);
    // SAFETY: null or a terminated string.
    let name = unsafe { text(name) };
    name == Some(c"simcuda")
}

/// A C string that may be null.
///
/// # Safety
/// `pointer` is null or a terminated string that lives as long as the result.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller's promise holds.
    Some(unsafe { CStr::from_ptr(pointer) })
}

/// Copies a text to a caller's buffer, terminated and cut to fit; returns its whole length.
///
/// # Safety
/// `buffer` is null or writable for `capacity` bytes.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, capacity: usize) -> usize {
    let length = text.len().min(capacity.saturating_sub(1));
    if !buffer.is_null() && capacity > 0 {
        // SAFETY: `length` bytes and one more fit; the two do not overlap.
        unsafe { buffer.copy_from_nonoverlapping(text.as_ptr().cast(), length) };
        // SAFETY: `length < capacity`.
        unsafe { *buffer.wrapping_add(length) = 0 };
    }
    text.len()
}

/// The address of a function in the type that ash's loaders expect.
pub(crate) fn address(function: vk::PFN_vkVoidFunction) -> *const c_void {
    function.map_or(std::ptr::null(), |function| function as *const c_void)
}
