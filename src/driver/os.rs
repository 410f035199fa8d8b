//! The operating system: file descriptors, memory files, mapped pages, the amount of memory, and Unix sockets. A socket
//! carries messages with descriptors beside their bytes, and tells the user at the other end (unix(7)).
//!
//! A memory file is an anonymous file for `Host` memory that is not Vulkan's, recognised by its name and seals.
#![expect(unsafe_code, reason = "maps pages, and asks about descriptors that may be closed and sockets' options")]

use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Instant;

use rustix::cmsg_space;
use rustix::fs::{
    FileType as Kind, MemfdFlags, OFlags, SealFlags, Stat, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat,
    fstatfs, ftruncate, major, memfd_create,
};
use rustix::io::{Errno, FdFlags, IoSlice, IoSliceMut, fcntl_setfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt::{Timeout, socket_domain, socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    recvmsg, sendmsg,
};
pub(crate) use rustix::net::{RecvFlags, SendFlags};
pub(crate) use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::system::sysinfo;

use super::{Handle, fork};
use crate::{Error, Result};

/// Converts an error of the system's function.
fn system<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::System {
        operation,
        code: error.into().raw_os_error().expect("an error of the system has a code"),
    }
}

/// Takes a descriptor that a driver made, and marks it close-on-exec, which no driver promises.
///
/// # Safety
///
/// The descriptor must be open and have no other owner.
pub(super) unsafe fn take(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: by this function's contract.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(system("fcntl"))?;
    Ok(fd)
}

/// A descriptor of the same file, close-on-exec.
///
/// # Errors
///
/// That of `dup`.
pub fn duplicate(fd: impl AsFd) -> Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned().map_err(system("dup"))
}

/// As many descriptors as an allocation may need at once.
pub(crate) const DESCRIPTORS_OF_ALLOCATION: usize = 8;

/// Whether the process or the system has fewer descriptors left than `needed`.
pub(crate) fn descriptors_are_short(needed: usize) -> bool {
    let opened: io::Result<Vec<_>> = (0..needed).map(|_| File::open("/dev/null")).collect();
    opened.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))
}

/// A duplicate of a descriptor, which a driver owns on success. On failure some drivers leave it open, as Vulkan
/// specifies; others close it (Mesa's lavapipe), so that its number may already belong to another file. All descriptors of
/// NVIDIA's driver are of one device, and look like the same file: that it closes none is relied on.
pub(super) struct DriverFd<'a> {
    copy: RawFd,
    original: BorrowedFd<'a>,
}

impl<'a> DriverFd<'a> {
    pub(super) fn new(original: BorrowedFd<'a>) -> Result<Self> {
        Ok(Self { copy: duplicate(original)?.into_raw_fd(), original })
    }

    /// The number to pass to the driver.
    pub(super) const fn raw(&self) -> RawFd {
        self.copy
    }

    /// Closes the duplicate after a failure, unless the driver did.
    pub(super) fn take_back(self) {
        let file = identity(self.copy);
        if file.is_some() && file == identity(self.original.as_raw_fd()) {
            // SAFETY: the number is open and refers to the same file, so it is still the duplicate, without another
            // owner.
            drop(unsafe { OwnedFd::from_raw_fd(self.copy) });
        }
    }
}

/// The identity of a file; `None` for a number that is not open.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the call borrows the number for itself alone, and refuses one that is not open.
    let Stat { st_dev, st_ino, .. } = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((st_dev, st_ino))
}

/// The kind of file behind a descriptor, as far as that shows whether it can be memory.
pub(crate) enum FileType {
    /// A regular file, such as a memory file, with its size in bytes.
    Regular(u64),
    /// A dma-buf, or a device such as NVIDIA's `/dev/nvidiactl`, whose exported memory is such a descriptor.
    Memory,
    /// Any other, such as a pipe or an eventfd, of which a driver makes no memory: one that reads it may wait for ever.
    NoMemory,
}

