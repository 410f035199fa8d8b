//! Operations on matrices in the registers of a warp.

use super::{Access, Slot};
use crate::arithmetic::matrix::{Fragment, Product};

/// An operation of a whole warp on matrices in its registers.
#[derive(Clone, Debug)]
pub(crate) enum Matrix {
    Product {
        product: Product,
        a: Vec<Slot>,
        b: Vec<Slot>,
        c: Vec<Slot>,
        d: Vec<Slot>,
    },
    /// `ldmatrix`: eight lanes have the rows of each matrix, in two registers.
    Spread {
        rows: [Slot; 2],
        d: Vec<Slot>,
        transposed: bool,
    },
    /// `movmatrix`
    Transpose {
        d: Slot,
        a: Slot,
    },
}

/// A matrix in memory, of which each lane loads or stores its part.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) fragment: Fragment,
    pub(crate) registers: Vec<Slot>,
    pub(crate) base: Slot,
    pub(crate) offset: u64,
    /// The distance of rows or columns, in elements.
    pub(crate) stride: Slot,
    /// Whether the stride is that of the fragment's outer index.
    pub(crate) outer_first: bool,
    pub(crate) access: Access,
}
