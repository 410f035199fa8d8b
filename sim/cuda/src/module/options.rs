//! The options of a load or a link. Those for the log are honoured; all others that CUDA knows are accepted and
//! ignored, since nothing is compiled.

use std::time::Instant;

use cudarc::driver::sys::CUjit_option;

use crate::code::{Code, INVALID_VALUE};
use crate::ffi::{In, Out, write_text};

const WALL_TIME: u32 = CUjit_option::CU_JIT_WALL_TIME as u32;
const INFO_BUFFER: u32 = CUjit_option::CU_JIT_INFO_LOG_BUFFER as u32;
const INFO_SIZE: u32 = CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as u32;
const ERROR_BUFFER: u32 = CUjit_option::CU_JIT_ERROR_LOG_BUFFER as u32;
const ERROR_SIZE: u32 = CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32;
const KNOWN: u32 = CUjit_option::CU_JIT_NUM_OPTIONS as u32;

// The caller's buffer and the option with its size, which is replaced by the text's size.
#[derive(Clone, Copy, Default)]
struct Log {
    buffer: Option<Out<u8>>,
    size: Option<(usize, Out<usize>)>,
}

impl Log {
    fn write(&self, text: &str) {
        let Some((capacity, size)) = self.size else { return };
        let Some(buffer) = self.buffer else { return };
        // No text for a null buffer or one without room for a NUL.
        let written = write_text(buffer, capacity, text).map_or(0, |()| text.len().min(capacity - 1));
        size.set_if_wanted(written);
    }
}

/// Options, taken from the caller's two arrays.
#[derive(Clone, Copy)]
pub(super) struct Options {
    started: Instant,
    info: Log,
    error: Log,
    wall_time: Option<Out<usize>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { started: Instant::now(), info: Log::default(), error: Log::default(), wall_time: None }
    }
}

impl Options {
    /// Reads `count` options. An option that CUDA 13 does not know is `CUDA_ERROR_INVALID_VALUE`.
    pub(super) fn read(count: u32, keys: In<u32>, values: Out<usize>) -> Result<Options, Code> {
        let mut options = Options::default();
        if count > 0 {
            values.required()?;
        }
        for index in 0..usize::try_from(count).map_err(|_| INVALID_VALUE)? {
            let key = keys.element(index)?;
            let slot = values.element(index);
            let value = slot.as_input();
            let buffer = value.cast::<Out<u8>>();
            match key {
                WALL_TIME => options.wall_time = Some(slot),
                INFO_BUFFER => options.info.buffer = Some(buffer.get()?),
                ERROR_BUFFER => options.error.buffer = Some(buffer.get()?),
                INFO_SIZE => options.info.size = Some((value.get()?, slot)),
                ERROR_SIZE => options.error.size = Some((value.get()?, slot)),
                0..KNOWN => {}
                _ => return Err(INVALID_VALUE),
            }
        }
        Ok(options)
    }

    /// Empties the logs after a success.
    pub(super) fn report_success(&self) {
        self.info.write("");
        self.error.write("");
        self.report_time();
    }

    /// Writes the reason of a failure to the error log.
    pub(super) fn report_failure(&self, reason: &str) {
        self.info.write("");
        self.error.write(reason);
        self.report_time();
    }

    fn report_time(&self) {
        if let Some(slot) = self.wall_time {
            // A float in the bytes of a pointer.
            slot.cast::<f32>().set_if_wanted(self.started.elapsed().as_secs_f32() * 1000.0);
        }
    }
}
