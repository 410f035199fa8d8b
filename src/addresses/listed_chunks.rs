//! The chunks of one allocation, by the offset at which they begin. Calls no driver.
//!
//! A dedicated allocation has one, which takes no memory on the heap. A pool's block may have a million, most of which
//! are added in ascending order: they are kept in sorted lists, one for each page of 64 KiB.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::driver::Handle;

/// A chunk, by its address in the host's private memory.
type Chunk = Handle<*mut ()>;

/// The binary logarithm of a page's bytes.
const PAGE_BITS: u32 = 16;

/// The chunks of an allocation that lookups may find.
#[derive(Debug, Default)]
pub(super) struct ListedChunks {
    /// The first chunk, while there is no other.
    only: Option<(u64, Chunk)>,
    /// All chunks, once there was a second. No list is empty.
    pages: BTreeMap<u64, Vec<(u64, Chunk)>>,
}

impl ListedChunks {
    /// Adds a chunk, unless it is listed already. No other is listed at its offset.
    pub(super) fn add(&mut self, offset: u64, chunk: Chunk) {
        if self.only == Some((offset, chunk)) {
            return;
        }
        match self.only.take() {
            None if self.pages.is_empty() => self.only = Some((offset, chunk)),
            first => first.into_iter().chain([(offset, chunk)]).for_each(|entry| self.insert(entry)),
        }
    }

    fn insert(&mut self, entry: (u64, Chunk)) {
        let page = self.pages.entry(entry.0 >> PAGE_BITS).or_default();
        let place = match page.last() {
            Some(last) if last.0 >= entry.0 => page.partition_point(|other| other.0 < entry.0),
            _ => page.len(),
        };
        if page.get(place) != Some(&entry) {
            page.insert(place, entry);
        }
    }

    /// Removes a chunk, unless another one begins at the offset.
    pub(super) fn remove(&mut self, offset: u64, chunk: Chunk) {
        self.only.take_if(|only| *only == (offset, chunk));
        let Some(page) = self.pages.get_mut(&(offset >> PAGE_BITS)) else { return };
        let place = page.partition_point(|other| other.0 < offset);
        if page.get(place) == Some(&(offset, chunk)) {
            page.remove(place);
        }
        if page.is_empty() {
            self.pages.remove(&(offset >> PAGE_BITS));
        }
    }

    /// The last chunk that begins at or before an offset.
    pub(super) fn find(&self, offset: u64) -> Option<Chunk> {
        if let Some((first, chunk)) = self.only {
            return (first <= offset).then_some(chunk);
        }
        let before = |page: &Vec<(u64, Chunk)>| page.partition_point(|other| other.0 <= offset).checked_sub(1);
        let mut pages = self.pages.range(..=offset >> PAGE_BITS).rev();
        pages.find_map(|(_, page)| Some(page.get(before(page)?)?.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(address: usize) -> Chunk {
        Handle(std::ptr::without_provenance_mut(address))
    }

    #[test]
    fn a_chunk_is_found_from_its_first_line_to_the_next_chunk() {
        let (first, second) = (chunk(1), chunk(2));
        let mut chunks = ListedChunks::default();
        chunks.add(2, first);
        assert_eq!([1, 2, 90_000].map(|offset| chunks.find(offset)), [None, Some(first), Some(first)]);
        chunks.add(2, first);
        chunks.add(70_000, second);
        chunks.add(2, first);
        chunks.add(70_000, second);
        let expected = [None, Some(first), Some(first), Some(second), Some(second)];
        assert_eq!([1, 2, 69_999, 70_000, 90_000].map(|offset| chunks.find(offset)), expected);
        chunks.remove(70_000, first);
        assert_eq!(chunks.find(70_000), Some(second), "removed by another");
        chunks.remove(70_000, second);
        assert_eq!(chunks.find(90_000), Some(first));
        chunks.remove(2, first);
        assert_eq!(chunks.find(90_000), None);
    }

    proptest! {
        #[test]
        fn chunks_are_found_as_in_one_ordered_map(steps in prop::collection::vec((0..300_000_u64, any::<bool>()), 1..300)) {
            let (mut chunks, mut model) = (ListedChunks::default(), BTreeMap::new());
            for (step, (offset, adds)) in steps.into_iter().enumerate() {
                if adds && !model.contains_key(&offset) {
                    model.insert(offset, chunk(step));
                    chunks.add(offset, chunk(step));
                } else if let Some(chunk) = model.remove(&offset) {
                    chunks.remove(offset, chunk);
                }
                for offset in [offset.saturating_sub(1), offset, offset + 1, 299_999] {
                    let expected = model.range(..=offset).next_back().map(|(_, &chunk)| chunk);
                    prop_assert_eq!(chunks.find(offset), expected);
                }
            }
        }
    }
}
