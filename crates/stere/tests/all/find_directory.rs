//! Searches as directories on a real mount (P-136): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use support::{NOBODY, World, can_mount};

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}

/// A shell's words as another user, in the world's folder.
fn by(world: &World, uid: u32, words: &str) -> Output {
    Command::new("sh").args(["-c", words]).current_dir(&world.folder).uid(uid).gid(uid).output().unwrap()
}

fn lines(output: &Output) -> BTreeSet<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_search_is_a_directory_of_links() {
    if !can_mount("a_search_is_a_directory_of_links") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint();
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("a/film.mkv"), vec![1; 300_000]).unwrap();
    fs::write(top.join("a/b/film.mkv"), vec![2; 300_000]).unwrap();
    fs::write(top.join("small"), b"x").unwrap();
    assert_eq!(names(&top), set(&["a", "small"]), "it is not listed");
    let found = top.join(".find/size>100K type=file");
    assert_eq!(names(&found), set(&["film.mkv", "film.mkv~2"]));
    let contents: BTreeSet<u8> = ["film.mkv", "film.mkv~2"].map(|name| fs::read(found.join(name)).unwrap()[0]).into();
    assert_eq!(contents, BTreeSet::from([1, 2]), "the links lead there");
    assert!(fs::read_link(found.join("film.mkv")).unwrap().starts_with("../../a"));
    assert!(names(&top.join(".find")).is_empty());
    // What changes is found with the next look.
    fs::write(top.join("new.iso"), vec![3; 200_000]).unwrap();
    fs::remove_file(top.join("a/film.mkv")).unwrap();
    assert_eq!(names(&found), set(&["film.mkv", "new.iso"]));
    assert_eq!(errno(fs::metadata(found.join("film.mkv~2"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(top.join(".find/size>"))), libc::EINVAL);
    assert_eq!(errno(fs::metadata(top.join(".find/.git"))), libc::ENOENT);
    assert_eq!(errno(fs::write(found.join("other"), b"")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(top.join(".find/x/y"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(found.join("new.iso"))), libc::EROFS);
    // Somebody's own goes first.
    world.ok("umount mount");
    world.ok("mount tank mount -o nofind");
    assert_eq!(errno(fs::metadata(top.join(".find"))), libc::ENOENT);
    fs::create_dir(top.join(".find")).unwrap();
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(errno(fs::metadata(top.join(".find/size>1"))), libc::ENOENT);
    world.ok("umount mount");
}

#[test]
fn each_is_shown_what_he_could_find_and_nothing_that_another_was_shown() {
    if !can_mount("each_is_shown_what_he_could_find_and_nothing_that_another_was_shown") {
        return;
    }
    let world = World::with_pool();
    fs::set_permissions(&world.folder, fs::Permissions::from_mode(0o755)).unwrap();
    world.ok("mount tank mount -o allow_other");
    let top = world.mountpoint();
    for (directory, mode) in [("open", 0o755), ("closed", 0o700), ("mine", 0o700), ("ours", 0o750)] {
        fs::create_dir(top.join(directory)).unwrap();
        fs::write(top.join(directory).join(format!("in-{directory}")), b"x").unwrap();
        fs::set_permissions(top.join(directory), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(top.join("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
    std::os::unix::fs::chown(top.join("ours"), Some(0), Some(77)).unwrap();
    let list = "ls 'mount/.find/in-*'";
    let all = set(&["in-open", "in-closed", "in-mine", "in-ours"]);
    let (his, others) = (set(&["in-open", "in-mine"]), set(&["in-open"]));
    // In turns, so that whatever was remembered of one would be shown to the next.
    for _ in 0..3 {
        for (uid, expected) in [(0, &all), (NOBODY, &his), (4000, &others)] {
            assert_eq!(lines(&by(&world, uid, list)), *expected, "user {uid}");
            let output = by(&world, uid, "cat mount/.find/in-*/in-closed");
            assert_eq!(output.status.success(), uid == 0, "user {uid} knows the name");
            let output = by(&world, uid, "readlink 'mount/.find/in-*/in-closed'");
            assert_eq!(output.stdout.is_empty(), uid != 0, "user {uid} learns where it is");
        }
    }
    // With one of his groups he sees more, and without it no more.
    let with_group = Command::new("setpriv")
        .args(["--reuid", "4000", "--regid", "4000", "--groups", "77", "sh", "-c", list])
        .current_dir(&world.folder)
        .output();
    if let Ok(output) = with_group {
        assert_eq!(lines(&output), set(&["in-open", "in-ours"]), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(lines(&by(&world, 4000, list)), others);
    // Nobody goes into a directory that another has.
    let held = fs::File::open(top.join(".find/in-*")).unwrap();
    assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o500);
    let through = |uid: u32| {
        let mut command = Command::new("ls");
        command.args(["-d", "/proc/self/fd/0/in-closed"]).uid(uid).gid(uid);
        command.stdin(held.try_clone().unwrap()).output().unwrap().status.success()
    };
    assert_eq!([through(0), through(NOBODY)], [true, false]);
    // So many directories for each, and then for the others all the same.
    let opened: Vec<_> = (0..20).map(|_| fs::File::open(top.join(".find/in-*"))).collect();
    assert_eq!(opened.iter().filter(|outcome| outcome.is_err()).count(), 13, "eight for one user");
    let refused = opened.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    assert_eq!(lines(&by(&world, NOBODY, list)), his);
    drop(held);
    world.ok("umount mount");
}
