//! Allocates GPU memory that the CPU sees and a network card can register, and registers it with the first RDMA device, by
//! rdma-core's libibverbs.
//!
//! ```text
//! $ cargo run --example register_memory
//! 1048576 bytes of mapped memory: host 0x7f10d6600000, device 0x7f10d8000000
//! registered with mlx5_0 by dma-buf: lkey 0x1234, rkey 0x5678
//! ```
//!
//! Without such memory, without libibverbs or without a device it says so. On failure it prints one line and exits with 1.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use libloading::Library;
use vkgdr::{AllocateOptions, DmaBuf, Memory, MemoryKind, OpenFlags, Vkgdr};

const LEN: usize = 1 << 20;

/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ`.
const ACCESS: c_int = 1 | 2 | 4;

/// The beginning of `struct ibv_mr` (infiniband/verbs.h).
#[repr(C)]
struct MemoryRegion {
    context: *mut c_void,
    domain: *mut c_void,
    address: *mut c_void,
    length: usize,
    handle: u32,
    lkey: u32,
    rkey: u32,
}

fn main() -> ExitCode {
    match register() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("register_memory: {error}");
            ExitCode::FAILURE
        }
    }
}

fn register() -> Result<(), Box<dyn Error>> {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let options = AllocateOptions::new(MemoryKind::Mapped).with_dma_buf();
    let memory = match Memory::allocate_with(&gpu, LEN, options) {
        Ok(memory) => memory,
        Err(error @ vkgdr::Error::NoMapping { .. }) => {
            println!("this GPU has no mapped memory that a card can register: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let host = memory.host_ptr().ok_or("the memory has no host view")?;
    println!("{LEN} bytes of {} memory: host {host:p}, device {:#x}", memory.kind(), memory.device_ptr());
    // Both the CPU and, once it is registered, the card write here.
    memory.fill(.., 0_u8)?;
    // SAFETY: the initialisers of libibverbs have no preconditions.
    match unsafe { Library::new("libibverbs.so.1") } {
        Ok(verbs) => register_with_first(&verbs, &memory.dma_buf()?),
        Err(error) => {
            println!("not registered: rdma-core is not installed ({error})");
            Ok(())
        }
    }
}

fn register_with_first(verbs: &Library, dma_buf: &DmaBuf) -> Result<(), Box<dyn Error>> {
    type Object = *mut c_void;
    let mut count = 0;
    // SAFETY: the signature is that of infiniband/verbs.h, as of all functions here.
    let list = unsafe { verbs.get::<unsafe extern "C" fn(*mut c_int) -> *mut Object>(b"ibv_get_device_list\0") }?;
    // SAFETY: `count` is a live output.
    let devices = unsafe { list(&raw mut count) };
    if devices.is_null() || count == 0 {
        println!("not registered: there is no RDMA device");
        return Ok(());
    }
    // SAFETY: the list has a device.
    let device = unsafe { *devices };
    // SAFETY: as above.
    let name_of = unsafe { verbs.get::<unsafe extern "C" fn(Object) -> *const c_char>(b"ibv_get_device_name\0") }?;
    // SAFETY: the device is in the list, which is not freed yet.
    let name = unsafe { name_of(device) };
    // SAFETY: a terminated string that lives as long as the list.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    let open = unsafe { verbs.get::<unsafe extern "C" fn(Object) -> Object>(b"ibv_open_device\0") }?;
    // SAFETY: the device is in the list.
    let context = there(unsafe { open(device) }, "ibv_open_device")?;
    // SAFETY: as above.
    let allocate = unsafe { verbs.get::<unsafe extern "C" fn(Object) -> Object>(b"ibv_alloc_pd\0") }?;
    // SAFETY: the context is open.
    let domain = there(unsafe { allocate(context) }, "ibv_alloc_pd")?;
    type Register = unsafe extern "C" fn(Object, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;
    // SAFETY: as above.
    let register = unsafe { verbs.get::<Register>(b"ibv_reg_dmabuf_mr\0") }?;
    // The card's addresses of the memory begin at 0.
    // SAFETY: the domain is live, and the descriptor has these bytes.
    let region = unsafe { register(domain, dma_buf.offset, dma_buf.len, 0, dma_buf.fd.as_raw_fd(), ACCESS) };
    let region = there(region, "ibv_reg_dmabuf_mr")?;
    // SAFETY: live until it is deregistered.
    let MemoryRegion { lkey, rkey, .. } = unsafe { region.read() };
    println!("registered with {name} by dma-buf: lkey {lkey:#x}, rkey {rkey:#x}");
    // SAFETY: as above.
    let deregister = unsafe { verbs.get::<unsafe extern "C" fn(*mut MemoryRegion) -> c_int>(b"ibv_dereg_mr\0") }?;
    // Before the memory is freed; the end of the process closes the rest.
    // SAFETY: registered above, and not used again.
    match unsafe { deregister(region) } {
        0 => Ok(()),
        code => Err(format!("ibv_dereg_mr failed with {code}").into()),
    }
}

/// The object that a function returned, or its error.
fn there<T>(object: *mut T, function: &str) -> Result<*mut T, String> {
    let failed = || format!("{function} failed: {}", std::io::Error::last_os_error());
    if object.is_null() { Err(failed()) } else { Ok(object) }
}
