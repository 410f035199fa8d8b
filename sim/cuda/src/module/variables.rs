//! The memory of a module's variables.

use std::sync::Arc;

use crate::code::{Code, OUT_OF_MEMORY};
use crate::heap::Block;
use crate::memory::table;
use crate::memory::window::Window;
use crate::owner::Owner;

// A gap between variables, so that an overrun of one does not silently hit the next.
const GAP: usize = 16;

/// A module's variables.
pub(crate) struct Variables {
    names: Vec<String>,
    /// One for each name.
    windows: Vec<Window>,
    _device: Placed,
    managed: Arc<Placed>,
}

/// Variables in memory of their own, which is freed on drop.
pub(crate) struct Placed {
    windows: Vec<Window>,
}

impl Placed {
    fn new<'v>(
        variables: impl Iterator<Item = &'v ptx::Variable>,
        managed: bool,
        owner: Owner,
    ) -> Result<Placed, Code> {
        let mut ranges = Vec::new();
        let mut end = 0_usize;
        for variable in variables {
            let align = usize::try_from(variable.align).map_err(|_| OUT_OF_MEMORY)?.max(GAP);
            let size = usize::try_from(variable.size).map_err(|_| OUT_OF_MEMORY)?;
            let next = if end == 0 { 0 } else { end.checked_add(1).ok_or(OUT_OF_MEMORY)? };
            let start = next.checked_next_multiple_of(align).ok_or(OUT_OF_MEMORY)?;
            end = start.checked_add(size).ok_or(OUT_OF_MEMORY)?;
            ranges.push(start..end);
        }
        if ranges.is_empty() {
            return Ok(Placed { windows: Vec::new() });
        }
        let size = end.max(1);
        let block = if managed { Block::managed(size) } else { Block::device(size) };
        let windows = table::insert_variables(block.ok_or(OUT_OF_MEMORY)?, size, &ranges, managed, owner);
        Ok(Placed { windows })
    }

    pub(super) fn has(&self, address: usize) -> bool {
        self.windows.iter().any(|window| window.address == address)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        table::remove_variables(&self.windows);
    }
}

impl Variables {
    /// Places a module's variables; the managed ones where `managed` has them already.
    pub(super) fn place(
        variables: &[ptx::Variable],
        owner: Owner,
        managed: Option<Arc<Placed>>,
    ) -> Result<Variables, Code> {
        let of = |managed| variables.iter().filter(move |variable| variable.is_managed == managed);
        let device = Placed::new(of(false), false, owner)?;
        let managed = managed.map_or_else(|| Placed::new(of(true), true, owner).map(Arc::new), Ok)?;
        let (mut own, mut shared) = (device.windows.iter(), managed.windows.iter());
        let windows =
            variables.iter().filter_map(|variable| if variable.is_managed { &mut shared } else { &mut own }.next());
        let windows = windows.copied().collect();
        let names = variables.iter().map(|variable| variable.name.clone()).collect();
        Ok(Variables { names, windows, _device: device, managed })
    }

    pub(super) fn managed(&self) -> &Arc<Placed> {
        &self.managed
    }

    pub(super) fn addresses(&self) -> Vec<u64> {
        self.windows.iter().map(|window| window.address as u64).collect()
    }

    /// Address and size of a variable.
    pub(super) fn find(&self, name: &str) -> Option<(usize, usize)> {
        let index = self.names.iter().position(|known| known == name)?;
        self.windows.get(index).map(|window| (window.address, window.size))
    }
}
