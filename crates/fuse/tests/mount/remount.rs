//! What outlives a mount: times of access, and handles that NFS servers keep.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use stere_device::{Device, MemoryDevice};
use stere_fuse::MountOptions;

use crate::calls::{self, errno};
use crate::support::{self, Mounted};
use crate::{MEMORY_BYTES, finish, memory, mount_on, options, transports, watched};

/// Unmounts, opens the pool anew from its device, and mounts that.
fn remount(mounted: Mounted, device: &Arc<MemoryDevice>, options: &MountOptions) -> Mounted {
    finish(mounted);
    let filesystem = Arc::new(support::open_pool(&[Arc::clone(device) as Arc<dyn Device>], MEMORY_BYTES));
    let store = Arc::clone(filesystem.store());
    watched(support::mount((store, filesystem), None, options))
}

#[test]
fn times_of_access_survive() {
    for transport in transports("times_of_access_survive") {
        let (device, options) = (memory(), options(transport));
        let mounted = mount_on(&[Arc::clone(&device)], &options);
        let path = mounted.path.join("file");
        fs::write(&path, "read later").unwrap();
        let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&path).unwrap().set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
        let mounted = remount(mounted, &device, &options);
        let path = mounted.path.join("file");
        assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), old);
        assert_eq!(fs::read(&path).unwrap(), b"read later");
        calls::drop_caches();
        let read = fs::metadata(&path).unwrap();
        assert!(read.accessed().unwrap() > old, "reading moves it");
        let mounted = remount(mounted, &device, &options);
        let found = fs::metadata(mounted.path.join("file")).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), (read.atime(), read.atime_nsec()));
        finish(mounted);
    }
}

#[test]
fn handles_lead_to_their_files() {
    for transport in transports("handles_lead_to_their_files") {
        let (device, options) = (memory(), options(transport));
        let mounted = mount_on(&[Arc::clone(&device)], &options);
        let root = mounted.path.clone();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "by handle").unwrap();
        fs::write(root.join("removed"), "soon").unwrap();
        let file = calls::handle_of(&root.join("a/b/file"));
        let directory = calls::handle_of(&root.join("a/b"));
        let removed = calls::handle_of(&root.join("removed"));
        fs::remove_file(root.join("removed")).unwrap();
        let mounted = remount(mounted, &device, &options);
        let root = File::open(&mounted.path).unwrap();
        let mut text = String::new();
        calls::open_handle(&root, &file, libc::O_RDONLY).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "by handle");
        let found = calls::open_handle(&root, &directory, libc::O_DIRECTORY).unwrap().metadata().unwrap();
        assert_eq!(found.ino(), fs::metadata(mounted.path.join("a/b")).unwrap().ino());
        fs::write(mounted.path.join("another"), "a new inode").unwrap();
        assert_eq!(errno(calls::open_handle(&root, &removed, libc::O_RDONLY)), libc::ESTALE);
        drop(root);
        finish(mounted);
    }
}
