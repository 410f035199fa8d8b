//! The host's mappings of imported memory.
//!
//! A real driver maps a GPU's memory for the host as I/O memory (`VM_IO | VM_PFNMAP`; open-gpu-kernel-modules,
//! `nv-mmap.c`), whose pages cannot be locked. Here it is found by the file behind the mapping.

use crate::external;

/// A line of `/proc/self/maps`: the range of a mapping, and its file's device and inode.
struct Mapping {
    start: usize,
    end: usize,
    file: (u64, u64),
}

impl Mapping {
    /// `start-end perms offset major:minor inode path`, see proc_pid_maps(5).
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (major, minor) = fields.nth(2)?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: address(start)?,
            end: address(end)?,
            file: (libc::makedev(number(major)?, number(minor)?), inode),
        })
    }
}

/// Whether a range of host memory, which must not wrap, has pages of imported memory.
pub(super) fn overlap(address: usize, len: usize) -> bool {
    let files = external::files();
    if files.is_empty() {
        return false;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let overlaps = |mapping: &Mapping| mapping.start < address + len && address < mapping.end;
    maps.lines().filter_map(Mapping::parse).filter(overlaps).any(|mapping| files.contains(&mapping.file))
}
