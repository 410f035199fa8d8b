//! The part that all layers share: answering for functions by name, and the lives of instances and devices.
//!
//! A layer implements [`Layer`], and [`DeviceLayer`] if it has functions of devices. The loader's entry points are the
//! functions below, one copy for each layer.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{CStr, c_char};

use ash::vk;

use crate::interface::{is_simulator, text};
use crate::next::{CreateDevice, CreateInstance, NextDevice, NextInstance};
use crate::tables::Tables;

/// The state that a layer keeps of an instance.
pub(crate) trait InstanceState: Sized + 'static {
    /// All instances of the process.
    fn all() -> &'static Tables<Self>;

    /// Passes `vkCreateInstance` on, and makes the state.
    ///
    /// # Safety
    /// The call is the loader's.
    unsafe fn create(call: &CreateInstance<'_>) -> Result<Self, vk::Result>;

    /// Called before `vkDestroyInstance` is passed on.
    fn before_destroying(&self) {}

    /// The instance as the next layer knows it.
    fn next(&self) -> &NextInstance;

    /// Whether the layer leaves it alone: the simulated CUDA driver's own instance.
    fn is_passive(&self) -> bool;
}

/// The state that a layer keeps of a device.
pub(crate) trait DeviceState: Sized + 'static {
    type Instance: InstanceState;

    /// All devices of the process.
    fn all() -> &'static Tables<Self>;

    /// Passes `vkCreateDevice` on, and makes the state.
    ///
    /// # Safety
    /// The call is the loader's, with a physical device of `instance`.
    unsafe fn create(instance: &Self::Instance, call: &CreateDevice<'_>) -> Result<Self, vk::Result>;

    /// Called before `vkDestroyDevice` is passed on.
    fn before_destroying(&self) {}

    /// The device as the next layer knows it.
    fn next(&self) -> &NextDevice;

    /// Whether the application has enabled the extension that the layer adds.
    fn has_added_functions(&self) -> bool {
        false
    }

    /// Whether the layer leaves it alone: a device of the simulated CUDA driver's instance.
    fn is_passive(&self) -> bool;
}

/// A layer with functions of instances.
pub(crate) trait Layer: 'static {
    type Instance: InstanceState;

    /// The layer's versions of functions that are asked of an instance: its own, its physical devices', its devices'.
    fn instance_function(_name: &CStr) -> vk::PFN_vkVoidFunction {
        None
    }

    /// The layer's own functions that the next layer lacks: those of an extension that the layer adds.
    fn added_function(_name: &CStr) -> vk::PFN_vkVoidFunction {
        None
    }

    /// [`device_life`] in a layer with functions of devices.
    fn device_life(_name: &CStr) -> vk::PFN_vkVoidFunction {
        None
    }
}

/// A layer with functions of devices.
pub(crate) trait DeviceLayer: Layer {
    type Device: DeviceState<Instance = Self::Instance>;

    /// The layer's versions of functions of devices.
    fn device_function(name: &CStr) -> vk::PFN_vkVoidFunction;
}

/// The function of a name in a list of `PFN_vkFunction => function`, in the type that `vkGetInstanceProcAddr` returns.
/// Each function is checked against its Vulkan type, which also gives the name. `KHR` at the end of a name is ignored:
/// a function of an extension keeps its signature when it becomes a part of Vulkan.
macro_rules! function_named {
    ($name:expr; $($signature:ident => $function:expr,)+) => {
        $(if $crate::dispatch::is_named($name, stringify!($signature)) {
            let function: ash::vk::$signature = $function;
            // SAFETY: function pointers have one size; the caller casts it back, as Vulkan rules.
            Some(unsafe { std::mem::transmute::<ash::vk::$signature, unsafe extern "system" fn()>(function) })
        } else)+ {
            None
        }
    };
}
pub(crate) use function_named;

