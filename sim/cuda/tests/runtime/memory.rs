//! Memory of all kinds, copies, fills and pools.

use cudarc::driver::sys;

use crate::{
    DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, INVALID_DEVICE, INVALID_VALUE, call, good, with_each,
};

#[test]
fn bytes_go_to_the_device_and_back() {
    with_each(|cuda| {
        let (a, b) = (cuda.allocate(1000), cuda.allocate(1000));
        let bytes: Vec<u8> = (0..1000_u32).map(|value| (value % 251) as u8).collect();
        cuda.write(a, &bytes);
        for kind in [DEVICE_TO_DEVICE, DEFAULT] {
            good!(cuda, cudaMemset(b => usize, 0 => i32, 1000 => usize));
            good!(cuda, cudaMemcpy(b => usize, a => usize, 1000 => usize, kind => i32));
            assert_eq!(cuda.read(b, 1000), bytes);
        }
        good!(cuda, cudaMemset_ptds(b => usize, 0x1ff => i32, 500 => usize));
        assert_eq!(cuda.read(b, 501), [&[0xff; 500][..], &bytes[500..501]].concat());
        // cudaErrorInvalidMemcpyDirection
        assert_eq!(call!(cuda, cudaMemcpy(b => usize, a => usize, 1 => usize, 5 => i32)), 21);
        let beyond = call!(cuda, cudaMemcpy(b => usize, a => usize, 1001 => usize, DEVICE_TO_DEVICE => i32));
        assert_eq!(beyond, INVALID_VALUE);
        cuda.free(a);
        cuda.free(b);
        assert_eq!(call!(cuda, cudaFree(a => usize)), INVALID_VALUE, "freed twice");
        good!(cuda, cudaFree(0 => usize));
        good!(cuda, cudaFreeHost(0 => usize));
        assert_eq!(cuda.allocate(0), 0, "no bytes are a null pointer");
    });
}

#[test]
fn rows_and_boxes_are_copied() {
    with_each(|cuda| {
        let (mut device, mut pitch) = (0_usize, 0_usize);
        let out = (&raw mut device, &raw mut pitch);
        good!(cuda, cudaMallocPitch(out.0 => *mut usize, out.1 => *mut usize, 10 => usize, 4 => usize));
        assert!(pitch >= 10);
        good!(cuda, cudaMemset2D(device => usize, pitch => usize, 7 => i32, 10 => usize, 4 => usize));
        let rows: Vec<u8> = (0..20).collect();
        let copy = |to: usize, to_pitch: usize, from: usize, from_pitch: usize, kind: i32| {
            call!(
                cuda,
                cudaMemcpy2D(to => usize, to_pitch => usize, from => usize, from_pitch => usize, 5 => usize,
                             4 => usize, kind => i32)
            )
        };
        assert_eq!(copy(device, pitch, rows.as_ptr().expose_provenance(), 5, HOST_TO_DEVICE), 0);
        let mut back = [0_u8; 20];
        assert_eq!(copy(back.as_mut_ptr().expose_provenance(), 5, device, pitch, DEVICE_TO_HOST), 0);
        assert_eq!(back[..], rows[..]);
        assert_eq!(cuda.read(device + pitch, 10), [5, 6, 7, 8, 9, 7, 7, 7, 7, 7]);
        // cudaErrorInvalidPitchValue
        assert_eq!(copy(device, 4, device, pitch, DEVICE_TO_DEVICE), 12);

        // cudaMemcpy3DParms: two slices of two rows of three bytes, from the second byte on.
        let mut target = [0_u8; 12];
        let parameters = [
            [0, 1, 0, 0, device, pitch, 10, 2],
            [0, 0, 0, 0, target.as_mut_ptr().expose_provenance(), 3, 3, 2],
            [3, 2, 2, usize::try_from(DEVICE_TO_HOST).unwrap_or_default(), 0, 0, 0, 0],
        ];
        good!(cuda, cudaMemcpy3D(parameters.as_ptr() => *const [usize; 8]));
        assert_eq!(target, [1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18]);
        cuda.free(device);
    });
}

