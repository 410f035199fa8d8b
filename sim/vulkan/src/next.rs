//! The next layer's instance or device: passing its creation on, and calling its functions.
#![expect(unsafe_code, reason = "calls the next layer")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Deref;

use ash::vk;

use crate::interface::{DeviceLink, InstanceLink, address, list_extensions, take_link};

/// `vkGetInstanceProcAddr` or `vkGetDeviceProcAddr`.
type GetProcAddr<H> = unsafe extern "system" fn(H, *const c_char) -> vk::PFN_vkVoidFunction;

/// An instance or device beneath this layer: a handle, and functions that belong to it.
pub(crate) struct Next<H, Functions> {
    pub(crate) handle: H,
    get_proc_addr: GetProcAddr<H>,
    functions: Functions,
}

pub(crate) type NextInstance = Next<vk::Instance, ash::Instance>;
pub(crate) type NextDevice = Next<vk::Device, ash::Device>;

/// A call of `vkCreateInstance`.
pub(crate) struct CreateInstance<'a> {
    pub(crate) info: &'a vk::InstanceCreateInfo<'a>,
    pub(crate) allocator: *const vk::AllocationCallbacks<'a>,
    pub(crate) instance: *mut vk::Instance,
    /// Whether the instance is the simulated CUDA driver's own, which layers leave alone.
    pub(crate) passive: bool,
}

impl CreateInstance<'_> {
    /// Passes the call on, with this create info or another one with the same links.
    ///
    /// # Safety
    /// The call is the loader's.
    pub(crate) unsafe fn pass_on(&self, info: &vk::InstanceCreateInfo<'_>) -> Result<NextInstance, vk::Result> {
        // SAFETY: the loader's call of this layer.
        let link = unsafe { take_link::<InstanceLink>(info.p_next) }.ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
        // SAFETY: the caller's arguments, passed on.
        unsafe { link.create_instance()(info, self.allocator, self.instance) }.result()?;
        // SAFETY: success means that it was written.
        let handle = unsafe { *self.instance };
        let get_proc_addr = link.get_instance_proc_addr;
        // SAFETY: the new instance, and the next layer's function.
        let load = |name: &CStr| unsafe { find(get_proc_addr, handle, name) };
        // SAFETY: these are the functions of the instance.
        let functions = unsafe { ash::Instance::load_with(load, handle) };
        Ok(Next { handle, get_proc_addr, functions })
    }
}

/// A call of `vkCreateDevice`.
pub(crate) struct CreateDevice<'a> {
    /// The instance of the physical device.
    pub(crate) instance: vk::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) info: &'a vk::DeviceCreateInfo<'a>,
    pub(crate) allocator: *const vk::AllocationCallbacks<'a>,
    pub(crate) device: *mut vk::Device,
}

impl CreateDevice<'_> {
    /// Passes the call on, with this create info or another one with the same links.
    ///
    /// # Safety
    /// The call is the loader's.
    pub(crate) unsafe fn pass_on(&self, info: &vk::DeviceCreateInfo<'_>) -> Result<NextDevice, vk::Result> {
        // SAFETY: the loader's call of this layer.
        let link = unsafe { take_link::<DeviceLink>(info.p_next) }.ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
        // SAFETY: the instance of the physical device, which the link belongs to.
        let create = unsafe { link.create_device(self.instance) }.ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
        // SAFETY: the caller's arguments, passed on.
        unsafe { create(self.physical, info, self.allocator, self.device) }.result()?;
        // SAFETY: success means that it was written.
        let handle = unsafe { *self.device };
        let get_proc_addr = link.get_device_proc_addr;
        // SAFETY: the new device, and the next layer's function.
        let load = |name: &CStr| unsafe { find(get_proc_addr, handle, name) };
        // SAFETY: these are the functions of the device.
        let functions = unsafe { ash::Device::load_with(load, handle) };
        Ok(Next { handle, get_proc_addr, functions })
    }
}

impl NextInstance {
    /// Answers `vkEnumerateDeviceExtensionProperties` with a list of `own`; questions about another layer are passed on.
    ///
    /// # Safety
    /// The arguments are the caller's, with a physical device of this instance.
    pub(crate) unsafe fn answer_extensions(
        &self,
        device: vk::PhysicalDevice,
        layer: *const c_char,
        count: *mut u32,
        properties: *mut vk::ExtensionProperties,
        own: impl FnOnce() -> Result<Vec<vk::ExtensionProperties>, vk::Result>,
    ) -> vk::Result {
        if !layer.is_null() {
            let next = self.fp_v1_0().enumerate_device_extension_properties;
            // SAFETY: the caller's arguments, passed on.
            return unsafe { next(device, layer, count, properties) };
        }
        // SAFETY: the caller's output.
        own().map_or_else(|result| result, |found| unsafe { list_extensions(&found, count, properties) })
    }
}

impl<H: Copy, Functions> Next<H, Functions> {
    /// The address of a function of the next layer, for functions of extensions.
    ///
    /// # Safety
    /// The instance or device is live.
    pub(crate) unsafe fn find(&self, name: &CStr) -> *const c_void {
        // SAFETY: the caller's promise, and the next layer's function.
        unsafe { find(self.get_proc_addr, self.handle, name) }
    }

    /// Answers `vkGetInstanceProcAddr` or `vkGetDeviceProcAddr`: with this layer's function if it has one, otherwise
    /// with the next layer's. A function that the next layer lacks is not offered.
    ///
    /// # Safety
    /// The instance or device is live.
    pub(crate) unsafe fn answer(&self, name: &CStr, own: vk::PFN_vkVoidFunction) -> vk::PFN_vkVoidFunction {
        // SAFETY: the caller's promise, and the next layer's function.
        let beneath = unsafe { (self.get_proc_addr)(self.handle, name.as_ptr()) }?;
        own.or(Some(beneath))
    }
}

impl<H, Functions> Deref for Next<H, Functions> {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// The address of a function in the type that ash's loaders expect.
///
/// # Safety
/// The instance or device is live, and the function is the next layer's for it.
unsafe fn find<H: Copy>(get_proc_addr: GetProcAddr<H>, handle: H, name: &CStr) -> *const c_void {
    // SAFETY: the caller's promise.
    let function = unsafe { get_proc_addr(handle, name.as_ptr()) };
    // Functions of current Vulkan versions may only exist as extensions.
    let former = || {
        let name = CString::new([name.to_bytes(), b"KHR"].concat()).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { get_proc_addr(handle, name.as_ptr()) }
    };
    address(function.or_else(former))
}
