//! Mounts of a file system beside the one that is known: bind mounts, and copies in other mount namespaces. They keep it alive when it is unmounted.
//!
//! All of it comes from `/proc/*/mountinfo`; no file system is asked. What may not be read there is not seen. Read next: `umount.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stere_client_wire::mounts::{Listed, list_of};

/// More are not named.
const NAMED_MAX: usize = 4;

/// Another mount of the file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub mountpoint: PathBuf,
    /// A process that sees it, where it is in another mount namespace.
    pub process: Option<(u32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.mountpoint.display();
        match &self.process {
            None => write!(to, "it is mounted on {place} too"),
            Some((number, name)) => {
                write!(to, "process {number} ({name}) has it on {place} in another mount namespace")
            }
        }
    }
}

/// In words, for an error.
pub fn describe(holders: &[Holder]) -> String {
    let mut texts: Vec<String> = holders.iter().take(NAMED_MAX).map(Holder::to_string).collect();
    if holders.len() > NAMED_MAX {
        texts.push(format!("and {} more", holders.len() - NAMED_MAX));
    }
    texts.join("; ")
}

/// Other mounts of what is mounted here that stay when it is unmounted; those that go with it by propagation are left out.
pub fn of_mountpoint(mountpoint: &Path) -> Vec<Holder> {
    let own = list_of(Path::new("/proc/self/mountinfo"));
    let Some(mount) = own.iter().rfind(|one| one.mount.mountpoint == mountpoint) else { return Vec::new() };
    let group = own.iter().find(|one| one.id == mount.parent).and_then(|parent| parent.shared);
    let goes_too = |one: &Listed, all: &[Listed]| {
        let parent = all.iter().find(|other| other.id == one.parent);
        let receives = parent.is_some_and(|parent| parent.shared == group || parent.master == group);
        group.is_some() && receives && one.root == mount.root
    };
    find(mount.mount.device, Some(mount.id), &goes_too)
}

/// All mounts of the file system with this number.
pub fn of_device(device: (u32, u32)) -> Vec<Holder> {
    find(device, None, &|_, _| false)
}

fn find(device: (u32, u32), except: Option<u64>, goes_too: &dyn Fn(&Listed, &[Listed]) -> bool) -> Vec<Holder> {
    let Ok(own_namespace) = std::fs::read_link("/proc/self/ns/mnt") else { return Vec::new() };
    let mut holders = BTreeSet::new();
    let own = list_of(Path::new("/proc/self/mountinfo"));
    let is_other = |one: &&Listed| one.mount.device == device && Some(one.id) != except;
    for one in own.iter().filter(is_other).filter(|one| !goes_too(one, &own)) {
        holders.insert(Holder { mountpoint: one.mount.mountpoint.clone(), process: None });
    }
    let mut seen = BTreeSet::from([own_namespace]);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for number in numbers {
        let Ok(namespace) = std::fs::read_link(format!("/proc/{number}/ns/mnt")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        let list = list_of(Path::new(&format!("/proc/{number}/mountinfo")));
        let theirs = list.iter().filter(|one| one.mount.device == device).filter(|one| !goes_too(one, &list));
        for one in theirs {
            let name = std::fs::read(format!("/proc/{number}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
            holders.insert(Holder { mountpoint: one.mount.mountpoint.clone(), process: Some((number, name)) });
        }
    }
    holders.into_iter().filter(|holder| !holder.mountpoint.as_os_str().as_bytes().is_empty()).collect()
}
