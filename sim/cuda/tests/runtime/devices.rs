//! Devices, their properties and each thread's own.

use std::thread;

use crate::{INVALID_DEVICE, INVALID_VALUE, Runtime, call, good, with_each};

#[test]
fn properties_have_the_layout_of_their_version() {
    with_each(|cuda| {
        // The sizes and offsets of cudaDeviceProp in the headers of CUDA 12.9 and 13.5: multiProcessorCount, l2CacheSize,
        // memoryPoolsSupported.
        let (size, processors, cache, pools) =
            if cuda.major == 12 { (1032, 388, 616, 744) } else { (1008, 384, 596, 720) };
        let mut bytes = [0xaa_u8; 2048];
        if cuda.major == 12 {
            good!(cuda, cudaGetDeviceProperties_v2(bytes.as_mut_ptr() => *mut u8, 0 => i32));
        } else {
            good!(cuda, cudaGetDeviceProperties(bytes.as_mut_ptr() => *mut u8, 0 => i32));
        }
        assert!(bytes.starts_with(b"Simulated CUDA device"));
        let attribute = |number: i32| {
            let mut value = 0;
            good!(cuda, cudaDeviceGetAttribute(&raw mut value => *mut i32, number => i32, 0 => i32));
            value
        };
        let int = |offset: usize| {
            let mut value = [0; 4];
            value.copy_from_slice(&bytes[offset..offset + 4]);
            i32::from_ne_bytes(value)
        };
        assert_eq!((int(processors), int(cache), int(pools)), (attribute(16), attribute(38), 1));
        assert!(bytes[size..].iter().all(|byte| *byte == 0xaa), "nothing is written behind it");
        assert_eq!(call!(cuda, cudaGetDeviceProperties(0 => usize, 0 => i32)), INVALID_VALUE);
        assert_eq!(call!(cuda, cudaGetDeviceProperties(bytes.as_mut_ptr() => *mut u8, 99 => i32)), INVALID_DEVICE);
    });
}

#[test]
fn each_thread_has_a_device() {
    with_each(|cuda| {
        let mut count = 0;
        good!(cuda, cudaGetDeviceCount(&raw mut count => *mut i32));
        let current = move || {
            let mut device = -1;
            good!(cuda, cudaGetDevice(&raw mut device => *mut i32));
            device
        };
        assert_eq!(current(), 0);
        good!(cuda, cudaSetDevice(count - 1 => i32));
        assert_eq!(current(), count - 1);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(current(), 0)).join().unwrap_or_else(|_| panic!("other thread"))
        });
        for device in [-1, count] {
            assert_eq!(call!(cuda, cudaSetDevice(device => i32)), INVALID_DEVICE);
        }
        assert_eq!(current(), count - 1);
        good!(cuda, cudaSetDevice(0 => i32));
        good!(cuda, cudaInitDevice(0 => i32, 0 => u32, 0 => u32));
        assert_eq!(call!(cuda, cudaInitDevice(count => i32, 0 => u32, 0 => u32)), INVALID_DEVICE);
        assert_eq!(call!(cuda, cudaGetDevice(0 => usize)), INVALID_VALUE);
    });
}

#[test]
fn devices_answer_questions() {
    with_each(|cuda| {
        let (mut driver, mut runtime) = (0, 0);
        good!(cuda, cudaDriverGetVersion(&raw mut driver => *mut i32));
        good!(cuda, cudaRuntimeGetVersion(&raw mut runtime => *mut i32));
        assert!(driver >= 11_000 && (runtime / 1000).cast_unsigned() == cuda.major, "{driver}, {runtime}");
        let mut id = [0_u8; 32];
        good!(cuda, cudaDeviceGetPCIBusId(id.as_mut_ptr() => *mut u8, 32 => i32, 0 => i32));
        let mut device = -1;
        good!(cuda, cudaDeviceGetByPCIBusId(&raw mut device => *mut i32, id.as_ptr() => *const u8));
        assert_eq!(device, 0);
        let (mut least, mut greatest) = (-9, 9);
        good!(cuda, cudaDeviceGetStreamPriorityRange(&raw mut least => *mut i32, &raw mut greatest => *mut i32));
        assert!(greatest <= least);
        let mut stack = 0_usize;
        good!(cuda, cudaDeviceSetLimit(0 => i32, 2048 => usize));
        good!(cuda, cudaDeviceGetLimit(&raw mut stack => *mut usize, 0 => i32));
        assert_eq!(stack, 2048);
        // cudaDevP2PAttrAccessSupported, of a device and itself.
        assert_eq!(
            call!(cuda, cudaDeviceGetP2PAttribute(&raw mut device => *mut i32, 2 => i32, 0 => i32, 0 => i32)),
            INVALID_DEVICE
        );
        // cudaErrorPeerAccessUnsupported, cudaErrorPeerAccessNotEnabled.
        assert_eq!(call!(cuda, cudaDeviceEnablePeerAccess(0 => i32, 0 => u32)), 217);
        assert_eq!(call!(cuda, cudaDeviceDisablePeerAccess(0 => i32)), 705);
        assert_eq!(call!(cuda, cudaDeviceEnablePeerAccess(99 => i32, 0 => u32)), INVALID_DEVICE);
    });
}

#[test]
fn a_reset_ends_what_was_allocated_and_the_device_works_again() {
    with_each(|cuda: Runtime| {
        let before = cuda.allocate(100);
        good!(cuda, cudaDeviceReset());
        assert_eq!(call!(cuda, cudaMemset(before => usize, 0 => i32, 100 => usize)), INVALID_VALUE);
        let after = cuda.allocate(100);
        cuda.write(after, &[5; 100]);
        thread::scope(|scope| {
            let read = scope.spawn(|| assert_eq!(cuda.read(after, 100), [5; 100]));
            read.join().unwrap_or_else(|_| panic!("other thread"));
        });
        cuda.free(after);
        assert_eq!(cuda.last_error(), INVALID_VALUE);
    });
}
