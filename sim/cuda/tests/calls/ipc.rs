//! Memory that processes share by handles.

use support::codes::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE};
use support::cuda::{PrimaryContext, memcpy_dtoh};
use support::{Result, child, simcuda};

use crate::{call, given, good};

const LEN: usize = 300_000;
const HANDLE: &str = "SIMCUDA_TEST_HANDLE";

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Handle([u64; 8]);

fn allocate(len: usize) -> u64 {
    given(|out| call!(cuMemAlloc_v2(out => *mut u64, len => usize)))
}

fn fill(address: u64, byte: u8, len: usize) {
    good(call!(cuMemsetD8_v2(address => u64, byte => u8, len => usize)));
    good(call!(cuCtxSynchronize()));
}

fn read(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memcpy_dtoh(&mut bytes, address);
    bytes
}

fn get(address: u64) -> (i32, Handle) {
    let mut handle = Handle([0; 8]);
    let code = call!(cuIpcGetMemHandle(&raw mut handle => *mut Handle, address => u64));
    (code, handle)
}

fn open(handle: Handle, flags: u32) -> (i32, u64) {
    let mut address = 0;
    let code = call!(cuIpcOpenMemHandle_v2(&raw mut address => *mut u64, handle => Handle, flags => u32));
    (code, address)
}

fn close(address: u64) -> i32 {
    call!(cuIpcCloseMemHandle(address => u64))
}

fn text(handle: Handle) -> String {
    handle.0.map(|word| word.to_string()).join(",")
}

fn parsed(text: &str) -> Result<Handle> {
    let words: std::result::Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    Ok(Handle(words?.try_into().map_err(|_| "a handle has 8 words")?))
}

/// The importing process: reads 7, writes 9.
fn import() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    for handle in std::env::var(HANDLE)?.split(';') {
        let handle = parsed(handle)?;
        let (code, address) = open(handle, 1);
        good(code);
        assert_eq!(read(address, 100), [7; 100]);
        assert_eq!(open(handle, 1), (0, address), "opened again");
        good(close(address));
        fill(address, 9, 100);
        assert_eq!(call!(cuMemFree_v2(address => u64)), INVALID_VALUE, "another process's memory");
        assert_eq!(get(address).0, INVALID_VALUE, "another process's memory");
        good(close(address));
        assert_eq!(close(address), INVALID_VALUE);
        assert_eq!(call!(cuMemsetD8_v2(address => u64, 0 => u8, 1 => usize)), INVALID_VALUE);
    }
    Ok(())
}

#[test]
fn processes_share_memory_by_handles() -> Result {
    const TEST: &str = "ipc::processes_share_memory_by_handles";
    if child::role().is_some() {
        return import();
    }
    if simcuda().is_none() {
        eprintln!("skipped: the importer of a GPU's memory may be too late here");
        return Ok(());
    }
    let _context = PrimaryContext::retain_and_push(0);
    // Pages of their own, and two parts of one page.
    let blocks = [(allocate(LEN), LEN), (allocate(1000), 1000), (allocate(1000), 1000)];
    for (address, len) in blocks {
        fill(address, 7, len);
    }
    let handles: Vec<Handle> = blocks.map(|(address, _)| get(address + 10).1).to_vec();
    assert_eq!(get(blocks[0].0), (0, handles[0]), "the same for all of an allocation");
    let list = handles.iter().map(|handle| text(*handle)).collect::<Vec<_>>().join(";");
    let output = child::command(TEST, "import")?.env(HANDLE, list).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (address, len) in blocks {
        assert_eq!(read(address, len), [vec![9; 100], vec![7; len - 100]].concat());
    }

    assert_eq!(open(handles[0], 1), (INVALID_CONTEXT, 0), "its own memory");
    assert_eq!(open(handles[0], 0), (INVALID_VALUE, 0), "flags");
    assert_eq!(open(Handle([3; 8]), 1), (INVALID_HANDLE, 0), "no handle");
    for pointer in [0, 16, given(|out| call!(cuMemAllocManaged(out => *mut u64, 64 => usize, 1 => u32)))] {
        assert_eq!(get(pointer).0, INVALID_VALUE);
    }
    assert_eq!(call!(cuIpcGetMemHandle(0 => usize, blocks[0].0 => u64)), INVALID_VALUE);
    assert_eq!(close(blocks[0].0), INVALID_VALUE);
    for (address, _) in blocks {
        good(call!(cuMemFree_v2(address => u64)));
    }
    Ok(())
}

#[test]
fn a_handle_of_memory_that_was_freed_is_refused() -> Result {
    const TEST: &str = "ipc::a_handle_of_memory_that_was_freed_is_refused";
    if child::role().is_some() {
        let _context = PrimaryContext::retain_and_push(0);
        assert_eq!(open(parsed(&std::env::var(HANDLE)?)?, 1), (INVALID_HANDLE, 0));
        return Ok(());
    }
    if simcuda().is_none() {
        eprintln!("skipped: undefined on a GPU");
        return Ok(());
    }
    let _context = PrimaryContext::retain_and_push(0);
    let address = allocate(LEN);
    let (code, handle) = get(address);
    good(code);
    good(call!(cuMemFree_v2(address => u64)));
    let output = child::command(TEST, "import")?.env(HANDLE, text(handle)).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
