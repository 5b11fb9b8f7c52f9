//! Whether another machine, or another way on this one, may lead to a device, by what the kernel tells of it.
//!
//! A disk on this machine's own SATA, USB, SD or PCIe port is nobody else's, and a file of a local file system is guarded by
//! its lock. Everything else (network block devices, SAN, virtual disks, loop devices, files of network file systems) may be reached
//! otherwise. When in doubt a device counts as shared: it costs a write a second, and a watch after a machine was lost.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Whether the device behind this path may be reached by others.
pub fn may_be_shared(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return true };
    if !metadata.file_type().is_block_device() {
        return !is_on_local_file_system(path);
    }
    let number = metadata.rdev();
    let entry = format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number));
    fs::canonicalize(entry).map_or(true, |entry| is_shared_block(&entry))
}

fn is_on_local_file_system(path: &Path) -> bool {
    // From linux/magic.h, and of ZFS.
    const LOCAL: [i64; 14] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683e, // btrfs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x794c_7630, // overlayfs
        0x2fc1_2fc1, // zfs
        0xf2f5_2010, // f2fs
        0xca45_1a4e, // bcachefs
        0x2011_bab0, // exfat
        0x4d44,      // msdos, vfat
        0x7366_746e, // ntfs3
        0x3153_464a, // jfs
        0x5265_4973, // reiserfs
    ];
    rustix::fs::statfs(path).is_ok_and(|facts| LOCAL.contains(&facts.f_type))
}

/// `entry` is the device's directory in sysfs, without links.
fn is_shared_block(entry: &Path) -> bool {
    // A mapped or joined device is as private as what it lies on.
    let lies_on: Vec<PathBuf> = fs::read_dir(entry.join("slaves"))
        .map(|entries| entries.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect())
        .unwrap_or_default();
    if !lies_on.is_empty() {
        return lies_on.iter().any(|entry| is_shared_block(entry));
    }
    !is_private_port(entry)
}

fn is_private_port(entry: &Path) -> bool {
    let parts: Vec<&str> = entry.iter().filter_map(|part| part.to_str()).collect();
    let is_numbered = |part: &str, prefix: &str| {
        part.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if parts.iter().any(|part| is_numbered(part, "ata") || is_numbered(part, "usb") || *part == "mmc_host") {
        return true;
    }
    // Beside `nvme/nvme0/nvme0n1` lies how the controller is reached.
    let controller = entry.ancestors().find(|one| one.join("transport").is_file());
    controller
        .and_then(|one| fs::read_to_string(one.join("transport")).ok())
        .is_some_and(|transport| transport.trim() == "pcie")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(below: &Path, path: &str) -> PathBuf {
        let path = below.join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// P-157
    #[test]
    fn only_what_hangs_on_a_private_port_is_private() {
        let below = tempfile::tempdir().unwrap();
        let sys = below.path();
        let disk = directory(sys, "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda");
        let partition = directory(&disk, "sda1");
        let stick = directory(sys, "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/block/sdb");
        let card = directory(sys, "platform/mmc_host/mmc0/mmc0:0001/block/mmcblk0");
        let fast = directory(sys, "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1");
        fs::write(sys.join("pci0000:00/0000:01:00.0/nvme/nvme0/transport"), "pcie\n").unwrap();
        let remote = directory(sys, "virtual/nvme-fabrics/ctl/nvme1/nvme1n1");
        fs::write(sys.join("virtual/nvme-fabrics/ctl/nvme1/transport"), "tcp\n").unwrap();
        let virtual_disk = directory(sys, "pci0000:00/0000:00:05.0/virtio2/block/vda");
        let storage_network = directory(sys, "platform/host3/session1/target3:0:0/3:0:0:1/block/sdc");
        let looped = directory(sys, "virtual/block/loop0");
        for private in [&disk, &partition, &stick, &card, &fast] {
            assert!(!is_shared_block(private), "{}", private.display());
        }
        for shared in [&remote, &virtual_disk, &storage_network, &looped] {
            assert!(is_shared_block(shared), "{}", shared.display());
        }
        let mapped = directory(sys, "virtual/block/dm-0");
        directory(&mapped, "slaves");
        std::os::unix::fs::symlink(&disk, mapped.join("slaves/sda")).unwrap();
        assert!(!is_shared_block(&mapped));
        std::os::unix::fs::symlink(&virtual_disk, mapped.join("slaves/vda")).unwrap();
        assert!(is_shared_block(&mapped), "a part of it is shared");
    }
}
