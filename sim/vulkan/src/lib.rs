//! Four Vulkan layers, in one shared object.
//!
//! * `VK_LAYER_VKGDR_messenger` turns validation messages into failures (`messenger.rs`). It goes first, nearest the
//!   application and above `VK_LAYER_KHRONOS_validation`.
//! * `VK_LAYER_VKGDR_faults` makes chosen calls fail and keeps a ledger of live objects (`faults.rs`). It also goes
//!   above the validation layer, whose own calls would otherwise consume the application's faults.
//! * `VK_LAYER_VKGDR_semaphores` exports and imports semaphores (`semaphores.rs`). `vkgdr-sim` always loads it.
//! * `VK_LAYER_VKGDR_profile` makes a CPU's device look like a GPU (`profile.rs`). It goes last, nearest the driver.
//!
//! ```text
//! VK_ADD_LAYER_PATH=<folders of the manifests, in the order of the layers>
//! VK_INSTANCE_LAYERS=VK_LAYER_VKGDR_messenger:VK_LAYER_VKGDR_faults:VK_LAYER_KHRONOS_validation:VK_LAYER_VKGDR_semaphores:VK_LAYER_VKGDR_profile
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `VKLAYER_FAIL=vkMapMemory:1:-5,…` | faults from the start: function (or `*`), which call, `VkResult` |
//! | `VKLAYER_PROFILE=rebar` | which GPU the profile layer shows, see there |
//!
//! Two effects of other components show in call counts and sweeps:
//!
//! * Mesa's implicit layer `VK_LAYER_MESA_device_select` enumerates devices and extensions itself, and crashes if that
//!   is made to fail: set `NODEVICE_SELECT=1`, which disables it.
//! * The loader's own `vkCreateDevice` begins with two calls of `vkEnumerateDeviceExtensionProperties`. A fault there
//!   reaches the application as the result of `vkCreateDevice`.
//!
//! A test opens the same file as the loader, so that both share one state, and calls the functions of
//! `controls.rs`, which the crate `support` wraps.
//!
//! The instance of the simulated CUDA driver (application name `simcuda`) passes all layers untouched: it lives in
//! the same process, but is not under test.
//!
//! The profile layer labels exported memory, for the simulated CUDA driver (`simcommon::label`).
//!
//! No panic crosses the ABI: in an `extern "system"` function a panic ends the process, which is what a broken test
//! layer should do.
// eprintln panics where stderr is full or a closed pipe, and a call would fail with another code.
#![deny(clippy::print_stderr)]

mod controls;
mod dispatch;
mod faults;
mod interface;
mod messages;
mod messenger;
mod next;
mod profile;
mod rules;
mod semaphores;
mod tables;
