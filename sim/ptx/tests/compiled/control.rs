//! `control.cu`

use crate::common::{Argument, Bench};
use crate::numbers;

const SOURCES: [(&str, &str); 2] = [
    ("nvrtc12-sm_70", include_str!("../fixtures/nvrtc12-sm_70/control.ptx")),
    ("nvcc13-sm_90-debug", include_str!("../fixtures/nvcc13-sm_90-debug/control.ptx")),
];

#[test]
fn a_switch_takes_the_right_branch() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let inputs: Vec<i32> = (0..100).map(|i| i % 11 - 1).collect();
        let at = bench.array(&inputs);
        let out = bench.room(400);
        bench.run("choose", 2, 64, &[Argument::P(at), Argument::P(out), Argument::U32(100)]);
        let choose = |(i, &x): (i32, &i32)| match x {
            0 => x + i,
            1 => x * i,
            2 => i - x,
            3 => i ^ 0x55,
            4 => i / 3,
            5 => inputs[0] + 1,
            6 => -x,
            7 => i % 7,
            8 => i << 3,
            _ => -1,
        };
        let expected: Vec<i32> = (0..).zip(&inputs).map(choose).collect();
        assert_eq!(bench.ram.read::<i32>(out, 100), expected, "{way}");
    }
}

fn ackermann(m: u32, n: u32) -> u32 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

#[test]
fn functions_call_themselves() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(8 * 12);
        bench.run("recurse", 1, 12, &[Argument::P(out)]);
        let expected: Vec<u32> = (0..12).flat_map(|i| [(1..=i).product(), ackermann(2, i % 4)]).collect();
        assert_eq!(bench.ram.read::<u32>(out, 24), expected, "{way}");
    }
}

#[test]
fn structs_are_passed_and_returned_by_value() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(16 * 8);
        bench.run("structs", 1, 8, &[Argument::P(out)]);
        let expected: Vec<f64> = (0..8).flat_map(|i| [7.5, f64::from(i + 10)]).collect();
        assert_eq!(bench.ram.read::<f64>(out, 16), expected, "{way}");
    }
}

#[test]
fn calls_go_through_pointers_in_a_table() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(4 * 9);
        bench.run("pointers", 1, 9, &[Argument::P(out)]);
        let expected: Vec<i32> =
            (0..9).map(|i| [2 * i, 3 * i, i * i][usize::try_from(i).expect("small") % 3]).collect();
        assert_eq!(bench.ram.read::<i32>(out, 9), expected, "{way}");
    }
}

#[test]
fn threads_sort_arrays_of_their_own() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let values: Vec<i32> = numbers(32).iter().map(|bits| (bits % 1000).to_le_bytes()[0].into()).collect();
        let at = bench.array(&values);
        let out = bench.room(4 * 32 * 40);
        bench.run("local", 1, 40, &[Argument::P(at), Argument::P(out)]);
        let mut expected = values;
        expected.sort_unstable();
        for (thread, result) in bench.ram.read::<i32>(out, 32 * 40).chunks(32).enumerate() {
            assert_eq!(result, expected, "{way}: thread {thread}");
        }
    }
}

#[test]
fn loops_of_different_length_end() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(4 * 256);
        bench.run("collatz", 4, 64, &[Argument::P(out)]);
        let steps = |start: u64| {
            let next = |x: &u64| (*x != 1).then(|| if x % 2 == 1 { 3 * x + 1 } else { x / 2 });
            std::iter::successors(Some(start), next).count() - 1
        };
        let expected: Vec<usize> = (1..=256).map(steps).collect();
        let results: Vec<usize> = bench.ram.read::<u32>(out, 256).into_iter().map(|steps| steps as usize).collect();
        assert_eq!(results, expected, "{way}");
    }
}
