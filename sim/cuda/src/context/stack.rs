//! Each thread's stack of current contexts.
//!
//! A context that is destroyed is popped where it is current on the calling thread, and stays everywhere else (CUDA
//! driver API, cuCtxDestroy), so a thread may end with contexts on its stack.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use crate::owner::Owner;

/// Entries that take no memory of their own: deeper stacks are rare.
const INLINE: usize = 16;

/// A stack whose memory is the thread's as long as it is not deeper than [`INLINE`].
struct Stack {
    len: usize,
    inline: [Owner; INLINE],
    /// The entries above the inline ones. Holds no memory when there are none.
    rest: ManuallyDrop<Vec<Owner>>,
}

thread_local! {
    // Without a destructor, so that the stack is there until the very end of its thread, for the destructors of others'
    // thread-local values.
    static STACK: RefCell<Stack> =
        const { RefCell::new(Stack { len: 0, inline: [Owner::NONE; INLINE], rest: ManuallyDrop::new(Vec::new()) }) };
}

impl Stack {
    fn top(&self) -> Option<Owner> {
        let place = self.len.checked_sub(1)?;
        self.inline.get(place).or_else(|| self.rest.last()).copied()
    }

    fn push(&mut self, owner: Owner) {
        match self.inline.get_mut(self.len) {
            Some(place) => *place = owner,
            None => self.rest.push(owner),
        }
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Owner> {
        let top = self.top()?;
        self.len -= 1;
        self.rest.pop();
        if self.rest.is_empty() {
            drop(std::mem::take(&mut *self.rest));
        }
        Some(top)
    }
}

/// The current context.
pub(crate) fn top() -> Option<Owner> {
    STACK.with_borrow(Stack::top)
}

pub(crate) fn push(owner: Owner) {
    STACK.with_borrow_mut(|stack| stack.push(owner));
}

pub(crate) fn pop() -> Option<Owner> {
    STACK.with_borrow_mut(Stack::pop)
}

/// Pops the context if it is the current one.
pub(crate) fn pop_if_top(handle: usize) {
    STACK.with_borrow_mut(|stack| {
        if stack.top().is_some_and(|owner| owner.context == handle) {
            stack.pop();
        }
    });
}
