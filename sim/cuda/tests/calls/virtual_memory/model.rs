//! Random sequences of mappings against a model of the bytes.

use support::Random;
use support::codes::INVALID_VALUE;
use support::cuda::{PrimaryContext, memcpy_dtoh};

use super::{Access, GRAIN, SHARED, fill, free, map, release, reserve, set, try_create, unmap};
use crate::{call, good};

/// The places of a reservation.
const PLACES: usize = 6;

/// A mapping: its allocation, and whether the device has access.
type Place = Option<(usize, bool)>;

/// An allocation: its handle, and the first byte of all of its bytes.
struct Memory {
    handle: usize,
    byte: u8,
}

struct Model {
    base: u64,
    memories: Vec<Memory>,
    places: [Place; PLACES],
}

impl Model {
    fn address(&self, place: usize) -> u64 {
        self.base + (place * GRAIN) as u64
    }

    /// Whether the device can access all places of a range.
    fn accessible(&self, range: std::ops::Range<usize>) -> bool {
        self.places[range].iter().all(|place| place.is_some_and(|(_, access)| access))
    }

    fn map(&mut self, place: usize, memory: usize) {
        let code = map(self.address(place), GRAIN, self.memories[memory].handle);
        if self.places[place].is_some() {
            assert_eq!(code, INVALID_VALUE);
        } else {
            good(code);
            self.places[place] = Some((memory, false));
        }
    }

    fn unmap(&mut self, from: usize, to: usize) {
        let code = unmap(self.address(from), (to - from) * GRAIN);
        if self.places[from..to].iter().all(Option::is_some) {
            good(code);
            self.places[from..to].fill(None);
        } else {
            assert_eq!(code, INVALID_VALUE);
        }
    }

    fn set(&mut self, from: usize, to: usize, access: bool) {
        let code = set(self.address(from), (to - from) * GRAIN, if access { 3 } else { 0 });
        if self.places[from..to].iter().all(Option::is_some) {
            good(code);
            self.places[from..to].iter_mut().flatten().for_each(|place| place.1 = access);
        } else {
            assert_eq!(code, INVALID_VALUE);
        }
    }

    /// Fills whole places, of which each allocation then has the last byte.
    fn fill(&mut self, from: usize, to: usize, byte: u8) {
        let code = fill(self.address(from), byte, (to - from) * GRAIN);
        if self.accessible(from..to) {
            good(code);
            self.places[from..to].iter().flatten().for_each(|(memory, _)| self.memories[*memory].byte = byte);
        } else {
            assert_eq!(code, INVALID_VALUE);
        }
    }

    /// Reads around the edges of places.
    fn check(&self, from: usize, to: usize) {
        let (start, len) = (self.address(from) + GRAIN as u64 - 1, (to - from - 1) * GRAIN + 1);
        let mut bytes = vec![0; len];
        if !self.accessible(from..to) {
            let code = call!(cuMemcpyDtoH_v2(bytes.as_mut_ptr() => *mut u8, start => u64, len => usize));
            assert_eq!(code, INVALID_VALUE);
            return;
        }
        memcpy_dtoh(&mut bytes, start);
        for place in from..to {
            let byte = self.places[place].map(|(memory, _)| self.memories[memory].byte);
            assert_eq!(Some(bytes[(place - from) * GRAIN]), byte, "place {place}");
        }
    }
}

#[test]
fn random_mappings_agree_with_a_model() {
    let _context = PrimaryContext::retain_and_push(0);
    (0..4).for_each(run);
}

fn run(seed: u64) {
    let memories = (0..4).map(|_| Memory { handle: try_create(GRAIN, SHARED).unwrap_or(0), byte: 0 }).collect();
    let mut model = Model { base: reserve(PLACES * GRAIN), memories, places: [None; PLACES] };
    let mut random = Random::new(seed);
    let mut below = |bound: usize| random.below(bound);
    for _ in 0..150 {
        let from = below(PLACES);
        let to = from + 1 + below(PLACES - from);
        match below(6) {
            0 => model.map(from, below(4)),
            1 if below(3) == 0 => model.unmap(from, to),
            2 => model.set(from, to, below(4) > 0),
            3 => model.fill(from, to, u8::try_from(below(256)).unwrap_or(0)),
            4 => model.check(from, to),
            _ => {
                let access = Access { place: 1, device: 0, flags: 3 };
                // Places beyond the reservation.
                let code = call!(cuMemSetAccess(
                    model.address(PLACES) => u64, GRAIN => usize, &raw const access => *const Access, 1 => usize
                ));
                assert_eq!(code, INVALID_VALUE);
            }
        }
    }
    for place in 0..PLACES {
        if model.places[place].is_some() {
            model.unmap(place, place + 1);
        }
    }
    good(free(model.base, PLACES * GRAIN));
    model.memories.iter().for_each(|memory| good(release(memory.handle)));
}
