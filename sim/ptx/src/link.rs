//! Assigns addresses to everything in a module, which makes the code's constants final.

use crate::error::LoadError;
use crate::live::live_at_start;
use crate::module::{KernelHead, Module, Space, Value};
use crate::op::{Constant, Function, Slot};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The address range of pointers to functions, which has no memory.
const FUNCTIONS: u64 = 0xe000_0000_0000_0000;
const FUNCTION_STEP: u64 = 16;

/// A function, and the initial values in its frame.
#[derive(Debug)]
pub(crate) struct LinkedFunction {
    pub(crate) function: Function,
    /// The number of slots in a frame.
    pub(crate) slots: usize,
    /// The slots that are never written, and their values.
    pub(crate) constants: Vec<(Slot, u64)>,
    /// The slots that start as zero; the others need no value.
    pub(crate) zeros: Vec<Slot>,
}

#[derive(Debug)]
pub(crate) struct LinkedKernel {
    pub(crate) head: KernelHead,
    pub(crate) shared_bytes: u64,
    /// Whether it or a callee asks for the address of the reserved shared memory.
    pub(crate) reserved_shared: bool,
    /// See [`first_unsupported`].
    pub(crate) unsupported: Option<LoadError>,
}

/// A module in which every name is replaced by an address.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) text: Arc<str>,
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    pub(crate) functions: Vec<LinkedFunction>,
    pub(crate) kernels: Vec<LinkedKernel>,
    pub(crate) dynamic_align: u64,
    pub(crate) initial: Vec<(u64, Vec<u8>)>,
    /// The address range of the `.const` variables.
    pub(crate) constants: Vec<Range<u64>>,
}

impl Linked {
    /// Whether an address is in a `.const` variable.
    pub(crate) fn is_constant(&self, address: u64) -> bool {
        self.constants.iter().any(|range| range.contains(&address))
    }
}

pub(crate) fn link(module: Module, addresses: &[u64]) -> Linked {
    let address = |index: usize| addresses.get(index).copied().unwrap_or(0);
    let (offsets, shared_bytes) = shared_layout(&module);
    let initial = initial(&module, &address);
    let constants = constants(&module, &address);
    let resolve = |constant: &Constant| match *constant {
        Constant::Zero => 0,
        Constant::Value(value) => value,
        Constant::Variable { index } => address(index),
        Constant::Shared { index } => offsets[index],
        Constant::Function { index } => pointer_to(index),
    };
    let linked = |function: Function| {
        let is_variable = |slot: Slot| function.constants[slot as usize] == Constant::Zero;
        let constants = (0..).zip(&function.constants).filter(|(slot, _)| !is_variable(*slot));
        LinkedFunction {
            slots: function.constants.len(),
            constants: constants.map(|(slot, constant)| (slot, resolve(constant))).collect(),
            zeros: live_at_start(&function).into_iter().filter(|&slot| is_variable(slot)).collect(),
            function,
        }
    };
    let unsupported: Vec<_> =
        module.kernels.iter().map(|kernel| first_unsupported(&module, kernel.function).cloned()).collect();
    let uses_reserved = |kernel| reached(&module, kernel, true).iter().any(|function| function.reserved_shared);
    let reserved: Vec<_> = module.kernels.iter().map(|kernel| uses_reserved(kernel.function)).collect();
    let kernels = module.kernels.into_iter().zip(shared_bytes).zip(reserved).zip(unsupported);
    Linked {
        text: module.text,
        version: module.version,
        target: module.target,
        functions: module.functions.into_iter().map(linked).collect(),
        kernels: kernels
            .map(|(((head, shared_bytes), reserved_shared), unsupported)| LinkedKernel {
                head,
                shared_bytes,
                reserved_shared,
                unsupported,
            })
            .collect(),
        dynamic_align: module.dynamic_align,
        initial,
        constants,
    }
}

fn pointer_to(function: usize) -> u64 {
    FUNCTIONS + FUNCTION_STEP * function as u64
}

/// The index of the function that a pointer points to, if any.
pub(crate) fn function_at(pointer: u64) -> Option<usize> {
    let distance = pointer.checked_sub(FUNCTIONS)?;
    let index = usize::try_from(distance / FUNCTION_STEP).ok()?;
    distance.is_multiple_of(FUNCTION_STEP).then_some(index)
}

