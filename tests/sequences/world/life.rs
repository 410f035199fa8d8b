//! Opening and asking handles; allocating, sharing, binding, passing to other threads and freeing.
#![expect(unsafe_code, reason = "imports exported memory, binds the world's streams, frees idle memory")]

use support::Result;
use support::step::{Step, What};
use vkgdr::{CopyThresholds, DropPolicy, Error, Memory, MemoryKind, MemoryTypeInfo, OpenFlags, Vkgdr};

use super::item::{Item, Owner, Site, lock};
use super::{KEPT, World};

/// The largest number of items.
const MOST: usize = 20;

/// The largest number of open handles.
const MOST_HANDLES: usize = 6;
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
        if self.handles.len() >= MOST_HANDLES {
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

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MOST
    }

    /// A handle and the context of its allocations.
    pub(super) fn handle(&self, number: u8, primary: bool) -> (Vkgdr, Site) {
        let shared = || self.shared.gpu.clone();
        let gpu = self.handles.get(usize::from(number) % self.handles.len().max(1)).cloned().unwrap_or_else(shared);
        (gpu, if primary { Site::Primary } else { Site::Plain })
    }

    /// Judges the result of an allocation: memory, none for a permitted refusal, or a failure of the test.
    pub(super) fn judged<T>(&mut self, gpu: &Vkgdr, kind: MemoryKind, made: vkgdr::Result<T>) -> Result<Option<T>> {
        match made {
            Ok(_) if !gpu.supports(kind) => Err(format!("{kind} memory from a GPU that has none").into()),
            Ok(value) => Ok(Some(value)),
            Err(error) if crate::is_lack(&error) && !gpu.supports(kind) => Ok(None),
            Err(error @ Error::Allocation { .. }) if crate::has_little_room() => {
                drop(error);
                self.tally.refused += 1;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The context in which the memory was allocated: a handle may have a context of its own.
    pub(super) fn site_of(&self, memory: &Memory) -> Site {
        if memory.context() == self.context.raw() { Site::Plain } else { Site::Primary }
    }

    pub(super) fn allocate(&mut self, step: Step) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let kind = MemoryKind::ALL[usize::from(step.choice) % MemoryKind::ALL.len()];
        let (gpu, site) = self.handle(step.first, step.second.is_multiple_of(2));
        let made = self.inside(site, || Memory::allocate(&gpu, step.span.new_len(), kind));
        let Some(memory) = self.judged(&gpu, kind, made)? else { return Ok(true) };
        let site = self.site_of(&memory);
        self.adopt(Item::new(Owner::Memory(memory), site), step)?;
        Ok(true)
    }

    /// Adds new memory to the world and initialises all of its bytes.
    pub(super) fn adopt(&mut self, item: Item, step: Step) -> Result {
        self.items.push(item);
        let index = self.items.len() - 1;
        let new = support::pattern(self.items[index].len(), step.seed.into());
        if step.second % 4 < 2 { self.write_whole(&new, index) } else { self.upload_whole(&new, step, index) }
    }

    /// Imports an item's exported memory: another `Memory` with the same bytes.
    pub(super) fn import(&mut self, step: Step, index: usize) -> Result<bool> {
        let memory = &self.items[index].owner;
        let (kind, len) = (memory.kind(), memory.len());
        let (gpu, site) = self.handle(step.second, step.choice.is_multiple_of(2));
        let alike = gpu.memory_type_of(kind).is_ok_and(|found| found == memory.memory_type());
        if self.is_full() || !alike {
            return Ok(false);
        }
        let fd = match memory.export_fd() {
            Err(Error::Pooled) => return Ok(true),
            Err(Error::NoExport { kind })
                if kind != MemoryKind::Host && memory.memory_type().index == MemoryTypeInfo::OUTSIDE_VULKAN =>
            {
                return Ok(true);
            }
            fd => fd?,
        };
        self.items[index].flush()?;
        // SAFETY: exported by memory of this kind and length, and the memory types are the same.
        let made = self.inside(site, || unsafe { Memory::import_fd(&gpu, fd, len, kind) });
        let Some(memory) = self.judged(&gpu, kind, made)? else { return Ok(true) };
        let site = self.site_of(&memory);
        let alias = self.items[index].alias(Owner::Memory(memory), site);
        self.items.push(alias);
        Ok(true)
    }

    pub(super) fn slice(&mut self, step: Step, index: usize) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let item = &mut self.items[index];
        item.flush()?;
        let part = item.part(step.span.within(item.len()))?;
        self.items.push(part);
        Ok(true)
    }

    pub(super) fn bind(&mut self, step: Step, index: usize) -> Result<bool> {
        let item = &self.items[index];
        let (memory, stream) = (&item.owner, self.streams.of(item.site, step.second));
        match self.streams.cudarc(stream) {
            Some(stream) => memory.bind_stream(stream)?,
            // SAFETY: memory is dropped before the world's streams, and bound memory is not passed on.
            None => unsafe { memory.bind_raw_stream(self.streams.raw(stream)) }?,
        }
        assert_eq!(memory.bound_stream(), Some(self.streams.raw(stream)));
        let pending: Vec<_> = item.bytes().pending.iter().copied().collect();
        // The release waits for the bound stream only: earlier work on other streams must be recorded.
        pending.into_iter().try_for_each(|other| memory.record_use(self.streams.get(other)))?;
        item.terms().bound = Some(stream);
        item.terms().recorded = true;
        Ok(true)
    }

    pub(super) fn unbind(&mut self, index: usize) -> Result<bool> {
        let item = &self.items[index];
        item.owner.unbind_stream()?;
        assert_eq!(item.owner.bound_stream(), None);
        item.terms().bound = None;
        Ok(true)
    }

    pub(super) fn release_immediately(&self, index: usize) {
        let item = &self.items[index];
        // SAFETY: `free_item` waits for the streams first.
        unsafe { item.owner.set_drop_policy(DropPolicy::Immediate) };
        item.terms().immediate = true;
    }

    pub(super) fn free(&mut self, step: Step, index: usize) -> Result<bool> {
        if step.span.new_len().is_multiple_of(3) {
            self.compare(0..self.items[index].len(), index)?;
        }
        let item = self.items.swap_remove(index);
        self.free_item(item, step.choice.into())?;
        Ok(true)
    }

    /// Frees in one of several ways. Unless the terms forbid it, device work may still be pending.
    pub(super) fn free_item(&mut self, mut item: Item, choice: u64) -> Result {
        // Another item may read the bytes.
        item.flush()?;
        item.terms().immediate |= choice % 4 == 3;
        if item.terms().immediate {
            self.wait_for_bytes(&item.bytes)?;
        }
        if matches!(item.owner, Owner::Buffer(_) | Owner::Image(_)) {
            self.wait_for_queue()?;
        }
        match (item.owner, choice % 4) {
            // SAFETY: all device work of the world on it has finished.
            (Owner::Memory(memory), 3) => unsafe { memory.free_unsynchronized() }?,
            (Owner::Memory(memory), 1) => memory.free()?,
            (Owner::Buffer(buffer), 1) => buffer.free()?,
            (Owner::Image(image), 1) => image.free()?,
            (Owner::Buffer(buffer), 3) => {
                // SAFETY: as above.
                unsafe { buffer.set_drop_policy(DropPolicy::Immediate) };
                drop(buffer);
            }
            (owner, _) => drop(owner),
        }
        Ok(())
    }

    /// Passes memory of the primary context to the shared queue, for another world to take, or leaves it to the thread's end.
    pub(super) fn give(&mut self, step: Step, index: usize) -> Result<bool> {
        let item = &self.items[index];
        // Memory of this world's own pools and allocators stays, since its number is checked.
        let is_counted = self.counts(item) || self.lends(item);
        // The streams of this world must outlive memory that they are recorded for.
        let stays = item.site == Site::Plain || !item.is_alone() || item.terms().recorded || is_counted;
        if stays {
            return Ok(false);
        }
        let mut item = self.items.swap_remove(index);
        item.flush()?;
        self.wait_for_bytes(&item.bytes)?;
        self.wait_for_queue()?;
        match step.what {
            What::Keep => KEPT.with_borrow_mut(|kept| kept.push(item)),
            _ => lock(&self.shared.exchange).push(item),
        }
        Ok(true)
    }

    pub(super) fn take(&mut self) -> Result<bool> {
        if self.is_full() {
            return Ok(false);
        }
        let item = lock(&self.shared.exchange).pop();
        let some = item.is_some();
        self.items.extend(item);
        Ok(some)
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
