//! What waits for the device: a [`Fence`], and a GPU's [`RetireQueue`] of what to do after one.
//!
//! Memory, parts of pools and of Vulkan's blocks, and semaphores are retired here when they are freed while the device may still
//! use them. No background thread releases them: frees poll some entries, as does Vulkan's allocator before it makes a block;
//! [`Vkgdr::collect`](crate::Vkgdr::collect) polls all. Other allocations release entries only where memory is short. A free
//! waits in the driver for running kernels, which may wait for the thread that allocates (docs/hardware.md).
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::driver::context::{Context, PrimaryContext};
use crate::driver::cuda::retry_once;
use crate::driver::fork;
use crate::lock::Lock;
use crate::report::log_failure;
use crate::{Error, Event, Result};

/// How long an allocation that runs short waits for retired memory, unless the program says otherwise
/// ([`Vkgdr::set_shortage_timeout`](crate::Vkgdr::set_shortage_timeout)).
pub(crate) const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// The delay between polls of a fence.
const PAUSE: Duration = Duration::from_micros(100);

/// Work of the device, after which something can be released: all before the events, and all of the contexts.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    pub(crate) events: Vec<Event>,
    /// Where no event was recorded: of memory that is not bound, or after a failed wait.
    pub(crate) contexts: Vec<Context>,
}

impl Fence {
    pub(crate) fn of_context(context: Context) -> Self {
        Self { contexts: vec![context], ..Self::default() }
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.contexts.is_empty()
    }

    /// Whether the device has passed it. Waits for no other contexts than `may_wait_for` names, and for none unless it names all.
    /// Drops events that have ended, from the last on: polls of many do not ask for those again.
    pub(crate) fn is_passed(&mut self, may_wait_for: impl Fn(Context) -> bool) -> bool {
        let Self { events, contexts } = self;
        let mut have_ended = || {
            while events.pop_if(|event| has_ended(event) == Some(true)).is_some() {}
            events.is_empty()
        };
        contexts.iter().copied().all(may_wait_for) && have_ended() && contexts.iter().copied().all(finish)
    }

    /// Waits until the device has passed it, at most until `deadline` if there is one. Returns true if it has; false also where
    /// the wait fails by a transient error.
    pub(crate) fn wait_until(&self, deadline: Option<Instant>) -> bool {
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_passed = |event: &Event| loop {
            match has_ended(event) {
                Some(false) if !is_over() => thread::sleep(PAUSE),
                ended => break ended == Some(true),
            }
        };
        let wait =
            |&context: &Context| deadline.map_or_else(|| finish(context), |deadline| finish_before(context, deadline));
        self.events.iter().all(is_passed) && self.contexts.iter().all(wait)
    }
}

/// Whether an event is complete or never will be: its context was destroyed or is broken, or this process is a forked child. None
/// for temporary errors, such as those during a stream capture. Asks twice: the driver may report an error of other work once.
fn has_ended(event: &Event) -> Option<bool> {
    let asked = retry_once(|| event.is_complete().inspect_err(|error| log::debug!("a deferred free: {error}")));
    let ends = |error: Error| (error.ends_all_work() || matches!(error, Error::Forked)).then_some(true);
    asked.map_or_else(ends, Some)
}

/// Waits for a context. Returns false where that fails by a transient error.
fn finish(context: Context) -> bool {
    let finished = context.finish();
    if let Err(error) = &finished {
        log::debug!("a deferred free: {error}");
    }
    finished.is_ok()
}