/// `cudaPointerAttributes`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: i32,
    device: i32,
    device_pointer: usize,
    host_pointer: usize,
    reserved: [u64; 8],
}

/// `cudaChannelFormatDesc`.
#[repr(C)]
#[derive(Debug, PartialEq)]
struct Channel([i32; 5]);

#[test]
fn a_description_of_elements_is_a_value() {
    type Create = unsafe extern "C" fn(i32, i32, i32, i32, i32) -> Channel;
    with_each(|cuda| {
        // SAFETY: the type in cuda_runtime_api.h.
        let create = unsafe { cuda.symbol::<Create>("cudaCreateChannelDesc") };
        // SAFETY: takes any numbers. 2 is cudaChannelFormatKindFloat.
        assert_eq!(unsafe { create(32, 16, 8, 0, 2) }, Channel([32, 16, 8, 0, 2]));
        assert_eq!(cuda.last_error(), 0);
    });
}

#[test]
fn a_box_without_bytes_takes_no_time_to_fill() {
    with_each(|cuda| {
        let device = cuda.allocate(8);
        let fill = |extent: [usize; 3]| call!(cuda, cudaMemset3D([device, 8, 8, 1] => [usize; 4], 1 => i32, extent => [usize; 3]));
        assert_eq!([[0, 1, usize::MAX], [1, 0, usize::MAX], [1, 1, 0], [8, 1, 1]].map(fill), [0; 4]);
        assert_eq!(fill([1, 1, usize::MAX]), INVALID_VALUE, "beyond all addresses");
        assert_eq!(cuda.read(device, 8), [1; 8]);
        cuda.free(device);
    });
}

#[test]
fn pointers_tell_their_kind() {
    with_each(|cuda| {
        let of = |pointer: usize| {
            let mut attributes = Attributes::default();
            good!(cuda, cudaPointerGetAttributes(&raw mut attributes => *mut Attributes, pointer => usize));
            let Attributes { kind, device, device_pointer, host_pointer, .. } = attributes;
            (kind, device, device_pointer, host_pointer)
        };
        let (mut pinned, mut managed) = (0_usize, 0_usize);
        let device = cuda.allocate(100);
        good!(cuda, cudaHostAlloc(&raw mut pinned => *mut usize, 100 => usize, 0 => u32));
        good!(cuda, cudaMallocManaged(&raw mut managed => *mut usize, 100 => usize, 1 => u32));
        let mut plain = vec![0_u8; 100];
        let plain = plain.as_mut_ptr().expose_provenance();
        assert_eq!(of(device + 9), (2, 0, device + 9, 0));
        assert_eq!(of(pinned), (1, 0, pinned, pinned));
        assert_eq!(of(managed), (3, 0, managed, managed));
        assert_eq!(of(plain), (0, -2, 0, plain));
        let (mut reserved, size) = (0_u64, 2 << 20);
        // SAFETY: the output is a live integer.
        let code = unsafe { sys::cuMemAddressReserve(&raw mut reserved, size, 0, 0, 0) };
        assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
        let address = usize::try_from(reserved).unwrap_or_default();
        assert_eq!(of(address), (0, -2, 0, address), "addresses without memory");
        // SAFETY: nothing is mapped there.
        let code = unsafe { sys::cuMemAddressFree(reserved, size) };
        assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
        good!(cuda, cudaHostRegister(plain => usize, 100 => usize, 0 => u32));
        assert_eq!(of(plain), (1, 0, plain, plain));
        let mut mapped = 0_usize;
        good!(cuda, cudaHostGetDevicePointer(&raw mut mapped => *mut usize, plain => usize, 0 => u32));
        assert_eq!(mapped, plain);
        // cudaErrorHostMemoryAlreadyRegistered, cudaErrorHostMemoryNotRegistered
        assert_eq!(call!(cuda, cudaHostRegister(plain => usize, 100 => usize, 0 => u32)), 712);
        good!(cuda, cudaHostUnregister(plain => usize));
        assert_eq!(call!(cuda, cudaHostUnregister(plain => usize)), 713);
        good!(cuda, cudaFreeHost(pinned => usize));
        cuda.free(managed);
        cuda.free(device);
    });
}

