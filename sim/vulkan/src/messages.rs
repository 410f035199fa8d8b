//! Messages of the validation layer: the callback that receives them, and the functions by which tests read them.
#![expect(unsafe_code, reason = "is called by Vulkan and exports C functions")]

use std::ffi::{c_char, c_void};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use ash::vk;

use crate::interface::{text, write_text};

static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST: Mutex<String> = Mutex::new(String::new());
/// `VKLAYER_MESSENGER=count`
static ONLY_COUNT: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("VKLAYER_MESSENGER").is_some_and(|value| value == "count"));

/// The messenger used both during the creation of an instance and afterwards: warnings and errors of every type except
/// GENERAL, under which the loader and the layers report their own set-up.
pub(crate) fn messenger_info() -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::VALIDATION | Type::PERFORMANCE)
        .pfn_user_callback(Some(heard))
}

/// Counts the message, or ends the process with it.
///
/// # Safety
/// `data` is null or Vulkan's structure.
unsafe extern "system" fn heard(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _types: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the caller's promise.
    let data = unsafe { data.as_ref() };
    let (name, message) = data.map_or_else(Default::default, |data| {
        // SAFETY: null or a terminated string, for the time of the call.
        let name = unsafe { text(data.p_message_id_name) };
        // SAFETY: as above.
        let message = unsafe { text(data.p_message) };
        (name.unwrap_or_default(), message.unwrap_or_default())
    });
    record(format!("{}: {}", name.to_string_lossy(), message.to_string_lossy()));
    vk::FALSE
}

fn record(message: String) {
    if !*ONLY_COUNT {
        let _ = writeln!(io::stderr(), "validation: {message}");
        std::process::abort();
    }
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = message;
    COUNT.fetch_add(1, Ordering::SeqCst);
}

/// The number of messages since the library was loaded, with `VKLAYER_MESSENGER=count`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn vklayer_messages() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// Writes the last message as `<id name>: <text>`, terminated and cut to `capacity`; returns its whole length, 0 for
/// none.
///
/// # Safety
/// `buffer` is null or writable for `capacity` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn vklayer_last_message(buffer: *mut c_char, capacity: usize) -> usize {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller's promise.
    unsafe { write_text(&last, buffer, capacity) }
}
