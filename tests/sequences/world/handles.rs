//! Opening, closing and querying handles.

use support::Result;
use support::step::{Step, What};
use vkgdr::{CopyThresholds, MemoryKind, OpenFlags, Vkgdr};

use super::World;

/// The largest number of open handles.
const MOST: usize = 6;
const FLAGS: [OpenFlags; 3] = [OpenFlags::empty(), OpenFlags::FORCE_NON_COHERENT, OpenFlags::REQUIRE_COHERENT];

impl World {
    pub(super) fn apply_to_handles(&mut self, step: Step) -> Result<bool> {
        if step.what == What::Open {
            return self.open(step);
        }
        if self.handles.is_empty() {
            return Ok(false);
        }
        let index = usize::from(step.first) % self.handles.len();
        match step.what {
            What::Close => self.closed.push(self.handles.swap_remove(index)),
            What::Collect => drop(self.handles[index].collect()),
            What::SetThresholds => {
                let choices = [0, 64, 4096, usize::MAX];
                let (read, write) = (choices[usize::from(step.choice) % 4], choices[usize::from(step.second) % 4]);
                self.handles[index].set_copy_thresholds(CopyThresholds { read, write });
            }
            _ => ask(&self.handles[index])?,
        }
        Ok(true)
    }

    fn open(&mut self, step: Step) -> Result<bool> {
        if self.handles.len() >= MOST {
            return Ok(false);
        }
        let flags = FLAGS[usize::from(step.choice) % FLAGS.len()];
        let opened = match step.second % 3 {
            0 => Vkgdr::open(0, flags),
            1 => Vkgdr::open_current_context(flags),
            _ => Vkgdr::open_primary_context(0, flags),
        };
        match opened {
            Ok(gpu) => self.handles.push(gpu),
            // A GPU may have no coherent type.
            Err(error) if crate::is_lack(&error) && flags == OpenFlags::REQUIRE_COHERENT => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}

fn ask(gpu: &Vkgdr) -> Result {
    for kind in MemoryKind::ALL {
        match (gpu.supports(kind), gpu.memory_info(kind), gpu.memory_type_of(kind)) {
            (true, Ok(info), Ok(_)) if info.total > 0 => {}
            (false, Err(info), Err(listed)) if crate::is_lack(&info) && crate::is_lack(&listed) => {}
            other => return Err(format!("{kind} memory: {other:?}").into()),
        }
    }
    let (_, _) = (gpu.pci_bus_id()?, gpu.deferred_frees());
    Ok(())
}