/// [`finish`], at most until `deadline`. `cuCtxSynchronize` takes no bound, so another thread calls it, which ends with the
/// device's work: one for each context, however often programs try again. It may outlive all handles, so it retains the primary
/// context. One of `cuCtxCreate` cannot be retained: this thread waits for it, without a bound.
fn finish_before(context: Context, deadline: Instant) -> bool {
    static WAITED_FOR: Lock<Vec<Context>> = Lock::new(Vec::new());
    /// An idle device answers in this time on a busy machine, too, whose scheduler may keep the thread waiting. So a timeout of
    /// 0 finds what is free.
    const LEAST_WAIT: Duration = Duration::from_millis(20);
    if context.is_destroyed() {
        // It has no work, and must not be made anew.
        return true;
    }
    let Some(device) = context.primary_device() else { return Instant::now() < deadline && finish(context) };
    let Ok(kept) = PrimaryContext::retain(device) else { return false };
    let deadline = deadline.max(Instant::now() + LEAST_WAIT);
    let begin = || {
        let mut waited_for = WAITED_FOR.lock();
        let is_first = !waited_for.contains(&context);
        if is_first {
            waited_for.push(context);
        }
        is_first
    };
    let end = move || WAITED_FOR.lock().retain(|waited_for| *waited_for != context);
    while !begin() {
        // The other wait began earlier, perhaps before the work that this caller waits for.
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(PAUSE);
    }
    let (sender, receiver) = mpsc::channel();
    let wait = move || {
        let finished = finish(context);
        drop(kept);
        end();
        // The caller may have gone.
        let _ = sender.send(finished);
    };
    if thread::Builder::new().spawn(wait).is_err() {
        end();
        return false;
    }
    receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) == Ok(true)
}

/// Something to do once the device has passed a fence.
struct Retired {
    fence: Fence,
    then: Box<dyn FnOnce() -> Result<()> + Send>,
}

/// What waits for a GPU. A scan moves what it may not release to the end.
///
/// The lock is held only to move entries: fences and what follows them call the drivers and the log, which may call back.
#[derive(Default)]
pub(crate) struct RetireQueue {
    entries: Lock<VecDeque<Retired>>,
    /// The number of entries, including those that a thread has taken out to scan.
    len: AtomicUsize,
}

thread_local! {
    /// Whether this thread is scanning entries of any GPU.
    static SCANNING: Cell<bool> = const { Cell::new(false) };
}

impl RetireQueue {
    /// Entries that one poll scans, so that many of them do not make a free slow.
    pub(crate) const SCANNED_PER_POLL: usize = 8;

    /// Runs `then` once the device has passed `fence`. Its error is logged.
    pub(crate) fn push(&self, fence: Fence, then: impl FnOnce() -> Result<()> + Send + 'static) {
        self.len.fetch_add(1, Ordering::Relaxed);
        self.entries.lock().push_back(Retired { fence, then: Box::new(then) });
    }

    /// The number of entries, including those that a thread is scanning.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Of the first `max` entries, releases those whose fence has passed. Waits for no context but `finished`, one that the caller
    /// has just waited for.
    #[inline]
    pub(crate) fn poll(&self, max: usize, finished: Option<Context>) {
        if self.len() > 0 {
            self.scan(max, |fence| fence.is_passed(|context| Some(context) == finished));
        }
    }

    /// Releases every entry whose fence has passed. Waits for contexts, and shortly for entries that other threads are scanning:
    /// the caller may end the context of their events. Returns the number that it released itself.
    pub(crate) fn collect(&self) -> usize {
        const TIMEOUT: Duration = Duration::from_millis(100);
        // What is pushed meanwhile, as by a release that fails again, is for the next call.
        let is_done = |_, all_were_there| all_were_there;
        self.scan_all(Instant::now() + TIMEOUT, |fence| fence.is_passed(|_| true), is_done).unwrap_or(0)
    }

    /// Waits for every entry and releases it, at most until `deadline` if there is one. Waits for entries that other threads are
    /// scanning, too: for a second if there is no deadline. Returns true if there was any.
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> bool {
        // Other threads may have taken entries out, or be in a logger that waits for this one.
        let end = deadline.unwrap_or_else(|| Instant::now() + SHORTAGE_TIMEOUT);
        // Once the time is over, the first busy context ends the waits: each has a wait of its own (`finish_before`).
        let mut busy = false;
        let passed = |fence: &mut Fence| {
            let passed = if busy { fence.is_passed(|_| false) } else { fence.wait_until(deadline) };
            busy |= !passed && deadline.is_some_and(|deadline| Instant::now() >= deadline);
            passed
        };
        // A second wait for what is left would fail, too. What is pushed meanwhile is waited for as well.
        self.scan_all(end, passed, |left, _| self.len() <= left).is_some()
    }

