//! `warps.cu`
#![allow(clippy::cast_possible_truncation, reason = "counts are small")]

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/warps.ptx");

#[test]
fn a_reduction_sums_everything() {
    let mut bench = Bench::new(SOURCE);
    let values: Vec<f32> = numbers(5000).iter().map(|bits| (bits % 100) as u8).map(f32::from).collect();
    let (at, out) = (bench.array(&values), bench.array(&[0f32]));
    bench.run("sum", 5, 128, &[Argument::P(at), Argument::P(out), Argument::U32(5000)]);
    // Whole numbers below 2^24 are exact in any order.
    assert_eq!(bench.ram.read::<f32>(out, 1)[0], values.iter().sum::<f32>());
}

#[test]
fn a_scan_adds_up_within_each_block() {
    let mut bench = Bench::new(SOURCE);
    let values: Vec<u32> = numbers(600).iter().map(|&bits| bits as u32).collect();
    let at = bench.array(&values);
    let out = bench.room(4 * values.len());
    bench.run("scan", 3, 256, &[Argument::P(at), Argument::P(out), Argument::U32(600)]);
    let sums = |block: &[u32]| {
        let add = |sum: &mut u32, value: &u32| {
            *sum = sum.wrapping_add(*value);
            Some(*sum)
        };
        block.iter().scan(0, add).collect::<Vec<_>>()
    };
    let expected: Vec<u32> = values.chunks(256).flat_map(sums).collect();
    assert_eq!(bench.ram.read::<u32>(out, 600), expected);
}

#[test]
fn lanes_vote_match_and_shuffle() {
    let mut bench = Bench::new(SOURCE);
    let x: Vec<i32> = numbers(32).iter().map(|bits| (bits % 9) as i32 - 4).collect();
    let at = bench.array(&x);
    let out = bench.room(32 * 8 * 4);
    bench.run("votes", 1, 32, &[Argument::P(at), Argument::P(out)]);
    let results = bench.ram.read::<u32>(out, 256);
    let mask =
        |holds: &dyn Fn(i32) -> bool| (0..32).filter(|&lane| holds(x[lane])).fold(0u32, |mask, lane| mask | 1 << lane);
    for lane in 0..32 {
        let expected = [
            mask(&|x| x > 0),
            u32::from(x.iter().all(|&x| x > -100)),
            u32::from(x.contains(&3)),
            mask(&|other| other % 4 == x[lane] % 4),
            x[lane / 2].cast_unsigned(),
            x[if lane % 8 == 0 { lane } else { lane - 1 }].cast_unsigned(),
            if lane % 2 == 1 { x[lane ^ 2].cast_unsigned() } else { 0 },
            u32::MAX.wrapping_add(1),
        ];
        assert_eq!(results[8 * lane..8 * lane + 8], expected, "lane {lane}");
    }
}

#[test]
fn barriers_count_and_combine_predicates() {
    let mut bench = Bench::new(SOURCE);
    let x: Vec<i32> = numbers(100).iter().map(|bits| (bits % 9) as i32 - 4).collect();
    let (at, out) = (bench.array(&x), bench.array(&[0i32; 3]));
    bench.run("counts", 1, 100, &[Argument::P(at), Argument::P(out)]);
    let positive = x.iter().filter(|&&x| x > 0).count() as i32;
    let results = bench.ram.read::<i32>(out, 3);
    assert_eq!((results[0], results[1] != 0, results[2] != 0), (positive, true, false));
}

#[test]
fn diverged_lanes_find_room_together() {
    let mut bench = Bench::new(SOURCE);
    let values: Vec<i32> = numbers(1000).iter().map(|&bits| bits as i32).collect();
    let (at, used) = (bench.array(&values), bench.array(&[0u32]));
    let out = bench.room(4000);
    bench.run("compact", 4, 256, &[Argument::P(at), Argument::P(out), Argument::P(used), Argument::U32(1000)]);
    let mut expected: Vec<i32> = values.into_iter().filter(|&value| value > 0).collect();
    let count = bench.ram.read::<u32>(used, 1)[0] as usize;
    let mut results = bench.ram.read::<i32>(out, count);
    expected.sort_unstable();
    results.sort_unstable();
    assert_eq!(results, expected);
}
