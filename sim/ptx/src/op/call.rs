//! Calls: their targets, and the locations of results and parameters.

use super::Slot;

/// A call's target, and the copies of arguments and results.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    /// Into the callee's frame.
    pub(crate) arguments: Vec<Transfer>,
    /// Out of it.
    pub(crate) results: Vec<Transfer>,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Function(usize),
    /// The target of the pointer in a slot, if its signature is this one.
    Pointer(Slot, Shape),
    /// Arguments: the format's and the buffer's addresses.
    Print {
        result: Option<Place>,
        arguments: [Place; 2],
    },
    /// `malloc`: the result's location, and the size.
    Allocate {
        result: Option<Place>,
        bytes: Place,
    },
    /// `free`
    Release {
        address: Place,
    },
    /// Arguments: the message's, the file's, the line and the function's.
    Assert {
        arguments: [Place; 4],
    },
}

/// The locations of a function's results and parameters in its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) results: Vec<Formal>,
    pub(crate) parameters: Vec<Formal>,
}

impl Shape {
    /// Whether a function of this shape has a result that one of the other shape lacks, and no other difference. Linked texts
    /// may disagree about that: numba declares C functions that return nothing as if they returned a pointer.
    pub(crate) fn differs_by_result(&self, without: &Shape) -> bool {
        let same = |a: &Formal, b: &Formal| {
            a.bytes == b.bytes && matches!(a.place, Place::Slot(_)) == matches!(b.place, Place::Slot(_))
        };
        !self.results.is_empty()
            && without.results.is_empty()
            && self.parameters.len() == without.parameters.len()
            && self.parameters.iter().zip(&without.parameters).all(|(a, b)| same(a, b))
    }
}

/// A value's location and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Formal {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Slot(Slot),
    /// The offset from the start of the frame's local memory.
    Local(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) bytes: u64,
}
