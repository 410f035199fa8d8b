//! Memory and events that processes share by handles.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use support::codes::{ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use support::cuda::{Context, PrimaryContext, Stream};
use support::{Result, child, simcuda, simulated};

use crate::{NOWHERE, allocate, call, fill, free, given, good, put, read};

const LEN: usize = 300_000;
const HANDLE: &str = "SIMCUDA_TEST_HANDLE";

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Handle([u64; 8]);

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
    if child::role().is_some() {
        return import();
    }
    simulated!("the importer of a GPU's memory may be too late here");
    let _context = PrimaryContext::retain_and_push(0);
    // Pages of their own, and two parts of one page.
    let blocks = [(allocate(LEN), LEN), (allocate(1000), 1000), (allocate(1000), 1000)];
    for (address, len) in blocks {
        fill(address, 7, len);
    }
    let handles: Vec<Handle> = blocks.map(|(address, _)| get(address + 10).1).to_vec();
    assert_eq!(get(blocks[0].0), (0, handles[0]), "the same for all of an allocation");
    let list = handles.iter().map(|handle| text(*handle)).collect::<Vec<_>>().join(";");
    let output = child::command("import")?.env(HANDLE, list).output()?;
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
        free(address);
    }
    Ok(())
}

#[test]
fn a_handle_of_memory_that_was_freed_is_refused() -> Result {
    if child::role().is_some() {
        let _context = PrimaryContext::retain_and_push(0);
        assert_eq!(open(parsed(&std::env::var(HANDLE)?)?, 1), (INVALID_HANDLE, 0));
        return Ok(());
    }
    simulated!("undefined on a GPU");
    let _context = PrimaryContext::retain_and_push(0);
    let address = allocate(LEN);
    let (code, handle) = get(address);
    good(code);
    free(address);
    let output = child::command("import")?.env(HANDLE, text(handle)).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The importing process: the memory of a destroyed context is no longer open, whatever has its address.
fn import_again() -> Result {
    let handles = std::env::var(HANDLE)?.split(';').map(parsed).collect::<Result<Vec<_>>>()?;
    let opened = |handle: Handle| {
        let (code, address) = open(handle, 1);
        good(code);
        address
    };
    let first = Context::create(0);
    opened(handles[0]);
    opened(handles[0]);
    first.destroy();
    let _second = Context::create(0);
    let other = opened(handles[1]);
    let again = opened(handles[0]);
    assert_eq!((read(again, 1), read(other, 1)), (vec![7], vec![8]));
    assert_eq!([again, other].map(close), [0, 0]);
    assert_eq!([again, other].map(close), [INVALID_VALUE; 2]);
    Ok(())
}

#[test]
fn memory_that_a_destroyed_context_had_opened_is_opened_anew() -> Result {
    if child::role().is_some() {
        return import_again();
    }
    simulated!("the importer of a GPU's memory may be too late here");
    let _context = PrimaryContext::retain_and_push(0);
    let blocks = [7, 8].map(|byte| {
        let address = allocate(LEN);
        fill(address, byte, LEN);
        address
    });
    let handles = blocks.map(|address| text(get(address).1)).join(";");
    let output = child::command("import")?.env(HANDLE, handles).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for address in blocks {
        free(address);
    }
    Ok(())
}

/// `cuEventCreate` for other processes, which needs the flag against timing.
const SHARED_EVENT: u32 = 4 | 2;

fn create_event(flags: u32) -> std::result::Result<usize, i32> {
    let mut event = 0;
    match call!(cuEventCreate(&raw mut event => *mut usize, flags => u32)) {
        0 => Ok(event),
        code => Err(code),
    }
}

fn get_event(event: usize) -> (i32, Handle) {
    let mut handle = Handle([0; 8]);
    let code = call!(cuIpcGetEventHandle(&raw mut handle => *mut Handle, event => usize));
    (code, handle)
}

fn open_event(handle: Handle) -> (i32, usize) {
    let mut event = 0;
    let code = call!(cuIpcOpenEventHandle(&raw mut event => *mut usize, handle => Handle));
    (code, event)
}

fn record(event: usize, stream: usize) {
    good(call!(cuEventRecord(event => usize, stream => usize)));
}

/// The other process: waits for an event of the parent's, and records another one.
fn follow() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    let handles = std::env::var(HANDLE)?.split(';').map(parsed).collect::<Result<Vec<_>>>()?;
    let [(_, before), (_, behind)] = [open_event(handles[0]), open_event(handles[1])];
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    assert_eq!(call!(cuEventQuery(before => usize)), NOT_READY, "the parent holds it back");
    good(call!(cuEventQuery(behind => usize)));
    good(call!(cuStreamWaitEvent(raw => usize, before => usize, 0 => u32)));
    record(behind, raw);
    assert_eq!((call!(cuEventQuery(behind => usize)), call!(cuStreamQuery(raw => usize))), (NOT_READY, NOT_READY));
    child::say("waits");
    good(call!(cuEventSynchronize(before => usize)));
    good(call!(cuEventSynchronize(behind => usize)));
    let mut time = 0_f32;
    let elapsed = call!(cuEventElapsedTime(&raw mut time => *mut f32, before => usize, behind => usize));
    assert_eq!(elapsed, INVALID_HANDLE, "they have no time");
    // The parent waits for the second record.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    record(behind, raw);
    good(call!(cuEventDestroy_v2(before => usize)));
    good(call!(cuEventDestroy_v2(behind => usize)));
    Ok(())
}

