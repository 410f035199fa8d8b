//! The parameter block of a launch, from either of the two forms that a caller may pass.

use cudarc::driver::sys;

use crate::code::{Code, INVALID_VALUE};
use crate::ffi::In;

// The keys of `extra`.
const END: usize = sys::CU_LAUNCH_PARAM_END_AS_INT as usize;
const BUFFER_POINTER: usize = sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize;
const BUFFER_SIZE: usize = sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize;

// More than the number of keys. It bounds the read of an array that lacks its end.
const MOST_KEYS: usize = 16;

/// The block for a kernel: from a pointer to each parameter, or from `extra`, which names a buffer.
pub(super) fn read(kernel: &ptx::Kernel, pointers: In<In<u8>>, extra: In<In<u8>>) -> Result<Vec<u8>, Code> {
    match (pointers.is_null(), extra.is_null()) {
        (false, false) => Err(INVALID_VALUE),
        (_, true) => from_pointers(kernel, pointers),
        (true, false) => from_buffer(kernel, extra),
    }
}

pub(super) fn from_pointers(kernel: &ptx::Kernel, pointers: In<In<u8>>) -> Result<Vec<u8>, Code> {
    let mut block = vec![0; kernel.parameter_bytes()];
    for (index, parameter) in kernel.parameters().iter().enumerate() {
        let bytes = pointers.element(index)?.bytes(parameter.size)?;
        block[parameter.offset..parameter.offset + parameter.size].copy_from_slice(&bytes);
    }
    Ok(block)
}

// The buffer may be larger than the kernel needs, as a structure with padding at its end is.
fn from_buffer(kernel: &ptx::Kernel, extra: In<In<u8>>) -> Result<Vec<u8>, Code> {
    let (mut buffer, mut size) = (None, None);
    for key in (0..MOST_KEYS).map(|pair| 2 * pair) {
        match extra.element(key)?.address() {
            END => break,
            BUFFER_POINTER => buffer = Some(extra.element(key + 1)?),
            BUFFER_SIZE => size = Some(extra.element(key + 1)?.cast::<usize>().get()?),
            _ => return Err(INVALID_VALUE),
        }
    }
    let needed = kernel.parameter_bytes();
    match (buffer, size) {
        _ if needed == 0 => Ok(Vec::new()),
        (Some(buffer), Some(size)) if size >= needed => buffer.bytes(needed),
        _ => Err(INVALID_VALUE),
    }
}
