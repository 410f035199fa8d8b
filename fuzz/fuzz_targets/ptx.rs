//! PTX texts: parsing any bytes gives a module or an error with a line number, and never a panic. Kernels of a module
//! run for a moment on a small memory.
#![no_main]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libfuzzer_sys::fuzz_target;
use ptx::{Launch, Memory, Module};

/// The base address of the variables and the kernels' memory.
const BASE: u64 = 1 << 32;
/// The number of accesses after which all fail.
const ACCESSES: u32 = 1000;
/// The number of turns of its block after which a kernel is stopped. A loop runs hundreds of times in one turn, and a kernel
/// that sleeps does so for a millisecond a turn.
const TURNS: u32 = 4;
/// Kernels with more shared memory, or more local memory of all threads, are not run.
const LARGEST: u64 = 64 << 10;

fuzz_target!(|bytes: &[u8]| {
    // As the driver reads a program: an input that is not UTF-8 is read, too.
    let source = &*String::from_utf8_lossy(bytes);
    match Module::load(source) {
        Err(error) => {
            assert!(error.line as usize <= source.lines().count() + 1, "{error}");
            assert!(!error.reason.is_empty() && !error.to_string().is_empty());
        }
        Ok(module) => run(module),
    }
});

fn run(module: Module) {
    if module.variables().iter().any(|variable| variable.size > LARGEST || variable.align > 4096) {
        return;
    }
    let addresses: Vec<u64> =
        (0..module.variables().len() as u64).map(|index| BASE + index * (LARGEST + 4096)).collect();
    let program = module.link(&addresses);
    program.initial();
    for kernel in program.kernels().take(2) {
        let block = kernel.required_block().unwrap_or([2, 1, 1]);
        let threads = block.iter().try_fold(1, |threads: u32, length| threads.checked_mul(*length));
        let Some(threads @ 1..=64) = threads else { continue };
        if kernel.shared_bytes() > LARGEST || kernel.local_bytes().saturating_mul(threads.into()) > LARGEST {
            continue;
        }
        // Every parameter is the memory's address or a small number.
        let parameters = BASE.to_le_bytes().repeat(kernel.parameter_bytes().div_ceil(8).min(64));
        let memory = Little { bytes: Mutex::new(vec![1; 4096]), accesses: AtomicU32::new(0), turns: AtomicU32::new(0) };
        let launch = Launch { kernel, grid: [1, 1, 1], block, dynamic_shared: 256, workspace: 0, parameters };
        // A fault is a valid result.
        if let Err(fault) = ptx::run(&launch, &memory) {
            assert!(!fault.to_string().is_empty());
        }
    }
}

/// 4 KiB at [`BASE`], with limits of accesses and turns.
struct Little {
    bytes: Mutex<Vec<u8>>,
    accesses: AtomicU32,
    turns: AtomicU32,
}

impl Little {
    fn at<T>(&self, address: u64, len: u32, work: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        if self.accesses.fetch_add(1, Ordering::Relaxed) >= ACCESSES {
            return None;
        }
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(bytes.get_mut(start..start.checked_add(len as usize)?)?))
    }
}

fn value(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

impl Memory for Little {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        self.at(address, bytes, |place| value(place))
    }

    fn store(&self, address: u64, bytes: u32, new: u64) -> Option<()> {
        self.at(address, bytes, |place| place.copy_from_slice(&new.to_le_bytes()[..bytes as usize]))
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        self.at(address, bytes, |place| {
            let old = value(place);
            place.copy_from_slice(&change(old).to_le_bytes()[..bytes as usize]);
            old
        })
    }

    fn fence(&self, _: ptx::Scope) {}

    fn interrupted(&self) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed) >= TURNS
    }
}
