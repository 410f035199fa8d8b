//! Messages of the validation layer: the callback that receives them.
#![expect(unsafe_code, reason = "is called by Vulkan")]

use std::ffi::c_void;

use ash::vk;
use simcommon::stop;

use crate::interface::text;

/// The messenger used both during the creation of an instance and afterwards: warnings and errors of every type except
/// GENERAL, under which the loader and the layers report their own set-up.
pub(crate) fn messenger_info() -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type};
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::VALIDATION | Type::PERFORMANCE)
        .pfn_user_callback(Some(heard))
}

/// Ends the process with the message.
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
    stop!("validation: {}: {}", name.to_string_lossy(), message.to_string_lossy())
}
