//! What the calls of a sequence made, and its end.
#![expect(unsafe_code, reason = "calls the simulated driver")]

use crate::arguments::{MOST_PAGES, PAGE};
use crate::drive;

/// A type of the driver's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context,
    Stream,
    Event,
    Memory,
    Host,
    Pool,
    Allocation,
    Reservation,
    Descriptor,
    Module,
    Library,
    Kernel,
    Linker,
    Graph,
    Node,
    Executable,
    UserObject,
}

/// A handle or an address that a call returned. It may have ended with another object, such as its context.
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) handle: usize,
    /// Whether a call that ends it has not succeeded yet.
    pub(crate) live: bool,
}

unsafe extern "C" {
    fn simcuda_live_objects() -> usize;
    fn simcuda_live_objects_of(noun: *const std::ffi::c_char) -> usize;
}

/// Ends everything, and checks that the driver has no object left.
pub(crate) fn end(objects: &mut Vec<Object>) {
    for index in 0..objects.len() {
        let mut graph = 0_usize;
        let Object { kind, handle, .. } = objects[index];
        if kind == Kind::Stream && drive!(cuStreamEndCapture(handle, &raw mut graph)) == 0 && graph != 0 {
            objects.push(Object { kind: Kind::Graph, handle: graph, live: true });
        }
    }
    let mut popped = 0_usize;
    while drive!(cuCtxPopCurrent_v2(&raw mut popped)) == 0 {}
    // In each context, since most functions want a current one; then what is left needs none.
    let contexts = objects.iter().filter(|object| object.kind == Kind::Context && object.live);
    for context in contexts.map(|context| context.handle).collect::<Vec<usize>>() {
        if drive!(cuCtxSetCurrent(context)) == 0 {
            objects.iter_mut().rev().for_each(Object::end);
        }
    }
    drive!(cuCtxSetCurrent(0));
    for context in objects.iter_mut().filter(|object| object.kind == Kind::Context) {
        drive!(cuCtxDestroy_v2(context.handle));
    }
    while drive!(cuDevicePrimaryCtxRelease_v2(0)) == 0 {}
    objects.iter_mut().rev().for_each(Object::end);
    settings();

    // SAFETY: the function has no preconditions.
    let left = unsafe { simcuda_live_objects() };
    if left != 0 {
        let nouns = [
            c"memory",
            c"pool",
            c"graph",
            c"executable",
            c"host",
            c"external",
            c"semaphore",
            c"allocation",
            c"reservation",
            c"mapped",
            c"stream",
            c"event",
            c"module",
            c"library",
            c"linker",
            c"context",
            c"primary",
        ];
        // SAFETY: terminated strings.
        let of = nouns.map(|noun| (noun, unsafe { simcuda_live_objects_of(noun.as_ptr()) }));
        panic!("{left} objects are left: {:?}", of.iter().filter(|(_, count)| *count != 0).collect::<Vec<_>>());
    }
}

impl Object {
    fn end(&mut self) {
        if !self.live {
            return;
        }
        let handle = self.handle;
        let code = match self.kind {
            Kind::Stream => drive!(cuStreamDestroy_v2(handle)),
            Kind::Event => drive!(cuEventDestroy_v2(handle)),
            Kind::Memory => drive!(cuMemFree_v2(handle)),
            Kind::Host => drive!(cuMemFreeHost(handle)),
            Kind::Pool => drive!(cuMemPoolDestroy(handle)),
            Kind::Allocation => drive!(cuMemRelease(handle)),
            Kind::Reservation => give_back(handle),
            Kind::Descriptor => close(handle),
            Kind::Module => drive!(cuModuleUnload(handle)),
            Kind::Library => drive!(cuLibraryUnload(handle)),
            Kind::Linker => drive!(cuLinkDestroy(handle)),
            Kind::Graph => drive!(cuGraphDestroy(handle)),
            Kind::Executable => drive!(cuGraphExecDestroy(handle)),
            Kind::UserObject => drive!(cuUserObjectRelease(handle, 1_usize)),
            Kind::Context | Kind::Kernel | Kind::Node => 1,
        };
        self.live = code != 0;
    }
}

/// Unmaps what is mapped at reserved addresses, and frees them. Their sizes are a few pages.
fn give_back(address: usize) -> i32 {
    for first in 0..MOST_PAGES {
        for count in 1..=MOST_PAGES - first {
            drive!(cuMemUnmap(address + first * PAGE, count * PAGE));
        }
    }
    (1..=MOST_PAGES).map(|count| drive!(cuMemAddressFree(address, count * PAGE))).min().unwrap_or(1)
}

fn close(descriptor: usize) -> i32 {
    // SAFETY: a call of this sequence made the descriptor, and nothing else has closed it.
    unsafe { libc::close(descriptor as i32) }
}

/// Undoes what outlives a context: the device's settings.
fn settings() {
    let (mut pool, none) = (0_usize, 0_u64);
    drive!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    drive!(cuDeviceSetMemPool(0, pool));
    drive!(cuMemPoolSetAttribute(pool, 4, &raw const none));
    drive!(cuMemPoolTrimTo(pool, 0));
    drive!(cuDevicePrimaryCtxSetFlags_v2(0, 0));
    let mut global = 0_u32;
    drive!(cuThreadExchangeStreamCaptureMode(&raw mut global));
}
