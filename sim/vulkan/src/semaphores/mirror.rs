//! The driver's counter of a shared semaphore and the value of its payload, kept equal.
#![expect(unsafe_code, reason = "calls the next layer")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use ash::vk;

use simcommon::payload::Payload;

/// The longest wait of a thread, which looks then whether it must end. It is woken for that, so that this matters only
/// where a counter stands at its last value.
const MOST: Duration = Duration::from_millis(100);

/// The driver's semaphore and its payload.
#[derive(Clone)]
pub(super) struct Timeline(Arc<Inner>);

struct Inner {
    device: vk::Device,
    semaphore: vk::Semaphore,
    functions: ash::DeviceFnV1_2,
    payload: Payload,
    /// Held from reading the driver's counter until the signal or the new value that follows from it, and over the
    /// application's signals: the mirror's own signal would otherwise come behind one, where the driver loses the device.
    counter: Mutex<()>,
    stopped: AtomicBool,
}

impl Timeline {
    pub(super) fn new(
        functions: ash::DeviceFnV1_2,
        device: vk::Device,
        semaphore: vk::Semaphore,
        payload: Payload,
    ) -> Timeline {
        Timeline(Arc::new(Inner {
            device,
            semaphore,
            functions,
            payload,
            counter: Mutex::default(),
            stopped: AtomicBool::new(false),
        }))
    }

    pub(super) fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// The driver's counter; `None` once the device is lost.
    fn counter(&self) -> Option<u64> {
        let mut value = 0;
        let get = self.0.functions.get_semaphore_counter_value;
        // SAFETY: a live timeline semaphore of a live device: both outlive the threads.
        unsafe { get(self.0.device, self.0.semaphore, &raw mut value) }.result().ok()?;
        Some(value)
    }

    fn signal(&self, value: u64) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.0.semaphore).value(value);
        // SAFETY: as for `counter`. Without success the device is lost, which the application learns elsewhere.
        let _ = unsafe { (self.0.functions.signal_semaphore)(self.0.device, &raw const info) };
    }

    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        let guard = self.0.counter.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.stopped()).then_some(guard)
    }

    fn stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Raises the payload to the driver's counter, and returns that.
    pub(super) fn publish(&self) -> Option<u64> {
        let _guard = self.lock()?;
        self.publish_locked()
    }

    /// As [`Timeline::publish`]. `counter` is locked.
    fn publish_locked(&self) -> Option<u64> {
        let value = self.counter()?;
        self.payload().advance(value);
        Some(value)
    }

    /// Runs a signal of the application, and raises the payload to the driver's counter.
    pub(super) fn raise(&self, signal: impl FnOnce() -> vk::Result) -> vk::Result {
        let guard = self.lock();
        let result = signal();
        if guard.is_some() {
            self.publish_locked();
        }
        result
    }

    /// Raises the driver's counter to the payload's value.
    pub(super) fn adopt(&self) {
        let Some(_guard) = self.lock() else { return };
        let value = self.payload().value();
        if self.counter().is_some_and(|counter| counter < value) {
            self.signal(value);
        }
    }

    /// Ends all use of the driver's semaphore but for [`Timeline::wake`]: waits for a use by another thread, and later
    /// ones do nothing.
    pub(super) fn close(&self) {
        let _guard = self.lock();
        self.0.stopped.store(true, Ordering::Release);
    }

    /// Ends the waits of the threads. The timeline is closed, and the semaphore is not destroyed yet.
    fn wake(&self) {
        if let Some(next) = self.counter().and_then(|counter| counter.checked_add(1)) {
            self.signal(next);
        }
        self.payload().wake();
    }

    /// Follows the driver's counter.
    fn follow_driver(&self) {
        let mut seen = Some(0_u64);
        while let Some(value) = seen
            && !self.stopped()
            && let Some(next) = value.checked_add(1)
        {
            let (semaphores, values) = ([self.0.semaphore], [next]);
            let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
            let most = u64::try_from(MOST.as_nanos()).unwrap_or(u64::MAX);
            // SAFETY: as for `counter`.
            let result = unsafe { (self.0.functions.wait_semaphores)(self.0.device, &raw const info, most) };
            match result {
                vk::Result::SUCCESS => seen = self.publish(),
                vk::Result::TIMEOUT => {}
                _ => return,
            }
        }
    }

    /// Follows the payload.
    fn follow_payload(&self) {
        let mut seen = 0_u64;
        while !self.stopped()
            && let Some(next) = seen.checked_add(1)
        {
            if self.payload().wait(next, MOST) {
                seen = self.payload().value();
                self.adopt();
            }
        }
    }
}

/// The threads of a shared semaphore.
pub(super) struct Mirror([JoinHandle<()>; 2]);

impl Mirror {
    /// Starts both threads, or none.
    pub(super) fn start(timeline: &Timeline) -> io::Result<Mirror> {
        let (go, gate) = mpsc::channel();
        let (for_driver, for_payload) = (timeline.clone(), timeline.clone());
        let follow_driver = move || {
            if gate.recv().is_ok() {
                for_driver.follow_driver();
            }
        };
        let driver = Builder::new().name("vklayer driver".to_owned()).spawn(follow_driver)?;
        let follow_payload = move || for_payload.follow_payload();
        match Builder::new().name("vklayer payload".to_owned()).spawn(follow_payload) {
            Ok(payload) => {
                // Cannot fail: the thread waits for it.
                let _ = go.send(());
                Ok(Mirror([driver, payload]))
            }
            Err(error) => {
                drop(go);
                // A panic of the thread was printed.
                let _ = driver.join();
                Err(error)
            }
        }
    }

    /// Ends the threads of a closed timeline, and waits for them.
    pub(super) fn join(self, timeline: &Timeline) {
        timeline.wake();
        for thread in self.0 {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}
