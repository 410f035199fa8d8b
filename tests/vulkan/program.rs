//! Vulkan devices that the program made itself.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

use support::blocking::let_run;
use support::cuda::{Context, Stream, no_context};
use support::{Result, assert_says, device_read, host_read, host_write, pattern, refused};
use vkgdr::ash::{self, khr, vk};
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::vulkan::{Allocator, AllocatorOptions, Handles, MemoryLocation, Semaphore};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::compute::Compute;
use crate::{allocator, buffer, open};

const LEN: usize = 10_001;
const SHARED: &CStr = khr::external_memory_fd::NAME;

/// An instance and a device of the test's own, destroyed on drop.
struct Program {
    handles: Handles,
    /// Keeps the loader.
    _entry: ash::Entry,
}

impl Program {
    /// On the physical device of `gpu`.
    fn new(gpu: &Vkgdr, version: u32, extensions: &[&CStr]) -> Result<Self> {
        // SAFETY: the loader's initialisers may run.
        let entry = unsafe { ash::Entry::load() }?;
        let application = vk::ApplicationInfo::default().application_name(c"program").api_version(version);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: a valid description.
        let instance = unsafe { entry.create_instance(&info, None) }?;
        // SAFETY: a live instance.
        let devices = unsafe { instance.enumerate_physical_devices() }?;
        let has_uuid = |device: &vk::PhysicalDevice| {
            let mut id = vk::PhysicalDeviceIDProperties::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
            // SAFETY: a device of this instance.
            unsafe { instance.get_physical_device_properties2(*device, &mut properties) };
            id.device_uuid == gpu.uuid()
        };
        let is_1_0 = version < vk::API_VERSION_1_1;
        let physical = devices.into_iter().find(|device| is_1_0 || has_uuid(device)).ok_or("no such device")?;
        let queue = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let names: Vec<_> = extensions.iter().map(|name| name.as_ptr()).collect();
        let mut addresses = vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
        let mut info = vk::DeviceCreateInfo::default().queue_create_infos(&queue).enabled_extension_names(&names);
        if version >= vk::API_VERSION_1_2 {
            info = info.push_next(&mut addresses);
        }
        // SAFETY: a valid description.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let find = entry.static_fn().get_instance_proc_addr;
        // SAFETY: live handles that belong together, of a loader that is kept.
        let handles = unsafe { Handles::from_raw(find, instance.handle(), physical, device.handle(), 0) };
        Ok(Self { handles, _entry: entry })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: tests free everything on it before. The validation layer checks that.
        unsafe { self.handles.device.destroy_device(None) };
        // SAFETY: as above.
        unsafe { self.handles.instance.destroy_instance(None) };
    }
}

fn open_on(program: &Program, flags: OpenFlags) -> vkgdr::Result<Vkgdr> {
    // SAFETY: tests drop the handle and its memory before the program.
    unsafe { Vkgdr::open_on(&program.handles, flags) }
}

#[test]
fn a_programs_own_device_has_memory_buffers_and_shaders() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let program = Program::new(&shared, vk::API_VERSION_1_2, &[SHARED])?;
    for flags in [OpenFlags::empty(), OpenFlags::FORCE_NON_COHERENT] {
        let gpu = open_on(&program, flags)?;
        assert_eq!((gpu.uuid(), gpu.device()), (shared.uuid(), shared.device()));
        assert_eq!(gpu.vulkan_handles()?.device.handle(), program.handles.device.handle());
        assert_ne!(gpu.vulkan_handles()?.device.handle(), shared.vulkan_handles()?.device.handle());
        for kind in support::supported(&gpu, &support::HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, LEN, kind)?;
            host_write(&memory, 0, &pattern(LEN, 1))?;
            let bytes = in_primary(|| device_read(memory.device_ptr(), LEN));
            assert!(bytes == pattern(LEN, 1));
        }
        let allocator = allocator(&gpu)?;
        let made = buffer(&allocator, 4000, MemoryLocation::CpuToGpu)?;
        made.fill(.., 1_u32)?;
        made.flush(..)?;
        let compute = Compute::new(&program.handles)?;
        compute.step(made.handle(), 1000, 2)?;
        assert!(host_read(&made, 0, 4000)? == 5_u32.to_ne_bytes().repeat(1000));
        made.free()?;
    }
    Ok(())
}

#[test]
fn buffers_have_device_addresses_where_the_program_enabled_them() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let program = Program::new(&shared, vk::API_VERSION_1_2, &[SHARED])?;
    let gpu = open_on(&program, OpenFlags::empty())?;
    // SAFETY: the program's devices have the feature.
    let options = unsafe { AllocatorOptions::default().buffer_device_address(true) };
    let allocator = Allocator::with_options(&gpu, options)?;
    let usage = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    let info = vk::BufferCreateInfo::default().size(LEN as u64).usage(usage);
    // SAFETY: a valid description; no queue uses it.
    let mut made = unsafe { allocator.buffer(&info, MemoryLocation::CpuToGpu) }?;
    let asked = vk::BufferDeviceAddressInfo::default().buffer(made.handle());
    // SAFETY: a live buffer of the device, for which it has the usage.
    assert_ne!(unsafe { program.handles.device.get_buffer_device_address(&asked) }, 0);
    host_write(&made, 0, &pattern(LEN, 1))?;
    let stream = CudaContext::new(0)?.default_stream();
    stream.memset_zeros(&mut made.view_mut::<u8>(&stream)?)?;
    stream.synchronize()?;
    assert!(host_read(&made, 0, LEN)? == vec![0; LEN]);
    Ok(())
}

