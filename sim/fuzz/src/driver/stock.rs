//! What a sequence starts with: an object of every kind, so that every function has something to work on.

use crate::arguments::{MOST_PAGES, PAGE, PROGRAMS, callback};
use crate::objects::{Kind, Object};
use crate::{World, drive};

impl World<'_> {
    pub(crate) fn stock(&mut self) {
        self.add(Kind::Context, |out| drive!(cuCtxCreate_v2(out, 0, 0)));
        let stream = self.add(Kind::Stream, |out| drive!(cuStreamCreate(out, 1)));
        self.add(Kind::Event, |out| drive!(cuEventCreate(out, 0)));
        self.add(Kind::Memory, |out| drive!(cuMemAlloc_v2(out, 65536)));
        self.add(Kind::Memory, |out| drive!(cuMemAllocManaged(out, 4096, 1)));
        self.add(Kind::Host, |out| drive!(cuMemAllocHost_v2(out, 4096)));

        // Pinned memory of the device, with and without exports as descriptors.
        let (plain, exported) = ([1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0_usize], [1 | 1 << 32, 1, 0, 0, 0_usize]);
        let pool = self.add(Kind::Pool, |out| drive!(cuMemPoolCreate(out, plain.as_ptr())));
        self.add(Kind::Memory, |out| drive!(cuMemAllocFromPoolAsync(out, 4096, pool, stream)));
        let allocation = self.add(Kind::Allocation, |out| drive!(cuMemCreate(out, PAGE, exported.as_ptr(), 0)));
        let reserved = self.add(Kind::Reservation, |out| drive!(cuMemAddressReserve(out, MOST_PAGES * PAGE, 0, 0, 0)));
        let access = [1_u32, 0, 3];
        assert_eq!(drive!(cuMemMap(reserved, PAGE, 0, allocation, 0)), 0);
        assert_eq!(drive!(cuMemSetAccess(reserved, PAGE, access.as_ptr(), 1)), 0);

        let module = self.add(Kind::Module, |out| drive!(cuModuleLoadData(out, PROGRAMS[0].as_ptr())));
        for name in [c"put", c"fill", c"heap", c"trap"] {
            self.add(Kind::Kernel, |out| drive!(cuModuleGetFunction(out, module, name.as_ptr())));
        }
        self.add(Kind::Library, |out| drive!(cuLibraryLoadData(out, PROGRAMS[1].as_ptr(), 0, 0, 0, 0, 0, 0)));
        self.add(Kind::Linker, |out| drive!(cuLinkCreate_v2(0, 0, 0, out)));

        let graph = self.add(Kind::Graph, |out| drive!(cuGraphCreate(out, 0)));
        let first = self.add(Kind::Node, |out| drive!(cuGraphAddEmptyNode(out, graph, 0, 0)));
        let host = [callback as *const () as usize, 0];
        self.add(Kind::Node, |out| drive!(cuGraphAddHostNode(out, graph, &raw const first, 1, host.as_ptr())));
        self.add(Kind::Executable, |out| drive!(cuGraphInstantiateWithFlags(out, graph, 0)));
        self.add(Kind::UserObject, |out| drive!(cuUserObjectCreate(out, 0, host[0], 2, 1)));
    }

    fn add(&mut self, kind: Kind, make: impl FnOnce(*mut usize) -> i32) -> usize {
        let mut handle = 0;
        assert_eq!(make(&raw mut handle), 0, "{kind:?}");
        self.objects.push(Object { kind, handle, live: true });
        handle
    }
}
