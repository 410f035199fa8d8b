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
//! whole element are left out. Memory is not freed before copies on streams of its context have finished; a copy on
//! another context's stream has finished when it returns. `memcpy_dtod` *from* our memory on another context's stream
//! cannot be recorded: synchronise that stream before the memory is freed.
#![expect(unsafe_code, reason = "implements unsafe traits of cudarc, and wraps contexts that it does not own")]

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

/// The default stream of a context, as cudarc's type.
///
/// cudarc destroys the context when its `CudaContext` is dropped, which a context that it does not own must not be: one
/// value for each context is kept for the life of the process.
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

/// The context as cudarc's type, which must never be dropped. The context must be current.
fn wrap(context: Context, device: i32) -> std::result::Result<Arc<CudaContext>, DriverError> {
    let ordinal = usize::try_from(device).unwrap_or_default();
    // SAFETY: the context is live and current, and its `CudaContext`, which would destroy it, is never dropped.
    unsafe { CudaContext::from_raw_context(ordinal, device, context.raw()) }
}

impl Region {
    /// The device pointer, for a use on `stream`; 0, which the driver refuses, if the memory's context was destroyed.
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

/// Implements cudarc's traits for [`Region`] and types that dereference to it.
macro_rules! device_slice {
    ($type:ty) => {
        /// Elements of any plain type; trailing bytes that make no whole element are left out.
        ///
        /// [`stream`](DeviceSlice::stream) is the default stream of the memory's context. It does not keep the
        /// context alive: do not keep a clone of it longer than the memory.
        ///
        /// # Panics
        ///
        /// [`stream`](DeviceSlice::stream) panics if the memory's CUDA context was destroyed: cudarc's trait has no
        /// error to return.
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
