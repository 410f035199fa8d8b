//! Sizes, times and rates as text, and sizes from text.

/// Bytes in binary units, with at most one digit after the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|unit| bytes >> (10 * (unit + 1)) == 0).unwrap_or(UNITS.len() - 1);
    let whole = bytes >> (10 * unit);
    // Tenths of the unit, rounded down, so that a size is never larger than said.
    let tenths = ((u128::from(bytes) * 10) >> (10 * unit)) - u128::from(whole) * 10;
    if tenths == 0 { format!("{whole} {}", UNITS[unit]) } else { format!("{whole}.{tenths} {}", UNITS[unit]) }
}

/// A version of CUDA: 12080 is 12.8.
pub(crate) fn cuda_version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// A UUID with its hyphens.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_at_most_one_digit() {
        let cases = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (246 << 20, "246 MiB"),
            ((8 << 30) - 1, "7.9 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn uuids_and_versions_are_written_as_their_tools_do() {
        assert_eq!(
            uuid(*b"\0\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
            "00112233-4455-6677-8899-aabbccddeeff"
        );
        assert_eq!(cuda_version(12080), "12.8");
    }
}