pub(crate) fn file_type(fd: impl AsFd) -> Result<FileType> {
    /// `DMA_BUF_MAGIC` (linux/magic.h), from Linux 5.3 on.
    const DMA_BUF: u64 = 0x444d_4142;
    /// The major number of `/dev/nvidia*` (`NV_MAJOR_DEVICE_NUMBER` in NVIDIA's nv.h), and those that Linux gives to drivers
    /// as they load (Documentation/admin-guide/devices.txt). The latter are for an NVIDIA driver that exports memory by
    /// another device.
    const DRIVERS: [RangeInclusive<u32>; 3] = [195..=195, 234..=254, 384..=511];
    let stat = fstat(&fd).map_err(system("fstat"))?;
    Ok(match Kind::from_raw_mode(stat.st_mode) {
        Kind::RegularFile => FileType::Regular(u64::try_from(stat.st_size).expect("a file's size is not negative")),
        Kind::CharacterDevice if DRIVERS.iter().any(|range| range.contains(&major(stat.st_rdev))) => FileType::Memory,
        // An anonymous inode has no type, that of a dma-buf a file system of its own.
        Kind::Unknown if fstatfs(&fd).is_ok_and(|system| system.f_type as u64 == DMA_BUF) => FileType::Memory,
        _ => FileType::NoMemory,
    })
}

/// The name of memory files, which `/proc/self/fd` shows behind `/memfd:`.
const NAME: &str = "vkgdr-host";
/// The size never changes, so that a mapping always has its pages, in every process that received the file; nor do the
/// seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A new memory file of `len` bytes, close-on-exec, sealed, and never executable where the kernel knows that (Linux 6.3):
/// with `vm.memfd_noexec=2` it refuses others (memfd_create(2)).
pub(crate) fn memory_file(len: usize) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        other => other,
    }
    .map_err(system("memfd_create"))?;
    // Not the number of a standard stream, where the program has closed that: what is printed would be written to the memory.
    let file = if file.as_raw_fd() > libc::STDERR_FILENO { file } else { duplicate(&file)? };
    // The system would end the process by a signal (SIGXFSZ).
    if getrlimit(Resource::Fsize).current.is_some_and(|most| len as u64 > most) {
        return Err(Error::System { operation: "ftruncate", code: libc::EFBIG });
    }
    ftruncate(&file, len as u64).map_err(system("ftruncate"))?;
    fcntl_add_seals(&file, SEALS).map_err(system("fcntl"))?;
    Ok(file)
}

/// Whether a descriptor is of a [`memory_file`], of this or another process, that can be mapped to read and write.
pub(crate) fn is_memory_file(file: BorrowedFd<'_>) -> bool {
    // Files that cannot be sealed are an error.
    let read_only = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
    let has_seals = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS) && !seals.intersects(read_only));
    if !has_seals || fcntl_getfl(file).is_ok_and(|flags| !flags.contains(OFlags::RDWR)) {
        return false;
    }
    // Without /proc the seals decide.
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_or(true, |path| path.to_string_lossy().strip_prefix("/memfd:").is_some_and(|name| name.starts_with(NAME)))
}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Whole pages, mapped to read and write until this value is dropped. A forked child leaves them: it may have mapped
/// others there.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: Handle<*mut c_void>,
    len: usize,
}

impl Mapping {
    /// The first `len` bytes of a file, which may be closed afterwards. Forked children inherit the mapping: shared pages
    /// are never copied on write, so that both processes and the device continue to use the same frames.
    pub(crate) fn shared(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { mmap(ptr::null_mut(), len, ACCESS, MapFlags::SHARED, file, 0) };
        // The limit of locked memory, where the process locks all (mmap(2)). Of a socket the code means that it is empty.
        let start = start.map_err(|code| if code == Errno::AGAIN { Errno::NOMEM } else { code });
        Ok(Self { start: Handle(start.map_err(system("mmap"))?), len })
    }

