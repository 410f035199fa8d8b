//! [`Memory`] and [`Region`] as cudarc's device slices and kernel arguments.
//!
//! ```no_run
//! # use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};
//! use cudarc::driver::CudaContext;
//!
//! let stream = CudaContext::new(0)?.default_stream();
//! let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
//! let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
//! let mut values = vec![0_f32; 1024];
//! stream.memcpy_dtoh(&memory, &mut values)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A copy covers the whole memory or region, as elements of the type on its other side; trailing bytes that make no
//! whole element are left out.
//!
//! Uses of one memory and its regions are ordered as those of cudarc's own slices: a copy or a kernel that reads waits for
//! earlier writes, one that writes for all earlier uses, on whichever streams of the memory's context. Nothing is recorded
//! while the context, as cudarc counts, has no stream but the default one. `CudaContext::disable_event_tracking` turns the
//! order off for the streams of that `CudaContext`, and then the caller is responsible for it.
//!
//! A copy on a stream of another context has finished when it returns, except `memcpy_dtod` *from* our memory: later writes
//! through cudarc and the release wait for that context. With cudarc 0.19 do not copy between contexts on a default stream:
//! it submits the copy to the default stream of the source's context, which it has made current, and records it on the
//! other.
//!
//! cudarc tells a kernel's argument neither the stream nor the context of the launch. So launches on the default stream of a
//! `CudaContext` that has no other stream at that time are neither ordered nor recorded, as for cudarc's slices, and a launch
//! on a stream of another context ends with `CUDA_ERROR_INVALID_CONTEXT`.
#![expect(unsafe_code, reason = "implements unsafe traits of cudarc")]

use std::ptr;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{
    CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs, PushKernelArg,
    SyncOnDrop,
};

use crate::chunk::shared_binding::SharedBinding;
use crate::driver::anchor;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::stream::binding::Binding;
use crate::stream::order::{Access, Recording, StreamOrder, is_legacy};
use crate::stream::{DefaultStream, Unusable};
use crate::{Memory, PoolMemory, Region};

const NOT_RECORDED: SyncOnDrop<'static> = SyncOnDrop::Record(None);

