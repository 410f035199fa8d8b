//! The diverged lanes of a warp, in groups that are at the same instruction of one frame.
//!
//! The group with the lowest program counter runs, until it reaches the next one, which it joins. So lanes come together
//! again where their ways do, since compilers place what follows a branch or a loop after it.

/// Lanes at the same instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) set: u32,
    /// The number of backward jumps that are left of the turn.
    pub(super) fuel: u32,
}

/// Groups that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By falling program counter.
    groups: Vec<Group>,
}

impl Queue {
    /// The lowest program counter, or one that no lane reaches.
    pub(super) fn limit(&self) -> u32 {
        self.groups.last().map_or(u32::MAX, |group| group.pc)
    }

    /// Adds a group, which joins one at its instruction.
    pub(super) fn add(&mut self, group: Group) {
        let at = self.groups.iter().rposition(|other| other.pc >= group.pc);
        match at {
            Some(at) if self.groups[at].pc == group.pc => {
                let other = &mut self.groups[at];
                other.set |= group.set;
                other.fuel = other.fuel.min(group.fuel);
            }
            Some(at) => self.groups.insert(at + 1, group),
            None => self.groups.insert(0, group),
        }
    }

    /// Removes the group with the lowest program counter.
    pub(super) fn next(&mut self) -> Option<Group> {
        self.groups.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, Queue};

    #[test]
    fn groups_come_out_by_program_counter_and_join_where_they_meet() {
        let mut queue = Queue::default();
        assert_eq!(queue.limit(), u32::MAX);
        for (pc, set, fuel) in [(7, 1, 9), (3, 2, 8), (9, 4, 7), (7, 8, 6), (5, 16, 5)] {
            queue.add(Group { pc, set, fuel });
        }
        assert_eq!(queue.limit(), 3);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.next()).map(|group| (group.pc, group.set, group.fuel)).collect();
        assert_eq!(order, [(3, 2, 8), (5, 16, 5), (7, 9, 6), (9, 4, 7)]);
        assert_eq!(queue.limit(), u32::MAX);
    }
}
