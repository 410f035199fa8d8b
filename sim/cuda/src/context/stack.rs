//! Each thread's stack of current contexts, as handles.
//!
//! A context that is destroyed is popped where it is current on the calling thread, and stays everywhere else (CUDA
//! driver API, cuCtxDestroy), so a thread may end with handles on its stack.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

/// Handles that take no memory of their own: deeper stacks are rare.
const INLINE: usize = 16;

/// A stack whose memory is the thread's as long as it is not deeper than [`INLINE`].
struct Stack {
    len: usize,
    inline: [usize; INLINE],
    /// The handles above the inline ones. Holds no memory when there are none.
    rest: ManuallyDrop<Vec<usize>>,
}

thread_local! {
    // Without a destructor, so that the stack is there until the very end of its thread, for the destructors of others'
    // thread-local values.
    static STACK: RefCell<Stack> =
        const { RefCell::new(Stack { len: 0, inline: [0; INLINE], rest: ManuallyDrop::new(Vec::new()) }) };
}

impl Stack {
    fn top(&self) -> Option<usize> {
        let place = self.len.checked_sub(1)?;
        self.inline.get(place).or_else(|| self.rest.last()).copied()
    }

    fn push(&mut self, handle: usize) {
        match self.inline.get_mut(self.len) {
            Some(place) => *place = handle,
            None => self.rest.push(handle),
        }
        self.len += 1;
    }

    fn pop(&mut self) -> Option<usize> {
        let top = self.top()?;
        self.len -= 1;
        self.rest.pop();
        if self.rest.is_empty() {
            drop(std::mem::take(&mut *self.rest));
        }
        Some(top)
    }
}

/// The current context's handle.
pub(crate) fn top() -> Option<usize> {
    STACK.with_borrow(Stack::top)
}

pub(crate) fn push(handle: usize) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

pub(crate) fn pop() -> Option<usize> {
    STACK.with_borrow_mut(Stack::pop)
}

/// Pops the context if it is the current one.
pub(crate) fn pop_if_top(handle: usize) {
    STACK.with_borrow_mut(|stack| {
        if stack.top() == Some(handle) {
            stack.pop();
        }
    });
}
