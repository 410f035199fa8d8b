//! Facts that Linux tells in files: a GPU's BAR, limits of the process.

use vkgdr::diagnosis::System;

fn pci(bus_id: &str, file: &str) -> String {
    format!("/sys/bus/pci/devices/{}/{file}", bus_id.to_lowercase())
}

/// The size of a GPU's BAR 1 in bytes: the second line of PCI's table of resources has its first and last address.
pub(crate) fn bar_size(system: &System, bus_id: &str) -> Option<u64> {
    let table = system.text(&pci(bus_id, "resource"))?;
    let mut addresses = table.lines().nth(1)?.split_whitespace().map(hexadecimal);
    let (start, end) = (addresses.next()??, addresses.next()??);
    // An absent BAR is all zeros.
    (end > start).then(|| end - start + 1)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The largest size in bytes that a GPU's BAR 1 can be resized to; none without Resizable BAR. Linux has the sizes as
/// bits (Documentation/ABI/testing/sysfs-bus-pci): bit 0 is 1 MiB, and each next one is twice as large.
pub(crate) fn largest_bar(system: &System, bus_id: &str) -> Option<u64> {
    let sizes = hexadecimal(system.text(&pci(bus_id, "resource1_resize"))?.trim())?;
    1_u64.checked_shl(20 + sizes.checked_ilog2()?)
}

/// A soft and a hard limit; none is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// A limit of this process, by its name in `/proc/self/limits`, such as `Max open files`.
pub(crate) fn limit(system: &System, name: &str) -> Option<Limit> {
    let text = system.text("/proc/self/limits")?;
    let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A system with one file.
    fn with<T>(name: &str, path: &str, text: &str, look: impl FnOnce(&System) -> T) -> T {
        let root = std::env::temp_dir().join(format!("vkgdr-linux-{}-{name}", std::process::id()));
        let file = root.join(path.trim_start_matches('/'));
        let written = fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).and_then(|()| fs::write(&file, text));
        assert!(written.is_ok(), "{written:?}");
        let found = look(&System::below(&root));
        let _ = fs::remove_dir_all(root);
        found
    }

    #[test]
    fn the_size_of_a_bar_is_read_from_linuxs_table() {
        let absent = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let registers = "0x00000000de000000 0x00000000deffffff 0x0000000000040200\n";
        let bar = "0x000000d000000000 0x000000d7ffffffff 0x000000000014220c\n";
        for (text, size) in [
            (format!("{registers}{bar}"), Some(32 << 30)),
            (format!("{registers}{absent}"), None),
            (registers.to_owned(), None),
            ("nonsense\nnonsense\n".to_owned(), None),
            (String::new(), None),
        ] {
            let path = "/sys/bus/pci/devices/0000:ab:00.0/resource";
            assert_eq!(with("bar", path, &text, |system| bar_size(system, "0000:AB:00.0")), size, "{text}");
        }
        assert_eq!(bar_size(&System::below("/dev/null/none"), "0000:ab:00.0"), None);
    }

    #[test]
    fn the_largest_size_of_a_bar_is_its_highest_bit() {
        let path = "/sys/bus/pci/devices/0000:01:00.0/resource1_resize";
        for (text, size) in [("000000000000ffc0\n", Some(32 << 30)), ("0000000000000100", Some(256 << 20)), ("0", None)]
        {
            assert_eq!(with("largest", path, text, |system| largest_bar(system, "0000:01:00.0")), size, "{text}");
        }
    }

    #[test]
    fn limits_are_numbers_or_unlimited() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max locked memory         8388608              unlimited            bytes     \n\
                    Max open files            1024                 524288               files     \n";
        with("limits", "/proc/self/limits", text, |system| {
            let files = Limit { soft: Some(1024), hard: Some(524_288) };
            assert_eq!(limit(system, "Max open files"), Some(files));
            assert_eq!(limit(system, "Max locked memory"), Some(Limit { soft: Some(8 << 20), hard: None }));
            assert_eq!(limit(system, "Max nonsense"), None);
        });
        assert!(limit(&System::here(), "Max open files").is_some());
    }
}
