//! Functions over the values of all lanes of a warp at once.
//!
//! Each exists twice: for one value, and as a loop over the lanes that the compiler turns into vector instructions. The
//! loop covers every lane, so the function must be total: it must not panic for any bits of a lane that does not execute.

use super::{Binary, Ternary, Unary};

/// The number of lanes of a warp.
pub(crate) const LANES: usize = 32;

/// A value for each lane.
pub(crate) type Lanes = [u64; LANES];

macro_rules! wide {
    ($name:ident, $one:ident, $($operand:ident),+) => {
        #[doc = concat!("A [`", stringify!($one), "`] with its loop over the lanes; without one, each lane is a call.")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            pub(crate) one: $one,
            pub(crate) all: Option<fn($(wide!(@lanes $operand)),+, &mut Lanes)>,
        }

        impl From<$one> for $name {
            fn from(one: $one) -> $name {
                $name { one, all: None }
            }
        }
    };
    (@lanes $operand:ident) => { &Lanes };
}

wide!(WideUnary, Unary, a);
wide!(WideBinary, Binary, a, b);
wide!(WideTernary, Ternary, a, b, c);

impl WideBinary {
    /// The function without its loop.
    pub(crate) fn one_by_one(self) -> WideBinary {
        WideBinary::from(self.one)
    }
}

/// Makes a wide function of a closure, or of the name of a function after the number of its operands.
macro_rules! lanewise {
    (|$a:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(1, |$a: u64| -> u64 { $body })
    };
    (|$a:ident, $b:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(2, |$a: u64, $b: u64| -> u64 { $body })
    };
    (|$a:ident, $b:ident, $c:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(3, |$a: u64, $b: u64, $c: u64| -> u64 { $body })
    };
    // Shifts: processors shift several lanes by one count.
    (shift |$a:ident, $b:ident| $body:expr) => {
        $crate::arithmetic::lanewise::WideBinary {
            one: |$a: u64, $b: u64| -> u64 { $body },
            all: Some(|a, b, out| {
                let f = |$a: u64, $b: u64| -> u64 { $body };
                let first = b[0];
                if b.iter().fold(0, |differs, b| differs | (b ^ first)) == 0 {
                    for (out, &a) in out.iter_mut().zip(a) {
                        *out = f(a, first);
                    }
                } else {
                    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                        *out = f(a, b);
                    }
                }
            }),
        }
    };
    (1, $f:expr) => {
        $crate::arithmetic::lanewise::WideUnary {
            one: $f,
            all: Some(|a, out| {
                for (out, &a) in out.iter_mut().zip(a) {
                    *out = ($f)(a);
                }
            }),
        }
    };
    (2, $f:expr) => {
        $crate::arithmetic::lanewise::WideBinary {
            one: $f,
            all: Some(|a, b, out| {
                for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *out = ($f)(a, b);
                }
            }),
        }
    };
    (3, $f:expr) => {
        $crate::arithmetic::lanewise::WideTernary {
            one: $f,
            all: Some(|a, b, c, out| {
                for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                    *out = ($f)(a, b, c);
                }
            }),
        }
    };
}
pub(crate) use lanewise;
