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
//! A copy uses the whole memory or region, as elements of the type that the other side of the copy has; bytes
//! that make no whole element are left out. Copies on any stream of the memory's context are waited for before the
//! memory goes, and copies on another context's streams before they return. One thing is not seen: `memcpy_dtod`
//! *from* our memory on another context's stream. Synchronise that stream before the memory goes.
#![expect(unsafe_code, reason = "unsafe traits of cudarc, and contexts that it does not own")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, DriverError, LaunchArgs, PushKernelArg,
    SyncOnDrop,
};

use crate::driver::context::Context;
use crate::{Memory, PoolMemory, Region};

/// The default stream of a context, as cudarc sees it.
///
/// cudarc destroys a context that it was given, so that its value for a foreign one must never be dropped. There
/// is one such value for each context, for the life of the process.
fn default_stream(context: Context, device: i32) -> &'static Arc<CudaStream> {
    static STREAMS: Mutex<Option<HashMap<Context, &'static Arc<CudaStream>>>> = Mutex::new(None);
    let streams = || STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = streams().as_ref().and_then(|streams| streams.get(&context)) {
        return stream;
    }
    let made = context.run(|| Ok(wrap(context, device)));
    match made {
        Ok(Ok(context_of_cudarc)) => {
            let stream = Box::leak(Box::new(context_of_cudarc.default_stream()));
            streams().get_or_insert_default().entry(context).or_insert(stream)
        }
        Ok(Err(error)) => panic!("cudarc cannot use the memory's CUDA context: {error}"),
        Err(error) => panic!("cudarc cannot use the memory's CUDA context: {error}"),
    }
}

/// A context in cudarc's terms, which must never be dropped. The context must be current.
fn wrap(context: Context, device: i32) -> std::result::Result<Arc<CudaContext>, DriverError> {
    let ordinal = usize::try_from(device).unwrap_or_default();
    // SAFETY: the context is live and current, and the value that would destroy it is never dropped.
    unsafe { CudaContext::from_raw_context(ordinal, device, context.raw()) }
}

impl Region {
    /// The device pointer, for a use on `stream`; 0, which the driver refuses, when the memory's context is gone.
    fn cudarc_ptr<'a>(&self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let context = self.block().context();
        if !context.is_alive() {
            return (0, SyncOnDrop::Record(None));
        }
        if stream.context().cu_ctx() == context.raw() {
            self.chunk().record_use(stream.cu_stream());
            (self.device_ptr(), SyncOnDrop::Record(None))
        } else {
            // The memory's release waits for its own context only.
            (self.device_ptr(), SyncOnDrop::Sync(Some(stream)))
        }
    }
}

/// Implements cudarc's traits for a type that has or dereferences to a region.
macro_rules! device_slice {
    ($type:ty) => {
        /// Elements of any plain type; bytes that make no whole element are left out.
        ///
        /// [`stream`](DeviceSlice::stream) is the default stream of the memory's context. It does not keep the
        /// context alive: do not keep it for longer than the memory.
        ///
        /// # Panics
        ///
        /// [`stream`](DeviceSlice::stream) panics when the memory's CUDA context was destroyed before; cudarc's
        /// trait leaves no other way.
        impl<T: DeviceRepr + Pod> DeviceSlice<T> for $type {
            fn len(&self) -> usize {
                Region::len(self) / size_of::<T>().max(1)
            }

            fn stream(&self) -> &Arc<CudaStream> {
                default_stream(self.block().context(), self.owner().device())
            }
        }

        impl<T: DeviceRepr + Pod> DevicePtr<T> for $type {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                self.cudarc_ptr(stream)
            }
        }

        impl<T: DeviceRepr + Pod> DevicePtrMut<T> for $type {
            fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                self.cudarc_ptr(stream)
            }
        }

        // SAFETY: the argument is the device pointer, at an address that lives as long as the borrow.
        unsafe impl<'a, 'b: 'a> PushKernelArg<&'b $type> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, memory: &'b $type) -> &mut Self {
                self.arg(memory.device_ptr_ref())
            }
        }

        // SAFETY: as for the shared borrow.
        unsafe impl<'a, 'b: 'a> PushKernelArg<&'b mut $type> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, memory: &'b mut $type) -> &mut Self {
                self.arg(memory.device_ptr_ref())
            }
        }
    };
}

device_slice!(Memory);
device_slice!(Region);
device_slice!(PoolMemory);
