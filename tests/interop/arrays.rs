//! Arrays with shapes and strides, over views of the crate `ndarray`.
#![expect(unsafe_code, reason = "views memory that the device may change")]

use support::{HOST_VIEWS, Result, device_read, supported};
use vkgdr::ndarray::{Array2, Axis, ShapeBuilder, arr2, s};
use vkgdr::{Array, Error, Memory, MemoryKind, OpenFlags};

const MAPPED: MemoryKind = MemoryKind::Mapped;

fn counted(rows: usize, columns: usize) -> Array2<u32> {
    Array2::from_shape_fn((rows, columns), |(i, j)| u32::try_from(i * columns + j).unwrap_or(0))
}

#[test]
fn an_array_is_written_on_the_host_and_read_on_the_device() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let array = Array::<u32, _>::allocate(&gpu, (6, 8), kind)?;
        assert_eq!((array.shape(), array.strides(), array.len()), (&[6, 8][..], &[8, 1][..], 48));
        array.write(counted(6, 8).view())?;
        array.flush()?;
        let bytes: Vec<u8> = counted(6, 8).iter().flat_map(|element| element.to_ne_bytes()).collect();
        assert_eq!(device_read(array.device_ptr(), 192), bytes, "{kind}");
        array.invalidate()?;
        assert_eq!(array.read()?, counted(6, 8), "{kind}");
        // SAFETY: nothing writes meanwhile.
        assert_eq!(unsafe { array.view() }, counted(6, 8), "{kind}");
    }
    Ok(())
}

#[test]
fn slices_share_the_bytes_whatever_their_strides() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    let whole = Array::<u32, _>::allocate(&gpu, (6, 8), MAPPED)?;
    let mut expected = counted(6, 8);
    whole.write(expected.view())?;
    let part = whole.slice(s![1..5;-2, ..;3]);
    assert_eq!((part.shape(), part.strides()), (&[2, 3][..], &[-16, 3][..]));
    assert_eq!(part.device_ptr(), whole.device_ptr() + 4 * 32);
    assert_eq!(part.read()?, expected.slice(s![1..5;-2, ..;3]));
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { part.view() }, expected.slice(s![1..5;-2, ..;3]));
    part.write(arr2(&[[1, 2, 3], [4, 5, 6]]).view())?;
    expected.slice_mut(s![1..5;-2, ..;3]).assign(&arr2(&[[1, 2, 3], [4, 5, 6]]));
    assert_eq!(whole.read()?, expected);
    let mut column = whole.slice(s![..;-1, 2]);
    // SAFETY: nothing else uses the elements meanwhile.
    unsafe { column.view_mut() }.fill(9);
    expected.column_mut(2).fill(9);
    assert_eq!(whole.read()?, expected);
    let mut reversed = part.reversed_axes();
    // SAFETY: as above.
    let mut view = unsafe { reversed.view_mut() };
    view[[2, 1]] = 70;
    expected[[2, 6]] = 70;
    part.flush()?;
    drop((part, reversed));
    whole.invalidate()?;
    assert_eq!(device_read(whole.device_ptr() + 4 * 22, 4), 70_u32.to_ne_bytes());
    assert_eq!(whole.permuted_axes([1, 0]).read()?, expected.t());
    let element = whole.slice(s![2, 6]);
    drop(whole);
    assert_eq!((element.read()?.into_scalar(), element.len()), (70, 1));
    Ok(())
}

#[test]
fn arrays_over_memory_of_others_and_in_fortran_order() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 1000, MAPPED)?;
    let array = Array::<u16, _>::new(memory.region(100..)?, (3, 4, 5).f())?;
    assert_eq!((array.strides(), array.device_ptr()), (&[1, 3, 12][..], memory.device_ptr() + 100));
    array.slice(s![2, 3, 4]).write(vkgdr::ndarray::arr0(77).view())?;
    let mut last = [0_u16];
    memory.read(100 + 2 * 59, &mut last)?;
    assert_eq!(last, [77]);
    let empty = array.slice(s![1..1, .., ..;-1]);
    assert_eq!((empty.len(), empty.read()?.len(), empty.is_empty()), (0, 0, true));
    empty.flush()?;
    let again = array.clone();
    drop((array, memory));
    // SAFETY: nothing writes meanwhile.
    assert_eq!(unsafe { again.view() }.index_axis(Axis(0), 2)[[3, 4]], 77);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 100, MAPPED)?;
    let array = |region, shape| Array::<u32, _>::new(region, shape).map(drop);
    assert!(matches!(array(memory.region(..)?, (5, 6)), Err(Error::OutOfRange { .. })));
    assert!(matches!(array(memory.region(1..)?, (5, 4)), Err(Error::Misaligned { .. })));
    assert!(matches!(array(memory.region(..)?, (usize::MAX, 2)), Err(Error::OutOfRange { .. })));
    assert!(matches!(array(memory.region(..)?, (0, usize::MAX)), Err(Error::OutOfRange { .. })));
    array(memory.region(..)?, (5, 5))?;
    array(memory.region(..)?, (0, 5))?;
    let allocated = Array::<u32, _>::allocate(&gpu, 5, MemoryKind::Device);
    assert!(matches!(allocated, Err(Error::NoHostView { kind: MemoryKind::Device })));
    assert!(matches!(Array::<u8, _>::allocate(&gpu, (0, 5), MAPPED), Err(Error::ZeroSize { .. })));
    let array = Array::<u32, _>::new(memory.region(..)?, (2, 3))?;
    for (rows, columns) in [(3, 3), (3, 2), (1, 3), (0, 0)] {
        let result = array.write(counted(rows, columns).view());
        assert!(matches!(&result, Err(Error::ShapeMismatch { found, .. }) if *found == [rows, columns]), "{result:?}");
    }
    Ok(())
}

#[test]
fn a_shape_that_no_array_can_have_is_an_error() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 64, MAPPED)?;
    let refused = |array: vkgdr::Result<()>| assert!(matches!(array, Err(Error::OutOfRange { .. })), "{array:?}");
    refused(Array::<(), _>::new(memory.region(..)?, (usize::MAX,)).map(drop));
    refused(Array::<u8, _>::new(memory.region(..)?, (usize::MAX, 2, 0)).map(drop));
    assert_eq!(Array::<(), _>::new(memory.region(..)?, (4,))?.len(), 4);
    Ok(())
}
