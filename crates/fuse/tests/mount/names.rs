//! Names: making, finding, moving, removing, listing.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use crate::calls::{self, errno};
use crate::on_both;

#[test]
fn names_are_made_found_moved_and_removed() {
    on_both("names_are_made_found_moved_and_removed", |_, root| {
        let at = |name: &str| root.join(name);
        assert_eq!(fs::metadata(root).unwrap().ino(), 1);
        assert_eq!(errno(fs::metadata(at("none"))), libc::ENOENT);
        assert_eq!(errno(fs::metadata(at("none"))), libc::ENOENT, "remembered");
        fs::write(at("none"), "now it exists").unwrap();
        assert_eq!(fs::read(at("none")).unwrap(), b"now it exists");
        fs::create_dir_all(at("a/b/c")).unwrap();
        assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 3);
        fs::rename(at("none"), at("a/b/c/file")).unwrap();
        assert_eq!(errno(fs::metadata(at("none"))), libc::ENOENT);
        fs::hard_link(at("a/b/c/file"), at("second")).unwrap();
        let (first, second) = (fs::metadata(at("a/b/c/file")).unwrap(), fs::metadata(at("second")).unwrap());
        assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
        symlink("a/b/c/file", at("link")).unwrap();
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a/b/c/file"));
        assert_eq!(fs::read(at("link")).unwrap(), b"now it exists");
        assert_eq!(errno(fs::remove_dir(at("a/b"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(at("a"), at("a/b/d"))), libc::EINVAL);
        assert_eq!(errno(fs::remove_file(at("a"))), libc::EISDIR);
        assert_eq!(errno(fs::remove_dir(at("second"))), libc::ENOTDIR);
        fs::remove_dir_all(at("a")).unwrap();
        assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 1);
        assert_eq!(fs::read(at("second")).unwrap(), b"now it exists");
        fs::remove_file(at("second")).unwrap();
        fs::remove_file(at("link")).unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    });
}

#[test]
fn names_have_255_bytes_of_any_kind() {
    on_both("names_have_255_bytes_of_any_kind", |_, root| {
        let longest = root.join("n".repeat(255));
        fs::write(&longest, "x").unwrap();
        assert_eq!(fs::read(&longest).unwrap(), b"x");
        let too_long = root.join("n".repeat(256));
        assert_eq!(errno(fs::write(&too_long, "x")), libc::ENAMETOOLONG);
        assert_eq!(errno(fs::metadata(&too_long)), libc::ENAMETOOLONG);
        let odd: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let odd = root.join(OsStr::from_bytes(&odd));
        fs::create_dir(&odd).unwrap();
        calls::drop_caches();
        assert!(odd.is_dir());
        let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [odd, longest]);
        let target = "t".repeat(4095);
        symlink(&target, root.join("link")).unwrap();
        calls::drop_caches();
        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new(&target));
    });
}

#[test]
fn special_files_keep_their_kind_and_number() {
    on_both("special_files_keep_their_kind_and_number", |_, root| {
        let at = |name: &str| root.join(name);
        calls::mknod(&at("fifo"), libc::S_IFIFO | 0o600, 0).unwrap();
        calls::mknod(&at("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3)).unwrap();
        calls::mknod(&at("block"), libc::S_IFBLK | 0o600, libc::makedev(300, 70_000)).unwrap();
        calls::mknod(&at("socket"), libc::S_IFSOCK | 0o600, 0).unwrap();
        calls::drop_caches();
        let kind = |name: &str| fs::symlink_metadata(at(name)).unwrap();
        assert!(kind("fifo").file_type().is_fifo());
        assert!(kind("socket").file_type().is_socket());
        assert!(kind("block").file_type().is_block_device());
        assert_eq!(kind("block").rdev(), libc::makedev(300, 70_000));
        assert_eq!(kind("null").rdev(), libc::makedev(1, 3));
        // Root's mounts open device nodes, as other local file systems do.
        fs::OpenOptions::new().write(true).open(at("null")).unwrap().write_all(b"gone").unwrap();
    });
}

#[test]
fn renames_replace_exchange_or_refuse() {
    on_both("renames_replace_exchange_or_refuse", |_, root| {
        let at = |name: &str| root.join(name);
        fs::write(at("a"), "A").unwrap();
        fs::write(at("b"), "B").unwrap();
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/inner"), "I").unwrap();
        assert_eq!(errno(calls::rename(&at("a"), &at("b"), libc::RENAME_NOREPLACE)), libc::EEXIST);
        calls::rename(&at("a"), &at("b"), libc::RENAME_EXCHANGE).unwrap();
        assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"B".to_vec(), b"A".to_vec()));
        // A file and a directory, in different directories.
        fs::create_dir(at("e")).unwrap();
        fs::rename(at("d"), at("e/d")).unwrap();
        calls::rename(&at("e/d"), &at("a"), libc::RENAME_EXCHANGE).unwrap();
        assert_eq!(fs::read(at("a/inner")).unwrap(), b"I");
        assert_eq!(fs::read(at("e/d")).unwrap(), b"B");
        assert_eq!((fs::metadata(root).unwrap().nlink(), fs::metadata(at("e")).unwrap().nlink()), (4, 2));
        assert_eq!(errno(calls::rename(&at("a"), &at("c"), libc::RENAME_WHITEOUT)), libc::EINVAL);
        calls::rename(&at("b"), &at("c"), libc::RENAME_NOREPLACE).unwrap();
        fs::write(at("f"), "F").unwrap();
        fs::rename(at("f"), at("c")).unwrap();
        assert_eq!(fs::read(at("c")).unwrap(), b"F");
    });
}

