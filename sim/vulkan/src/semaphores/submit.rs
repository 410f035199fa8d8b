//! Submissions, whose shared semaphores become the driver's timelines.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::vk;

use super::device::{DEVICES, Device};
use crate::interface::{array, chain};

/// The semaphores and values of one side of a batch.
#[derive(Default)]
struct Side {
    semaphores: Vec<vk::Semaphore>,
    values: Vec<u64>,
}

impl Side {
    fn of(
        semaphores: &[vk::Semaphore],
        values: &[u64],
        replace: impl Fn(vk::Semaphore, u64) -> (vk::Semaphore, u64),
    ) -> Self {
        let values = values.iter().copied().chain(std::iter::repeat(0));
        let (semaphores, values) =
            semaphores.iter().zip(values).map(|(&semaphore, value)| replace(semaphore, value)).unzip();
        Self { semaphores, values }
    }
}

impl Device {
    fn wait_for(&self, semaphore: vk::Semaphore, value: u64) -> (vk::Semaphore, u64) {
        self.find(semaphore).map_or((semaphore, value), |shared| shared.wait(value))
    }

    /// The driver's counter is at the payload's value before the signal is submitted, since the mirror, signalling it later,
    /// would come behind the queue.
    fn signal_of(&self, semaphore: vk::Semaphore, value: u64) -> (vk::Semaphore, u64) {
        let Some(shared) = self.find(semaphore) else { return (semaphore, value) };
        shared.timeline.adopt();
        shared.signal(value)
    }
}

/// The values of a batch's timeline semaphores.
///
/// # Safety
/// The structure and its chain are valid for as long as the result is used.
unsafe fn values<'a>(batch: &vk::SubmitInfo<'_>) -> (&'a [u64], &'a [u64]) {
    // SAFETY: the caller's promise.
    let found =
        unsafe { chain(batch.p_next) }.find(|(kind, _)| *kind == vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO);
    let Some((_, node)) = found else { return (&[], &[]) };
    // SAFETY: the type says what it is.
    let info = unsafe { node.cast::<vk::TimelineSemaphoreSubmitInfo<'_>>().read() };
    // SAFETY: an array of this length, or null.
    let waits = unsafe { array(info.p_wait_semaphore_values, info.wait_semaphore_value_count) };
    // SAFETY: as above.
    let signals = unsafe { array(info.p_signal_semaphore_values, info.signal_semaphore_value_count) };
    (waits, signals)
}

pub(super) unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: a live queue of the caller's.
    let Some(known) = (unsafe { DEVICES.get(queue) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let submit = known.next.fp_v1_0().queue_submit;
    if !known.shares() {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { submit(queue, count, submits, fence) };
    }
    // SAFETY: an array of this length, or null.
    let batches = unsafe { array(submits, count) };
    let sides: Vec<(Side, Side)> = batches
        .iter()
        .map(|batch| {
            // SAFETY: the chain of the caller's structure.
            let (wait_values, signal_values) = unsafe { values(batch) };
            // SAFETY: an array of this length, or null.
            let waits = unsafe { array(batch.p_wait_semaphores, batch.wait_semaphore_count) };
            // SAFETY: as above.
            let signals = unsafe { array(batch.p_signal_semaphores, batch.signal_semaphore_count) };
            let waits = Side::of(waits, wait_values, |semaphore, value| known.wait_for(semaphore, value));
            let signals = Side::of(signals, signal_values, |semaphore, value| known.signal_of(semaphore, value));
            (waits, signals)
        })
        .collect();
    // Before the rest of the chain: the driver takes the first structure of a type.
    let timelines: Vec<vk::TimelineSemaphoreSubmitInfo<'_>> = batches
        .iter()
        .zip(&sides)
        .map(|(batch, (waits, signals))| {
            let mut info = vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&waits.values)
                .signal_semaphore_values(&signals.values);
            info.p_next = batch.p_next;
            info
        })
        .collect();
    let replaced: Vec<vk::SubmitInfo<'_>> = batches
        .iter()
        .zip(&sides)
        .zip(&timelines)
        .map(|((batch, (waits, signals)), timeline)| {
            let mut batch = *batch;
            batch.p_next = (&raw const *timeline).cast();
            batch.p_wait_semaphores = waits.semaphores.as_ptr();
            batch.p_signal_semaphores = signals.semaphores.as_ptr();
            batch
        })
        .collect();
    // SAFETY: the caller's arguments with other semaphores and values, alive during the call.
    unsafe { submit(queue, count, replaced.as_ptr(), fence) }
}

pub(super) unsafe extern "system" fn queue_submit2(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: a live queue of the caller's.
    let Some(known) = (unsafe { DEVICES.get(queue) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let submit = known.next.fp_v1_3().queue_submit2;
    if !known.shares() {
        // SAFETY: the caller's arguments, passed on.
        return unsafe { submit(queue, count, submits, fence) };
    }
    // SAFETY: an array of this length, or null.
    let batches = unsafe { array(submits, count) };
    type Sides<'a> = (Vec<vk::SemaphoreSubmitInfo<'a>>, Vec<vk::SemaphoreSubmitInfo<'a>>);
    let sides: Vec<Sides<'_>> = batches
        .iter()
        .map(|batch| {
            // SAFETY: an array of this length, or null.
            let mut waits = unsafe { array(batch.p_wait_semaphore_infos, batch.wait_semaphore_info_count) }.to_vec();
            // SAFETY: as above.
            let mut signals =
                unsafe { array(batch.p_signal_semaphore_infos, batch.signal_semaphore_info_count) }.to_vec();
            for info in &mut waits {
                (info.semaphore, info.value) = known.wait_for(info.semaphore, info.value);
            }
            for info in &mut signals {
                (info.semaphore, info.value) = known.signal_of(info.semaphore, info.value);
            }
            (waits, signals)
        })
        .collect();
    let replaced: Vec<vk::SubmitInfo2<'_>> = batches
        .iter()
        .zip(&sides)
        .map(|(batch, (waits, signals))| {
            let mut batch = *batch;
            batch.p_wait_semaphore_infos = waits.as_ptr();
            batch.p_signal_semaphore_infos = signals.as_ptr();
            batch
        })
        .collect();
    // SAFETY: the caller's arguments with other semaphores and values, alive during the call.
    unsafe { submit(queue, count, replaced.as_ptr(), fence) }
}
