//! Arguments of driver calls, decoded from the fuzzer's bytes: mostly legal ones, and any others that the contract of the
//! driver's functions allows. Pointers are null or valid, as C programs' must be.

use std::ffi::c_void;

use crate::objects::{Kind, Object};
use crate::{World, drive};

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Where a new object is returned, or another one.
    New(Kind),
    Use(Kind),
    /// An object that the call ends.
    End(Kind),
    Zero,
    /// A place for results that the target does not read.
    Out,
    /// An array of such places.
    Outs,
    Device,
    /// A small number or a power of two.
    Flags,
    Number,
    /// Bytes, which may be too many.
    Size,
    /// Bytes of the program's memory.
    Length,
    /// Pages of virtual memory in bytes.
    Pages,
    /// Elements of an array.
    Count,
    /// Elements of an array of two.
    Pair,
    /// Where the length of an array of results is, and is returned.
    Capacity,
    /// Blocks of a grid or threads of a block, on one axis.
    Edge,
    /// A device address, or none.
    Address,
    /// An address in a reservation.
    Reserved,
    /// The program's memory.
    Bytes,
    /// A host function.
    Function,
    Name,
    Program,
    /// The length of the last program, or less.
    ProgramLength,
    LogKeys,
    LogValues,
    Numbers,
    Nodes,
    /// A kernel's parameters.
    Parameters,
    Accesses,
    PoolProperties,
    AllocationProperties,
    LaunchConfig,
    Copy2D,
    Copy3D,
    KernelNode,
    FillNode,
    HostNode,
    AnyNode,
}

/// The size of a page of virtual memory.
pub(crate) const PAGE: usize = 2 << 20;
/// The most pages of a reservation.
pub(crate) const MOST_PAGES: usize = 4;
/// Words of a place for results: more than any structure of the driver and any array that is asked for has.
const RESULT: usize = 64;
/// The elements of every array that is passed.
const ELEMENTS: usize = 4;
/// The program's memory. Copies in rows and slices stay inside.
static ARENA: Arena = Arena(std::cell::UnsafeCell::new([0; 1 << 20]));
static LOG: Arena = Arena(std::cell::UnsafeCell::new([0; 1 << 20]));

#[repr(align(4096))]
struct Arena(std::cell::UnsafeCell<[u8; 1 << 20]>);

// SAFETY: only the driver accesses it, by its address, as a GPU would.
#[expect(unsafe_code, reason = "a static of raw memory")]
unsafe impl Sync for Arena {}

impl Arena {
    fn address(&self) -> usize {
        self.0.get().expose_provenance()
    }
}

/// Two that can be loaded, and two that cannot.
pub(crate) const PROGRAMS: [&[u8]; 4] = [
    concat!(include_str!("kernels.ptx"), "\0").as_bytes(),
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry put() { ret; }\n.global .u32 counter;\0",
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry put() { bogus; }\0",
    b"\0",
];

/// Memory that a call reads and writes, for as long as the call.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Box<[usize]>>);

