//! The control data of a received message: the descriptors in it (cmsg(3), unix(7)). Makes no system call.
#![forbid(unsafe_code)]

use std::os::fd::RawFd;

/// `CMSG_LEN(0)`: the length, the level and the type.
const HEADER: usize = size_of::<usize>() + 2 * INT;
const INT: usize = size_of::<libc::c_int>();
/// `SCM_PIDFD` (linux/socket.h), which sockets with `SO_PASSPIDFD` deliver.
const PIDFD: libc::c_int = 4;

/// A descriptor that the system opened in this process for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Sent by the other process.
    Sent(RawFd),
    /// A pidfd of the other process, which an option of the receiving socket asks for.
    Process(RawFd),
}

/// The descriptors in control data, in order. Data that is cut off ends the list; other kinds of control messages are
/// passed over.
pub(crate) fn descriptors(control: &[u8]) -> Vec<Delivered> {
    let (mut rest, mut found) = (control, Vec::new());
    while let Some((level, kind, data)) = take_one(&mut rest) {
        let deliver = match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => Delivered::Sent,
            (libc::SOL_SOCKET, PIDFD) => Delivered::Process,
            _ => continue,
        };
        let numbers = data.chunks_exact(INT).filter_map(integer);
        // The system delivers no negative numbers, except a pidfd that could not be opened.
        found.extend(numbers.filter(|&fd| fd >= 0).map(deliver));
    }
    found
}

/// Splits the first control message off: its level, type and data.
fn take_one<'a>(rest: &mut &'a [u8]) -> Option<(libc::c_int, libc::c_int, &'a [u8])> {
    let len = usize::from_ne_bytes(*rest.first_chunk()?);
    let message = rest.get(..len)?;
    let data = message.get(HEADER..)?;
    let level = integer(message.get(size_of::<usize>()..)?)?;
    let kind = integer(message.get(size_of::<usize>() + INT..)?)?;
    // `CMSG_ALIGN`. The length is within a slice, so it does not overflow.
    *rest = rest.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Some((level, kind, data))
}

fn integer(bytes: &[u8]) -> Option<libc::c_int> {
    bytes.first_chunk().map(|bytes| libc::c_int::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A control message, padded as the system pads it.
    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    fn rights(fds: &[i32]) -> Vec<u8> {
        let data: Vec<u8> = fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect();
        message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &data)
    }

    #[test]
    fn every_descriptor_of_every_message_is_found() {
        let control = [
            message(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, &[7; 12]),
            rights(&[5, 6, 7]),
            message(libc::SOL_SOCKET, PIDFD, &9_i32.to_ne_bytes()),
            rights(&[8]),
        ]
        .concat();
        let sent = Delivered::Sent;
        assert_eq!(descriptors(&control), [sent(5), sent(6), sent(7), Delivered::Process(9), sent(8)]);
    }

    #[test]
    fn a_length_that_is_too_small_or_too_large_ends_the_list() {
        for len in [0, 1, HEADER - 1, 1000, usize::MAX, usize::MAX - 7] {
            let mut control = rights(&[5]);
            control[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(descriptors(&control), [], "{len}");
        }
    }

    #[test]
    fn numbers_that_are_no_descriptors_are_left_out() {
        assert_eq!(descriptors(&rights(&[-1, 3, i32::MIN])), [Delivered::Sent(3)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(control in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(descriptors(&control).len() <= control.len() / INT);
        }

        #[test]
        fn any_messages_give_their_descriptors(lists in prop::collection::vec(prop::collection::vec(0_i32.., 0..6), 0..5)) {
            let control: Vec<u8> = lists.iter().flat_map(|list| rights(list)).collect();
            let expected: Vec<_> = lists.concat().into_iter().map(Delivered::Sent).collect();
            prop_assert_eq!(descriptors(&control), expected);
        }
    }
}
