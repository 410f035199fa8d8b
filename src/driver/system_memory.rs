//! The amount of the system's memory, and the size of its pages.
#![forbid(unsafe_code)]

use std::fs;

use rustix::system::sysinfo;

pub(crate) use rustix::param::page_size;

/// All of the system's memory, in bytes.
pub(crate) fn total() -> u64 {
    let info = sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

/// An estimate of the memory that programs can still take without swapping, in bytes: `MemAvailable` of
/// `/proc/meminfo`, or the free pages where that cannot be read.
pub(crate) fn available() -> u64 {
    let from_proc = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    from_proc.unwrap_or_else(|| {
        let info = sysinfo();
        info.freeram * u64::from(info.mem_unit)
    })
}

/// The value of `MemAvailable`, which is in KiB.
fn mem_available(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
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
