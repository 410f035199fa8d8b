//! The amount of the system's memory, and the size of its pages.
#![expect(unsafe_code, reason = "asks the C library")]

use std::fs;

/// The size of a page in bytes, a power of two.
pub(crate) fn page_size() -> usize {
    usize::try_from(ask(libc::_SC_PAGESIZE)).unwrap_or(4096)
}

/// All of the system's memory, in bytes.
pub(crate) fn total() -> u64 {
    ask(libc::_SC_PHYS_PAGES) * page_size() as u64
}

/// An estimate of the memory that programs can still take without swapping, in bytes: `MemAvailable` of
/// `/proc/meminfo`, or the free pages where that cannot be read.
pub(crate) fn available() -> u64 {
    let from_proc = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    from_proc.unwrap_or_else(|| ask(libc::_SC_AVPHYS_PAGES) * page_size() as u64)
}

/// The value of `MemAvailable`, which is in KiB.
fn mem_available(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// 0 for a value that the system does not have.
fn ask(name: libc::c_int) -> u64 {
    // SAFETY: takes any number.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_kib() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n";
        assert_eq!(mem_available(text), Some(8_000_000 << 10));
        assert_eq!(mem_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_part_of_the_memory_is_available() {
        assert!((1..=total()).contains(&available()), "{} of {}", available(), total());
        assert!(page_size().is_power_of_two());
    }
}
