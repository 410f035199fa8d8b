//! [`Array`]: elements with a shape and strides in memory, over `ndarray`'s views of the host's side.
#![expect(unsafe_code, reason = "views bytes that the device may change")]

use std::fmt;

use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use ndarray::{
    ArrayView, ArrayViewMut, Axis, Dimension, IntoDimension, IxDyn, RawArrayView, RawArrayViewMut, ShapeBuilder,
    SliceArg,
};

use crate::access::range;
use crate::{Error, Memory, MemoryKind, Region, Result, Vkgdr};

/// Elements with a shape and strides, in memory that the CPU and the device share.
///
/// [`ndarray`] does the arithmetic of shapes: [`slice`](Self::slice) takes the argument of its macro `s!`, and
/// [`view`](Self::view) is one of its views. The device's side is [`device_ptr`](Self::device_ptr) with
/// [`strides`](Self::strides). A slice shares the memory and keeps it alive. Memory needs a host view; its drop policy, streams
/// and export are those of [`region`](Self::region).
///
/// # Examples
///
/// ```no_run
/// use ndarray::{array, s};
///
/// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
/// let image = vkgdr::Array::<f32, _>::allocate(&gpu, (480, 640), vkgdr::MemoryKind::Mapped)?;
/// let corner = image.slice(s![..2, ..2]);
/// corner.write(array![[1.0, 2.0], [3.0, 4.0]].view())?;
/// corner.flush()?;
/// assert_eq!((corner.device_ptr(), corner.strides()), (image.device_ptr(), &[640, 1][..]));
/// # Ok::<(), vkgdr::Error>(())
/// ```
pub struct Array<T, D: Dimension = IxDyn> {
    elements: Elements<T, D>,
    /// Contains all elements.
    region: Region,
}

/// The place of the elements on the host. Its pointer is read by methods of [`Array`] alone, which keeps the memory.
struct Elements<T, D: Dimension>(RawArrayView<T, D>);

// SAFETY: an address and numbers; the elements are reached by unsafe methods or copied by the region's.
unsafe impl<T: Send, D: Dimension + Send> Send for Elements<T, D> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync, D: Dimension + Sync> Sync for Elements<T, D> {}

impl<T: Pod, D: Dimension> Array<T, D> {
    /// Allocates an array in C order, or with `ndarray`'s `.f()` in Fortran order. The elements are undefined.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::allocate`], [`Error::NoHostView`] for device memory, and [`Error::OutOfRange`] for a shape whose bytes
    /// exceed the address space.
    pub fn allocate<S: ShapeBuilder<Dim = D>>(owner: &Vkgdr, shape: S, kind: MemoryKind) -> Result<Self> {
        if !kind.has_host_view() {
            return Err(Error::NoHostView { kind });
        }
        let shape = shape.into_shape_with_order();
        let bytes = byte_count::<T, D>(shape.raw_dim())?;
        Self::new(Memory::allocate(owner, bytes, kind)?.region(..)?, shape)
    }

    /// The elements at the beginning of memory, in C order or with `ndarray`'s `.f()` in Fortran order.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the memory is shorter, [`Error::Misaligned`] where its address does not fit `T`, and
    /// [`Error::NoHostView`].
    pub fn new<S: ShapeBuilder<Dim = D>>(region: Region, shape: S) -> Result<Self> {
        let shape = shape.into_shape_with_order();
        let bytes = byte_count::<T, D>(shape.raw_dim())?;
        range::check(0, bytes, region.len())?;
        let (first, _) = region.region(..bytes)?.elements::<T>()?;
        // SAFETY: aligned, and the shape's bytes are within the region, which is mapped.
        let elements = unsafe { RawArrayView::from_shape_ptr(shape, first.as_ptr()) };
        Ok(Self { elements: Elements(elements), region })
    }

