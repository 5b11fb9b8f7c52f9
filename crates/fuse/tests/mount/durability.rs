//! What is on the device when calls that promise it have returned.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use stere_device::{Device, MemoryDevice};
use stere_naming::{FileSystem, ROOT};

use crate::support::{self, caller};
use crate::{finish, memory, mount_on, options, pattern, transports};

/// The file system as the next mount would find it after the power was cut now.
fn after_power_loss(device: &MemoryDevice) -> FileSystem {
    let copy: Arc<dyn Device> = Arc::new(device.copy_as_flushed());
    support::open_pool(&[copy], 64 << 20)
}

fn content(filesystem: &FileSystem, name: &str) -> Option<Vec<u8>> {
    let found = filesystem.lookup(&caller(), ROOT, name.as_bytes()).ok()?;
    let mut out = vec![0; usize::try_from(found.size).unwrap()];
    let length = filesystem.read(&caller(), found.inode, 0, &mut out).unwrap();
    assert_eq!(length, out.len());
    Some(out)
}

/// Writes `name` in the way that promises durability, and looks whether it is durable.
fn check(what: &str, device: &MemoryDevice, root: &Path, name: &str, save: impl Fn(&Path, &[u8])) {
    let data = pattern(200_000, name.len() as u64);
    save(&root.join(name), &data);
    let found = content(&after_power_loss(device), name);
    assert!(found.as_deref() == Some(&data[..]), "{what}: {:?} bytes are there", found.map(|found| found.len()));
}

/// P-1: on a real mount.
#[test]
fn what_was_synced_survives_a_power_loss() {
    for transport in transports("what_was_synced_survives_a_power_loss") {
        let device = memory();
        let mounted = mount_on(&[Arc::clone(&device)], &options(transport));
        let root = mounted.path.clone();
        let synced_by = |what: &str, sync: &dyn Fn(&File)| {
            check(what, &device, &root, what, |path, data| {
                let file = File::create(path).unwrap();
                file.write_all_at(data, 0).unwrap();
                sync(&file);
            });
        };
        synced_by("fsync", &|file| file.sync_all().unwrap());
        synced_by("fdatasync", &|file| file.sync_data().unwrap());
        // SAFETY: a live descriptor.
        synced_by("syncfs", &|file| assert_eq!(unsafe { libc::syncfs(file.as_raw_fd()) }, 0));
        // SAFETY: takes nothing.
        synced_by("sync", &|_| unsafe { libc::sync() });
        synced_by("fsync-of-the-directory", &|file| {
            file.sync_all().unwrap();
            File::open(&root).unwrap().sync_all().unwrap();
        });
        for (what, flag) in [("o-sync", libc::O_SYNC), ("o-dsync", libc::O_DSYNC)] {
            check(what, &device, &root, what, |path, data| {
                let mut open = OpenOptions::new();
                let file = open.write(true).create_new(true).custom_flags(flag).open(path).unwrap();
                file.write_all_at(data, 0).unwrap();
            });
        }
        // A shared mapping, by msync.
        check("msync", &device, &root, "msync", |path, data| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
            file.set_len(data.len() as u64).unwrap();
            crate::calls::in_child(|| {
                let mut mapping = crate::calls::Mapping::new(&file, data.len());
                mapping.bytes().copy_from_slice(data);
                mapping.sync();
            });
        });
        // Replacing by rename: the old or the new.
        fs::write(root.join("new"), "new content").unwrap();
        File::open(root.join("new")).unwrap().sync_all().unwrap();
        fs::rename(root.join("new"), root.join("fsync")).unwrap();
        File::open(&root).unwrap().sync_all().unwrap();
        assert_eq!(content(&after_power_loss(&device), "fsync").unwrap(), b"new content");
        finish(mounted);
        // Unmounting makes the rest durable.
        assert_eq!(content(&after_power_loss(&device), "o-sync").unwrap(), pattern(200_000, 6));
    }
}

#[test]
fn unmounting_makes_everything_durable_before_it_returns() {
    for transport in transports("unmounting_makes_everything_durable_before_it_returns") {
        let device = memory();
        let mounted = mount_on(&[Arc::clone(&device)], &options(transport));
        let data = pattern(3_000_000, 8);
        fs::write(mounted.path.join("file"), &data).unwrap();
        mounted.detach();
        // The process has not ended yet; whoever called umount(8) may pull the plug now.
        assert!(content(&after_power_loss(&device), "file").unwrap() == data);
        mounted.end();
    }
}

/// With the kernel's write-back cache a file's times come after its data, so for a file that was removed meanwhile too.
#[test]
fn with_write_back_sync_succeeds_after_a_removal() {
    for transport in transports("with_write_back_sync_succeeds_after_a_removal") {
        let options = stere_fuse::MountOptions { writeback_cache: true, ..options(transport) };
        let device = memory();
        let mounted = mount_on(&[Arc::clone(&device)], &options);
        let root = mounted.path.clone();
        let directory = File::open(&root).unwrap();
        let sync = |when: &str| {
            // SAFETY: a live descriptor.
            let outcome = unsafe { libc::syncfs(directory.as_raw_fd()) };
            assert_eq!(outcome, 0, "syncfs {when}: {}", std::io::Error::last_os_error());
        };
        for round in 0..50 {
            let [kept, closed, open] = ["kept", "closed", "open"].map(|name| root.join(format!("{name}{round}")));
            fs::write(&kept, pattern(10_000, round)).unwrap();
            fs::write(&closed, pattern(10_000, round)).unwrap();
            fs::remove_file(&closed).unwrap();
            sync("after the removal of a closed file");
            let file = File::create(&open).unwrap();
            file.write_all_at(&pattern(10_000, round), 0).unwrap();
            fs::remove_file(&open).unwrap();
            sync("after the removal of an open file");
            file.write_all_at(&pattern(10_000, round), 5_000).unwrap();
            sync("after a write to a removed file");
            file.sync_all().unwrap();
            // Not written back yet when it is closed.
            file.write_all_at(b"more", 30_000).unwrap();
            drop(file);
            sync("after closing a removed file");
        }
        assert!(content(&after_power_loss(&device), "kept49").unwrap() == pattern(10_000, 49));
        drop(directory);
        finish(mounted);
    }
}
