//! What belongs to inodes: modes, owners, times, extended attributes, ACLs; and the mount's own properties.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use stere_fuse::MountOptions;

use crate::calls::{self, as_user, errno};
use crate::{finish, memory, mount_on, on_both, options, pattern, transports};

const USER: u32 = 12_345;
const OTHER: u32 = 23_456;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[test]
fn modes_and_owners_are_kept_and_enforced() {
    on_both("modes_and_owners_are_kept_and_enforced", |_, root| {
        set_mode(root, 0o777).unwrap();
        let path = root.join("mine");
        as_user(USER, USER, || fs::write(&path, "private").unwrap());
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (USER, USER));
        set_mode(&path, 0o600).unwrap();
        as_user(OTHER, OTHER, || {
            assert_eq!(errno(fs::read(&path)), libc::EACCES);
            assert_eq!(errno(set_mode(&path, 0o666)), libc::EPERM);
            assert_eq!(errno(chown(&path, Some(OTHER), None)), libc::EPERM);
        });
        as_user(USER, USER, || assert_eq!(fs::read(&path).unwrap(), b"private"));
        // Whoever writes without privilege loses the set-id bits; so does a change of owner.
        set_mode(&path, 0o6777).unwrap();
        assert_eq!(mode(&path), 0o6777);
        as_user(OTHER, OTHER, || OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"P", 0).unwrap());
        assert_eq!(mode(&path), 0o777);
        set_mode(&path, 0o6777).unwrap();
        as_user(USER, USER, || chown(&path, None, Some(USER)).unwrap());
        assert_eq!(mode(&path), 0o777);
        // Set-group-id directories hand their group on.
        let shared = root.join("shared");
        fs::create_dir(&shared).unwrap();
        chown(&shared, None, Some(OTHER)).unwrap();
        set_mode(&shared, 0o2777).unwrap();
        as_user(USER, USER, || fs::create_dir(shared.join("inner")).unwrap());
        let inner = fs::metadata(shared.join("inner")).unwrap();
        assert_eq!((inner.uid(), inner.gid(), inner.mode() & 0o2000), (USER, OTHER, 0o2000));
        // Sticky directories keep others' names.
        set_mode(root, 0o1777).unwrap();
        as_user(OTHER, OTHER, || assert_eq!(errno(fs::remove_file(&path)), libc::EPERM));
        as_user(USER, USER, || fs::remove_file(&path).unwrap());
    });
}

#[test]
fn who_gives_up_times_of_birth_is_asked_less() {
    const FILES: u64 = 100;
    for transport in transports("who_gives_up_times_of_birth_is_asked_less") {
        let requests = |no_birth_times| {
            let mounted = mount_on(&[memory()], &MountOptions { no_birth_times, ..options(transport) });
            let paths: Vec<_> = (0..FILES).map(|number| mounted.path.join(format!("file {number}"))).collect();
            paths.iter().for_each(|path| fs::write(path, "x").unwrap());
            // The kernel gives up at the first answer.
            assert_eq!(fs::metadata(&mounted.path).unwrap().created().is_err(), no_birth_times);
            calls::drop_caches();
            let before = mounted.session.requests_served();
            for path in &paths {
                let metadata = fs::metadata(path).unwrap();
                assert_eq!((metadata.len(), metadata.created().is_err()), (1, no_birth_times));
            }
            let asked = mounted.session.requests_served() - before;
            finish(mounted);
            asked
        };
        let (with, without) = (requests(false), requests(true));
        assert!(with >= 2 * FILES && without < with - FILES / 2, "{with} with, {without} without");
    }
}

#[test]
fn times_have_nanoseconds_and_change_when_they_should() {
    on_both("times_have_nanoseconds_and_change_when_they_should", |_, root| {
        let path = root.join("file");
        fs::write(&path, "x").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let time = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time - Duration::from_nanos(1))).unwrap();
        calls::drop_caches();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (1_234_567_890, 123_456_789));
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_234_567_890, 123_456_788));
        assert!(metadata.created().unwrap() > time, "the time of birth is known");
        // Before 1970, and after 2038.
        for time in [UNIX_EPOCH - Duration::new(86_400, 5), UNIX_EPOCH + Duration::from_secs(1 << 33)] {
            file.set_modified(time).unwrap();
            calls::drop_caches();
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
        }
        let before = fs::metadata(&path).unwrap();
        file.write_all_at(b"y", 0).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!(after.modified().unwrap() > before.created().unwrap());
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        set_mode(&path, 0o600).unwrap();
        let changed = fs::metadata(&path).unwrap();
        assert_eq!(changed.modified().unwrap(), after.modified().unwrap());
        assert!((changed.ctime(), changed.ctime_nsec()) > (after.ctime(), after.ctime_nsec()));
        // Reading moves the time of access when it is older than the last change.
        calls::drop_caches();
        fs::read(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().accessed().unwrap() > time);
        // A new name moves its directory's times.
        let directory = fs::metadata(root).unwrap();
        fs::write(root.join("another"), "").unwrap();
        assert!(fs::metadata(root).unwrap().modified().unwrap() > directory.modified().unwrap());
    });
}