    /// The memory that contains the elements, from before the first to after the last.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.elements.0.shape()
    }

    /// The distances of neighbours in each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.elements.0.strides()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.0.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.0.is_empty()
    }

    /// The device address of the element with the index 0 in each dimension, for kernels together with the strides.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.region.device_ptr() + self.offset_of(self.elements.0.as_ptr()) as u64
    }

    /// The offset of an element in the region, in bytes.
    fn offset_of(&self, element: *const T) -> usize {
        let base = self.region.host_ptr().map_or(0, |pointer| pointer.addr().get());
        element.addr().saturating_sub(base)
    }

    /// A part of the array, with the argument of `ndarray`'s macro `s!`. It shares the memory.
    ///
    /// # Panics
    ///
    /// As `ndarray`'s `slice`: where an index is out of bounds, or the number of dimensions differs.
    #[must_use]
    pub fn slice<I: SliceArg<D>>(&self, info: I) -> Array<T, I::OutDim> {
        self.with(self.elements.0.clone().slice_move(info))
    }

    /// The array with its dimensions in the opposite order. It shares the memory.
    #[must_use]
    pub fn reversed_axes(&self) -> Self {
        self.with(self.elements.0.clone().reversed_axes())
    }

    /// The array with its dimensions in another order. It shares the memory.
    ///
    /// # Panics
    ///
    /// As `ndarray`'s `permuted_axes`: unless each dimension is named once.
    #[must_use]
    pub fn permuted_axes(&self, axes: impl IntoDimension<Dim = D>) -> Self {
        self.with(self.elements.0.clone().permuted_axes(axes))
    }

    fn with<E: Dimension>(&self, elements: RawArrayView<T, E>) -> Array<T, E> {
        Array { elements: Elements(elements), region: self.region.clone() }
    }

    /// Copies all elements into an array of `ndarray`. Wait for the device's work and [`invalidate`](Self::invalidate) before.
    /// An array that is not in C order is copied element by element, which of mapped memory is a round trip on the bus each.
    ///
    /// # Errors
    ///
    /// Those of [`Region::read`].
    pub fn read(&self) -> Result<ndarray::Array<T, D>> {
        let mut copy = ndarray::Array::from_elem(self.elements.0.raw_dim(), T::zeroed());
        if let (true, Some(target)) = (self.is_standard_layout(), copy.as_slice_mut()) {
            self.region.read(self.offset_of(self.elements.0.as_ptr()), target)?;
            return Ok(copy);
        }
        for (target, source) in copy.iter_mut().zip(self.addresses()) {
            self.region.read(self.offset_of(source), std::slice::from_mut(target))?;
        }
        Ok(copy)
    }

    /// Copies all elements from an array of `ndarray` with the same shape. [`flush`](Self::flush) before the device reads.
    /// An array that is not in C order is written element by element, with a fence each.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`], and those of [`Region::write`].
    pub fn write(&self, source: ArrayView<'_, T, D>) -> Result<()> {
        if source.shape() != self.shape() {
            return Err(Error::ShapeMismatch { expected: self.shape().to_vec(), found: source.shape().to_vec() });
        }
        if let (true, Some(source)) = (self.is_standard_layout(), source.as_slice()) {
            return self.region.write(self.offset_of(self.elements.0.as_ptr()), source);
        }
        for (source, target) in source.iter().zip(self.addresses()) {
            self.region.write(self.offset_of(target), std::slice::from_ref(source))?;
        }
        Ok(())
    }

    fn is_standard_layout(&self) -> bool {
        self.elements.0.is_standard_layout()
    }

    /// The host addresses of the elements, in the logical order.
    fn addresses(&self) -> impl Iterator<Item = *const T> {
        let (first, strides) = (self.elements.0.as_ptr(), self.strides().to_vec());
        let indices = ndarray::indices(self.elements.0.raw_dim()).into_iter();
        indices.map(move |index| {
            let index = index.into_dimension();
            let distance = index.slice().iter().zip(&strides).map(|(&i, stride)| i.cast_signed() * stride).sum();
            first.wrapping_offset(distance)
        })
    }

    /// As [`Region::flush`], of all of the memory from the first element to the last.
    ///
    /// # Errors
    ///
    /// Those of [`Region::flush`].
    pub fn flush(&self) -> Result<()> {
        self.region.flush(self.byte_range())
    }

    /// As [`Region::invalidate`], of all of the memory from the first element to the last.
    ///
    /// # Errors
    ///
    /// Those of [`Region::invalidate`].
    pub fn invalidate(&self) -> Result<()> {
        self.region.invalidate(self.byte_range())
    }

    /// The bytes from the first element in memory to the last.
    fn byte_range(&self) -> std::ops::Range<usize> {
        if self.is_empty() {
            return 0..0;
        }
        let (low, high) = self.ends();
        self.offset_of(low)..self.offset_of(high) + size_of::<T>()
    }

    /// The lowest and the highest host address of an element; twice that of the first if there are none.
    fn ends(&self) -> (*const T, *const T) {
        let reach = |(&extent, &stride): (&usize, &isize)| extent.saturating_sub(1).cast_signed() * stride;
        let reaches = || self.shape().iter().zip(self.strides()).map(reach).filter(|_| !self.is_empty());
        let first = self.elements.0.as_ptr();
        let low = first.wrapping_offset(reaches().filter(|&reach| reach < 0).sum());
        (low, first.wrapping_offset(reaches().filter(|&reach| reach > 0).sum()))
    }

    /// The elements as a view of `ndarray`.
    ///
    /// # Safety
    ///
    /// While the view lives, neither the device nor the CPU may write to the elements, on any thread, through this or any other
    /// array or region.
    #[must_use]
    pub unsafe fn view(&self) -> ArrayView<'_, T, D> {
        // SAFETY: mapped as long as the region, every bit pattern is a `T`, and nothing writes, by this method's contract.
        unsafe { self.elements.0.clone().deref_into_view() }
    }

    /// The elements as a mutable view of `ndarray`.
    ///
    /// # Safety
    ///
    /// While the view lives, neither the device nor the CPU may access the elements except through it, on any thread, through
    /// this or any other array or region.
    #[must_use]
    pub unsafe fn view_mut(&mut self) -> ArrayViewMut<'_, T, D> {
        // `ndarray` makes mutable views of positive strides: from the lowest element, and then inverted.
        let mut strides = self.elements.0.raw_dim();
        for (stride, &signed) in strides.slice_mut().iter_mut().zip(self.strides()) {
            *stride = signed.unsigned_abs();
        }
        let (shape, low) = (self.elements.0.raw_dim().strides(strides), self.ends().0.cast_mut());
        // SAFETY: the place of the elements, which is within the region.
        let mut elements = unsafe { RawArrayViewMut::from_shape_ptr(shape, low) };
        for (axis, &stride) in self.strides().iter().enumerate() {
            if stride < 0 {
                elements.invert_axis(Axis(axis));
            }
        }
        // SAFETY: as for `view`; nothing else accesses the elements, by this method's contract.
        unsafe { elements.deref_into_view_mut() }
    }
}

/// The bytes of an array in C or Fortran order. As in `ndarray`, the product of the extents other than 0 must fit as well.
fn byte_count<T, D: Dimension>(shape: &D) -> Result<usize> {
    let extents = shape.slice();
    let limit = isize::MAX.unsigned_abs();
    let mut others = extents.iter().copied().filter(|&extent| extent > 0);
    let fits = |size: &usize| *size <= limit;
    let count = others.try_fold(1, usize::checked_mul).filter(fits);
    let bytes = count.and_then(|count| count.checked_mul(size_of::<T>())).filter(fits);
    let bytes = bytes.ok_or(Error::OutOfRange { offset: 0, len: usize::MAX, size: limit })?;
    Ok(if extents.contains(&0) { 0 } else { bytes })
}

impl<T, D: Dimension> Clone for Array<T, D> {
    /// One more reference to the same elements.
    fn clone(&self) -> Self {
        Self { elements: Elements(self.elements.0.clone()), region: self.region.clone() }
    }
}

impl<T, D: Dimension> fmt::Debug for Array<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, strides) = (self.elements.0.shape(), self.elements.0.strides());
        f.debug_struct("Array").field("shape", &shape).field("strides", &strides).field("region", &self.region).finish()
    }
}
