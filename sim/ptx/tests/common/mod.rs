//! Memory to run kernels in, and a bench to run them on.

#![allow(dead_code, reason = "each test file uses a part of this")]

use ptx::{Fault, Launch, Memory, Module, Program};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Where memory begins.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;

/// One allocation of words, as far as `len` bytes.
pub(crate) struct Ram {
    words: Vec<AtomicU64>,
    len: u64,
    pub(crate) interrupt: AtomicBool,
}

impl Ram {
    pub(crate) fn new(len: u64) -> Ram {
        let words = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Ram { words, len, interrupt: AtomicBool::new(false) }
    }

    /// The word, the shift within it and the mask before shifting.
    fn place(&self, address: u64, bytes: u32) -> Option<(&AtomicU64, u32, u64)> {
        let at = address.checked_sub(BASE)?;
        if at.checked_add(u64::from(bytes))? > self.len || at % u64::from(bytes) != 0 {
            return None;
        }
        let word = self.words.get(usize::try_from(at / 8).ok()?)?;
        let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        Some((word, u32::try_from(at % 8).ok()? * 8, mask))
    }

    pub(crate) fn write_bytes(&self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            self.store(at, 1, u64::from(*byte)).expect("the address is in memory");
        }
    }

    pub(crate) fn read_bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let byte = |at| self.load(at, 1).expect("the address is in memory").to_le_bytes()[0];
        (address..address + len as u64).map(byte).collect()
    }

    pub(crate) fn write<T: Plain>(&self, address: u64, values: &[T]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bits().to_le_bytes()[..T::BYTES].to_vec()).collect();
        self.write_bytes(address, &bytes);
    }

    pub(crate) fn read<T: Plain>(&self, address: u64, count: usize) -> Vec<T> {
        let bytes = self.read_bytes(address, count * T::BYTES);
        let value = |chunk: &[u8]| {
            let mut eight = [0; 8];
            eight[..T::BYTES].copy_from_slice(chunk);
            T::of(u64::from_le_bytes(eight))
        };
        bytes.chunks(T::BYTES).map(value).collect()
    }
}

impl Memory for Ram {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        let (word, shift, mask) = self.place(address, bytes)?;
        Some(word.load(Ordering::Relaxed) >> shift & mask)
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        self.update(address, bytes, &mut |_| value).map(|_| ())
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let (word, shift, mask) = self.place(address, bytes)?;
        #[allow(deprecated, reason = "its new name, try_update, needs Rust 1.95")]
        let old = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |word| {
            Some(word & !(mask << shift) | (change(word >> shift & mask) & mask) << shift)
        });
        old.ok().map(|word| word >> shift & mask)
    }

    fn fence(&self, _: ptx::Scope) {
        fence(Ordering::SeqCst);
    }

    fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// What memory holds.
pub(crate) trait Plain: Copy {
    const BYTES: usize;
    fn bits(self) -> u64;
    fn of(bits: u64) -> Self;
}

macro_rules! plain {
    ($($t:ty: $bytes:literal, $to:expr, $from:expr;)+) => {
        $(impl Plain for $t {
            const BYTES: usize = $bytes;
            fn bits(self) -> u64 {
                ($to)(self)
            }
            #[allow(clippy::cast_possible_truncation, reason = "as many bits as the type has")]
            fn of(bits: u64) -> Self {
                ($from)(bits)
            }
        })+
    };
}

plain! {
    u8: 1, u64::from, |bits| bits as u8;
    u16: 2, u64::from, |bits| bits as u16;
    i16: 2, |value: i16| u64::from(value.cast_unsigned()), |bits| bits as i16;
    u32: 4, u64::from, |bits| bits as u32;
    i32: 4, |value: i32| u64::from(value.cast_unsigned()), |bits| bits as i32;
    u64: 8, |value| value, |bits| bits;
    i64: 8, i64::cast_unsigned, u64::cast_signed;
    f32: 4, |value: f32| u64::from(value.to_bits()), |bits| f32::from_bits(bits as u32);
    f64: 8, f64::to_bits, f64::from_bits;
}

/// A program in memory: its variables come first, then what a test allocates.
pub(crate) struct Bench {
    pub(crate) program: Program,
    pub(crate) ram: Ram,
    next: u64,
}

impl Bench {
    pub(crate) fn new(source: &str) -> Bench {
        let module = match Module::load(source) {
            Ok(module) => module,
            Err(error) => panic!("{error}"),
        };
        let mut next = BASE;
        let mut addresses = Vec::new();
        for variable in module.variables() {
            next = next.next_multiple_of(variable.align);
            addresses.push(next);
            next += variable.size;
        }
        let program = module.link(&addresses);
        let ram = Ram::new(1 << 20);
        for (address, bytes) in program.initial() {
            ram.write_bytes(address, &bytes);
        }
        Bench { program, ram, next }
    }

    /// The address of room for so many bytes.
    pub(crate) fn room(&mut self, bytes: usize) -> u64 {
        let address = self.next.next_multiple_of(256);
        self.next = address + bytes as u64;
        address
    }

    pub(crate) fn array<T: Plain>(&mut self, values: &[T]) -> u64 {
        let address = self.room(values.len() * T::BYTES);
        self.ram.write(address, values);
        address
    }

    pub(crate) fn launch(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], arguments: &[Argument]) -> Launch {
        let kernel = self.program.kernel(kernel).unwrap_or_else(|| panic!("there is no kernel {kernel}"));
        let mut parameters = vec![0; kernel.parameter_bytes()];
        assert_eq!(kernel.parameters().len(), arguments.len(), "arguments of {}", kernel.name());
        for (place, argument) in kernel.parameters().iter().zip(arguments) {
            let bytes = argument.bytes();
            assert_eq!(bytes.len(), place.size, "an argument of {}", kernel.name());
            parameters[place.offset..place.offset + place.size].copy_from_slice(&bytes);
        }
        Launch { kernel, grid, block, dynamic_shared: 0, workspace: 0, parameters }
    }

    pub(crate) fn try_run(&self, kernel: &str, blocks: u32, threads: u32, arguments: &[Argument]) -> Result<(), Fault> {
        ptx::run(&self.launch(kernel, [blocks, 1, 1], [threads, 1, 1], arguments), &self.ram)
    }

    pub(crate) fn run(&self, kernel: &str, blocks: u32, threads: u32, arguments: &[Argument]) {
        if let Err(fault) = self.try_run(kernel, blocks, threads, arguments) {
            panic!("{fault}");
        }
    }
}

/// A kernel's argument.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    P(u64),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    F64(f64),
    Bytes(Vec<u8>),
}

impl Argument {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Argument::P(value) | Argument::U64(value) => value.to_le_bytes().to_vec(),
            Argument::U32(value) => value.to_le_bytes().to_vec(),
            Argument::I32(value) => value.to_le_bytes().to_vec(),
            Argument::F32(value) => value.to_le_bytes().to_vec(),
            Argument::F64(value) => value.to_le_bytes().to_vec(),
            Argument::Bytes(bytes) => bytes.clone(),
        }
    }
}