impl Region {
    /// The device pointer for a use on `stream`, which waits for earlier uses; 0, which the driver refuses, if the memory's
    /// context was destroyed. A write borrows the memory by `&mut`, a read by `&`.
    fn submit<'a>(&'a self, stream: &'a CudaStream, access: Access) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let context = self.block().context();
        let is_own = stream.context().cu_ctx() == context.raw();
        if !context.is_current().unwrap_or(false) {
            if !context.is_alive() {
                return (0, NOT_RECORDED);
            }
            // cudarc copies between contexts on a stream of the current one, but passes the memory's default stream.
            if let (true, Access::Read, Ok(current)) = (is_own, access, Context::current())
                && current.raw() != context.raw()
            {
                // Recorded also where this fails: then the end of the other context may not be found out.
                drop(anchor::keep(current));
                self.chunk().binding().change(|binding| binding.record_other_context(current));
            }
        }
        let pointer = self.device_ptr();
        if fork::is_forked() {
            return (pointer, NOT_RECORDED);
        }
        if !stream.context().is_event_tracking() {
            if is_own {
                self.chunk().record_use(stream.cu_stream());
                return (pointer, NOT_RECORDED);
            }
            // The memory's release waits for its own context only.
            return (pointer, SyncOnDrop::sync_stream(stream));
        }
        let recorded = self.order_use(stream, access, is_own).unwrap_or_else(|| {
            // The driver refused: the CPU waits.
            drop(context.finish());
            SyncOnDrop::sync_stream(stream)
        });
        (pointer, recorded)
    }

    /// Makes `stream` wait for the uses that it must not overtake, and gives what records this one.
    fn order_use<'a>(&'a self, stream: &'a CudaStream, access: Access, is_own: bool) -> Option<SyncOnDrop<'a>> {
        let binding = self.chunk().binding();
        let records = is_own && stream.context().is_managing_stream_synchronization();
        let raw = stream.cu_stream();
        if is_own {
            if !records && is_legacy(raw) && binding.record_sole_use(raw, access) {
                return Some(NOT_RECORDED);
            }
            self.chunk().record_use(raw);
        }
        // First, since the driver may refuse the rest: other contexts' uses are in no order.
        if access == Access::Write {
            binding.finish_other_contexts().ok()?;
        }
        // Before the uses without an event are looked at: another thread then records none of them any more.
        let order = if records { Some(self.order(binding)?) } else { None };
        self.record_earlier(binding, is_own.then_some(raw), access)?;
        let Some(order) = order else {
            if let Some(order) = binding.known_order() {
                order.wait(stream, access);
            }
            if is_own && is_legacy(raw) {
                binding.change(|binding| binding.record_without_event(access));
                return Some(NOT_RECORDED);
            }
            return Some(SyncOnDrop::sync_stream(stream));
        };
        if !order.accepts(stream) {
            order.wait(stream, access);
            return Some(SyncOnDrop::sync_stream(stream));
        }
        Some(match order.submit(stream, access, || access == Access::Write && self.chunk().is_only()) {
            Recording::Event(event) => SyncOnDrop::Record(Some((event, stream))),
            Recording::Wait => SyncOnDrop::sync_stream(stream),
        })
    }

    /// Records events for the uses without one that a use on `stream` must not overtake, and waits for lost launches.
    /// `stream` is `None` if it is unknown or another context's. Returns `None` if the driver refuses.
    fn record_earlier(&self, binding: &SharedBinding, stream: Option<CUstream>, access: Access) -> Option<()> {
        binding.finish_launches(self.block().context()).ok()?;
        let Some(earlier) = binding.change(|binding| binding.unrecorded_before(stream, access)) else {
            return Some(());
        };
        let order = self.order(binding)?;
        if let Some(access) = earlier.legacy {
            // SAFETY: the default stream lives as long as its context.
            unsafe { order.record_earlier(ptr::null_mut(), access) }.ok()?;
        }
        if let Some(previous) = &earlier.previous_user {
            // SAFETY: live by the reference, or by the contract of a raw binding.
            unsafe { order.record_earlier(previous.raw(), Access::Write) }.ok()?;
        }
        let remaining = match access {
            // Another reference may have announced uses that it submits after the event.
            _ if !self.chunk().is_only() => earlier.legacy,
            // By `&mut`.
            Access::Write => None,
            // By `&`, by which other threads may have announced reads, too.
            Access::Read => Some(Access::Read),
        };
        // Without the lock: dropping a stream may call the driver.
        drop(binding.change(|binding| binding.forget_recorded(&earlier, remaining)));
        Some(())
    }

    /// The order of the memory's uses, made if need be. `None` where the driver refuses.
    fn order<'a>(&self, binding: &'a SharedBinding) -> Option<&'a StreamOrder> {
        let make = || {
            let (pointer, len) = self.chunk().extent();
            let stream = self.default_stream().ok()?.clone();
            StreamOrder::new(self.block().context(), stream, pointer, len)
        };
        // Once more: an error may be one of earlier, asynchronous work, which is reported once.
        binding.order(make).or_else(|| binding.order(make))
    }

    fn default_stream(&self) -> std::result::Result<&Arc<DefaultStream>, Unusable> {
        let make = || DefaultStream::of(self.block().context(), self.owner().device());
        let binding = self.chunk().binding();
        binding.default_stream(make).or_else(|_| binding.default_stream(make))
    }

    /// The order, for a launch with this memory as an argument. `None` where the driver refuses: then earlier uses have
    /// finished, and later ones wait for the context.
    fn prepare_launch(&self, access: Access) -> Option<&StreamOrder> {
        if fork::is_forked() {
            return None;
        }
        let order = self.order_launch(access);
        if order.is_none() {
            self.chunk().binding().change(Binding::record_lost_launch);
            drop(self.block().context().finish());
        }
        order
    }

    fn order_launch(&self, access: Access) -> Option<&StreamOrder> {
        let binding = self.chunk().binding();
        if access == Access::Write {
            binding.finish_other_contexts().ok()?;
        }
        let order = self.order(binding)?;
        self.record_earlier(binding, None, access)?;
        // The stream may be one that cudarc records nothing on.
        if !order.is_recording() {
            binding.change(|binding| binding.record_without_event(access));
        }
        Some(order)
    }

    /// This region as the argument of a launch that reads. `None` where nothing can be recorded.
    fn argument(&self) -> Option<&CudaView<'_, u8>> {
        let order = self.prepare_launch(Access::Read)?;
        // SAFETY: the bytes are the memory's, and the view is borrowed as long as this region.
        Some(unsafe { order.argument(self.device_ptr(), self.len()) })
    }

    /// As [`argument`](Self::argument), of a launch that writes.
    ///
    /// # Safety
    ///
    /// The region must be borrowed exclusively while the view is.
    #[expect(clippy::mut_from_ref, reason = "the view is the order's, and by the contract no other borrow has it")]
    unsafe fn argument_mut(&self) -> Option<&mut CudaViewMut<'_, u8>> {
        let order = self.prepare_launch(Access::Write)?;
        let (region, pointer) = (ptr::from_ref(self).addr(), self.device_ptr());
        // SAFETY: the bytes are the memory's, and the region is borrowed exclusively by this method's contract.
        Some(unsafe { order.argument_mut(region, pointer, self.len(), self.chunk().is_only()) })
    }
}

