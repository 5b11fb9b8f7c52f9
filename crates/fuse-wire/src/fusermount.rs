//! Mounting for ordinary users: the setuid helper fusermount3 mounts and hands /dev/fuse back over a socket.

use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::mount::MountOptions;

const HELPER: &str = "fusermount3";
/// Where fusermount3 looks for the socket's descriptor.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Has the helper mount, and gives the open FUSE device.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<File, Error> {
    let (ours, theirs) = UnixStream::pair().map_err(Error::FusermountMissing)?;
    let theirs_fd = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(mountpoint)
        .env(SOCKET_VARIABLE, theirs_fd.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: fcntl is async-signal-safe; the descriptor is open in the child, which is to inherit it.
    unsafe {
        command.pre_exec(move || match libc::fcntl(theirs_fd, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let child = command.spawn().map_err(Error::FusermountMissing)?;
    // Ours must be the only end left when the helper exits, or receiving would wait for ever.
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(Error::FusermountMissing)?;
    match received {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(Error::Fusermount(complaint(&output.stderr))),
        Err(error) => Err(Error::Fusermount(format!("{error} {}", complaint(&output.stderr)))),
    }
}

/// Unmounts through the helper.
pub(crate) fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = complaint(&output.stderr);
    // The helper has one exit code for everything; its words tell these apart.
    if text.contains("busy") {
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    } else if text.contains("not found in") || text.contains("not mounted") || text.contains("Invalid argument") {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    } else {
        Err(io::Error::other(text))
    }
}

fn complaint(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

fn helper_options(options: &MountOptions) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut parts = vec![if options.read_only { "ro" } else { "rw" }.to_owned()];
    parts.push(format!("fsname={}", escaped(&options.source)));
    if !options.subtype.is_empty() {
        parts.push(format!("subtype={}", escaped(&options.subtype)));
    }
    for (set, name) in [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.no_suid, "nosuid"),
        (options.no_dev, "nodev"),
        (options.no_exec, "noexec"),
        (options.no_atime, "noatime"),
    ] {
        if set {
            parts.push(name.to_owned());
        }
    }
    parts.join(",")
}

/// Receives one descriptor; nothing when the other end closed without sending one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<File>> {
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // u64s, so that the control header in it is aligned.
    let mut control = [0_u64; 8];
    // SAFETY: msghdr is plain data; zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let received = loop {
        // SAFETY: the message points to live buffers of the lengths given.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        let error = io::Error::last_os_error();
        if received >= 0 || error.kind() != ErrorKind::Interrupted {
            break if received < 0 { Err(error) } else { Ok(received) };
        }
    }?;
    if received == 0 {
        return Ok(None);
    }
    // SAFETY: recvmsg filled the control buffer and its length; CMSG_FIRSTHDR checks that a header fits.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_level != libc::SOL_SOCKET || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Ok(None);
        }
        let fd = libc::CMSG_DATA(header).cast::<i32>().read_unaligned();
        Ok((fd >= 0).then(|| File::from(OwnedFd::from_raw_fd(fd))))
    }
}
