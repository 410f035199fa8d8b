//! Times, rates and versions as text, and sizes from text.

use std::num::{IntErrorKind, ParseIntError};

const TOO_MANY: &str = "more bytes than there are addresses";

/// A number of bytes from text: `4096`, `4K`, `4KiB`, `1.5` is refused. Units are binary.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim();
    let shift = match unit.to_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("'{unit}' is no unit: use K, M, G or T")),
    };
    let number: usize = digits.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => TOO_MANY,
        _ => "a size is a whole number with an optional unit, such as 64K",
    })?;
    match number.checked_shl(shift).filter(|bytes| bytes >> shift == number) {
        None => Err(TOO_MANY.to_owned()),
        Some(0) => Err("the smallest size is 1 byte".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// Nanoseconds with three or four digits.
pub(crate) fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Bytes per second, in decimal units as those of buses and memory.
pub(crate) fn rate(bytes: f64) -> String {
    let (value, unit) = match bytes {
        rate if rate < 999.5e3 => (rate / 1e3, "kB/s"),
        rate if rate < 999.5e6 => (rate / 1e6, "MB/s"),
        rate => (rate / 1e9, "GB/s"),
    };
    format!("{} {unit}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A version of CUDA: 12080 is 12.8.
pub(crate) fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_units() {
        let sizes = [
            ("1", 1),
            ("4B", 4),
            ("64K", 64 << 10),
            ("64kib", 64 << 10),
            ("2 MiB", 2 << 20),
            ("3GB", 3 << 30),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "0", "0K", "-1", "1.5K", "99999999999999999999", "99999999T", "é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["4Q", "4Kx", "4é", "4i", "4ib", "4bb", "4ki", "4kbb", "4kbib", "4kbbb"] {
            assert!(parse_size(text).is_err_and(|error| error.contains("is no unit")), "{text}");
        }
    }

    #[test]
    fn times_and_rates_have_three_digits() {
        let times = [1.234, 99.96, 999.6, 12_345.0, 5e6, 2e9, 123e9].map(time);
        assert_eq!(times, ["1.23 ns", "100 ns", "1.00 us", "12.3 us", "5.00 ms", "2.00 s", "123 s"]);
        assert_eq!([500.0, 17.3e9, 665e6].map(rate), ["0.50 kB/s", "17.3 GB/s", "665 MB/s"]);
    }

    #[test]
    fn versions_are_written_as_cudas_tools_do() {
        assert_eq!(cuda_version(12080), "12.8");
    }
}
