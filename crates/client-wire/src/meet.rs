//! The socket of a mount: where it is, who is at its other end, and which file a handle is of.
//!
//! It lies in a directory that belongs to whoever mounted, named after the device number that everything in the mount has. Nobody else can
//! make a name there; the client looks whose directory it is, and whose socket.

use std::io::ErrorKind;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::mounts;

/// Major and minor number of a file system.
pub type DeviceNumber = (u32, u32);

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The process that connected; 0 where it is not seen from here.
    pub process: u32,
}

/// What a handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub device: DeviceNumber,
    pub inode: u64,
    /// As in `st_mode`; of permissions only what the kernel has in memory.
    pub mode: u32,
}

/// Further groups that a process can have.
const GROUPS_MAX: usize = 65_536;

/// Where root's mounts have their sockets.
const OF_ROOT: &str = "/run/stere/mounts";
/// Set-id bits aside, nobody but the owner may write a directory of sockets.
const OTHERS_WRITE: u32 = 0o022;

/// The directories where the sockets of a user's mounts can be. The first is closed to others where the machine's session manager made it.
fn directories(owner: u32) -> Vec<PathBuf> {
    match owner {
        0 => vec![PathBuf::from(OF_ROOT)],
        owner => vec![PathBuf::from(format!("/run/user/{owner}/stere")), PathBuf::from(format!("/tmp/stere-{owner}"))],
    }
}

fn name_of((major, minor): DeviceNumber) -> String {
    format!("{major}:{minor}")
}

/// Whether a directory is one that only its owner can change, and no symbolic link.
fn is_directory_of(path: &Path, owner: u32) -> bool {
    let facts = std::fs::symlink_metadata(path);
    facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == owner && facts.mode() & OTHERS_WRITE == 0)
}

fn make_directory(path: &Path, owner: u32) -> std::io::Result<()> {
    if owner == 0
        && let Some(parent) = path.parent()
    {
        make_plain_directory(parent)?;
    }
    make_plain_directory(path)?;
    match is_directory_of(path, owner) {
        true => Ok(()),
        false => Err(std::io::Error::new(
            ErrorKind::PermissionDenied,
            format!("{} belongs to somebody else, or others may write to it", path.display()),
        )),
    }
}

fn make_plain_directory(path: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// What a handle is of, without asking its file system.
pub fn place_of(handle: impl AsFd) -> std::io::Result<Place> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(handle, "", flags, StatxFlags::INO | StatxFlags::TYPE)?;
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    Ok(Place { device, inode: facts.stx_ino, mode: u32::from(facts.stx_mode) })
}

/// The socket of a mount, taken away when this goes.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Device and inode: a mount that got the number of this one has a socket of its own under the same name.
    identity: (u64, u64),
}

impl Drop for Socket {
    fn drop(&mut self) {
        let facts = std::fs::symlink_metadata(&self.path);
        if facts.is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Makes the socket of a mount of ours. The kernel gives a number to one mount at a time, so what is there under its name is of a mount that is gone.
pub fn listen(device: DeviceNumber, is_private: bool) -> std::io::Result<(UnixListener, Socket)> {
    let owner = rustix::process::geteuid().as_raw();
    let mut directories = directories(owner);
    if owner != 0 && !is_private {
        // Others have to get there.
        directories.drain(..1);
    }
    let mut outcome = Err(std::io::Error::from(ErrorKind::NotFound));
    for directory in directories {
        outcome = make_directory(&directory, owner).and_then(|()| bind(&directory.join(name_of(device))));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn bind(path: &Path) -> std::io::Result<(UnixListener, Socket)> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    let facts = std::fs::symlink_metadata(path)?;
    Ok((listener, Socket { path: path.to_owned(), identity: (facts.dev(), facts.ino()) }))
}

/// Connects to the daemon of the mount that a handle is of.
pub fn connect(handle: impl AsFd) -> Result<UnixStream, Error> {
    let device = place_of(handle)?.device;
    let mount = mounts::find_device(device).filter(mounts::Mount::is_stere).ok_or(Error::NotStere)?;
    let owner = mount.owner.unwrap_or(0);
    let is_owners = |directory: &PathBuf| is_directory_of(directory, owner);
    let sockets = directories(owner).into_iter().filter(is_owners).map(|directory| directory.join(name_of(device)));
    let stream = sockets.filter_map(|path| UnixStream::connect(path).ok()).next();
    let stream = stream.ok_or_else(|| Error::NoDaemon { pool: mount.source.clone() })?;
    let server = credentials(&stream)?.uid;
    let own = rustix::process::geteuid().as_raw();
    if server != 0 && server != own && server != owner {
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
    fn a_socket_is_replaced_by_the_next_mount_of_its_number_and_not_taken_away_by_the_one_before() {
        let folder = std::env::temp_dir().join(format!("stere-meet-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of ours");
        let path = folder.join("4000:1");
        let (_ending, old) = bind(&path).expect("nobody has it");
        let (_listener, new) = bind(&path).expect("what is there is of a mount that is gone");
        drop(old);
        UnixStream::connect(&path).expect("the new one is there");
        drop(new);
        assert!(!path.exists());
        std::fs::remove_dir(&folder).expect("nothing is left");
    }

    #[test]
    fn a_directory_that_others_can_change_is_no_place_for_sockets() {
        let folder = std::env::temp_dir().join(format!("stere-place-{}", std::process::id()));
        let owner = rustix::process::geteuid().as_raw();
        make_directory(&folder, owner).expect("it is made");
        assert!(is_directory_of(&folder, owner) && !is_directory_of(&folder, owner + 1));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
        assert!(make_directory(&folder, owner).is_err(), "anybody could put a socket there");
        let link = folder.with_extension("link");
        std::os::unix::fs::symlink("/run", &link).expect("a link is made");
        assert!(!is_directory_of(&link, owner));
        std::fs::remove_file(&link).expect("it is ours");
        std::fs::remove_dir(&folder).expect("nothing is left");
    }
}
