//! Each thread's stack of current contexts, as handles.

use std::cell::RefCell;

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

// At the very end of a thread its stack may be gone: then nothing is current.
fn with<R: Default>(use_stack: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    STACK.try_with(|stack| use_stack(&mut stack.borrow_mut())).unwrap_or_default()
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
