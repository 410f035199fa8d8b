//! Writes to memory words and waits for them, in a stream's order.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUstreamWaitValue_flags, CUstreamWriteValue_flags};

use super::table;

use crate::boundary::exports;
use crate::code::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::memory::table::{Queued, Span, pin, span};
use crate::memory::{bytes, quiet};
use crate::queue::Placement;

const GEQ: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
const EQ: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32;
const AND: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_AND as u32;
const NOR: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR as u32;
const FLUSH: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH as u32;
const NO_MEMORY_BARRIER: u32 = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER as u32;
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Clone, Copy)]
enum Condition {
    Reached,
    Equal,
    And,
    Nor,
}

impl Condition {
    fn holds(self, current: u64, value: u64, width: usize) -> bool {
        let mask = if width == 4 { u64::from(u32::MAX) } else { u64::MAX };
        match self {
            // Cyclic, as CUDA has it: (int)(*address - value) >= 0.
            Condition::Reached => current.wrapping_sub(value) & mask <= mask >> 1,
            Condition::Equal => current == value,
            Condition::And => current & value != 0,
            Condition::Nor => !(current | value) & mask != 0,
        }
    }
}

fn word(address: usize, width: usize) -> Result<Span, Code> {
    if !address.is_multiple_of(width) {
        return Err(INVALID_VALUE);
    }
    span(address, width).ok_or(INVALID_VALUE)
}

fn write(stream: usize, address: usize, value: u64, width: usize, flags: u32) -> Outcome {
    let stream = table::outside_captures(stream)?;
    if flags & !NO_MEMORY_BARRIER != 0 {
        return Err(INVALID_VALUE);
    }
    let word = word(address, width)?;
    let queued = Queued::new(word);
    let work = move || {
        let _pinned = queued.pin().ok_or(ILLEGAL_ADDRESS)?;
        // A pin keeps the range, not its pages, which an export exchanges for others with the bytes of before.
        let _in_place = quiet::copying();
        bytes::store(word.address, width, value);
        Ok(())
    };
    stream.submit(Placement::Anywhere, work)?;
    Ok(())
}

fn wait(stream: usize, address: usize, value: u64, width: usize, flags: u32) -> Outcome {
    let stream = table::outside_captures(stream)?;
    if flags & FLUSH != 0 {
        return Err(NOT_SUPPORTED);
    }
    let condition = match flags {
        GEQ => Condition::Reached,
        EQ => Condition::Equal,
        AND => Condition::And,
        NOR => Condition::Nor,
        _ => return Err(INVALID_VALUE),
    };
    let word = word(address, width)?;
    let health = Arc::clone(&stream.health);
    let work = move || {
        // Pinned anew each time, so that memory that is freed in the meantime is an error and not an endless wait.
        while !condition.holds(read(&word, width)?, value, width) && !health.ends_waits() {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    };
    stream.submit(Placement::Worker, work)?;
    Ok(())
}

fn read(word: &Span, width: usize) -> Result<u64, Code> {
    let _pinned = pin(word).ok_or(ILLEGAL_ADDRESS)?;
    Ok(bytes::load(word.address, width))
}

fn write32(stream: usize, address: usize, value: u32, flags: u32) -> Outcome {
    write(stream, address, u64::from(value), 4, flags)
}

fn write64(stream: usize, address: usize, value: u64, flags: u32) -> Outcome {
    write(stream, address, value, 8, flags)
}

fn wait32(stream: usize, address: usize, value: u32, flags: u32) -> Outcome {
    wait(stream, address, u64::from(value), 4, flags)
}

fn wait64(stream: usize, address: usize, value: u64, flags: u32) -> Outcome {
    wait(stream, address, value, 8, flags)
}

exports! {
    cuStreamWriteValue32, cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz =>
        write32(stream: usize, address: usize, value: u32, flags: u32);
    cuStreamWriteValue64, cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz =>
        write64(stream: usize, address: usize, value: u64, flags: u32);
    cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz =>
        wait32(stream: usize, address: usize, value: u32, flags: u32);
    cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz =>
        wait64(stream: usize, address: usize, value: u64, flags: u32);
}
