//! One stream's queue, its worker thread, and the order between the streams of a context.
//!
//! Every piece of work has a ticket, which passes when the work is done. Work starts when the previous ticket and every
//! marker that it waits for have passed. Plain work on an idle stream runs in the calling thread, and a launch on an idle
//! stream returns when its kernel is done or has run for [`GRACE`], unless `SIMCUDA_ASYNC=1` is set. With
//! `SIMCUDA_LATE=1`, work starts when a program waits for it or asks whether it is done, or [`DELAY`] after its submission.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream_flags;

use crate::boundary::say;
use crate::call;
use crate::code::{Code, Outcome, UNKNOWN};
use crate::graph::capture;
use crate::handle;
use crate::health::Health;
use crate::interrupt;
use crate::own_streams::{OwnStreams, ends_with_thread};
use crate::owner::Owner;
use crate::settings::settings;
use crate::sync::{Condition, Wake, lock};
use crate::worker;

type Work = Box<dyn FnOnce(&Health) + Send>;

/// Where work may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the calling thread, when the stream is idle.
    Anywhere,
    /// On the worker: work that runs the program's code, or that may wait.
    Worker,
    /// On the worker. The call that queues it waits for it, for [`GRACE`] at most, when the stream is idle.
    Launch,
}

/// The time that a launch waits for its kernel. A GPU has finished a small kernel before the CPU looks, so that programs
/// rely on it; a kernel that runs for longer is not one of those, and may wait for the CPU. A kernel of one thread takes
/// 0.1 ms, one of 10,000 threads a few milliseconds.
const GRACE: Duration = Duration::from_millis(5);

/// How long after its launch `SIMCUDA_LATE=1` starts work without a wait or a query. Drivers for Linux submit work at its
/// launch, so that kernels which exchange data with the CPU must start by themselves; a program that forgets to wait reads
/// its results sooner than this.
const DELAY: Duration = Duration::from_millis(500);

/// How long a call waits for kernels before a line on stderr says so.
const SILENCE: Duration = Duration::from_secs(5);

struct Job {
    ticket: u64,
    submitted: Instant,
    after: Vec<Marker>,
    work: Work,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    submitted: u64,
    completed: u64,
    // The latest ticket that was waited for or asked about.
    demanded: u64,
    // The ticket of the latest kernel.
    kernel: u64,
    has_worker: bool,
    closed: bool,
}

impl State {
    fn idle(&self) -> bool {
        self.completed == self.submitted
    }
}

pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) owner: Owner,
    pub(crate) health: Arc<Health>,
    // The streams of its context, itself among them.
    siblings: Weak<Streams>,
    legacy: bool,
    state: Mutex<State>,
    changed: Condition,
}

/// A point in a stream: all the work that was submitted before it.
#[derive(Clone)]
pub(crate) struct Marker {
    stream: Arc<Stream>,
    ticket: u64,
}

impl Marker {
    pub(crate) fn passed(&self) -> bool {
        lock(&self.stream.state).completed >= self.ticket
    }

    /// As [`Marker::passed`], for a program that asks: work that `SIMCUDA_LATE=1` holds back starts.
    pub(crate) fn ask(&self) -> bool {
        let mut state = lock(&self.stream.state);
        self.stream.demand(&mut state, self.ticket);
        state.completed >= self.ticket
    }

    /// Ends the context's work up to here if a signal handler of Python's raises an exception meanwhile.
    pub(crate) fn wait(&self) {
        self.wait_until(None);
    }

    /// As [`Marker::wait`], until `deadline` if there is one. Returns whether the stream got here.
    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        let stream = &*self.stream;
        let mut ending = None;
        let mut state = lock(&stream.state);
        stream.demand(&mut state, self.ticket);
        while state.completed < self.ticket {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let wake;
            (state, wake) = stream.changed.wait(&stream.state, state, left);
            if wake == Wake::Signal {
                drop(state);
                if interrupt::handler_raised() {
                    ending.get_or_insert_with(|| stream.health.end_work());
                }
                state = lock(&stream.state);
            }
        }
        true
    }

    fn wait_for(&self, time: Duration) {
        let start = Instant::now();
        let mut state = lock(&self.stream.state);
        while state.completed < self.ticket
            && let Some(left) = time.checked_sub(start.elapsed())
        {
            (state, _) = self.stream.changed.wait(&self.stream.state, state, Some(left));
        }
    }
}

pub(crate) const LEAST_PRIORITY: i32 = 0;
pub(crate) const GREATEST_PRIORITY: i32 = -5;
pub(crate) const NON_BLOCKING: u32 = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;