fn initial(module: &Module, address: &impl Fn(usize) -> u64) -> Vec<(u64, Vec<u8>)> {
    let mut initial = Vec::new();
    for (index, (variable, values)) in module.variables.iter().zip(&module.first_values).enumerate() {
        let mut bytes = vec![0; usize::try_from(variable.size).unwrap_or(0)];
        for first in values {
            let value = match first.value {
                Value::Number(value) => value,
                Value::Variable { index, addend, mask } => masked(address(index).wrapping_add(addend), mask),
                Value::Function { index, addend, mask } => masked(pointer_to(index).wrapping_add(addend), mask),
            };
            let count = first.bytes as usize;
            let at = usize::try_from(first.offset).unwrap_or(usize::MAX);
            if let Some(place) = at.checked_add(count).and_then(|end| bytes.get_mut(at..end)) {
                place.copy_from_slice(&value.to_le_bytes()[..count]);
            }
        }
        initial.push((address(index), bytes));
    }
    initial
}

fn constants(module: &Module, address: &impl Fn(usize) -> u64) -> Vec<Range<u64>> {
    let variables = module.variables.iter().enumerate().filter(|(_, variable)| variable.space == Space::Const);
    variables.map(|(index, variable)| address(index)..address(index).saturating_add(variable.size)).collect()
}

/// The part of an address that a mask selects.
fn masked(address: u64, mask: Option<u64>) -> u64 {
    match mask {
        Some(mask) if mask != 0 => (address & mask) >> mask.trailing_zeros(),
        Some(_) => 0,
        None => address,
    }
}

/// The offset of each shared variable, and each kernel's total in bytes. Variables that several kernels use come first;
/// those of a single kernel follow and overlap with those of other kernels.
pub(crate) fn shared_layout(module: &Module) -> (Vec<u64>, Vec<u64>) {
    let used: Vec<Vec<usize>> = module.kernels.iter().map(|kernel| used_shared(module, kernel.function)).collect();
    let mut users = vec![0; module.shared.len()];
    used.iter().flatten().for_each(|&index| users[index] += 1);
    let mut offsets = vec![0; module.shared.len()];
    let mut common = 0;
    for (index, _) in users.iter().enumerate().filter(|&(_, &count)| count > 1) {
        common = place(module, index, common, &mut offsets);
    }
    let mut bytes = Vec::new();
    for indices in &used {
        let needs_common = indices.iter().any(|&index| users[index] > 1);
        let mut end = if needs_common { common } else { 0 };
        for &index in indices.iter().filter(|&&index| users[index] == 1) {
            end = place(module, index, end, &mut offsets);
        }
        bytes.push(end);
    }
    (offsets, bytes)
}

fn place(module: &Module, index: usize, end: u64, offsets: &mut [u64]) -> u64 {
    let variable = module.shared[index];
    offsets[index] = end.next_multiple_of(variable.align);
    offsets[index] + variable.size
}

/// The shared variables that a kernel and its callees use, each once.
fn used_shared(module: &Module, kernel: usize) -> Vec<usize> {
    let functions = reached(module, kernel, true);
    let mut used: Vec<usize> = functions.iter().flat_map(|function| &function.shared).copied().collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// The first statement that is not supported, of those that a kernel and its callees have. Calls of pointers are not
/// followed: they fail when they reach a function that is not supported.
pub(crate) fn first_unsupported(module: &Module, kernel: usize) -> Option<&LoadError> {
    reached(module, kernel, false).into_iter().find_map(|function| function.unsupported.as_ref())
}

/// A kernel and the functions that it calls. With `by_pointers`, a call of a pointer counts as one of every function of the
/// module that is not a kernel.
fn reached(module: &Module, kernel: usize, by_pointers: bool) -> Vec<&Function> {
    // Not a table of all functions: this runs for each kernel, and a module may have thousands.
    let (mut seen, mut open) = (HashSet::new(), vec![kernel]);
    let mut reached = Vec::new();
    let mut follows_pointers = by_pointers;
    while let Some(index) = open.pop() {
        if !seen.insert(index) {
            continue;
        }
        let function = &module.functions[index];
        open.extend(&function.callees);
        if function.calls_pointers && std::mem::take(&mut follows_pointers) {
            seen.extend(module.kernels.iter().map(|other| other.function));
            open.extend(0..module.functions.len());
        }
        reached.push(function);
    }
    reached
}
