//! Each thread's stack of current contexts, as handles.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

thread_local! {
    // Without a destructor, so that the stack is there until the very end of its thread, for the thread-local values
    // of others. An empty stack holds no memory.
    static STACK: RefCell<ManuallyDrop<Vec<usize>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

fn with<R>(use_stack: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    STACK.with_borrow_mut(|stack| {
        let result = use_stack(stack);
        if stack.is_empty() {
            drop(std::mem::take(&mut **stack));
        }
        result
    })
}

/// The current context's handle.
pub(super) fn top() -> Option<usize> {
    with(|stack| stack.last().copied())
}

pub(super) fn push(handle: usize) {
    with(|stack| stack.push(handle));
}

pub(super) fn pop() -> Option<usize> {
    with(Vec::pop)
}

/// Pops the context if it is the current one.
pub(super) fn pop_if_top(handle: usize) {
    with(|stack| {
        if stack.last() == Some(&handle) {
            stack.pop();
        }
    });
}
