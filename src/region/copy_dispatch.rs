//! Dispatches the copies and fills of a [`Region`] to the CPU or the copy engine.
#![expect(unsafe_code, reason = "the device copies bytes that the region keeps alive")]

use super::Region;
use crate::access::copy::HostAccess;
use crate::access::view::View;
use crate::copy_engine::policy::{CopyPath, Direction, MemoryProperties};
use crate::copy_engine::{CopyEngines, Failure};
use crate::driver::fill_pattern::FillPattern;
use crate::driver::fork;
use crate::report::report;
use crate::{CopyPolicy, Error, Result};

/// The result of a copy by the copy engine.
type EngineResult = std::result::Result<(), Failure>;

impl Region {
    fn path(&self, policy: CopyPolicy, direction: Direction, len: usize) -> CopyPath {
        let properties = MemoryProperties {
            host_view: self.kind().has_host_view(),
            coherent: self.is_coherent(),
            write_combined: self.host_access() == HostAccess::WriteCombined,
        };
        match CopyPath::choose(policy, properties, len, self.engines().threshold(direction)) {
            // Creating an engine may block behind a kernel that waits for this copy.
            CopyPath::EngineOrCpu if !self.engines().is_prepared(self.block().context()) => CopyPath::Cpu,
            path => path,
        }
    }

    #[inline]
    pub(super) fn engines(&self) -> &'static CopyEngines {
        self.block().engines()
    }

    pub(super) fn write_bytes(&self, policy: CopyPolicy, offset: usize, source: &[u8]) -> Result<()> {
        let view = self.view();
        match self.path(policy, Direction::Write, source.len()) {
            CopyPath::Cpu => view.write(offset, source),
            CopyPath::Engine => self.write_by_engine(view, offset, source)?.map_err(|failure| self.record(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.write_by_engine(view, offset, source)?, || view.write(offset, source))
            }
        }
    }

    pub(super) fn read_bytes(&self, policy: CopyPolicy, offset: usize, target: &mut [u8]) -> Result<()> {
        let view = self.view();
        match self.path(policy, Direction::Read, target.len()) {
            CopyPath::Cpu => view.read(offset, target),
            CopyPath::Engine => self.read_by_engine(view, offset, target)?.map_err(|failure| self.record(failure)),
            CopyPath::EngineOrCpu => {
                self.or_by_cpu(self.read_by_engine(view, offset, target)?, || view.read(offset, target))
            }
        }
    }

    /// [`fill_pattern`](Self::fill_pattern) of a checked range.
    pub(super) fn fill_bytes(&self, offset: usize, len: usize, pattern: &[u8]) -> Result<()> {
        let view = self.view();
        let by_cpu = || view.fill(offset, len, pattern);
        match self.fill_pattern_for_engine(view, offset, len, pattern) {
            Some(pattern) => self.or_by_cpu(self.fill_by_engine(view, offset, len, pattern)?, by_cpu),
            None => by_cpu(),
        }
    }

    /// The value that the copy engine can repeat; `None` if the CPU fills or refuses.
    fn fill_pattern_for_engine(
        &self,
        view: View<'_>,
        offset: usize,
        len: usize,
        pattern: &[u8],
    ) -> Option<FillPattern> {
        let path = self.path(CopyPolicy::Auto, Direction::Write, len);
        let is_whole = len > 0 && len.is_multiple_of(pattern.len().max(1));
        if path == CopyPath::EngineOrCpu && is_whole {
            FillPattern::of(pattern, view.device_ptr() + offset as u64)
        } else {
            None
        }
    }

    /// The result of a copy by the copy engine, or of `by_cpu` if the engine was unavailable.
    fn or_by_cpu(&self, copied: EngineResult, by_cpu: impl FnOnce() -> Result<()>) -> Result<()> {
        match copied {
            Err(Failure::Unavailable(error)) => {
                report!(Debug, "copying by the CPU, since the copy engine is unavailable: {error}");
                by_cpu()
            }
            copied => copied.map_err(|failure| self.record(failure)),
        }
    }

    /// The outer result belongs to the steps around the copy, the inner one to the copy.
    fn write_by_engine(&self, view: View<'_>, offset: usize, source: &[u8]) -> Result<EngineResult> {
        let part = view.part(offset, source.len())?;
        if source.is_empty() {
            return Ok(fork::check().map_err(Failure::Unavailable));
        }
        // SAFETY: the region keeps the bytes alive, and after an `Unfinished` failure their release waits for the
        // context.
        Self::change_by_engine(part, || unsafe {
            self.engines().write(self.block().context(), part.device_ptr(), source)
        })
    }

    /// Runs a copy or fill by the device of all of a view's bytes.
    fn change_by_engine(part: View<'_>, change: impl FnOnce() -> EngineResult) -> Result<EngineResult> {
        // This thread's earlier writes come first.
        part.flush(0, part.len())?;
        let changed = change();
        if changed.is_ok() {
            part.invalidate(0, part.len())?;
        }
        Ok(changed)
    }

    /// See [`write_by_engine`](Self::write_by_engine) for the results.
    fn read_by_engine(&self, view: View<'_>, offset: usize, target: &mut [u8]) -> Result<EngineResult> {
        let part = view.part(offset, target.len())?;
        if target.is_empty() {
            return Ok(fork::check().map_err(Failure::Unavailable));
        }
        part.flush(0, target.len())?;
        // SAFETY: as in `write_by_engine`.
        Ok(unsafe { self.engines().read(self.block().context(), part.device_ptr(), target) })
    }

    /// See [`write_by_engine`](Self::write_by_engine) for the results.
    fn fill_by_engine(&self, view: View<'_>, offset: usize, len: usize, pattern: FillPattern) -> Result<EngineResult> {
        let part = view.part(offset, len)?;
        // SAFETY: as in `write_by_engine`.
        Self::change_by_engine(part, || unsafe {
            self.engines().fill(self.block().context(), part.device_ptr(), pattern, len)
        })
    }

    /// Records a failed copy that the device may still be making, so that the memory is not freed before it ends.
    /// Returns the error.
    fn record(&self, failure: Failure) -> Error {
        if let Failure::Unfinished(_) = failure {
            self.chunk().record_unfinished_copy();
        }
        failure.into()
    }
}
