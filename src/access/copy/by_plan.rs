//! Copies as their plan says, by the accesses of one instruction set.
#![expect(unsafe_code, reason = "copies through raw pointers")]

use super::plan::{Part, Plan};
use crate::allocation::LINE;

/// The accesses of an instruction set to shared memory, by assembly or byte atomics (see [`copy`](super)).
///
/// # Safety
///
/// The CPU must have the instructions wherever a method is called. `target` and `source` must be mapped for the bytes
/// that the method names. Private bytes may lie anywhere.
pub(super) trait Accesses {
    /// The width of [`load`](Self::load): a power of two, at most a line.
    const LOAD: usize;
    /// The width of the widest [`store`](Self::store): a power of two, less than a line.
    const STORE: usize;

    /// Stores `width` bytes, a power of two and at most `STORE`, to a shared place aligned to it.
    unsafe fn store(width: usize, target: *mut u8, source: *const u8);

    /// Stores whole lines, at least one, to a shared place aligned to a line.
    unsafe fn store_lines(target: *mut u8, source: *const u8, lines: usize);

    /// Loads `LOAD` bytes from a shared place aligned to that.
    unsafe fn load(target: *mut u8, source: *const u8);

    /// Loads whole lines, at least one, from a shared place aligned to a line.
    unsafe fn load_lines(target: *mut u8, source: *const u8, lines: usize);
}

/// Copies `source` to the shared bytes at `target`, in any order, and orders nothing.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, no Rust reference to them exist, and the CPU have `A`'s
/// instructions.
pub(super) unsafe fn write<A: Accesses>(target: *mut u8, source: &[u8]) {
    let plan = Plan::new(target.addr(), source.len());
    let source = source.as_ptr();
    let store = |part: Part| {
        for store in part.stores(A::STORE) {
            let (to, from) = (target.wrapping_add(store.offset), source.wrapping_add(store.offset));
            // SAFETY: the plan's stores lie within both sides, aligned at `target`.
            unsafe { A::store(store.width, to, from) };
        }
    };
    store(plan.head);
    if plan.lines > 0 {
        let (to, from) = (target.wrapping_add(plan.head.len), source.wrapping_add(plan.head.len));
        // SAFETY: the plan's lines lie within both sides, and whole lines begin where the head ends.
        unsafe { A::store_lines(to, from, plan.lines) };
    }
    store(plan.tail);
}

/// Copies the shared bytes at `source` to `target`, in any order, and orders nothing.
///
/// Loads may reach more of the lines in which the bytes lie. What they find there is thrown away, so that the copy as a
/// whole counts as one that does not read it.
///
/// # Safety
///
/// All of the lines that hold the `target.len()` bytes at `source` must be mapped, no mutable Rust reference to those
/// bytes exist, and the CPU have `A`'s instructions.
pub(super) unsafe fn read<A: Accesses>(source: *const u8, target: &mut [u8]) {
    let plan = Plan::new(source.addr(), target.len());
    // SAFETY: the head lies within the bytes, and its lines are mapped.
    unsafe { read_part::<A>(plan.head, source, target) };
    if plan.lines > 0 {
        let start = plan.head.len;
        let (to, from) = (target[start..].as_mut_ptr(), source.wrapping_add(start));
        // SAFETY: the plan's lines lie within both sides, and whole lines begin where the head ends.
        unsafe { A::load_lines(to, from, plan.lines) };
    }
    // SAFETY: as for the head.
    unsafe { read_part::<A>(plan.tail, source, target) };
}

/// # Safety
///
/// As of [`read`], of whose plan the part must be.
unsafe fn read_part<A: Accesses>(part: Part, source: *const u8, target: &mut [u8]) {
    #[repr(align(64))]
    struct Line([u8; LINE]);
    if part.len == 0 {
        return;
    }
    let mut line = Line([0; LINE]);
    let cover = part.cover(A::LOAD);
    let first = source.wrapping_add(part.offset).wrapping_sub(cover.skip);
    for start in (0..cover.loads * A::LOAD).step_by(A::LOAD) {
        let to = line.0[start..start + A::LOAD].as_mut_ptr();
        // SAFETY: the load is aligned and within the part's line; there is room for it at `to`.
        unsafe { A::load(to, first.wrapping_add(start)) };
    }
    let wanted = &line.0[cover.skip..cover.skip + part.len];
    target[part.offset..part.offset + part.len].copy_from_slice(wanted);
}
