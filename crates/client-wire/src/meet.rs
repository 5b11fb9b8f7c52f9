//! The socket of a mount: where it is, who is at its other end, and which file a handle is of.
//!
//! It is an abstract unix socket, named after the device number that everything in the mount has. Anybody could take the name
//! while no daemon has it, so the client looks whose socket it is.

use std::io::ErrorKind;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::error::Error;
use crate::mounts;

/// A socket that another one has is tried again after so long.
const LISTEN_AGAIN: Duration = Duration::from_millis(20);

/// Major and minor number of a file system.
pub type DeviceNumber = (u32, u32);

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The process that connected; 0 where it is not seen from here.
    pub process: u32,
}

/// What a handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub device: DeviceNumber,
    pub inode: u64,
    /// As in `st_mode`; of permissions only what the kernel has in memory.
    pub mode: u32,
}

/// Further groups that a process can have.
const GROUPS_MAX: usize = 65_536;

fn address((major, minor): DeviceNumber) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("stere/{major}:{minor}"))
}

/// What a handle is of, without asking its file system.
pub fn place_of(handle: impl AsFd) -> std::io::Result<Place> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(handle, "", flags, StatxFlags::INO | StatxFlags::TYPE)?;
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    Ok(Place { device, inode: facts.stx_ino, mode: u32::from(facts.stx_mode) })
}

/// Makes the socket of a mount. The kernel gives a mount's number away again as soon as that is gone, while its daemon may still be ending
/// and have the socket: for so long it is waited for.
pub fn listen(device: DeviceNumber, patience: Duration) -> std::io::Result<UnixListener> {
    let begun = Instant::now();
    loop {
        match UnixListener::bind_addr(&address(device)?) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < patience => sleep(LISTEN_AGAIN),
            outcome => return outcome,
        }
    }
}

/// Connects to the daemon of the mount that a handle is of.
pub fn connect(handle: impl AsFd) -> Result<UnixStream, Error> {
    let device = place_of(handle)?.device;
    let mount = mounts::find_device(device).filter(mounts::Mount::is_stere).ok_or(Error::NotStere)?;
    let stream = UnixStream::connect_addr(&address(device)?);
    let stream = stream.map_err(|_| Error::NoDaemon { pool: mount.source.clone() })?;
    let server = credentials(&stream)?.uid;
    let own = rustix::process::geteuid().as_raw();
    if server != 0 && server != own && Some(server) != mount.owner {
        return Err(Error::Stranger { uid: server });
    }
    Ok(stream)
}

/// Who is at the other end, as the kernel noted it when the connection, or the socket, was made.
pub fn credentials(stream: &UnixStream) -> std::io::Result<Peer> {
    // SAFETY: all zeros is a valid ucred.
    let mut user: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option writes at most `length` bytes to where the pointer leads, which live until the call returns.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut user).cast(),
            &raw mut length,
        )
    };
    if code != 0 || length as usize != size_of::<libc::ucred>() {
        return Err(std::io::Error::last_os_error());
    }
    let mut groups: Vec<u32> = vec![0; GROUPS_MAX];
    let mut length = (GROUPS_MAX * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: as above.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(std::io::Error::last_os_error());
    }
    groups.truncate(length as usize / size_of::<u32>());
    Ok(Peer { uid: user.uid, gid: user.gid, groups, process: u32::try_from(user.pid).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_daemon_that_is_ending_is_waited_for() {
        // No file system has this number.
        let device = (4000, std::process::id());
        let ending = listen(device, Duration::ZERO).expect("nobody has it");
        assert_eq!(listen(device, Duration::ZERO).map_err(|error| error.kind()).err(), Some(ErrorKind::AddrInUse));
        let end = std::thread::spawn(move || {
            sleep(Duration::from_millis(100));
            drop(ending);
        });
        listen(device, Duration::from_secs(20)).expect("it is free after a while");
        end.join().expect("it only sleeps");
    }
}