impl Scratch {
    fn place(&mut self, words: impl Into<Box<[usize]>>) -> usize {
        let mut words = words.into();
        let address = words.as_mut_ptr().expose_provenance();
        self.0.push(words);
        address
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first word of a place, by its index.
    pub(crate) fn first(&self, index: usize) -> usize {
        self.0[index][0]
    }
}

fn pair(low: usize, high: usize) -> usize {
    low & 0xffff_ffff | high << 32
}

impl World<'_> {
    /// The argument's value, as it is passed in a register.
    pub(crate) fn argument(&mut self, argument: Argument, scratch: &mut Scratch) -> usize {
        match argument {
            Argument::New(_) | Argument::Out => scratch.place([0; RESULT]),
            Argument::Use(kind) | Argument::End(kind) => self.handle(kind),
            Argument::Zero => 0,
            Argument::Outs => {
                let places = [0; ELEMENTS].map(|_| scratch.place([0; RESULT]));
                scratch.place(places)
            }
            Argument::Device => [0, 0, 0, 0, 0, 1, usize::MAX, 99][self.input.below(8)],
            Argument::Flags => match self.input.byte() {
                byte @ 0..128 => usize::from(byte % 4),
                byte @ 128..240 => 1 << (byte % 16),
                byte => usize::MAX >> (byte % 16),
            },
            Argument::Number => self.number(),
            Argument::Size => self.size(),
            Argument::Length => self.input.word() % (32 << 10),
            Argument::Pages => match self.input.byte() % 16 {
                count @ 0..14 => usize::from(count) % (MOST_PAGES + 1) * PAGE,
                14 => usize::MAX - PAGE + 1,
                _ => self.size() | 1,
            },
            Argument::Count => self.input.below(ELEMENTS + 1),
            Argument::Pair => self.input.below(3),
            Argument::Capacity => scratch.place([self.input.below(RESULT / 2), 0]),
            // Kernels are small, since none may run for long.
            Argument::Edge => [1, 1, 1, 2, 2, 3, 0, u32::MAX as usize][self.input.below(8)],
            Argument::Address => self.address(),
            Argument::Reserved => self.handle(Kind::Reservation).wrapping_add(self.input.below(MOST_PAGES) * PAGE),
            Argument::Bytes => ARENA.address() + self.input.word() * 8,
            Argument::Function => [callback as *const c_void as usize, 0][usize::from(self.input.byte() > 240)],
            Argument::Name => {
                [c"put", c"fill", c"heap", c"trap", c"counter", c"missing", c""][self.input.below(7)].as_ptr() as usize
            }
            Argument::Program => {
                self.program = [0, 0, 0, 0, 1, 1, 2, 3][self.input.below(8)];
                PROGRAMS[self.program].as_ptr() as usize
            }
            Argument::ProgramLength => PROGRAMS[self.program].len().saturating_sub(self.input.below(64)),
            // Buffers for the log and the errors of a compilation, which outlive its linker.
            Argument::LogKeys => scratch.place([pair(3, 4), pair(5, 6)]),
            Argument::LogValues => scratch.place([LOG.address(), self.input.word(), LOG.address(), self.input.word()]),
            Argument::Numbers => {
                let words = [0; ELEMENTS].map(|_| self.input.below(24));
                scratch.place([pair(words[0], words[1]), pair(words[2], words[3])])
            }
            Argument::Nodes => {
                let nodes = [0; ELEMENTS].map(|_| self.handle(Kind::Node));
                scratch.place(nodes)
            }
            Argument::Parameters => self.parameters(scratch),
            Argument::Accesses => {
                let (id, flags) = (self.argument(Argument::Device, scratch), self.input.below(5));
                // Of three words each: where, which device, and whether to read and write.
                scratch.place([pair(1, id), pair(flags, 1), pair(0, 3), pair(1, 0), pair(3, 1), pair(0, 3)])
            }
            Argument::PoolProperties => {
                let (properties, most) = (self.properties(), self.size());
                scratch.place([properties[0], properties[1], 0, most, 0, 0, 0, 0, 0, 0, 0])
            }
            Argument::AllocationProperties => {
                let properties = self.properties();
                scratch.place([properties[0], properties[1], 0, 0, 0])
            }
            Argument::LaunchConfig => {
                let [x, y, z, width, height, depth] = [0; 6].map(|_| self.argument(Argument::Edge, scratch));
                let cluster = scratch.place([4, pair(x, y), 1, 0, 0, 0, 0, 0, 0]);
                let (stream, count) = (self.handle(Kind::Stream), self.input.below(2));
                let grid = [pair(x, y), pair(z, width), pair(height, depth), self.number()];
                scratch.place([grid[0], grid[1], grid[2], grid[3], stream, cluster, count, 0])
            }
            Argument::Copy2D => {
                let (source, target) = (self.side(false), self.side(false));
                let (width, height) = (self.input.below(256), self.input.below(8));
                scratch.place([&source[..], &target[..], &[width, height]].concat())
            }
            Argument::Copy3D => {
                let words = self.copy_3d();
                scratch.place(words)
            }
            Argument::KernelNode => {
                let words = self.kernel_node(scratch);
                scratch.place(words)
            }
            Argument::FillNode => {
                let words = self.fill_node();
                scratch.place(words)
            }
            Argument::HostNode => {
                let function = self.argument(Argument::Function, scratch);
                scratch.place([function, 0])
            }
            Argument::AnyNode => {
                let words = self.any_node(scratch);
                scratch.place(words)
            }
        }
    }

    /// An object of the kind, live or not, or one of another kind.
    fn handle(&mut self, kind: Kind) -> usize {
        let choice = self.input.byte();
        let of_any_kind = choice >= 248 && kind != Kind::Descriptor;
        let fits = |object: &&Object| object.kind == kind || of_any_kind && object.kind != Kind::Descriptor;
        let objects = self.objects.iter().rev().filter(fits);
        let special: &[usize] = match kind {
            Kind::Stream => &[0, 1, 2],
            Kind::Descriptor => &[usize::MAX],
            _ => &[0],
        };
        let handles: Vec<usize> = objects.map(|object| object.handle).chain(special.iter().copied()).collect();
        handles[usize::from(choice) % handles.len()]
    }