#[test]
fn removed_files_live_while_they_are_open() {
    on_both("removed_files_live_while_they_are_open", |mounted, root| {
        let path = root.join("file");
        let mut file = fs::OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&crate::pattern(3 << 20, 5)).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
        file.write_all(b"after").unwrap();
        file.sync_all().unwrap();
        calls::drop_caches();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.len()), (0, (3 << 20) + 5));
        let mut back = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut back).unwrap();
        assert!(back[..3 << 20] == crate::pattern(3 << 20, 5) && back.ends_with(b"after"));
        drop(file);
        // A directory, too: it is empty and can be looked at.
        let directory = root.join("directory");
        fs::create_dir(&directory).unwrap();
        let open = fs::File::open(&directory).unwrap();
        let listing = fs::read_dir(&directory).unwrap();
        fs::remove_dir(&directory).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        assert_eq!(listing.count(), 0);
        drop(open);
        // Another file of that name is another file.
        fs::write(&path, "new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(mounted.session.requests_served() > 10);
    });
}

#[test]
fn nameless_files_can_get_a_name() {
    on_both("nameless_files_can_get_a_name", |_, root| {
        let mut file = calls::open(root, libc::O_TMPFILE | libc::O_RDWR, 0o640).unwrap();
        file.write_all(b"appears whole").unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        calls::link_open_file(&file, &root.join("name")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        drop(file);
        assert_eq!(fs::read(root.join("name")).unwrap(), b"appears whole");
        assert_eq!(fs::metadata(root.join("name")).unwrap().mode() & 0o7777, 0o640);
        let private = calls::open(root, libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL, 0o640).unwrap();
        assert_eq!(errno(calls::link_open_file(&private, &root.join("no"))), libc::ENOENT);
    });
}

/// Entries with the positions behind them.
fn list(directory: *mut libc::DIR) -> Vec<(Vec<u8>, i64)> {
    let mut entries = Vec::new();
    loop {
        // SAFETY: an open directory stream that nobody else uses; the entry is copied before the next call.
        let entry = unsafe { libc::readdir(directory) };
        if entry.is_null() {
            return entries;
        }
        // SAFETY: readdir gave a whole entry with a NUL-terminated name.
        let name = unsafe { std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes().to_vec();
        // SAFETY: the same stream.
        entries.push((name, unsafe { libc::telldir(directory) }));
    }
}

#[test]
fn big_directories_list_every_name_once_from_any_position() {
    const NAMES: usize = 100_000;
    on_both("big_directories_list_every_name_once_from_any_position", |_, root| {
        for number in 0..NAMES {
            calls::mknod(&root.join(format!("name-{number:06}")), libc::S_IFREG | 0o644, 0).unwrap();
        }
        calls::drop_caches();
        let fd = fs::File::open(root).unwrap().into_raw_fd();
        // SAFETY: a descriptor of a directory that is given away.
        let directory = unsafe { libc::fdopendir(fd) };
        let entries = list(directory);
        assert_eq!(entries.len(), NAMES + 2);
        let mut names: Vec<_> = entries.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), NAMES + 2);
        // Positions stay what they were while names before and behind them go and new ones come.
        for number in (0..NAMES).step_by(2) {
            fs::remove_file(root.join(format!("name-{number:06}"))).unwrap();
        }
        for number in 0..1000 {
            fs::write(root.join(format!("later-{number}")), "").unwrap();
        }
        for place in [1, 2, 777, NAMES / 2, NAMES - 5, NAMES + 1] {
            // SAFETY: an open stream and a position it gave.
            unsafe { libc::seekdir(directory, entries[place].1) };
            let (mut later, rest): (Vec<_>, Vec<_>) =
                list(directory).into_iter().map(|(name, _)| name).partition(|name| name.starts_with(b"later-"));
            let count = later.len();
            later.sort();
            later.dedup();
            assert_eq!(later.len(), count, "from {place}: a new name is listed twice");
            let is_odd = |name: &[u8]| name.last().is_some_and(|digit| digit % 2 == 1);
            let expected: Vec<_> = entries[place + 1..]
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| name.starts_with(b".") || is_odd(name))
                .collect();
            assert!(rest == expected, "from {place}: {} names, {} expected", rest.len(), expected.len());
        }
        // SAFETY: open, and not used any more.
        assert_eq!(unsafe { libc::closedir(directory) }, 0);
        assert_eq!(fs::read_dir(root).unwrap().count(), NAMES / 2 + 1000);
        assert_eq!(fs::metadata(root.join("name-000001")).unwrap().len(), 0);
    });
}
