//! What another process may send to `vkgdr::ipc::recv`: changed, cut and divided messages with any descriptors, over
//! each type of socket; and any bytes for the parser of messages.
//!
//! Only a message that fits is accepted, with exactly one descriptor, the right one; and nothing stays open.
#![no_main]

use std::fs::{File, read_dir};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use support::socket;
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr, ipc};

/// The length of a message in bytes.
const LEN: usize = socket::MESSAGE_LEN;
/// Where the memory's length is in it. Other lengths of the same allocation fit, too.
const LENGTH: std::ops::Range<usize> = 40..48;
/// Where its kind is. Where kinds have one memory type, as in the simulated GPU without a profile, each of them fits.
const KIND: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    thread_local! {
        static WORLD: World = World::open();
    }
    let mut input = Input(Unstructured::new(bytes));
    match input.below(4) {
        0 | 1 => {
            if let Some(message) = input.0.take_rest().first_chunk::<LEN>() {
                assert!(ipc::recode(message).is_none_or(|again| again == *message));
            }
        }
        _ => WORLD.with(|world| world.receive(input)),
    }
});

struct Input<'a>(Unstructured<'a>);

impl Input<'_> {
    /// A number less than `limit`; 0 after the last byte.
    fn below(&mut self, limit: usize) -> usize {
        self.0.int_in_range(0..=limit - 1).unwrap_or(0)
    }
}

struct World {
    gpu: Vkgdr,
    message: Vec<u8>,
    /// The first is the memory's.
    descriptors: Vec<OwnedFd>,
    memory: Memory,
}

impl World {
    fn open() -> Self {
        let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty()).expect("a GPU");
        let memory = Memory::allocate(&gpu, 5000, MemoryKind::Mapped).expect("memory");
        let (message, fd) = socket::genuine(&memory).expect("a message");
        let (socket, _) = UnixStream::pair().expect("sockets");
        let mut descriptors = vec![fd, socket.into()];
        descriptors.extend(
            ["/dev/null", "/proc/self/exe", "/proc/self/status"].map(|path| File::open(path).expect(path).into()),
        );
        Self { gpu, message, descriptors, memory }
    }

    fn receive(&self, mut input: Input<'_>) {
        let kind = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM][input.below(3)];
        let is_stream = kind == libc::SOCK_STREAM;
        let before = open_files();
        let [ours, theirs] = socket::pair(kind).expect("sockets");
        let mut bytes = self.message.clone();
        for _ in 0..input.below(6) {
            let place = input.below(LEN);
            bytes[place] = u8::try_from(input.below(256)).expect("a byte");
        }
        let len = if input.below(4) == 0 { input.below(LEN + 2) } else { LEN };
        bytes.resize(len, 0);
        let chosen: Vec<usize> =
            (0..[1, 1, 0, 2, 3, 5][input.below(6)]).map(|_| input.below(2 * self.descriptors.len())).collect();
        let descriptors: Vec<BorrowedFd<'_>> =
            chosen.iter().map(|&index| self.descriptors.get(index).unwrap_or(&self.descriptors[0]).as_fd()).collect();
        let divided = input.below(2) == 0;
        let (first, rest) = bytes.split_at(if divided { input.below(len + 1) } else { len });
        // Without bytes, a stream sends no descriptors.
        if !first.is_empty() || !is_stream {
            socket::send(ours.as_fd(), first, &descriptors).expect("sent");
        }
        if divided && !rest.is_empty() {
            socket::send(ours.as_fd(), rest, if first.is_empty() && is_stream { &descriptors } else { &[] })
                .expect("sent");
        }
        drop(ours);
        let received = ipc::recv(&theirs, &self.gpu);
        drop(theirs);
        if let Ok(memory) = received {
            // A stream may go on.
            assert!(bytes.len() == LEN || bytes.len() > LEN && is_stream, "{bytes:?}");
            let free = |place: &usize| LENGTH.contains(place) || *place == KIND;
            let same = |place: usize| bytes[place] == self.message[place];
            assert!((0..LEN).filter(|place| !free(place)).all(same), "{bytes:?}");
            assert_eq!(memory.memory_type(), self.memory.memory_type());
            assert_eq!(memory.kind() as u8, bytes[KIND]);
            assert_eq!(memory.len().to_le_bytes(), bytes[LENGTH]);
            assert!(matches!(chosen[..], [index] if index == 0 || index >= self.descriptors.len()), "{chosen:?}");
            memory.free().expect("freed");
        }
        assert_eq!(open_files(), before, "something stays open");
    }
}

fn open_files() -> usize {
    read_dir("/proc/self/fd").expect("a folder").count()
}
