//! `CUDA_VISIBLE_DEVICES`: which devices a program sees, and in which order (CUDA programming guide, "CUDA Environment
//! Variables").

use std::collections::HashSet;

/// The numbers of the devices that the program sees, in its order; all of them where the variable is not set. `uuid` is a
/// device's, as `nvidia-smi -L` prints it.
///
/// The first entry that names no device ends the list. A device that is named twice leaves none, as in NVIDIA's driver.
pub(super) fn numbers(count: i32, uuid: impl Fn(i32) -> Option<String>) -> Vec<i32> {
    let Some(list) = std::env::var_os("CUDA_VISIBLE_DEVICES") else { return (0..count).collect() };
    let list = list.to_string_lossy();
    let named: Vec<i32> = list.split(',').map_while(|entry| find(entry.trim(), count, &uuid)).collect();
    let different: HashSet<i32> = named.iter().copied().collect();
    if different.len() == named.len() { named } else { Vec::new() }
}

/// The device that an entry names: a number, or the beginning of one UUID.
fn find(entry: &str, count: i32, uuid: impl Fn(i32) -> Option<String>) -> Option<i32> {
    if !entry.starts_with("GPU-") {
        return entry.parse().ok().filter(|number| (0..count).contains(number));
    }
    let mut named = (0..count).filter(|number| uuid(*number).is_some_and(|uuid| uuid.starts_with(entry)));
    named.next().filter(|_| named.next().is_none())
}
