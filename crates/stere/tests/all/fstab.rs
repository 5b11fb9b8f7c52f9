//! What mount(8) asks of its helper for a line of fstab, with the real binary (P-167).

use crate::support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{World, can_mount};

/// How `mount.stere` ended, called in `folder`, and what it said.
fn helper(world: &World, folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let helper = world.path("mount.stere");
    if !helper.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_stere"), &helper).unwrap();
    }
    let mut command = Command::new(&helper);
    command.args(words).env("STERE_STATE", world.path("state")).current_dir(folder);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn errno_of_writing(path: &Path) -> Option<i32> {
    fs::write(path, b"x").err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    if !can_mount("a_mount_becomes_read_only_and_writable_again") {
        return;
    }
    let world = World::with_pool();
    let point = world.mountpoint();
    let remount = |options: &str| helper(&world, &world.folder, &["tank", point.to_str().unwrap(), "-o", options]);
    let (code, said) = remount("remount,ro");
    assert_eq!(code, Some(32), "nothing is mounted yet: {said}");
    assert!(said.contains("no stere pool is mounted"), "{said}");
    world.ok("mount tank mount");
    assert_eq!(errno_of_writing(&point.join("before")), None);
    assert_eq!(remount("remount,ro,nofail,memory=256M"), (Some(0), String::new()));
    assert_eq!(errno_of_writing(&point.join("file")), Some(libc::EROFS));
    assert_eq!(fs::read(point.join("before")).unwrap(), b"x");
    assert_eq!(remount("remount,rw"), (Some(0), String::new()));
    assert_eq!(errno_of_writing(&point.join("file")), None);
    let (code, said) = remount("remount,turbo");
    assert_eq!(code, Some(32));
    assert!(said.contains("turbo"), "{said}");
    world.ok("umount mount");
}

#[test]
fn a_pool_that_is_open_for_reading_stays_so() {
    if !can_mount("a_pool_that_is_open_for_reading_stays_so") {
        return;
    }
    let world = World::with_pool();
    let point = world.mountpoint();
    world.ok("mount tank mount -o ro");
    let (code, said) = helper(&world, &world.folder, &["tank", point.to_str().unwrap(), "-o", "remount,rw"]);
    assert_eq!(code, Some(32));
    assert!(said.contains("was mounted with `ro`") && said.contains("unmount it"), "{said}");
    // The kernel alone can be told so; the daemon knows better, and does not call it a failure of devices.
    let remounted = Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(&point).status().unwrap();
    if remounted.success() {
        assert_eq!(errno_of_writing(&point.join("file")), Some(libc::EROFS));
    }
    let status = world.json("status tank --json");
    assert!(!status["next"].as_str().unwrap().contains("stopped writing"), "{status}");
    world.ok("umount mount");
    let log = fs::read_to_string(world.path("state/log/tank.log")).unwrap();
    assert!(!log.contains("stopped writing"), "{log}");
}

#[test]
fn a_pool_may_be_called_like_an_entry_of_the_current_folder() {
    if !can_mount("a_pool_may_be_called_like_an_entry_of_the_current_folder") {
        return;
    }
    let world = World::with_pool();
    let (folder, point) = (world.path("root"), world.mountpoint());
    fs::create_dir_all(folder.join("tank")).unwrap();
    fs::write(folder.join("other"), b"").unwrap();
    let point = point.to_str().unwrap();
    // mount(8) turns the word `tank` into the path when it finds it where it is called.
    let word = folder.join("tank").display().to_string();
    assert_eq!(helper(&world, &folder, &[&word, point, "-o", "rw"]), (Some(0), String::new()));
    world.ok("umount mount");
    // From elsewhere the same path is a path.
    let (code, _) = helper(&world, &world.folder, &[&word, point]);
    assert_eq!(code, Some(32));
    let (code, said) = helper(&world, &folder, &[&folder.join("other").display().to_string(), point]);
    assert_eq!(code, Some(32), "{said}");
}