impl Stream {
    fn new(siblings: Weak<Streams>, owner: Owner, health: Arc<Health>) -> Stream {
        let (state, changed) = (Mutex::default(), Condition::default());
        let (id, flags, priority, legacy) = (handle::next_id(), 0, 0, false);
        Stream { id, flags, priority, owner, health, siblings, legacy, state, changed }
    }

    /// Whether this is the legacy default stream of its context.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// The point after all work that was submitted so far.
    pub(crate) fn tail(self: &Arc<Self>) -> Marker {
        Marker { stream: Arc::clone(self), ticket: lock(&self.state).submitted }
    }

    /// The point after the latest kernel.
    fn after_kernels(self: &Arc<Self>) -> Marker {
        Marker { stream: Arc::clone(self), ticket: lock(&self.state).kernel }
    }

    /// Refuses further work; the worker ends when the queue is empty.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Whether the stream was closed and has no work left.
    fn finished(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.idle()
    }

    /// The markers that the stream's next work implicitly waits for: the legacy stream and the blocking streams of a
    /// context wait for each other.
    fn before_next(&self) -> Vec<Marker> {
        let Some(siblings) = self.siblings.upgrade() else { return Vec::new() };
        let mut markers = Vec::new();
        if self.legacy {
            let blocking = siblings.others().into_iter().filter(|other| other.flags & NON_BLOCKING == 0);
            markers.extend(blocking.map(|stream| stream.tail()));
        } else if self.flags & NON_BLOCKING == 0 {
            markers.push(siblings.legacy.tail());
        }
        markers.retain(|marker| !marker.passed());
        markers
    }

    /// Waits for all work on the stream and for its implicit markers; returns the context's error.
    pub(crate) fn synchronize(self: &Arc<Self>) -> Outcome {
        self.tail().wait();
        if self.legacy {
            self.before_next().iter().for_each(Marker::wait);
        }
        self.health.check()
    }

    /// Whether [`Stream::synchronize`] would return at once.
    pub(crate) fn done(&self) -> bool {
        let others = if self.legacy { self.before_next() } else { Vec::new() };
        let others = others.iter().filter(|other| !other.ask()).count();
        let mut state = lock(&self.state);
        let all = state.submitted;
        self.demand(&mut state, all);
        state.idle() && others == 0
    }

    fn demand(&self, state: &mut MutexGuard<'_, State>, ticket: u64) {
        if state.demanded < ticket {
            state.demanded = ticket;
            if settings().late {
                self.changed.notify_all();
            }
        }
    }

    /// Queues device work. It is skipped once the context has failed, and its own error fails the context.
    pub(crate) fn submit(
        self: &Arc<Self>,
        placement: Placement,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) -> Result<Marker, Code> {
        let guarded = move |health: &Health| {
            if health.check().is_ok()
                && let Err(code) = work()
            {
                health.fail(code);
            }
        };
        self.submit_after(Vec::new(), placement, Box::new(guarded))
    }

    /// Queues work that handles the context's error itself, to start after `after` and the implicit markers.
    pub(crate) fn submit_after(
        self: &Arc<Self>,
        mut after: Vec<Marker>,
        placement: Placement,
        work: Work,
    ) -> Result<Marker, Code> {
        after.retain(|marker| !marker.passed());
        after.append(&mut self.before_next());
        let mut state = lock(&self.state);
        let at_once = !settings().never_inline() && state.idle() && after.is_empty();
        let inline = placement == Placement::Anywhere && at_once;
        if !inline {
            self.ensure_worker(&mut state)?;
        }
        state.submitted += 1;
        if placement == Placement::Launch {
            state.kernel = state.submitted;
        }
        let job = Job { ticket: state.submitted, submitted: Instant::now(), after, work };
        let marker = Marker { stream: Arc::clone(self), ticket: job.ticket };
        if inline {
            drop(state);
            self.run(job);
        } else {
            state.queue.push_back(job);
            drop(state);
            self.changed.notify_all();
            if placement == Placement::Launch && at_once {
                marker.wait_for(GRACE);
            }
        }
        Ok(marker)
    }

    fn ensure_worker(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) -> Outcome {
        if !state.has_worker {
            let stream = Arc::clone(self);
            worker::spawn("simcuda stream", move || stream.work_off())?;
            state.has_worker = true;
        }
        Ok(())
    }

    // The worker thread's loop.
    fn work_off(&self) {
        while let Some(job) = self.next_job() {
            self.run(job);
        }
    }