    /// The first byte. Valid while this value lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        NonNull::new(self.start.0.cast()).expect("the pages are mapped")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !fork::is_forked() {
            // SAFETY: mapped when this value was created, which is their only owner.
            let unmapped = unsafe { munmap(self.start.0, self.len) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// All of the system's memory, in bytes.
pub(crate) fn total_memory() -> u64 {
    let info = sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

/// An estimate of the memory that programs can still take without swapping, in bytes: `MemAvailable` of
/// `/proc/meminfo`, or the free pages where that cannot be read.
#[must_use]
pub fn available_memory() -> u64 {
    let from_proc = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    });
    from_proc.unwrap_or_else(|| {
        let info = sysinfo();
        info.freeram * u64::from(info.mem_unit)
    })
}

/// The descriptors that can be received with a message; the system closes those that do not fit.
const DESCRIPTORS: usize = 200;
const GETSOCKOPT: &str = "getsockopt";
/// `SO_PASSPIDFD` (asm-generic/socket.h), from Linux 6.5 on.
const PASS_PIDFD: libc::c_int = 76;

/// The result of one receive call.
#[derive(Debug)]
pub(crate) struct Received {
    /// 0 at the end of the connection.
    pub(crate) len: usize,
    /// Whether the message was longer than the buffer.
    pub(crate) cut: bool,
    /// Close-on-exec.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether the system closed descriptors, for want of room in the control data or in the process's table.
    pub(crate) lost: bool,
}

/// Fails unless it is a Unix socket. `SO_PASSPIDFD` is refused: its messages carry one more descriptor, which would leak.
/// A socket of another family would drop descriptors silently.
pub(crate) fn check_family(socket: BorrowedFd<'_>) -> Result<()> {
    let refused = |code| Err(Error::System { operation: GETSOCKOPT, code });
    if socket_domain(socket).map_err(system(GETSOCKOPT))? != AddressFamily::UNIX {
        return refused(libc::EAFNOSUPPORT);
    }
    // SAFETY: every bit pattern is an integer. Older kernels do not know the option.
    if unsafe { option(socket, PASS_PIDFD, 0) }.is_ok_and(|is_set: libc::c_int| is_set != 0) {
        return refused(libc::EOPNOTSUPP);
    }
    Ok(())
}

/// The user of the process that connected the other end, or listened there; `ENOTCONN` where there is none.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> Result<u32> {
    // Not rustix's function, whose type for a process cannot be 0, as it is where there is no peer, or one in another
    // namespace.
    let none = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // SAFETY: a structure of integers.
    let peer = unsafe { option(socket, libc::SO_PEERCRED, none) }?;
    // The kernel's value for no peer (init_peercred in net/unix/af_unix.c was not called).
    if peer.uid == libc::uid_t::MAX {
        return Err(Error::System { operation: GETSOCKOPT, code: libc::ENOTCONN });
    }
    Ok(peer.uid)
}

/// This process's effective user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this may be the number under which the kernel shows all users that this process's user namespace lacks
/// (user_namespaces(7)).
pub(crate) fn may_be_unmapped(user: u32) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    // A namespace with all users, as the initial one, has this line.
    let has_all = || read("self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    read("sys/kernel/overflowuid").trim().parse().unwrap_or(65534) == user && !has_all()
}

/// Sends bytes and a descriptor. Returns the number of bytes that were sent.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
    flags: SendFlags,
) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let descriptors = [descriptor];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one descriptor");
    let mut call = || sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL);
    despite_signals(socket, Timeout::Send, &mut call).map_err(system("sendmsg"))
}

