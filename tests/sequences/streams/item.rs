//! The memory of a sequence on streams, in cudarc's types, and the model of its bytes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use support::Result;
use vkgdr::cudarc::driver::sys::CUdeviceptr;
use vkgdr::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop};
use vkgdr::{CopyPolicy, Memory, PoolMemory, Region};

/// The context of memory or of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// The device's primary context.
    Primary,
    /// The world's own context.
    Plain,
}

/// The value that keeps the memory alive. It is a slice of cudarc's as that value is.
#[derive(Debug)]
pub(super) enum Owner {
    Memory(Memory),
    Pooled(PoolMemory),
    Region(Region),
}

impl Owner {
    pub(super) fn region(&self) -> &Region {
        match self {
            Self::Memory(memory) => memory,
            Self::Pooled(memory) => memory,
            Self::Region(region) => region,
        }
    }

    /// The whole as `Memory`; none for a region.
    pub(super) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Pooled(memory) => Some(memory),
            Self::Region(_) => None,
        }
    }

    /// Adds the memory to a kernel's arguments, to be read.
    pub(super) fn push<'a>(&'a self, launch: &mut LaunchArgs<'a>) {
        match self {
            Self::Memory(memory) => launch.arg(memory),
            Self::Pooled(memory) => launch.arg(memory),
            Self::Region(region) => launch.arg(region),
        };
    }

    /// Adds the memory to a kernel's arguments, to be written.
    pub(super) fn push_mut<'a>(&'a mut self, launch: &mut LaunchArgs<'a>) {
        match self {
            Self::Memory(memory) => launch.arg(memory),
            Self::Pooled(memory) => launch.arg(memory),
            Self::Region(region) => launch.arg(region),
        };
    }
}

impl DeviceSlice<u8> for Owner {
    fn len(&self) -> usize {
        self.region().len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        match self {
            Self::Memory(memory) => DeviceSlice::<u8>::stream(memory),
            Self::Pooled(memory) => DeviceSlice::<u8>::stream(memory),
            Self::Region(region) => DeviceSlice::<u8>::stream(region),
        }
    }
}

impl DevicePtr<u8> for Owner {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        match self {
            Self::Memory(memory) => DevicePtr::<u8>::device_ptr(memory, stream),
            Self::Pooled(memory) => DevicePtr::<u8>::device_ptr(memory, stream),
            Self::Region(region) => DevicePtr::<u8>::device_ptr(region, stream),
        }
    }
}

impl DevicePtrMut<u8> for Owner {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        match self {
            Self::Memory(memory) => DevicePtrMut::<u8>::device_ptr_mut(memory, stream),
            Self::Pooled(memory) => DevicePtrMut::<u8>::device_ptr_mut(memory, stream),
            Self::Region(region) => DevicePtrMut::<u8>::device_ptr_mut(region, stream),
        }
    }
}

/// The model of an allocation or of a pool's chunk, which several items may share.
#[derive(Debug, Default)]
struct Model {
    /// The expected bytes, after all steps so far.
    bytes: RefCell<Vec<u8>>,
    /// The stream that it was bound to last.
    bound: RefCell<Weak<CudaStream>>,
    /// Whether it was an argument of a launch: its order may have a stream that joins events.
    launched: Cell<bool>,
    /// Whether it was bound to a second stream. Memory of a pool may keep the first, on which an earlier holder used it,
    /// until a use on another stream has waited for that.
    rebound: Cell<bool>,
}

/// Memory or a region of it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) owner: Owner,
    model: Rc<Model>,
    /// The item's offset in the model's bytes.
    start: usize,
    pub(super) site: Site,
}

impl Item {
    /// New memory, all bytes of which are 0.
    pub(super) fn new(owner: Owner, site: Site) -> Self {
        let model = Rc::new(Model { bytes: RefCell::new(vec![0; owner.len()]), ..Model::default() });
        Self { owner, model, start: 0, site }
    }

    /// A region of the same memory.
    pub(super) fn part(&self, range: Range<usize>) -> Result<Self> {
        let (model, start) = (Rc::clone(&self.model), self.start + range.start);
        let owner = Owner::Region(self.owner.region().region(range)?);
        Ok(Self { owner, model, start, site: self.site })
    }

    pub(super) fn len(&self) -> usize {
        self.owner.len()
    }

    /// Records that the memory is bound to a stream.
    pub(super) fn bind(&self, stream: &Arc<CudaStream>) {
        let before = self.model.bound.replace(Arc::downgrade(stream));
        if before.strong_count() > 0 && !before.ptr_eq(&Arc::downgrade(stream)) {
            self.model.rebound.set(true);
        }
    }

    /// The stream that the memory was bound to last, if it is alive.
    pub(super) fn bound(&self) -> Option<Arc<CudaStream>> {
        self.model.bound.borrow().upgrade()
    }

    pub(super) fn note_launch(&self) {
        self.model.launched.set(true);
    }

    /// The number of streams that the memory may hold besides the one that it is bound to.
    pub(super) fn other_streams(&self) -> usize {
        usize::from(self.model.launched.get()) + usize::from(self.model.rebound.get())
    }

    /// Whether two items may have bytes in common.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.model, &other.model)
    }

    /// The expected bytes.
    pub(super) fn expected(&self) -> Vec<u8> {
        self.model.bytes.borrow()[self.start..][..self.len()].to_vec()
    }

    /// Records that the first bytes get new values.
    pub(super) fn note(&self, new: &[u8]) {
        self.model.bytes.borrow_mut()[self.start..][..new.len()].copy_from_slice(new);
    }

    /// Writes all bytes by the CPU. The device must not use them.
    pub(super) fn write(&self, new: &[u8]) -> Result {
        let region = self.owner.region();
        // A flush of whole atoms writes the CPU's view of the bytes beside them.
        region.invalidate(..)?;
        region.write_with(CopyPolicy::Cpu, 0, new)?;
        self.note(new);
        Ok(region.flush(..)?)
    }

    /// Fails unless the CPU sees the expected bytes. The device must not use them.
    pub(super) fn check(&self) -> Result {
        let region = self.owner.region();
        region.invalidate(..)?;
        let mut seen = vec![0_u8; self.len()];
        region.read_with(CopyPolicy::Cpu, 0, &mut seen)?;
        self.compare(&seen, "the CPU")
    }

    /// Fails unless `seen` are the expected bytes.
    pub(super) fn compare(&self, seen: &[u8], who: &str) -> Result {
        let expected = self.expected();
        let wrong = expected.iter().zip(seen).filter(|(expected, seen)| expected != seen).count();
        if wrong == 0 {
            return Ok(());
        }
        Err(format!("{who} sees {wrong} wrong bytes of {} in {:?}", seen.len(), self.owner).into())
    }
}
