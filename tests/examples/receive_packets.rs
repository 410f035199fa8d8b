//! `receive_packets`: packets of its own, of another process, and wrong arguments.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Result, pattern, skip};

use crate::{assert_failure, assert_success, example, find, lines, run};

#[test]
fn receive_packets_adds_up_the_packets_that_it_sends_itself() -> Result {
    let program = example!("receive_packets");
    let output = run(&program, &["--send", "--packets", "3000", "--threads", "3"])?;
    let text = assert_success(&output, &program);
    assert!(text.iter().any(|line| line.ends_with(" by 3 threads")), "{text:#?}");
    assert!(text.last().is_some_and(|line| line.ends_with(" bytes: the GPU's sums are right")), "{text:#?}");
    Ok(())
}

#[test]
fn receive_packets_adds_up_packets_of_every_length_from_another_process() -> Result {
    let program = example!("receive_packets");
    let mut child = Command::new(&program)
        .args(["--packets", "700", "--threads", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    let line = out.nth(1).transpose()?.ok_or("no address")?;
    let port = line.split([':', ' ']).find_map(|word| word.parse::<u16>().ok()).ok_or(line)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut number = 0;
    // The system may drop some.
    while child.try_wait()?.is_none() {
        socket.send_to(&pattern(number % 2100, 3), ("127.0.0.1", port))?;
        number += 1;
        if number % 32 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(child.wait()?.success());
    let last = out.last().transpose()?.unwrap_or_default();
    assert!(last.ends_with(" bytes: the GPU's sums are right"), "{last}");
    Ok(())
}

#[test]
fn receive_packets_refuses_wrong_arguments_and_a_taken_port_in_one_line() -> Result {
    let program = example!("receive_packets");
    assert_failure(&run(&program, &["--nonsense"])?, &["--nonsense"]);
    assert_failure(&run(&program, &["--packets"])?, &["--packets needs a number"]);
    assert_failure(&run(&program, &["--packets", "many"])?, &["'many' is not a number"]);
    assert_failure(&run(&program, &["--port", "70000"])?, &["receive_packets: "]);
    let taken = UdpSocket::bind("0.0.0.0:0")?;
    let port = taken.local_addr()?.port().to_string();
    let output = run(&program, &["--port", &port])?;
    assert!(!output.status.success());
    assert!(lines(&output.stderr).iter().all(|line| line.contains("in use")), "{:?}", lines(&output.stderr));
    Ok(())
}