#[test]
fn managed_memory_is_advised_in_the_form_of_each_version() {
    with_each(|cuda| {
        let mut managed = 0_usize;
        good!(cuda, cudaMallocManaged(&raw mut managed => *mut usize, 4096 => usize, 1 => u32));
        // cudaMemLocation in a register: the device.
        let place = 1_u64;
        if cuda.major == 12 {
            for device in [0, -1] {
                good!(cuda, cudaMemPrefetchAsync(managed => usize, 4096 => usize, device => i32, 0 => usize));
                good!(cuda, cudaMemAdvise(managed => usize, 4096 => usize, 3 => i32, device => i32));
            }
            // Only -1 is the host.
            let nowhere = call!(cuda, cudaMemAdvise(managed => usize, 4096 => usize, 3 => i32, -5 => i32));
            assert_eq!(nowhere, INVALID_DEVICE);
            good!(cuda, cudaMemPrefetchAsync_v2(managed => usize, 4096 => usize, place => u64, 0 => u32, 0 => usize));
            good!(cuda, cudaMemAdvise_v2(managed => usize, 4096 => usize, 3 => i32, place => u64));
        } else {
            good!(cuda, cudaMemPrefetchAsync(managed => usize, 4096 => usize, place => u64, 0 => u32, 0 => usize));
            good!(cuda, cudaMemAdvise(managed => usize, 4096 => usize, 3 => i32, place => u64));
        }
        // cudaMemRangeAttributePreferredLocation, after cudaMemAdviseSetPreferredLocation.
        let mut preferred = -9;
        good!(
            cuda,
            cudaMemRangeGetAttribute(&raw mut preferred => *mut i32, 4 => usize, 2 => i32, managed => usize,
                                     4096 => usize)
        );
        assert_eq!(preferred, 0);
        cuda.free(managed);
    });
}

#[test]
fn pools_lend_memory_in_a_streams_order() {
    with_each(|cuda| {
        let (mut stream, mut pool, mut pointer, mut used) = (0_usize, 0_usize, 0_usize, 0_u64);
        good!(cuda, cudaStreamCreateWithFlags(&raw mut stream => *mut usize, 1 => u32));
        good!(cuda, cudaDeviceGetDefaultMemPool(&raw mut pool => *mut usize, 0 => i32));
        good!(cuda, cudaMallocAsync(&raw mut pointer => *mut usize, 1 << 20 => usize, stream => usize));
        good!(cuda, cudaMemPoolGetAttribute(pool => usize, 7 => i32, &raw mut used => *mut u64));
        assert_eq!(used, 1 << 20);
        good!(cuda, cudaMemsetAsync(pointer => usize, 3 => i32, 1 << 20 => usize, stream => usize));
        good!(cuda, cudaFreeAsync(pointer => usize, stream => usize));
        assert_eq!(call!(cuda, cudaFreeAsync(pointer => usize, stream => usize)), INVALID_VALUE);
        good!(cuda, cudaStreamSynchronize(stream => usize));
        good!(cuda, cudaMemPoolGetAttribute(pool => usize, 7 => i32, &raw mut used => *mut u64));
        assert_eq!(used, 0);
        let (mut free, mut total) = (0_usize, 0_usize);
        good!(cuda, cudaMemGetInfo(&raw mut free => *mut usize, &raw mut total => *mut usize));
        assert!(free <= total && free > 0);
        good!(cuda, cudaStreamDestroy(stream => usize));
    });
}
