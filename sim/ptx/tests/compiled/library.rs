//! `nvcc/library.cu`, which only nvcc compiles: CUB, cooperative groups, atomic references, virtual functions.

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCE: &str = include_str!("../fixtures/nvcc13-sm_80/library.ptx");

fn small(count: usize) -> Vec<i32> {
    numbers(count).iter().map(|bits| i32::from(bits.to_le_bytes()[3]) - 100).collect()
}

#[test]
fn cub_sorts_a_block_by_radix() {
    let mut bench = Bench::new(SOURCE);
    let low = |bits: &u64| u32::try_from(bits & 0xffff_ffff).expect("it was cut");
    let mut keys: Vec<u32> = numbers(512).iter().map(low).collect();
    let at = bench.array(&keys);
    bench.run("sort", 1, 128, &[Argument::P(at)]);
    keys.sort_unstable();
    assert_eq!(bench.ram.read::<u32>(at, 512), keys);
}

#[test]
fn cub_scans_a_block() {
    let mut bench = Bench::new(SOURCE);
    let values = small(128);
    let at = bench.array(&values);
    bench.run("scan", 1, 128, &[Argument::P(at)]);
    let sums = values.iter().scan(0, |sum, value| {
        *sum += value;
        Some(*sum)
    });
    assert_eq!(bench.ram.read::<i32>(at, 128), sums.collect::<Vec<_>>());
}

#[test]
fn cooperative_groups_reduce_their_tiles() {
    let mut bench = Bench::new(SOURCE);
    let values = small(96);
    let at = bench.array(&values);
    let out = bench.room(24);
    bench.run("tiles", 1, 96, &[at, out].map(Argument::P));
    let sums: Vec<i32> = values.chunks(16).map(|tile| tile.iter().sum()).collect();
    assert_eq!(bench.ram.read::<i32>(out, 6), sums);
}

#[test]
fn every_thread_of_a_grid_meets_the_others() {
    let mut bench = Bench::new(SOURCE);
    let arrived = bench.array(&[0i32]);
    bench.run("rendezvous", 16, 64, &[Argument::P(arrived)]);
    assert_eq!(bench.ram.read::<i32>(arrived, 1), [1024]);
}

#[test]
fn virtual_functions_are_those_of_the_object() {
    let mut bench = Bench::new(SOURCE);
    let out = bench.room(36);
    bench.run("shapes", 1, 9, &[Argument::P(out)]);
    let area = |x: i32| [x, x * x, 2 * x][x.unsigned_abs() as usize % 3];
    assert_eq!(bench.ram.read::<i32>(out, 9), (0..9).map(area).collect::<Vec<_>>());
}

#[test]
fn integers_of_128_bits_divide() {
    let mut bench = Bench::new(SOURCE);
    let words = numbers(6 * 16);
    let at = bench.array(&words);
    bench.run("quotients", 1, 16, &[Argument::P(at)]);
    let wide = |pair: &[u64]| (u128::from(pair[1]) << 64 | u128::from(pair[0])).cast_signed();
    for (given, result) in words.chunks(6).zip(bench.ram.read::<u64>(at, 96).chunks(6)) {
        assert_eq!(wide(&result[4..]), wide(&given[..2]) / wide(&given[2..4]));
    }
}
