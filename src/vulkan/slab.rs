//! [`Slab`]: values by index. The index of a removed value is used again.
#![forbid(unsafe_code)]

/// Values by number. The number of a removed value is used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a value and returns its number; the value itself once there are no more numbers.
    pub(super) fn insert(&mut self, value: T) -> Result<u32, T> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => match u32::try_from(self.values.len()) {
                Ok(slot) => {
                    self.values.push(None);
                    slot
                }
                Err(_) => return Err(value),
            },
        };
        self.values[slot as usize] = Some(value);
        Ok(slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.values.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_its_value_was_removed() {
        let mut slab = Slab::default();
        assert_eq!((slab.insert('a'), slab.insert('b')), (Ok(0), Ok(1)));
        assert_eq!((slab.remove(0), slab.remove(0), slab.remove(7)), (Some('a'), None, None));
        assert!(!slab.is_empty());
        assert_eq!((slab.insert('c'), slab.insert('d')), (Ok(0), Ok(2)));
        assert_eq!(slab.get_mut(1), Some(&mut 'b'));
        assert_eq!([0, 1, 2].map(|slot| slab.remove(slot)), [Some('c'), Some('b'), Some('d')]);
        assert!(slab.is_empty() && slab.get_mut(1).is_none());
    }
}