/// Whether a name is that of a function pointer type, `PFN_` aside.
pub(crate) fn is_named(name: &CStr, signature: &str) -> bool {
    let of_type = signature.strip_prefix("PFN_").unwrap_or(signature).as_bytes();
    let plain = |name| <[u8]>::strip_suffix(name, b"KHR").unwrap_or(name);
    plain(name.to_bytes()) == plain(of_type)
}

/// The functions by which devices come and go.
pub(crate) fn device_life<L: DeviceLayer>(name: &CStr) -> vk::PFN_vkVoidFunction {
    function_named! { name;
        PFN_vkGetDeviceProcAddr => get_device_proc_addr::<L>,
        PFN_vkCreateDevice => create_device::<L>,
        PFN_vkDestroyDevice => destroy_device::<L>,
    }
}

/// `vkGetInstanceProcAddr`. The functions by which instances and devices come and go are the layer's also where it is
/// passive.
pub(crate) unsafe extern "system" fn get_instance_proc_addr<L: Layer>(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    let life = function_named! { name;
        PFN_vkGetInstanceProcAddr => get_instance_proc_addr::<L>,
        PFN_vkCreateInstance => create_instance::<L>,
        PFN_vkDestroyInstance => destroy_instance::<L>,
    };
    life.or_else(|| L::device_life(name)).or_else(|| {
        // SAFETY: null or a live instance of the caller's.
        let kept = unsafe { L::Instance::all().get(instance) }?;
        if kept.is_passive() {
            // SAFETY: a live instance of the caller's.
            return unsafe { kept.next().answer(name, None) };
        }
        // SAFETY: as above.
        L::added_function(name).or_else(|| unsafe { kept.next().answer(name, L::instance_function(name)) })
    })
}

/// `vkGetDeviceProcAddr`.
pub(crate) unsafe extern "system" fn get_device_proc_addr<L: DeviceLayer>(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan asks for a terminated name.
    let name = unsafe { text(name) }?;
    // SAFETY: a live device of the caller's.
    let kept = unsafe { L::Device::all().get(device) }?;
    let own = if kept.is_passive() { None } else { L::device_function(name) };
    let added = if kept.has_added_functions() { L::added_function(name) } else { None };
    // SAFETY: as above.
    added.or_else(|| unsafe { kept.next().answer(name, device_life::<L>(name).or(own)) })
}

unsafe extern "system" fn create_instance<L: Layer>(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: Vulkan asks for a valid create info.
    let info = unsafe { &*info };
    // SAFETY: the caller's create info.
    let passive = unsafe { is_simulator(info) };
    // SAFETY: the loader's call of this layer.
    match unsafe { L::Instance::create(&CreateInstance { info, allocator, instance, passive }) } {
        Ok(kept) => {
            // SAFETY: a live instance: it was just created.
            unsafe { L::Instance::all().insert(kept.next().handle, kept) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

unsafe extern "system" fn destroy_instance<L: Layer>(
    instance: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: null or a live instance of the caller's.
    let Some(kept) = (unsafe { L::Instance::all().remove(instance) }) else { return };
    kept.before_destroying();
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next().fp_v1_0().destroy_instance)(instance, allocator) };
}

unsafe extern "system" fn create_device<L: DeviceLayer>(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { L::Instance::all().get(physical) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: Vulkan asks for a valid create info.
    let info = unsafe { &*info };
    let call = CreateDevice { instance: instance.next().handle, physical, info, allocator, device };
    // SAFETY: the loader's call of this layer, and the instance of the physical device.
    match unsafe { L::Device::create(&instance, &call) } {
        Ok(kept) => {
            // SAFETY: a live device: it was just created.
            unsafe { L::Device::all().insert(kept.next().handle, kept) };
            vk::Result::SUCCESS
        }
        Err(result) => result,
    }
}

unsafe extern "system" fn destroy_device<L: DeviceLayer>(
    device: vk::Device,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: null or a live device of the caller's.
    let Some(kept) = (unsafe { L::Device::all().remove(device) }) else { return };
    kept.before_destroying();
    // SAFETY: the caller's arguments, passed on.
    unsafe { (kept.next().fp_v1_0().destroy_device)(device, allocator) };
}
