//! The linker's outputs.

use support::cuda::PrimaryContext;

use crate::{call, given, good};

#[test]
fn all_outputs_of_a_linker_live_until_it_is_destroyed() {
    const PTX: u32 = 1;
    const TEXT: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n\0";
    let _context = PrimaryContext::retain_and_push(0);
    let linker: usize = given(|out| call!(cuLinkCreate_v2(0 => u32, 0 => usize, 0 => usize, out => *mut usize)));
    good(call!(cuLinkAddData_v2(
        linker => usize, PTX => u32, TEXT.as_ptr() => *const u8, TEXT.len() => usize, c"text".as_ptr() => *const i8,
        0 => u32, 0 => usize, 0 => usize
    )));
    let complete = || -> usize { given(|out| call!(cuLinkComplete(linker => usize, out => *mut usize, 0 => usize))) };
    let outputs = [complete(), complete(), complete()];
    assert!(outputs[0] != outputs[1] && outputs[1] != outputs[2] && outputs[0] != outputs[2]);
    for output in outputs {
        let module: usize = given(|out| call!(cuModuleLoadData(out => *mut usize, output => usize)));
        good(call!(cuModuleUnload(module => usize)));
    }
    good(call!(cuLinkDestroy(linker => usize)));
}
