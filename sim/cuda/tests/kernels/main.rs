//! Modules and kernels of the CUDA driver, on its own memory and on imported memory: the same tests pass on a GPU and on the
//! simulated driver.
#![expect(unsafe_code, reason = "calls the driver's functions")]

mod cooperative;
mod driver;
mod faults;
mod heap;
mod images;
mod launches;
mod libraries;
mod modules;
mod nvjitlink;
mod running;
mod starting;
mod sweep;

use support::child;
use support::cuda::PrimaryContext;

use support::Result;

/// The kernels of these tests.
const KERNELS: &str = include_str!("kernels.ptx");

/// The number of kernels in KERNELS.
fn kernels() -> usize {
    KERNELS.matches(".entry ").count()
}

/// The primary context of device 0, current. It must be dropped last.
fn open() -> PrimaryContext {
    PrimaryContext::retain_and_push(0)
}

/// Converts a call's result to a test's: the code becomes an error.
fn good<T>(result: driver::Call<T>) -> Result<T> {
    result.map_err(|code| format!("the driver says {}", support::driver::error_name(code)).into())
}

/// Fails unless the message contains all of `parts`.
#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

/// The bytes of words.
fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Words in device memory.
fn device_words(address: u64, n: usize) -> Vec<u32> {
    let mut bytes = vec![0; n * 4];
    support::cuda::memcpy_dtoh(&mut bytes, address);
    words_of(&bytes)
}
