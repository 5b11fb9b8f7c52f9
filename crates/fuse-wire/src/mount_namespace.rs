//! Says whether this process's mount namespace lasts as long as the machine runs.
//!
//! A `fuseblk` mount sends DESTROY when its last reference goes, and the sender waits for the answer. Where the
//! process that serves the mount is killed as the last one of its mount namespace (`docker kill`, `PrivateMounts=`,
//! `unshare -m`), it drops that reference itself while it dies, waits for an answer that only it could give, and from
//! then on sync(2) and drop_caches of the whole machine hang until a reboot. The namespace of the machine's first
//! process cannot end before the machine does, so a `fuseblk` mount is safe there and only there.
//! Read next: `mount.rs`.

use std::path::Path;

#[cfg(test)]
mod tests;

/// `enum init_ns_ino` of the kernel's nsfs.h: the PID namespace the machine began with, on every kernel.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// The mount namespace the machine began with, on kernels that number it statically (Linux 6.18 does).
const INITIAL_MOUNT_NAMESPACE: u64 = 0xEFFF_FFF8;

/// Whether the mount namespace of this process is the first process's. What cannot be read counts as no.
pub(crate) fn outlives_us() -> bool {
    let read = |path: &str| std::fs::read_link(Path::new(path)).ok().and_then(|link| number(&link.to_string_lossy()));
    is_initial(read("/proc/self/ns/pid"), read("/proc/self/ns/mnt"), read("/proc/1/ns/mnt"))
}

/// Process 1 of another PID namespace is a container's and ends with it, so its mount namespace proves nothing.
fn is_initial(own_pid: Option<u64>, own_mount: Option<u64>, first_mount: Option<u64>) -> bool {
    let Some(own_mount) = own_mount else {
        return false;
    };
    own_pid == Some(INITIAL_PID_NAMESPACE) && (own_mount == INITIAL_MOUNT_NAMESPACE || first_mount == Some(own_mount))
}

/// The number in `mnt:[4026531832]`.
fn number(link: &str) -> Option<u64> {
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}
