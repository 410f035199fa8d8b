//! Random calls with handles of all kinds.

use support::Random;
use support::cuda::PrimaryContext;

use super::{Fill, fill, graph};
use crate::{allocate, call, given, good};

/// Handles of all kinds, live and destroyed, where others are expected: an error or a success, and nothing worse.
#[test]
fn random_calls_do_no_harm() {
    let _context = PrimaryContext::retain_and_push(0);
    let mut random = Random::new(16);
    let memory = allocate(64);
    let mut handles = vec![0_usize, 1, 2, usize::MAX, graph(), graph()];
    handles.push(given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32))));
    handles.push(given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32))));
    for _ in 0..4000 {
        let mut pick = || handles[random.below(handles.len())];
        let (a, b, c) = (pick(), pick(), pick());
        let (mut out, mut wide) = (0_usize, [0_usize; 8]);
        let parameters = fill(memory, 1);
        let made = match random.below(24) {
            0 => call!(cuGraphCreate(&raw mut out => *mut usize, 0 => u32)),
            1 => call!(cuGraphDestroy(a => usize)),
            2 => call!(cuGraphClone(&raw mut out => *mut usize, a => usize)),
            3 => {
                call!(cuGraphAddEmptyNode(&raw mut out => *mut usize, a => usize, &raw const b => *const usize, 1 => usize))
            }
            4 => call!(cuGraphAddEmptyNode(&raw mut out => *mut usize, a => usize, 0 => usize, 0 => usize)),
            5 => call!(cuGraphAddMemsetNode(
                &raw mut out => *mut usize, a => usize, &raw const b => *const usize, 1 => usize,
                &raw const parameters => *const Fill, c => usize
            )),
            6 => {
                call!(cuGraphAddChildGraphNode(&raw mut out => *mut usize, a => usize, 0 => usize, 0 => usize, b => usize))
            }
            7 => call!(cuGraphAddDependencies(
                a => usize, &raw const b => *const usize, &raw const c => *const usize, 1 => usize
            )),
            8 => call!(cuGraphDestroyNode(a => usize)),
            9 => call!(cuGraphInstantiateWithFlags(&raw mut out => *mut usize, a => usize, 0 => u64)),
            10 => call!(cuGraphLaunch(a => usize, b => usize)),
            11 => call!(cuGraphExecDestroy(a => usize)),
            12 => call!(cuGraphExecUpdate_v2(a => usize, b => usize, wide.as_mut_ptr() => *mut usize)),
            13 => call!(cuStreamBeginCapture_v2(a => usize, 1 => u32)),
            14 => call!(cuStreamEndCapture(a => usize, &raw mut out => *mut usize)),
            15 => call!(cuEventRecord(a => usize, b => usize)),
            16 => call!(cuStreamWaitEvent(a => usize, b => usize, 0 => u32)),
            17 => call!(cuMemsetD8Async(memory => u64, 1 => u8, 4 => usize, a => usize)),
            18 => {
                call!(cuGraphAddEventWaitNode(&raw mut out => *mut usize, a => usize, 0 => usize, 0 => usize, b => usize))
            }
            19 => call!(cuGraphNodeSetEnabled(a => usize, b => usize, 1 => u32)),
            20 => call!(cuGraphMemsetNodeSetParams(a => usize, &raw const parameters => *const Fill)),
            21 => {
                call!(cuStreamUpdateCaptureDependencies(a => usize, &raw const b => *const usize, 1 => usize, 1 => u32))
            }
            22 => call!(cuMemFreeAsync(a => usize, b => usize)),
            _ => call!(cuMemPoolTrimTo(a => usize, 0 => usize)),
        };
        if made == 0 && out != 0 && handles.len() < 60 {
            handles.push(out);
        }
    }
    for stream in handles.iter().filter(|handle| **handle > 1) {
        let _ = call!(cuStreamEndCapture(*stream => usize, &mut [0_usize; 1] => *mut [usize; 1]));
    }
    good(call!(cuCtxSynchronize()));
}
