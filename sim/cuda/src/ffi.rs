#![expect(unsafe_code, reason = "the only file that reads and writes through the caller's pointers")]
//! The caller's pointers, as types.
//!
//! Values of these types come into being only as arguments of an exported C function, whose contract (that of
//! the CUDA driver API) is that a pointer is null or valid for the access that the function documents. That
//! contract is what every SAFETY line here relies on. Rust code never makes one up.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use crate::code::{Code, INVALID_VALUE, Outcome};

/// A pointer through which one value is returned.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

// SAFETY: the caller's memory may be written from any thread: the linker's log is.
unsafe impl<T> Send for Out<T> {}
// SAFETY: as above; what is written through it is the caller's to order.
unsafe impl<T> Sync for Out<T> {}

impl<T> Out<T> {
    /// No result is wanted.
    pub(crate) const NULL: Self = Out(std::ptr::null_mut());

    /// Refuses a null pointer. To be called before any work that cannot be undone.
    pub(crate) fn required(self) -> Outcome {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes `value`; a null pointer is `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn set(self, value: T) -> Outcome {
        self.required()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes `value` unless the caller passed null.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not null, so it is valid for writing one `T` (see the module).
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// The same pointer, for a function whose result's type depends on another argument.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The same pointer, for an array whose elements are read first.
    pub(crate) fn as_input(self) -> In<T> {
        In(self.0)
    }

    /// The `index`th element of an array of results.
    pub(crate) fn element(self, index: usize) -> Self {
        Out(self.0.wrapping_add(index))
    }
}

/// A pointer to one value, or to an array of them, that the function reads.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads the value; a null pointer is `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn get(self) -> Result<T, Code> {
        self.element(0)
    }

    /// Reads the `index`th element; a null pointer is `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn element(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        let element = self.0.wrapping_add(index);
        // SAFETY: the array is not null, so its elements are valid for reading (see the module).
        Ok(unsafe { element.read_unaligned() })
    }
}

impl<T> In<T> {
    /// No value.
    pub(crate) const NULL: Self = In(std::ptr::null());

    /// A pointer to memory of the simulator, to be given out.
    pub(crate) fn from_ref(value: &T) -> Self {
        In(value)
    }

    /// The pointer's value, for arrays of pointers that also hold constants.
    pub(crate) fn address(self) -> usize {
        self.0.addr()
    }

    /// The same pointer, for data whose type depends on another argument.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T> In<T> {
    /// What lies this many bytes behind the pointer; null for null.
    pub(crate) fn behind<U>(self, bytes: usize) -> In<U> {
        if self.0.is_null() { In::NULL } else { In(self.0.wrapping_byte_add(bytes).cast()) }
    }
}

impl In<u8> {
    /// The next `len` bytes; a null pointer is `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn bytes(self, len: usize) -> Result<Vec<u8>, Code> {
        (0..len).map(|index| self.element(index)).collect()
    }

    /// Whether the data starts with `magic`. Nothing behind the first byte that differs is read.
    pub(crate) fn starts_with(self, magic: &[u8]) -> bool {
        magic.iter().enumerate().all(|(index, byte)| self.element(index) == Ok(*byte))
    }

    /// The bytes before the first NUL; a null pointer is `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn until_nul(self) -> Result<Vec<u8>, Code> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the pointer is not null, so it is a NUL-terminated string for the length of the call.
        let text = unsafe { CStr::from_ptr(self.0.cast()) };
        Ok(text.to_bytes().to_vec())
    }
}

/// A NUL-terminated string from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl Text<'_> {
    /// The string, or `None` for null or for text that is not UTF-8 (no name here is anything else).
    pub(crate) fn read(&self) -> Option<&str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so it is a NUL-terminated string for the length of the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().ok()
    }
}

/// Writes `text` and a NUL into a caller's buffer of `capacity` bytes, cut to fit.
pub(crate) fn write_text(buffer: Out<u8>, capacity: usize, text: &str) -> Outcome {
    buffer.required()?;
    let Some(room) = capacity.checked_sub(1) else { return Err(INVALID_VALUE) };
    let text = &text.as_bytes()[..text.len().min(room)];
    for (index, &byte) in text.iter().enumerate() {
        buffer.element(index).set_if_wanted(byte);
    }
    buffer.element(text.len()).set_if_wanted(0);
    Ok(())
}

/// A host function or stream callback of the caller, and its argument.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct HostFunction(Option<unsafe extern "C" fn(argument: usize)>);

impl HostFunction {
    pub(crate) fn required(self) -> Outcome {
        self.0.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Calls the function with the argument that came with it.
    pub(crate) fn call(self, argument: usize) {
        if let Some(function) = self.0 {
            // SAFETY: the caller handed over both, to be called together once the stream reaches them.
            unsafe { function(argument) }
        }
    }
}

/// A callback of `cuStreamAddCallback`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct StreamCallback(Option<unsafe extern "C" fn(stream: usize, status: Code, argument: usize)>);

impl StreamCallback {
    pub(crate) fn required(self) -> Outcome {
        self.0.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Calls the callback with the stream, the status of its work and the argument that came with it.
    pub(crate) fn call(self, stream: usize, status: Code, argument: usize) {
        if let Some(callback) = self.0 {
            // SAFETY: the caller handed over both, to be called together once the stream reaches them.
            unsafe { callback(stream, status, argument) }
        }
    }
}

/// A `CUoccupancyB2DSize`: a function from block size to dynamic shared memory.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct BlockToShared(Option<unsafe extern "C" fn(block: i32) -> usize>);

impl BlockToShared {
    /// The function's result; `None` for a null function.
    pub(crate) fn call(self, block: i32) -> Option<usize> {
        // SAFETY: the caller handed the function over to be called with sizes of blocks.
        self.0.map(|function| unsafe { function(block) })
    }
}