/// Whether two threads are within `with_vulkan_queue` of two handles at a time.
fn overlap(one: &Vkgdr, other: &Vkgdr) -> Result<bool> {
    let inside = AtomicU32::new(0);
    let enter = || {
        inside.fetch_add(1, Ordering::SeqCst);
        let_run(|| inside.load(Ordering::SeqCst) == 2);
        // True for one of two that meet: neither leaves before it has asked.
        let met = inside.load(Ordering::SeqCst) == 2;
        inside.fetch_sub(1, Ordering::SeqCst);
        met
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| other.with_vulkan_queue(|_| enter()));
        let first = one.with_vulkan_queue(|_| enter())?;
        Ok(second.join().map_err(|_| "a thread panicked")?? || first)
    })
}

#[test]
fn handles_of_one_device_take_turns_with_its_queue() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let program = Program::new(&shared, vk::API_VERSION_1_1, &[SHARED])?;
    let (one, other) = (open_on(&program, OpenFlags::empty())?, open_on(&program, OpenFlags::FORCE_NON_COHERENT)?);
    assert!(!overlap(&one, &other)?, "two handles of a program's device");
    // SAFETY: this crate's device is never destroyed.
    let again = unsafe { Vkgdr::open_on(&shared.vulkan_handles()?, OpenFlags::empty()) }?;
    assert!(!overlap(&shared, &again)?, "two handles of this crate's device");
    // On a busy machine, one thread may have left before the other begins.
    let overlaps = (0..100).find_map(|_| overlap(&shared, &one).map(|met| met.then_some(met)).transpose());
    assert!(overlaps.transpose()?.is_some(), "two devices");
    Ok(())
}

fn in_primary<T>(work: impl FnOnce() -> T) -> T {
    let _context = support::cuda::PrimaryContext::retain_and_push(0);
    work()
}

#[test]
fn memory_of_both_devices_of_a_gpu_lives_side_by_side() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let program = Program::new(&shared, vk::API_VERSION_1_1, &[SHARED])?;
    let gpu = open_on(&program, OpenFlags::empty())?;
    // The program did not ask for semaphores.
    assert!(!gpu.supports_semaphores());
    assert_says(&refused(Semaphore::new(&gpu, 0)), &["VK_KHR_external_semaphore_fd"]);
    let ours = Memory::allocate(&shared, LEN, MemoryKind::Mapped)?;
    let theirs = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    host_write(&ours, 0, &pattern(LEN, 1))?;
    host_write(&theirs, 0, &pattern(LEN, 2))?;
    assert!(host_read(&ours, 0, LEN)? == pattern(LEN, 1));
    // Sharing by descriptor goes across the devices of a GPU.
    if support::is_imported(&gpu, MemoryKind::Mapped) {
        let fd = theirs.export_fd()?;
        let imported = support::import(&shared, fd, &theirs)?;
        assert!(host_read(&imported, 0, LEN)? == pattern(LEN, 2));
    }
    Ok(())
}

#[test]
fn the_current_context_is_used_on_request_and_must_be_of_the_device() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let program = Program::new(&shared, vk::API_VERSION_1_1, &[SHARED])?;
    let none = no_context(|| open_on(&program, OpenFlags::CURRENT_CONTEXT));
    assert_says(&refused(none), &["cuCtxGetDevice", "CUDA_ERROR_INVALID_CONTEXT"]);
    let context = Context::create(0);
    let gpu = open_on(&program, OpenFlags::CURRENT_CONTEXT)?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    assert_eq!(memory.context(), context.raw());
    assert!(no_context(|| Memory::allocate(&gpu, LEN, MemoryKind::Mapped)).is_err());
    assert!(matches!(refused(open_on(&program, OpenFlags::from_bits_retain(1 << 20))), Error::UnknownFlags { .. }));
    drop(memory);
    Ok(())
}

#[test]
fn a_device_without_the_extension_or_of_an_old_version_is_refused_with_the_remedy() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let without = Program::new(&shared, vk::API_VERSION_1_1, &[])?;
    assert_says(&refused(open_on(&without, OpenFlags::empty())), &["VK_KHR_external_memory_fd", "enable"]);
    drop(without);
    let old = Program::new(&shared, vk::API_VERSION_1_0, &[])?;
    assert!(matches!(refused(open_on(&old, OpenFlags::empty())), Error::UnsuitableDevice { .. }));
    Ok(())
}

#[test]
fn frees_that_wait_for_a_stream_are_finished_before_the_device_goes() -> Result {
    let Some(shared) = open()? else { return Ok(()) };
    let _context = support::cuda::PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let program = Program::new(&shared, vk::API_VERSION_1_1, &[SHARED])?;
    let gpu = open_on(&program, OpenFlags::empty())?;
    let live = gpu.live_allocations();
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    support::bind(&memory, &stream)?;
    let gate = stream.hold();
    drop(memory);
    assert_eq!(gpu.live_allocations(), live + 1);
    gate.open();
    gpu.finish_deferred_frees();
    assert_eq!(gpu.live_allocations(), live);
    Ok(())
}