#[test]
fn extended_attributes() {
    on_both("extended_attributes", |_, root| {
        let path = root.join("file");
        fs::write(&path, "x").unwrap();
        let get = |name: &str| calls::attribute(&path, name, 65_536);
        let set = |name: &str, value: &[u8], flags: i32| calls::set_attribute(&path, name, value, flags);
        assert_eq!(errno(get("user.none")), libc::ENODATA);
        set("user.one", b"1", 0).unwrap();
        set("user.empty", b"", libc::XATTR_CREATE).unwrap();
        set("trusted.secret", b"T", 0).unwrap();
        set("security.label", b"S", 0).unwrap();
        assert_eq!(errno(set("user.one", b"2", libc::XATTR_CREATE)), libc::EEXIST);
        assert_eq!(errno(set("user.two", b"2", libc::XATTR_REPLACE)), libc::ENODATA);
        let large = pattern(60_000, 1);
        set("user.large", &large, 0).unwrap();
        calls::drop_caches();
        assert_eq!(get("user.one").unwrap(), b"1");
        assert_eq!(get("user.empty").unwrap(), b"");
        assert_eq!(get("user.large").unwrap(), large);
        assert_eq!(calls::attribute(&path, "user.large", 0).unwrap().len(), 60_000);
        assert_eq!(errno(calls::attribute(&path, "user.large", 100)), libc::ERANGE);
        let all = ["security.label", "trusted.secret", "user.empty", "user.large", "user.one"];
        assert_eq!(calls::attributes(&path).unwrap(), all);
        as_user(USER, USER, || {
            assert!(!calls::attributes(&path).unwrap().contains(&"trusted.secret".to_owned()));
            assert_eq!(errno(get("trusted.secret")), libc::ENODATA);
        });
        assert_eq!(errno(set("unknown.space", b"", 0)), libc::EOPNOTSUPP);
        calls::remove_attribute(&path, "user.one").unwrap();
        assert_eq!(errno(get("user.one")), libc::ENODATA);
        assert_eq!(errno(calls::remove_attribute(&path, "user.one")), libc::ENODATA);
        set("user.stere.copies", b"2", 0).unwrap();
        assert_eq!(get("user.stere.copies").unwrap(), b"2");
    });
}

/// An ACL as its attribute has it: version 2, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER_TAG: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 0x10;
const OTHER_TAG: u16 = 0x20;

