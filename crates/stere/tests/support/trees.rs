//! Directories with files of many kinds, and whether a copy of one is what it should be.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tier::fill;

pub fn succeeds(program: &str, arguments: &[&OsStr]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

/// The directory, made.
pub fn made(directory: PathBuf) -> PathBuf {
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Files of many kinds.
pub fn fill_kinds(directory: &Path) {
    fill(&directory.join("letters"), 60);
    let large: Vec<u8> = (0..900_000u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(directory.join("large"), &large).unwrap();
    fs::write(directory.join("empty"), "").unwrap();
    let sparse = fs::File::create(directory.join("sparse")).unwrap();
    sparse.write_all_at(b"the end", 9_000_000).unwrap();
    sparse.write_all_at(b"the middle", 5_000_001).unwrap();
    // Parts of what was stored before are dead.
    let changed = fs::OpenOptions::new().write(true).open(directory.join("large")).unwrap();
    changed.write_all_at(&[7; 10_000], 1_000_000).unwrap();
    changed.write_all_at(&[8; 3], 1_500_000).unwrap();
    fs::create_dir_all(directory.join("a/b/c")).unwrap();
    fs::create_dir(directory.join("nothing in it")).unwrap();
    fs::hard_link(directory.join("letters/7"), directory.join("a/b/c/seven")).unwrap();
    std::os::unix::fs::symlink("../letters/3", directory.join("a/favourite")).unwrap();
    fs::write(directory.join(OsStr::from_bytes(b"no \xff UTF-8")), "named by bytes").unwrap();
    fs::write(directory.join("x".repeat(255)), "a long name").unwrap();
    succeeds("mkfifo", &[directory.join("pipe").as_os_str()]);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(directory.join("letters/9"), "user.colour", b"green", flags).unwrap();
    succeeds("chown", &[OsStr::new("1234:567"), directory.join("letters/11").as_os_str()]);
    fs::set_permissions(directory.join("letters/11"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(directory.join("a/b"), fs::Permissions::from_mode(0o1700)).unwrap();
    for name in ["letters/5", "a/b/c", "nothing in it"] {
        succeeds("touch", &[OsStr::new("-d"), OsStr::new("2001-02-03 04:05:06.789"), directory.join(name).as_os_str()]);
    }
}

/// What the same directory has below it, in order.
pub fn names_below(root: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut next = vec![PathBuf::new()];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let name = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                next.push(name.clone());
            }
            names.push(name);
        }
    }
    names.sort();
    names
}

/// Everything of the original with its attributes, and nothing else.
pub fn assert_same(original: &Path, copy: &Path) {
    assert_eq!(names_below(original), names_below(copy));
    for name in names_below(original) {
        let (one, other) = (original.join(&name), copy.join(&name));
        let (a, b) = (fs::symlink_metadata(&one).unwrap(), fs::symlink_metadata(&other).unwrap());
        let facts = |it: &fs::Metadata| (it.mode(), it.uid(), it.gid(), it.mtime(), it.mtime_nsec());
        assert_eq!(facts(&a), facts(&b), "{}", name.display());
        if a.is_file() {
            assert_eq!((a.nlink(), a.len()), (b.nlink(), b.len()), "{}", name.display());
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{} differs", name.display());
        } else if a.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&other).unwrap());
        }
    }
}

/// All files below have the bytes that they had, as far as they are there; holes are zeros. How many are as they were.
pub fn assert_no_wrong_byte(original: &Path, copy: &Path) -> usize {
    let mut whole = 0;
    for name in names_below(copy) {
        let (one, other) = (original.join(&name), copy.join(&name));
        if !other.is_file() || other.is_symlink() || !one.is_file() {
            continue;
        }
        let (a, b) = (fs::read(&one).unwrap(), fs::read(&other).unwrap());
        let is_right = a.iter().zip(&b).all(|(right, found)| found == right || *found == 0);
        assert!(is_right && b.len() <= a.len(), "{} has wrong bytes", name.display());
        whole += usize::from(a == b);
    }
    whole
}

/// Names and bytes of all objects.
pub fn objects(volume: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = names_below(volume).into_iter().filter(|name| volume.join(name).is_file());
    files.map(|name| (name.clone(), fs::read(volume.join(&name)).unwrap())).collect()
}

pub fn paths_in(volume: &Path, folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(volume.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