#[test]
fn processes_wait_for_each_others_events() -> Result {
    if child::role().is_some() {
        return follow();
    }
    simulated!("the simulator's own codes");
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let events = [create_event(SHARED_EVENT), create_event(SHARED_EVENT)].map(|event| event.unwrap_or(0));
    let gate = stream.hold();
    record(events[0], raw);
    let handles = events.map(|event| text(get_event(event).1)).join(";");
    let mut command = child::command("follow")?;
    let mut other = command.env(HANDLE, handles).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(other.stderr.take().ok_or("no output")?).lines().map_while(std::result::Result::ok);
    assert!(lines.any(|line| line.contains("waits")), "the other process failed");
    assert_eq!(call!(cuEventQuery(events[1] => usize)), NOT_READY, "recorded elsewhere");
    let second = Stream::create();
    let after = second.raw().expose_provenance();
    good(call!(cuStreamWaitEvent(after => usize, events[1] => usize, 0 => u32)));
    assert_eq!(call!(cuStreamQuery(after => usize)), NOT_READY);
    drop(gate);
    second.synchronize();
    good(call!(cuEventSynchronize(events[1] => usize)));
    drop(other.stdin.take());
    let said: Vec<String> = lines.collect();
    assert!(other.wait()?.success(), "{said:?}");
    good(call!(cuEventQuery(events[1] => usize)));

    assert_eq!(create_event(4), Err(INVALID_VALUE), "with timing");
    let plain = create_event(2).unwrap_or(0);
    assert_eq!(get_event(plain).0, INVALID_HANDLE, "not for other processes");
    assert_eq!(get_event(77).0, INVALID_HANDLE);
    let (code, own) = get_event(events[0]);
    good(code);
    assert_eq!(open_event(own), (INVALID_CONTEXT, 0), "its own event");
    assert_eq!(open_event(Handle([3; 8])), (INVALID_HANDLE, 0), "no handle");
    assert_eq!(call!(cuIpcGetEventHandle(0 => usize, events[0] => usize)), INVALID_VALUE);
    for event in [events[0], events[1], plain] {
        good(call!(cuEventDestroy_v2(event => usize)));
    }
    Ok(())
}

/// The other process: its kernel faults while a stream waits for an event of the parent's. It still closes memory.
fn fail_while_waiting() -> Result {
    let Some(sim) = simcuda() else { return Err("no simulator".into()) };
    let handles = std::env::var(HANDLE)?.split(';').map(parsed).collect::<Result<Vec<_>>>()?;
    let context = Context::create(0);
    let ((code, event), (_, address)) = (open_event(handles[0]), open(handles[1], 1));
    good(code);
    assert_eq!(open(handles[1], 1), (0, address));
    let stream: usize = given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32)));
    good(call!(cuStreamWaitEvent(stream => usize, event => usize, 0 => u32)));
    assert_eq!(put(NOWHERE), ILLEGAL_ADDRESS);
    assert_eq!(call!(cuStreamSynchronize(stream => usize)), ILLEGAL_ADDRESS);
    assert_eq!(call!(cuEventSynchronize(event => usize)), ILLEGAL_ADDRESS);
    let before = sim.live_objects_of("mapped");
    assert_eq!([close(address), close(address)], [ILLEGAL_ADDRESS; 2]);
    assert_eq!((before, sim.live_objects_of("mapped")), (1, 0));
    assert_eq!(close(address), INVALID_VALUE, "closed");
    context.destroy();
    Ok(())
}

#[test]
fn a_failed_context_waits_for_no_event_and_closes_memory() -> Result {
    if child::role().is_some() {
        return fail_while_waiting();
    }
    simulated!("a fault leaves a real context unusable");
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let event = create_event(SHARED_EVENT).unwrap_or(0);
    let memory = allocate(LEN);
    let gate = stream.hold();
    record(event, stream.raw().expose_provenance());
    let handles = [get_event(event).1, get(memory).1].map(text).join(";");
    let output = child::command("fail")?.env(HANDLE, handles).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(gate);
    stream.synchronize();
    good(call!(cuEventDestroy_v2(event => usize)));
    free(memory);
    Ok(())
}
