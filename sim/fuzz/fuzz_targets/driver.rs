//! Sequences of calls of the simulated driver's functions, decoded from bytes: objects of every kind made, used and ended
//! in any order, with stale handles, handles of other kinds and any numbers; never an invalid pointer of the program's.
//!
//! The driver is linked into the program, so that it is instrumented. It may not panic, a host function may not call it,
//! and after everything has been ended no object is left.
#![no_main]

#[path = "../src/driver/arguments.rs"]
mod arguments;
#[path = "../src/driver/calls.rs"]
mod calls;
#[path = "../src/input.rs"]
mod input;
#[path = "../src/driver/objects.rs"]
mod objects;
#[path = "../src/driver/stock.rs"]
mod stock;

use std::sync::atomic::{AtomicU64, Ordering};

use arguments::{Argument, Scratch};
use calls::{CALLS, Call};
use input::Input;
use libfuzzer_sys::fuzz_target;
use objects::{Kind, Object};
use simcuda as _;

/// `CUDA_ERROR_UNKNOWN`: the driver's code for a panic that it caught.
const UNKNOWN: i32 = 999;
/// The number of calls that the program made, for the line that [`print_count`] prints.
static COUNT: AtomicU64 = AtomicU64::new(0);

extern "C" fn print_count() {
    eprintln!("calls: {}", COUNT.load(Ordering::Relaxed));
}

fuzz_target!(
    init: {
        // Handles of destroyed contexts are errors, not the end of the program, and memory can run out.
        for (name, value) in [("SIMCUDA_STALE_CONTEXT", "error"), ("SIMCUDA_HEAP_MIB", "64"), ("SIMCUDA_QUIET", "1")] {
            // SAFETY: the program has one thread yet.
            unsafe { std::env::set_var(name, value) };
        }
        // SAFETY: the function may run at the program's end, when no other one of the target does.
        assert_eq!(unsafe { libc::atexit(print_count) }, 0);
        assert_eq!(drive!(cuInit(0)), 0);
    },
    |bytes: &[u8]| {
        let mut world = World { input: Input(bytes), objects: Vec::new(), kept: Vec::new(), program: 0 };
        world.stock();
        while !world.input.0.is_empty() {
            let index = world.input.below(CALLS.len());
            world.step(&CALLS[index]);
        }
        objects::end(&mut world.objects);
    }
);

struct World<'a> {
    input: Input<'a>,
    objects: Vec<Object>,
    /// Arguments of the calls that made linkers: a linker writes its options' values until it is destroyed, by the CUDA
    /// driver API's page of `cuLinkCreate`.
    kept: Vec<Scratch>,
    /// The index of the last program.
    program: usize,
}

impl World<'_> {
    fn step(&mut self, call: &Call) {
        let mut scratch = Scratch::default();
        let (mut arguments, mut made) = (Vec::new(), Vec::new());
        for &argument in call.arguments {
            let value = self.argument(argument, &mut scratch);
            if let Argument::New(kind) = argument {
                made.push((kind, scratch.len() - 1));
            }
            arguments.push(value);
        }
        let code = invoke(call.function, &arguments);
        assert_ne!(code, UNKNOWN, "{}", call.name);
        if code != 0 {
            return;
        }
        for (argument, handle) in call.arguments.iter().zip(arguments) {
            if let Argument::End(kind) = *argument {
                let ended = |object: &&mut Object| object.kind == kind && object.handle == handle;
                self.objects.iter_mut().filter(ended).for_each(|object| object.live = false);
            }
        }
        for (kind, place) in made {
            self.objects.push(Object { kind, handle: scratch.first(place), live: true });
        }
        if call.arguments.contains(&Argument::New(Kind::Linker)) {
            self.kept.push(scratch);
        }
    }
}

/// Calls a function of the driver: `drive!(cuMemFree_v2(address))`. Arguments are integers and pointers.
macro_rules! drive {
    ($name:ident($($argument:expr),*)) => {{
        unsafe extern "C" { fn $name(); }
        $crate::invoke($name, &[$(($argument) as usize),*])
    }};
}
use drive;

/// Calls a function of the driver with these arguments and zeros behind them.
fn invoke(function: unsafe extern "C" fn(), arguments: &[usize]) -> i32 {
    type Function =
        unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> i32;
    COUNT.fetch_add(1, Ordering::Relaxed);
    let mut all = [0; 12];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f, g, h, i, j, k, l] = all;
    // SAFETY: all parameters of the driver's functions are integers and pointers, each of which has a register or a slot
    // of 8 bytes of the stack to itself. What a function does not take it does not read, and the caller cleans up.
    let function: Function = unsafe { std::mem::transmute(function) };
    // SAFETY: pointers are null or valid, by `Argument`; handles, addresses and numbers are the driver's to check.
    unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l) }
}
