//! The bindings of the pieces of a lot. Few pieces ever have one: they are kept apart, and a piece knows a number.
#![forbid(unsafe_code)]

use std::array;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::binding::SharedBinding;

/// The first row has so many, and each other as many as all before it.
const FIRST: usize = 8;
/// More rows than there are pieces in a block.
const ROWS: usize = 30;

/// Bindings that keep their places, by numbers that are not 0.
#[derive(Debug)]
pub(super) struct Bindings {
    rows: [OnceLock<Box<[SharedBinding]>>; ROWS],
    numbers: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    last: u32,
    vacant: Vec<u32>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self { rows: array::from_fn(|_| OnceLock::new()), numbers: Mutex::default() }
    }
}

impl Bindings {
    /// The number of a binding that nobody else has, as of memory that was never bound.
    pub(super) fn take(&self) -> u32 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.vacant.pop() {
            return number;
        }
        numbers.last += 1;
        numbers.last
    }

    /// Gives a number back whose binding was [taken](SharedBinding::take).
    pub(super) fn give(&self, number: u32) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).vacant.push(number);
    }

    /// The binding of a number.
    pub(super) fn get(&self, number: u32) -> &SharedBinding {
        let place = number as usize - 1;
        let row = (place / FIRST + 1).ilog2() as usize;
        let (before, len) = (((1 << row) - 1) * FIRST, FIRST << row);
        &self.rows[row].get_or_init(|| (0..len).map(|_| SharedBinding::default()).collect())[place - before]
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn every_number_has_a_binding_of_its_own_that_stays_in_its_place() {
        let bindings = Bindings::default();
        let numbers: Vec<_> = (0..1000).map(|_| bindings.take()).collect();
        let places: Vec<_> = numbers.iter().map(|&number| ptr::from_ref(bindings.get(number))).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1000);
        assert!(numbers.iter().zip(places).all(|(&number, place)| ptr::eq(bindings.get(number), place)));
    }

    #[test]
    fn a_number_that_was_given_back_is_taken_again() {
        let bindings = Bindings::default();
        assert_eq!((bindings.take(), bindings.take()), (1, 2));
        bindings.give(1);
        assert_eq!((bindings.take(), bindings.take()), (1, 3));
    }
}