/// Calls again after a signal, for no longer than the socket's timeout, which each call has anew.
fn despite_signals<T>(
    socket: BorrowedFd<'_>,
    timeout: Timeout,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let start = Instant::now();
    loop {
        match call() {
            Err(Errno::INTR) if socket_timeout(socket, timeout)?.is_some_and(|most| start.elapsed() >= most) => {
                return Err(Errno::AGAIN);
            }
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Receives bytes and descriptors. Returns `EAGAIN` as the socket does: at once if it is non-blocking, and after its
/// timeout.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> Result<Received> {
    // Credentials come beside them where the socket asks for those (SO_PASSCRED).
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut call = || recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags | RecvFlags::CMSG_CLOEXEC);
    let message = despite_signals(socket, Timeout::Recv, &mut call).map_err(system("recvmsg"))?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    let has = |flag| message.flags.contains(flag);
    Ok(Received { len: message.bytes, cut: has(ReturnFlags::TRUNC), descriptors, lost: has(ReturnFlags::CTRUNC) })
}

/// An option of the socket; the bytes that the system does not write are those of `value`.
///
/// # Safety
///
/// Every bit pattern must be a value of the type.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> Result<T> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    let target = (&raw mut value).cast();
    // SAFETY: `value` has `len` bytes, which the system may write, and any bytes are a value.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, target, &raw mut len) } {
        0 => Ok(value),
        _ => Err(system(GETSOCKOPT)(io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    #[test]
    fn after_a_failure_a_copy_is_closed_unless_the_driver_did() -> Result {
        let original: OwnedFd = File::open("/dev/null")?.into();
        let lent = DriverFd::new(original.as_fd())?;
        let copy = lent.raw();
        lent.take_back();
        assert_eq!(identity(copy), None);
        // The driver closed it, and another file has the number: closed and reused in one step.
        let (lent, other) = (DriverFd::new(original.as_fd())?, File::open("/dev/zero")?);
        // SAFETY: the number is open, and belongs to this test: `take_back` leaves it.
        let mut reused = unsafe { OwnedFd::from_raw_fd(lent.raw()) };
        rustix::io::dup2(&other, &mut reused)?;
        lent.take_back();
        assert_eq!(identity(reused.as_raw_fd()), identity(other.as_raw_fd()));
        Ok(())
    }

    #[test]
    fn a_memory_file_keeps_its_size_and_cannot_be_executed() -> Result {
        let file = memory_file(8192)?;
        assert!(is_memory_file(file.as_fd()));
        assert!(matches!(file_type(&file)?, FileType::Regular(8192)));
        assert_eq!(rustix::io::fcntl_getfd(&file)?, FdFlags::CLOEXEC);
        let file = File::from(file);
        for len in [4096, 16384] {
            assert_eq!(file.set_len(len).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)), "{len}");
        }
        // The seal against execution (`F_SEAL_EXEC`, linux/fcntl.h) clears the permission; kernels before 6.3 have neither.
        let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata()?);
        let sealed = fcntl_get_seals(&file)?.contains(SealFlags::from_bits_retain(0x20));
        assert_eq!(sealed, mode & 0o111 == 0, "mode {mode:o}");
        Ok(())
    }

    #[test]
    fn other_files_are_no_memory_files() -> Result {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for (name, seals) in [(NAME, SealFlags::SHRINK), (NAME, SEALS | SealFlags::WRITE), ("other", SEALS)] {
            let file = memfd_create(name, flags)?;
            fcntl_add_seals(&file, seals)?;
            assert!(!is_memory_file(file.as_fd()), "{name:?}");
        }
        assert!(!is_memory_file(File::open("/dev/zero")?.as_fd()));
        let file = memory_file(4096)?;
        let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        assert!(!is_memory_file(read_only.as_fd()));
        Ok(())
    }

    #[test]
    fn a_descriptor_is_closed_in_other_programs_from_its_arrival_on() -> Result {
        let (ours, theirs) = UnixStream::pair()?;
        let file = File::open("/dev/null")?;
        assert_eq!(send(ours.as_fd(), b"bytes", file.as_fd(), SendFlags::empty())?, 5);
        let mut bytes = [0; 8];
        let received = receive(theirs.as_fd(), &mut bytes, RecvFlags::empty())?;
        assert_eq!((received.len, received.cut, received.lost, &bytes[..5]), (5, false, false, b"bytes".as_slice()));
        let [fd] = received.descriptors.as_slice() else { return Err("not one descriptor".into()) };
        assert_eq!(rustix::io::fcntl_getfd(fd)?, FdFlags::CLOEXEC);
        Ok(())
    }
}
