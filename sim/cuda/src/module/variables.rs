//! The memory of a module's variables.

use crate::code::{Code, OUT_OF_MEMORY};
use crate::heap::Block;
use crate::memory::table;
use crate::memory::window::Window;
use crate::owner::Owner;

// A gap between variables, so that an overrun of one does not silently hit the next.
const GAP: usize = 16;

/// A module's variables, in device memory of their own that is freed on drop.
pub(crate) struct Variables {
    names: Vec<String>,
    windows: Vec<Window>,
}

impl Variables {
    pub(super) fn place(variables: &[ptx::Variable], owner: Owner) -> Result<Variables, Code> {
        let mut ranges = Vec::with_capacity(variables.len());
        let mut end = 0_usize;
        for variable in variables {
            let align = usize::try_from(variable.align).map_err(|_| OUT_OF_MEMORY)?.max(GAP);
            let size = usize::try_from(variable.size).map_err(|_| OUT_OF_MEMORY)?;
            let next = if end == 0 { 0 } else { end.checked_add(1).ok_or(OUT_OF_MEMORY)? };
            let start = next.checked_next_multiple_of(align).ok_or(OUT_OF_MEMORY)?;
            end = start.checked_add(size).ok_or(OUT_OF_MEMORY)?;
            ranges.push(start..end);
        }
        let names = variables.iter().map(|variable| variable.name.clone()).collect();
        let windows = if ranges.is_empty() {
            Vec::new()
        } else {
            let block = Block::device(end.max(1)).ok_or(OUT_OF_MEMORY)?;
            table::insert_variables(block, end.max(1), &ranges, owner)
        };
        Ok(Variables { names, windows })
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

impl Drop for Variables {
    fn drop(&mut self) {
        table::remove_variables(&self.windows);
    }
}