/// Implements cudarc's traits for [`Region`] and types that dereference to it.
macro_rules! device_slice {
    ($type:ty) => {
        /// Elements of any plain type; trailing bytes that make no whole element are left out.
        ///
        /// [`stream`](DeviceSlice::stream) is the default stream of the memory's context. It does not keep the
        /// context alive: do not keep a clone of it longer than the context.
        ///
        /// # Panics
        ///
        /// [`stream`](DeviceSlice::stream) panics if the memory's CUDA context was destroyed, if the driver refuses, and in a
        /// forked child that did not inherit the stream: cudarc's trait has no error to return.
        impl<T: DeviceRepr + Pod> DeviceSlice<T> for $type {
            fn len(&self) -> usize {
                Region::len(self) / size_of::<T>().max(1)
            }

            fn stream(&self) -> &Arc<CudaStream> {
                match Region::default_stream(self) {
                    Ok(stream) => stream.stream(),
                    Err(error) => panic!("cudarc cannot use the memory's CUDA context: {error}"),
                }
            }
        }

        impl<T: DeviceRepr + Pod> DevicePtr<T> for $type {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                self.submit(stream, Access::Read)
            }
        }

        impl<T: DeviceRepr + Pod> DevicePtrMut<T> for $type {
            fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                self.submit(stream, Access::Write)
            }
        }

        // SAFETY: the argument is the device pointer, at an address that lives as long as the borrow.
        unsafe impl<'a, 'b: 'a> PushKernelArg<&'b $type> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, memory: &'b $type) -> &mut Self {
                match memory.argument() {
                    Some(view) => self.arg(view),
                    None => self.arg(memory.device_ptr_ref()),
                }
            }
        }

        // SAFETY: as for the shared borrow.
        unsafe impl<'a, 'b: 'a> PushKernelArg<&'b mut $type> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, memory: &'b mut $type) -> &mut Self {
                let memory: &'b $type = memory;
                // SAFETY: borrowed exclusively for `'b`.
                match unsafe { memory.argument_mut() } {
                    Some(view) => self.arg(view),
                    None => self.arg(memory.device_ptr_ref()),
                }
            }
        }
    };
}

device_slice!(Memory);
device_slice!(Region);
device_slice!(PoolMemory);
#[cfg(feature = "vulkan")]
device_slice!(crate::vulkan::Buffer);
#[cfg(feature = "vulkan")]
device_slice!(crate::vulkan::Image);
