//! `data.cu`

use crate::common::{Argument, Bench};

const SOURCES: [(&str, &str); 2] = [
    ("nvrtc12-sm_70", include_str!("../fixtures/nvrtc12-sm_70/data.ptx")),
    ("nvcc13-sm_90-debug", include_str!("../fixtures/nvcc13-sm_90-debug/data.ptx")),
];

#[test]
fn a_struct_by_value_arrives_whole() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.array(&[0f32; 4]);
        let mut shape = Vec::new();
        [1.5f32, 2.5, -3.5, 4.5].iter().for_each(|scale| shape.extend(scale.to_le_bytes()));
        shape.extend([0xfe, 0]);
        shape.extend((-300i16).to_le_bytes());
        shape.extend([0; 4]);
        shape.extend((77u64 << 32).to_le_bytes());
        for index in 0..4u8 {
            let arguments = [Argument::Bytes(shape.clone()), Argument::P(out), Argument::U32(index.into())];
            bench.run("by_value", 1, 1, &arguments);
            let scale = [1.5, 2.5, -3.5, 4.5][usize::from(index)];
            assert_eq!(bench.ram.read::<f32>(out, 4), [scale, -2.0, -300.0, 77.0], "{way}");
        }
    }
}

#[test]
fn constants_have_their_values() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(4 * 15);
        bench.run("constants", 1, 15, &[Argument::P(out)]);
        let table = [1.0f32, -2.5, 3.25, 0.0, 1e-3];
        let others = [-1.0f32, 2.0, -3.0];
        for (i, result) in bench.ram.read::<f32>(out, 15).into_iter().enumerate() {
            let expected = table[i % 5] + 200.0 + 60000.0 + others[i % 3];
            assert!((result - expected).abs() < 0.02, "{way}: {result}, not {expected}");
        }
    }
}

#[test]
fn variables_keep_what_kernels_write() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let out = bench.room(32);
        for round in 1..4i64 {
            bench.run("variables", 1, 1, &[Argument::P(out)]);
            let expected = [40 + 2 * round, -1, i64::from(b'e'), 30 + 5 * round];
            assert_eq!(bench.ram.read::<i64>(out, 4), expected, "{way}");
        }
    }
}

#[test]
fn variables_say_where_they_lie() {
    for (way, source) in SOURCES {
        let module = ptx::Module::load(source).expect("the module loads");
        let visible = module.variables().iter().find(|variable| variable.name == "visible");
        let visible = visible.unwrap_or_else(|| panic!("{way}: no variable of that name"));
        assert_eq!((visible.size, visible.align, visible.space), (16, 4, ptx::Space::Global), "{way}");
        assert!(module.variables().iter().any(|variable| variable.space == ptx::Space::Const), "{way}");
    }
}

#[test]
fn small_integers_keep_their_signs() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let (bytes, shorts) = (bench.array(&[0u8, 127, 128, 255]), bench.array(&[0u16, 1, 65535, 32768]));
        let out = bench.room(16);
        bench.run("small", 1, 4, &[bytes, shorts, out].map(Argument::P));
        assert_eq!(bench.ram.read::<i32>(out, 4), [0, 127_001, -128_000 + 65535, -1000 + 32768], "{way}");
    }
}

#[test]
fn vectors_are_loaded_and_stored_whole() {
    for (way, source) in SOURCES {
        let mut bench = Bench::new(source);
        let input = bench.array(&[1f32, 2.0, 3.0, 4.0, -1.0, 0.5, 8.0, 0.25]);
        let out = bench.room(16);
        bench.run("vectors", 1, 2, &[input, out].map(Argument::P));
        assert_eq!(bench.ram.read::<f32>(out, 4), [3.0, 12.0, -0.5, 2.0], "{way}");
        let fault = bench.try_run("vectors", 1, 1, &[Argument::P(input + 8), Argument::P(out)]);
        // A debug build reads the parts one by one.
        if !way.ends_with("debug") {
            assert_eq!(fault.expect_err("it is not aligned").kind, ptx::FaultKind::MisalignedAddress, "{way}");
        }
    }
}
