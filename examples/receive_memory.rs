//! Receives memory from another process over a Unix socket, such as `python/send_memory.py`, and doubles the numbers in
//! it.
//!
//! ```text
//! cargo run --example receive_memory PATH
//! python examples/python/send_memory.py PATH
//!
//! $ cargo run --example receive_memory /tmp/socket
//! listening at /tmp/socket
//! received 12 bytes of mapped memory
//! they were [1.5, 2.0, -3.0] ...
//! ```
//!
//! PATH is where the socket is made. On failure it prints one line and exits with 1.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;

use vkgdr::{OpenFlags, Vkgdr, ipc};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("receive_memory: give the path of the socket to make");
        return ExitCode::FAILURE;
    };
    match receive(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receive_memory: {error}");
            ExitCode::FAILURE
        }
    }
}

fn receive(path: &str) -> Result<(), Box<dyn Error>> {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let listener =
        UnixListener::bind(path).map_err(|error| format!("{path}: {error}; remove it if no program listens there"))?;
    println!("listening at {path}");
    let (mut socket, _) = listener.accept()?;
    fs::remove_file(path)?;
    let memory = ipc::recv(&socket, &gpu)?;
    println!("received {} bytes of {} memory", memory.len(), memory.kind());

    let mut numbers = vec![0_f32; memory.len() / 4];
    memory.invalidate(..)?;
    memory.read(0, &mut numbers)?;
    println!("they were {:?} ...", numbers.get(..3).unwrap_or(&numbers));
    numbers.iter_mut().for_each(|number| *number *= 2.0);
    memory.write(0, &numbers)?;
    memory.flush(..)?;
    // Tells the sender that the numbers have changed.
    socket.write_all(b"!")?;
    Ok(())
}
