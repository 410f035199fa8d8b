//! `cuGetProcAddress`: from a function's name and a CUDA version to the symbol of that version.

mod versions;

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUdriverProcAddress_flags, CUdriverProcAddressQueryResult};

use crate::boundary::{exports, say};
use crate::code::{Code, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome};
use crate::control::site::SITES;
use crate::ffi::{In, Out, Text};
use crate::profile::driver_version;

const LEGACY_STREAM: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_LEGACY_STREAM as u64;
const PER_THREAD_STREAM: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as u64;

const FOUND: u32 = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS as u32;
const SYMBOL_NOT_FOUND: u32 = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND as u32;
const VERSION_NOT_SUFFICIENT: u32 = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT as u32;

static SYMBOLS: LazyLock<HashMap<&'static str, usize>> =
    LazyLock::new(|| SITES.iter().map(|site| (site.name(), site.address())).collect());

/// The newest form of a function that this CUDA version has, or why it has none. A version beyond the driver's means the driver's.
fn find(name: &str, version: i32, per_thread: bool) -> Result<usize, u32> {
    // Only base names are known, as with the real driver: the version picks the suffix.
    versions::introduced(name).filter(|first| *first <= driver_version()).ok_or(SYMBOL_NOT_FOUND)?;
    let symbol = versions::symbol(name, version.min(driver_version())).ok_or(VERSION_NOT_SUFFICIENT)?;
    let variants = ["_ptsz", "_ptds"].map(|suffix| format!("{symbol}{suffix}"));
    let per_thread = variants.iter().filter(|_| per_thread).find_map(|variant| SYMBOLS.get(variant.as_str()));
    per_thread.or_else(|| SYMBOLS.get(symbol.as_str())).copied().ok_or(SYMBOL_NOT_FOUND)
}

fn query(name: Text<'_>, version: i32, flags: u64) -> Result<Result<usize, u32>, Code> {
    let name = name.read().ok_or(INVALID_VALUE)?;
    if version < 1 || flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(INVALID_VALUE);
    }
    Ok(find(name, version, flags & PER_THREAD_STREAM != 0))
}

/// Leaves the pointer alone where there is no function, as real drivers were seen to do.
fn get(name: Text<'_>, out: Out<usize>, version: i32, flags: u64) -> Outcome {
    out.set(query(name, version, flags)?.map_err(|_| NOT_FOUND)?)
}

/// Succeeds where there is no function, as real drivers were seen to do: then the pointer is null, and the status says why.
fn get_with_status(name: Text<'_>, out: Out<usize>, version: i32, flags: u64, status: Out<u32>) -> Outcome {
    let found = query(name, version, flags)?;
    status.set_if_wanted(found.err().unwrap_or(FOUND));
    out.set(found.unwrap_or(0))
}

/// The table that each statically linked runtime asks for: `CUDART_INTERFACE` of ZLUDA's `dark_api`. NVRTC asks for another
/// one, and does without.
const RUNTIME_INTERFACE: [u8; 16] =
    [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9];

// The tables of functions that NVIDIA's own libraries share are not simulated. Every call of a statically linked runtime fails
// without them, with an error that does not name the cause.
fn export_table(out: Out<usize>, id: In<[u8; 16]>) -> Outcome {
    static SAID: AtomicBool = AtomicBool::new(false);
    out.set(0)?;
    if id.get()? == RUNTIME_INTERFACE && !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!(
            "cuGetExportTable is not simulated, which a statically linked CUDA runtime needs: CUDA_ERROR_NOT_SUPPORTED; \
             link it as a shared library (nvcc --cudart shared)"
        ));
    }
    Err(NOT_SUPPORTED)
}

exports! {
    cuGetProcAddress => get(name: Text<'_>, out: Out<usize>, version: i32, flags: u64), Silent;
    cuGetProcAddress_v2, cuGetProcAddress_v2_ptsz =>
        get_with_status(name: Text<'_>, out: Out<usize>, version: i32, flags: u64, status: Out<u32>), Silent;
    cuGetExportTable => export_table(out: Out<usize>, id: In<[u8; 16]>), Early;
}