    fn number(&mut self) -> usize {
        match self.input.byte() {
            byte @ 0..200 => usize::from(byte),
            byte @ 200..232 => 1 << (byte % 32),
            byte => usize::MAX >> (byte % 34),
        }
    }

    fn size(&mut self) -> usize {
        match self.input.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => 255,
            3 => 4096,
            4 => 65536,
            5 => 3 << 20,
            6 => PAGE,
            7 => 128 << 20,
            8 => usize::MAX - self.input.below(4),
            9 => usize::MAX / 2 + self.input.below(3),
            _ => self.input.word(),
        }
    }

    fn address(&mut self) -> usize {
        let kind = [Kind::Memory, Kind::Memory, Kind::Memory, Kind::Host, Kind::Reservation][self.input.below(5)];
        let start = self.handle(kind);
        match self.input.byte() {
            0..160 => start,
            160..250 => start.wrapping_add(self.input.word()),
            250..254 => ARENA.address(),
            byte => usize::MAX - usize::from(byte),
        }
    }

    fn parameters(&mut self, scratch: &mut Scratch) -> usize {
        let values = [self.address(), self.number(), self.number(), 0];
        let pointers = values.map(|value| scratch.place([value; 8]));
        scratch.place(pointers)
    }

    // A type, types of handles, and a location.
    fn properties(&mut self) -> [usize; 2] {
        let choice = self.input.byte();
        let (kind, handles) = (if choice > 240 { 2 } else { 1 }, usize::from(choice % 3 == 0));
        [pair(kind, handles), pair(1, usize::from(choice == 99))]
    }

    /// One side of a copy: position, kind of memory, address, pitch, and in slices height.
    fn side(&mut self, slices: bool) -> Vec<usize> {
        let [x, y, z] = [0; 3].map(|_| self.input.below(4));
        let (address, pitch) = (self.address(), self.input.word() % 1024);
        let host = ARENA.address();
        let (kind, host, device) =
            [(1, host, 0), (2, 0, address), (2, 0, address), (4, 0, host), (9, host, address)][self.input.below(5)];
        if slices {
            vec![x, y, z, 0, kind, host, device, 0, 0, pitch, self.input.below(16)]
        } else {
            vec![x, y, kind, host, device, 0, pitch]
        }
    }

    fn copy_3d(&mut self) -> Vec<usize> {
        let (source, target) = (self.side(true), self.side(true));
        let shape = [self.input.below(256), self.input.below(8), self.input.below(4)];
        [&source[..], &target[..], &shape[..]].concat()
    }

    fn kernel_node(&mut self, scratch: &mut Scratch) -> Vec<usize> {
        let function = self.handle(Kind::Kernel);
        let [x, y, z, width, height, depth] = [0; 6].map(|_| self.argument(Argument::Edge, scratch));
        let (shared, parameters) = (self.number(), self.parameters(scratch));
        vec![function, pair(x, y), pair(z, width), pair(height, depth), shared, parameters, 0, 0, 0]
    }

    fn fill_node(&mut self) -> Vec<usize> {
        let (start, pitch, value) = (self.address(), self.size(), self.number());
        let element = [1, 2, 4, 3][self.input.below(4)];
        vec![start, pitch, pair(value, element), self.size(), self.input.below(8)]
    }

    fn any_node(&mut self, scratch: &mut Scratch) -> Vec<usize> {
        let kind = self.input.below(9);
        let node = match kind {
            0 => self.kernel_node(scratch),
            1 => [vec![0, self.handle(Kind::Context)], self.copy_3d()].concat(),
            2 => self.fill_node(),
            3 => vec![self.argument(Argument::Function, scratch), 0],
            4 => vec![self.handle(Kind::Graph)],
            6 | 7 => vec![self.handle(Kind::Event)],
            _ => Vec::new(),
        };
        let mut words = vec![kind, 0];
        words.extend(node);
        words.resize(32, 0);
        words
    }
}

/// A host function. It may not call the driver.
pub(crate) extern "C" fn callback() {
    const NOT_PERMITTED: i32 = 800;
    assert_eq!(drive!(cuCtxSynchronize()), NOT_PERMITTED, "a host function called the driver");
}