    /// Scans all entries, again and again until it `is_done`, or until `end`. That gets the number of entries that the scan left,
    /// and whether no other thread had taken any out. Returns the number that it released itself; `None` if it scanned nothing.
    fn scan_all(
        &self,
        end: Instant,
        mut passed: impl FnMut(&mut Fence) -> bool,
        is_done: impl Fn(usize, bool) -> bool,
    ) -> Option<usize> {
        if self.len() == 0 || SCANNING.get() || fork::is_forked() {
            return None;
        }
        let all_are_there = || self.entries.lock().len() == self.len();
        let mut released = 0;
        loop {
            let all_were_there = all_are_there();
            let (now_released, left) = self.scan(usize::MAX, &mut passed);
            released += now_released;
            if is_done(left, all_were_there && all_are_there()) || Instant::now() >= end {
                return Some(released);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Of the first `max` entries, releases those that are `passed`, and moves the others to the end. Returns the numbers of
    /// both. Does nothing in a forked child, which does not own the entries, and when a scan's log line calls it again on the
    /// same thread.
    #[cold]
    fn scan(&self, max: usize, mut passed: impl FnMut(&mut Fence) -> bool) -> (usize, usize) {
        if fork::is_forked() || SCANNING.replace(true) {
            return (0, 0);
        }
        let (mut released, mut left) = (0, 0);
        let count = self.entries.lock().len().min(max);
        for _ in 0..count {
            let Some(mut entry) = self.entries.lock().pop_front() else { break };
            if !passed(&mut entry.fence) {
                self.entries.lock().push_back(entry);
                left += 1;
                continue;
            }
            let Retired { fence, then } = entry;
            drop(fence);
            log_failure("memory", then());
            self.len.fetch_sub(1, Ordering::Relaxed);
            released += 1;
        }
        SCANNING.set(false);
        (released, left)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_scan_within_a_scan_does_nothing_however_often_it_is_tried() {
        let queue = Arc::new(RetireQueue::default());
        let again = queue.clone();
        // As a logger does that allocates: a poll, and after a shortage a drain.
        queue.push(Fence::default(), move || {
            for _ in 0..2 {
                again.poll(RetireQueue::SCANNED_PER_POLL, None);
                assert!(SCANNING.get(), "the outer scan goes on");
                assert!(!again.drain(None));
            }
            Ok(())
        });
        queue.push(Fence::default(), || Ok(()));
        assert_eq!(queue.collect(), 2);
        assert!(!SCANNING.get());
    }

    #[test]
    fn draining_and_collecting_wait_for_what_another_thread_has_taken_out() {
        let drain = |queue: &RetireQueue| assert!(queue.drain(Some(Instant::now() + Duration::from_secs(60))));
        let collect = |queue: &RetireQueue| assert_eq!(queue.collect(), 0, "the other thread released it");
        for wait in [&drain as &dyn Fn(&RetireQueue), &collect] {
            let (queue, begun) = (RetireQueue::default(), Arc::new(AtomicBool::new(false)));
            let start = begun.clone();
            queue.push(Fence::default(), move || {
                start.store(true, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
                Ok(())
            });
            thread::scope(|scope| {
                scope.spawn(|| queue.collect());
                while !begun.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                wait(&queue);
                assert_eq!(queue.len(), 0);
            });
        }
    }

    #[test]
    fn collecting_leaves_what_a_release_defers_again() {
        let queue = Arc::new(RetireQueue::default());
        let again = queue.clone();
        queue.push(Fence::default(), move || {
            again.push(Fence::default(), || Ok(()));
            Ok(())
        });
        assert_eq!((queue.collect(), queue.len()), (1, 1));
        assert_eq!((queue.collect(), queue.len()), (1, 0));
    }

    #[test]
    fn polls_release_many_entries_in_order() {
        let (queue, order) = (RetireQueue::default(), Arc::new(Lock::new(Vec::new())));
        for number in 0..3 * RetireQueue::SCANNED_PER_POLL {
            let order = order.clone();
            queue.push(Fence::default(), move || {
                order.lock().push(number);
                Ok(())
            });
        }
        for rest in (0..3).rev() {
            queue.poll(RetireQueue::SCANNED_PER_POLL, None);
            assert_eq!(queue.len(), rest * RetireQueue::SCANNED_PER_POLL);
        }
        assert!(order.lock().iter().copied().eq(0..3 * RetireQueue::SCANNED_PER_POLL));
    }
}
