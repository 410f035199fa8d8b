//! `atomics.cu`

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCES: [(&str, &str); 3] = [
    ("nvrtc12-sm_70", include_str!("../fixtures/nvrtc12-sm_70/atomics.ptx")),
    ("nvrtc13-sm_90-fast", include_str!("../fixtures/nvrtc13-sm_90-fast/atomics.ptx")),
    ("nvcc13-sm_90-debug", include_str!("../fixtures/nvcc13-sm_90-debug/atomics.ptx")),
];

#[test]
fn a_histogram_counts_every_byte() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let bytes: Vec<u8> = numbers(1000).iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let (at, bins) = (bench.array(&bytes), bench.array(&[0u32; 256]));
        bench.run("histogram", 6, 96, &[Argument::P(at), Argument::P(bins), Argument::U32(8000)]);
        let mut expected = vec![0u32; 256];
        bytes.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
        assert_eq!(bench.ram.read::<u32>(bins, 256), expected, "{way}");
    }
}

#[test]
fn every_atomic_operation_happens_once_for_each_thread() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let u = bench.array(&[0u32, 1_000_000, 1000, 0, 0, 0, u32::MAX, 0, 0, u32::MAX, 0]);
        let s = bench.array(&[0i32, i32::MIN]);
        let w = bench.array(&[0u64, 0]);
        let f = bench.array(&[0f32, 0.0]);
        let d = bench.array(&[0f64]);
        bench.run("every", 5, 100, &[u, s, w, f, d].map(Argument::P));
        let sum: u32 = (0..500).sum();
        let xor = (0..500).fold(0, |xor, i| xor ^ i);
        // 500 times around 0 to 9, up and down.
        let expected = [sum, 1_000_000 - sum, 0, 499, 0, 0, 0, u32::MAX, xor];
        assert_eq!(bench.ram.read::<u32>(u, 9), expected, "{way}");
        assert_eq!(bench.ram.read::<u32>(u + 40, 1), [1], "{way}: one thread saw the first value");
        assert_eq!(bench.ram.read::<i32>(s, 2), [-499, 494], "{way}");
        assert_eq!(bench.ram.read::<u64>(w, 2), [u64::from(sum) << 32, 1497], "{way}");
        assert_eq!(bench.ram.read::<f32>(f, 2), [250.0, 500.0], "{way}");
        assert_eq!(bench.ram.read::<f64>(d, 1), [125.0], "{way}");
    }
}

#[test]
fn a_lock_lets_one_thread_in_at_a_time() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let (lock, counter) = (bench.array(&[0i32]), bench.array(&[0i32]));
        bench.run("locked", 8, 40, &[lock, counter].map(Argument::P));
        assert_eq!(bench.ram.read::<i32>(counter, 1), [320], "{way}");
    }
}