#[test]
fn access_control_lists_are_enforced_and_inherited() {
    on_both("access_control_lists_are_enforced_and_inherited", |_, root| {
        set_mode(root, 0o755).unwrap();
        let path = root.join("file");
        fs::write(&path, "for one more user").unwrap();
        set_mode(&path, 0o600).unwrap();
        let list = |named: u16, mask: u16| {
            acl(&[
                (USER_OBJ, 6, NOBODY),
                (USER_TAG, named, USER),
                (GROUP_OBJ, 0, NOBODY),
                (MASK, mask, NOBODY),
                (OTHER_TAG, 0, NOBODY),
            ])
        };
        as_user(USER, USER, || assert_eq!(errno(fs::read(&path)), libc::EACCES));
        calls::set_attribute(&path, "system.posix_acl_access", &list(4, 4), 0).unwrap();
        assert_eq!(mode(&path), 0o640, "the mask shows as the group's permissions");
        as_user(USER, USER, || {
            assert_eq!(fs::read(&path).unwrap(), b"for one more user");
            assert_eq!(errno(OpenOptions::new().write(true).open(&path)), libc::EACCES);
        });
        as_user(OTHER, OTHER, || assert_eq!(errno(fs::read(&path)), libc::EACCES));
        // chmod changes the mask.
        set_mode(&path, 0o600).unwrap();
        as_user(USER, USER, || assert_eq!(errno(fs::read(&path)), libc::EACCES));
        calls::drop_caches();
        assert_eq!(calls::attribute(&path, "system.posix_acl_access", 1000).unwrap(), list(4, 0));
        // A default ACL is handed on, and takes the umask's place.
        let directory = root.join("directory");
        fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o777).unwrap();
        let default = acl(&[
            (USER_OBJ, 7, NOBODY),
            (USER_TAG, 6, USER),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 7, NOBODY),
            (OTHER_TAG, 0, NOBODY),
        ]);
        calls::set_attribute(&directory, "system.posix_acl_default", &default, 0).unwrap();
        fs::write(directory.join("inherits"), "y").unwrap();
        fs::create_dir(directory.join("below")).unwrap();
        assert_eq!(mode(&directory.join("inherits")), 0o660);
        as_user(USER, USER, || OpenOptions::new().write(true).open(directory.join("inherits")).map(drop).unwrap());
        as_user(OTHER, OTHER, || assert_eq!(errno(fs::read(directory.join("inherits"))), libc::EACCES));
        let below = calls::attribute(&directory.join("below"), "system.posix_acl_default", 1000);
        assert_eq!(below.unwrap(), default);
        calls::remove_attribute(&directory, "system.posix_acl_default").unwrap();
        // Without one, the umask counts (that of this process, which tests do not change).
        fs::write(directory.join("plain"), "z").unwrap();
        assert_eq!(errno(calls::attribute(&directory.join("plain"), "system.posix_acl_access", 1000)), libc::ENODATA);
        assert_eq!(mode(&directory.join("plain")) & 0o111, 0);
    });
}

#[test]
fn totals_are_told() {
    on_both("totals_are_told", |_, root| {
        let totals = |path: &Path| {
            let path = calls::text(path);
            // SAFETY: plain data that the call fills, and a NUL-terminated path.
            let mut totals: libc::statvfs = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            assert_eq!(unsafe { libc::statvfs(path.as_ptr(), &raw mut totals) }, 0);
            totals
        };
        let before = totals(root);
        assert_eq!(before.f_namemax, 255);
        assert!(before.f_blocks * before.f_frsize > 500 << 20 && before.f_bfree <= before.f_blocks);
        fs::write(root.join("file"), pattern(40 << 20, 1)).unwrap();
        File::open(root.join("file")).unwrap().sync_all().unwrap();
        let after = totals(root);
        let used = (before.f_bavail - after.f_bavail) * before.f_frsize;
        assert!((35 << 20..80 << 20).contains(&used), "40 MiB took {used} bytes");
    });
}

#[test]
fn files_are_found_by_handle_after_the_kernel_forgot_them() {
    on_both("files_are_found_by_handle_after_the_kernel_forgot_them", |_, root| {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "by handle").unwrap();
        let handle = calls::handle_of(&root.join("a/b/file"));
        calls::drop_caches();
        let root_file = File::open(root).unwrap();
        let mut file = calls::open_handle(&root_file, &handle, libc::O_RDONLY).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "by handle");
        drop(file);
        fs::remove_file(root.join("a/b/file")).unwrap();
        calls::drop_caches();
        assert_eq!(errno(calls::open_handle(&root_file, &handle, libc::O_RDONLY)), libc::ESTALE);
    });
}

#[test]
fn read_only_and_restricted_mounts() {
    for transport in transports("read_only_and_restricted_mounts") {
        let restricted = MountOptions { read_only: true, no_exec: true, no_dev: true, ..options(transport) };
        let mounted = mount_on(&[memory()], &restricted);
        let root = mounted.path.clone();
        assert_eq!(errno(fs::write(root.join("file"), "x")), libc::EROFS);
        assert_eq!(errno(fs::create_dir(root.join("d"))), libc::EROFS);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        finish(mounted);
    }
}

#[test]
fn the_writeback_cache_keeps_the_meaning() {
    for transport in transports("the_writeback_cache_keeps_the_meaning") {
        let mounted = mount_on(&[memory()], &MountOptions { writeback_cache: true, ..options(transport) });
        let path = mounted.path.join("file");
        let mut expected = Vec::new();
        let file = File::create(&path).unwrap();
        for round in 0..500 {
            let piece = pattern(77, round);
            file.write_all_at(&piece, expected.len() as u64).unwrap();
            expected.extend_from_slice(&piece);
        }
        file.sync_all().unwrap();
        drop(file);
        calls::drop_caches();
        assert!(fs::read(&path).unwrap() == expected);
        assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
        finish(mounted);
    }
}
