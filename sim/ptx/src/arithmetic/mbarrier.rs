//! The state of an mbarrier in its 64 bits, which PTX leaves open, and the operations on it.
//!
//! Bits 0 to 19 have the pending count of arrivals, bits 20 to 39 the expected count of the next phase, bit 61 the parity of
//! the phase. Bit 63 is 1 in an initialised mbarrier. PTX ISA, "Contents of the mbarrier object" and "Phase Completion of the
//! mbarrier object".

use super::mask;

const COUNT_BITS: u32 = 20;
const EXPECTED: u32 = COUNT_BITS;
const PHASE: u32 = 61;
const VALID: u64 = 1 << 63;
/// The largest count of arrivals.
const MOST: i64 = (1 << COUNT_BITS) - 1;

/// An operation on an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Operand: the expected count.
    Initialise,
    Invalidate,
    /// Operand: the arrivals.
    Arrive {
        /// Whether later phases expect so many arrivals less.
        drop: bool,
        /// Whether the phase must not complete.
        incomplete: bool,
    },
    /// Operand: the state that an arrival returned. The result tells whether its phase is complete.
    Test,
    /// Operand: the parity of the phase.
    TestParity,
    /// Only checks that an mbarrier is there. `cp.async.mbarrier.arrive` expects one more arrival, which is made when the
    /// thread's copies are complete, as they are at once.
    Check,
}

#[derive(Clone, Copy)]
struct State {
    pending: i64,
    expected: i64,
    phase: u64,
}

impl State {
    fn of(word: u64) -> State {
        let count = |shift: u32| (word >> shift & mask(COUNT_BITS)).cast_signed();
        State { pending: count(0), expected: count(EXPECTED), phase: word >> PHASE & 1 }
    }

    fn word(self) -> u64 {
        let State { pending, expected, phase } = self;
        VALID | phase << PHASE | expected.cast_unsigned() << EXPECTED | pending.cast_unsigned()
    }

    /// Begins the next phase if nothing is missing.
    fn advance(&mut self) {
        if self.pending == 0 {
            self.phase ^= 1;
            self.pending = self.expected;
        }
    }
}

/// The pending count in a state that an arrival returned.
pub(crate) fn pending_count(word: u64) -> u64 {
    word & mask(COUNT_BITS)
}

/// Performs an operation; returns the new word and the result.
pub(crate) fn perform(what: Operation, word: u64, a: u64) -> Result<(u64, u64), &'static str> {
    let count = i64::try_from(a).unwrap_or(i64::MAX);
    if what == Operation::Initialise {
        if !(1..=MOST).contains(&count) {
            return Err("the count of an mbarrier is 1 to 2^20 - 1");
        }
        return Ok((State { pending: count, expected: count, phase: 0 }.word(), 0));
    }
    if word & VALID == 0 {
        return Err("no mbarrier is initialised there");
    }
    let mut state = State::of(word);
    match what {
        Operation::Initialise | Operation::Check => Ok((word, 0)),
        Operation::Invalidate => Ok((0, 0)),
        Operation::Arrive { drop, incomplete } => {
            if !(1..=MOST).contains(&count) || count > state.pending {
                return Err("more arrivals than the phase expects");
            }
            if incomplete && count == state.pending {
                return Err("an arrival with .noComplete completes the phase");
            }
            state.pending -= count;
            // Not less than the pending count, unless the program dropped more than it had.
            state.expected = if drop { (state.expected - count).max(0) } else { state.expected };
            state.advance();
            Ok((state.word(), word))
        }
        Operation::Test => Ok((word, u64::from(State::of(a).phase != state.phase))),
        Operation::TestParity => Ok((word, u64::from(a & 1 != state.phase))),
    }
}