    // The next job whose turn it is; `None` when the stream is closed and done.
    fn next_job(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            let turn = state.completed + 1;
            let late = settings().late && state.demanded < turn && !state.closed;
            let next = state.queue.front().filter(|job| job.ticket == turn);
            let held_back = next.filter(|_| late).and_then(|job| DELAY.checked_sub(job.submitted.elapsed()));
            if next.is_some() && held_back.is_none() {
                return state.queue.pop_front();
            }
            if state.closed && state.idle() {
                state.has_worker = false;
                return None;
            }
            (state, _) = self.changed.wait(&self.state, state, held_back);
        }
    }

    fn run(&self, job: Job) {
        job.after.iter().for_each(Marker::wait);
        if catch_unwind(AssertUnwindSafe(|| (job.work)(&self.health))).is_err() {
            self.health.fail(UNKNOWN);
        }
        lock(&self.state).completed = job.ticket;
        self.changed.notify_all();
    }
}

/// The streams of a context.
pub(crate) struct Streams {
    owner: Owner,
    health: Arc<Health>,
    legacy: Arc<Stream>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
    // The program's streams, and destroyed streams that still have work.
    created: Mutex<Vec<Arc<Stream>>>,
}

impl Streams {
    /// The streams of a new context.
    pub(crate) fn new(owner: Owner, health: &Arc<Health>) -> Arc<Streams> {
        Arc::new_cyclic(|streams| {
            let legacy = Stream { legacy: true, ..Stream::new(streams.clone(), owner, Arc::clone(health)) };
            let (health, legacy) = (Arc::clone(health), Arc::new(legacy));
            Streams { owner, health, legacy, per_thread: Mutex::default(), created: Mutex::default() }
        })
    }

    fn stream(self: &Arc<Self>) -> Stream {
        Stream::new(Arc::downgrade(self), self.owner, Arc::clone(&self.health))
    }

    /// The legacy default stream.
    pub(crate) fn legacy(&self) -> Arc<Stream> {
        Arc::clone(&self.legacy)
    }

    /// The calling thread's own default stream.
    pub(crate) fn per_thread(self: &Arc<Self>) -> Arc<Stream> {
        let new = || {
            ends_with_thread(Arc::<Self>::downgrade(self));
            Arc::new(self.stream())
        };
        Arc::clone(lock(&self.per_thread).entry(std::thread::current().id()).or_insert_with(new))
    }

    /// A new stream of the program with these flags.
    pub(crate) fn create(self: &Arc<Self>, flags: u32, priority: i32) -> Arc<Stream> {
        let stream = Arc::new(Stream { flags, priority, ..self.stream() });
        lock(&self.created).push(Arc::clone(&stream));
        stream
    }

    // All streams except the legacy one, without destroyed streams that are done.
    fn others(&self) -> Vec<Arc<Stream>> {
        let mut streams = lock(&self.created);
        streams.retain(|stream| !stream.finished());
        let mut all = streams.clone();
        drop(streams);
        all.extend(lock(&self.per_thread).values().cloned());
        all
    }

    /// Waits for all work; returns the context's error, if any.
    pub(crate) fn synchronize(&self) -> Outcome {
        let streams = self.others();
        self.legacy.tail().wait();
        for stream in streams {
            stream.tail().wait();
        }
        self.health.check()
    }

    /// Waits for the kernels that were launched so far, on any stream, as NVIDIA's driver 580 does on an H100 in calls that free
    /// or unregister memory, and in those that load or unload modules.
    pub(crate) fn wait_for_kernels(&self) {
        let deadline = Instant::now() + SILENCE;
        for stream in self.others().into_iter().chain([self.legacy()]) {
            let kernels = stream.after_kernels();
            if !kernels.wait_until(Some(deadline)) {
                say(format_args!("{} waits for a kernel that runs, as on a GPU", call::name()));
                kernels.wait();
            }
        }
    }

    /// Refuses further work on every stream.
    pub(crate) fn close(&self) {
        for stream in self.others() {
            stream.close();
        }
        self.legacy.close();
        lock(&self.created).clear();
        lock(&self.per_thread).clear();
    }
}

impl OwnStreams for Streams {
    /// A capture ends with the stream where it started. Until the stream's work is done, it is among the created ones.
    fn end_own(&self, thread: ThreadId) {
        let Some(stream) = lock(&self.per_thread).get(&thread).cloned() else { return };
        capture::destroyed(&stream);
        stream.close();
        let mut created = lock(&self.created);
        created.retain(|stream| !stream.finished());
        created.push(stream);
        drop(created);
        lock(&self.per_thread).remove(&thread);
    }
}
