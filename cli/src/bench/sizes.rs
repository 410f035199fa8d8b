//! The sizes to measure, and whether they fit.

use vkgdr::diagnosis::System;
use vkgdr::{MemoryKind, Vkgdr};

use crate::info::is_simulated;
use crate::text::size;
use crate::{Failure, Result, linux};

/// Sizes from one to another, each four times the one before.
pub(super) fn between(from: usize, to: usize) -> Result<Vec<usize>> {
    if from > to {
        let remedy = "--from is the smallest size, --to the largest";
        return Err(Failure::usage(format!("{} is more than {}", size(from as u64), size(to as u64)), remedy));
    }
    let mut sizes: Vec<_> =
        std::iter::successors(Some(from), |size| size.checked_mul(4)).take_while(|size| *size < to).collect();
    sizes.push(to);
    Ok(sizes)
}

/// Fails unless that much memory of a kind, and as much private memory `private` times, is free. Drivers may take long
/// to refuse it, and Linux may end the process instead.
pub(super) fn check_room(gpu: &Vkgdr, kind: MemoryKind, bytes: usize, private: u64) -> Result {
    let info = gpu.memory_info(kind)?;
    let asked = bytes as u64;
    let choose = "choose a smaller --to, or fewer --threads";
    if asked > info.available {
        let problem = format!("{} of {kind} memory are needed, {} are free", size(asked), size(info.available));
        return Err(Failure::boxed(problem, choose));
    }
    let in_system = u64::from(kind == MemoryKind::Host || is_simulated(gpu.name()));
    let needed = asked.saturating_mul(private + in_system);
    match linux::available_memory(&System::here()) {
        Some(free) if needed > free => {
            let problem = format!("{} of the system's memory are needed, {} are free", size(needed), size(free));
            Err(Failure::boxed(problem, choose))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_up_to_the_last_by_four() {
        assert_eq!(between(1, 100).ok(), Some(vec![1, 4, 16, 64, 100]));
        assert_eq!(between(64, 64).ok(), Some(vec![64]));
        assert_eq!(between(1 << 10, 4 << 10).ok(), Some(vec![1 << 10, 4 << 10]));
        let all = between(1, usize::MAX).unwrap_or_default();
        assert_eq!((all.len(), all.last()), (33, Some(&usize::MAX)));
        assert!(between(2, 1).is_err());
    }
}
