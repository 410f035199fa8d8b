//! Vulkan's side: handles of the Vulkan device, and memory in Vulkan.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;
use std::mem;

use vkgdr_rs::Vkgdr;
use vkgdr_rs::ash::vk::{self, Handle};
use vkgdr_rs::vulkan::Handles;

use crate::boundary::{self, handle};
use crate::errors::Failure;
use crate::handle::{into_handle, open_flags, vkgdr, vkgdr_t};
use crate::memory_handle::{vkgdr_memory, vkgdr_memory_t};

/// A Vulkan device: Vulkan's own handles, whose types are pointers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct vkgdr_vulkan_handles {
    /// vkGetInstanceProcAddr(), cast to this type.
    pub get_instance_proc_addr: Option<unsafe extern "C" fn()>,
    /// The VkInstance.
    pub instance: *mut c_void,
    /// The VkPhysicalDevice.
    pub physical_device: *mut c_void,
    /// The VkDevice.
    pub device: *mut c_void,
    /// The family of a queue of the device; the queue has the index 0.
    pub queue_family: u32,
}

/// The place of memory in Vulkan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_vulkan_memory {
    /// The VkDeviceMemory, as a number.
    pub memory: u64,
    /// Where the memory begins in it, in bytes.
    pub offset: u64,
}

/// Opens a GPU on a Vulkan device that the program made. The program can then bind memory of this library to its own buffers
/// (vkgdr_memory_get_vulkan_memory()). The CUDA device is the one with the same UUID.
///
/// Memory is allocated in the device's primary context, which the handle retains. With VKGDR_OPEN_CURRENT_CONTEXT_BIT it is
/// allocated in the current context, which must be one of that device. No mapped memory is needed.
///
/// The instance must be for Vulkan 1.1 or later, and VK_KHR_external_memory_fd be enabled on the device
/// (VKGDR_ERROR_NOT_SUPPORTED).
///
/// @param handles  The device. It and the instance must stay alive until all memory of the handle is freed; call
///                 vkgdr_device_finish_deferred_frees() before they are destroyed.
/// @param flags    Of `enum vkgdr_open_flags`. Unknown bits are an error.
/// @param out      Where the handle is written.
/// @return A `vkgdr_status`; VKGDR_ERROR_NO_DEVICE if CUDA does not know the GPU.
///
/// # Safety
///
/// `handles` must be NULL or handles that are live and belong together, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_open_on(handles: *const vkgdr_vulkan_handles, flags: u32, out: *mut vkgdr_t) -> i32 {
    let open = || {
        // SAFETY: by this function's contract.
        let raw = unsafe { handle(handles) }.map_err(|_| Failure::Null("handles"))?;
        let get_proc_addr = raw.get_instance_proc_addr.ok_or(Failure::Null("get_instance_proc_addr"))?;
        for (pointer, name) in
            [(raw.instance, "instance"), (raw.physical_device, "physical_device"), (raw.device, "device")]
        {
            if pointer.is_null() {
                return Err(Failure::Null(name));
            }
        }
        // SAFETY: the field is this function of Vulkan, by this function's contract.
        let get_proc_addr =
            unsafe { mem::transmute::<unsafe extern "C" fn(), vk::PFN_vkGetInstanceProcAddr>(get_proc_addr) };
        let number = |pointer: *mut c_void| pointer.expose_provenance() as u64;
        // SAFETY: by this function's contract.
        let handles = unsafe {
            Handles::from_raw(
                get_proc_addr,
                vk::Instance::from_raw(number(raw.instance)),
                vk::PhysicalDevice::from_raw(number(raw.physical_device)),
                vk::Device::from_raw(number(raw.device)),
                raw.queue_family,
            )
        };
        let (flags, _) = open_flags(flags);
        // SAFETY: by this function's contract.
        Ok(into_handle(unsafe { Vkgdr::open_on(&handles, flags) }?))
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, open) }
}

/// The Vulkan device on which a handle allocates. That of this library has Vulkan 1.1 with VK_KHR_external_memory_fd and lives
/// until the process ends. Enabled where present are VK_EXT_memory_budget, and together VK_KHR_timeline_semaphore, its feature
/// timelineSemaphore and VK_KHR_external_semaphore_fd.
///
/// Its queue is used by everything in the process that asks for these handles, and Vulkan allows one thread at a time. There is
/// no lock for it in C: the program orders these uses.
///
/// @param g    The GPU.
/// @param out  Where the handles are written.
/// @return A `vkgdr_status`; without Vulkan that of vkgdr_open().
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_device_get_vulkan_handles(g: vkgdr_t, out: *mut vkgdr_vulkan_handles) -> i32 {
    let handles = |gpu: &vkgdr| {
        let lent = gpu.inner.vulkan_handles()?;
        let get_proc_addr = lent.entry.static_fn().get_instance_proc_addr;
        // SAFETY: a function pointer, which the caller casts back.
        let get_proc_addr =
            unsafe { mem::transmute::<vk::PFN_vkGetInstanceProcAddr, unsafe extern "C" fn()>(get_proc_addr) };
        let pointer = |number: u64| std::ptr::with_exposed_provenance_mut(usize::try_from(number).expect("64 bits"));
        Ok(vkgdr_vulkan_handles {
            get_instance_proc_addr: Some(get_proc_addr),
            instance: pointer(lent.instance.handle().as_raw()),
            physical_device: pointer(lent.physical_device.as_raw()),
            device: pointer(lent.device.handle().as_raw()),
            queue_family: lent.queue_family,
        })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(g, out, handles) }
}

/// The VkDeviceMemory that memory lies in, and where: to bind buffers of the program's own to it, on the device of
/// vkgdr_device_get_vulkan_handles(). They must be created for export as VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT. It is
/// valid until the memory is freed.
///
/// @param mem  The memory, or a region of it.
/// @param out  Where the result is written.
/// @return A `vkgdr_status`; VKGDR_ERROR_NOT_SUPPORTED for memory that Vulkan did not allocate.
///
/// # Safety
///
/// `mem` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_get_vulkan_memory(mem: vkgdr_memory_t, out: *mut vkgdr_vulkan_memory) -> i32 {
    let place = |mem: &vkgdr_memory| {
        let place = mem.memory.vulkan_memory().ok_or(Failure::NotOfVulkan)?;
        Ok(vkgdr_vulkan_memory { memory: place.memory.as_raw(), offset: place.offset })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(mem, out, place) }
}
