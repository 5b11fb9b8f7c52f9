//! What is free is given back to what lies below (P-165): image files shrink and disks are told, by itself and when fstrim(8) asks.

use crate::support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use support::{NOBODY, World, can_mount};

const FILES: usize = 8;
const FILE_BYTES: usize = 8 << 20;

fn taken_bytes(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() * 512
}

/// Writes 64 MiB, durably, and removes them, durably. What the image takes before the removal.
fn write_and_remove(world: &World, image: &Path) -> u64 {
    let point = world.mountpoint();
    let names: Vec<PathBuf> = (0..FILES).map(|number| point.join(number.to_string())).collect();
    for (number, path) in names.iter().enumerate() {
        // Nothing that could be taken for zeros or for the same.
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * 31 + number * 7 + at / 251) as u8).collect();
        fs::write(path, bytes).unwrap();
    }
    world.ok("flush mount --wait");
    let full = taken_bytes(image);
    assert!(full > (FILES * FILE_BYTES) as u64, "the image holds what was written: {full}");
    names.iter().for_each(|path| fs::remove_file(path).unwrap());
    world.ok("flush mount --wait");
    full
}

fn fstrim(world: &World) -> Command {
    let mut command = Command::new("fstrim");
    command.arg("--verbose").arg(world.mountpoint());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn shrinks(image: &Path, full: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while taken_bytes(image) > full / 2 {
        assert!(Instant::now() < end, "the image takes {} of {full} bytes still", taken_bytes(image));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_image_shrinks_by_itself() {
    if !can_mount("an_image_shrinks_by_itself") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M");
    world.ok("mount tank mount");
    fs::write(world.mountpoint().join("kept"), vec![5; 1 << 20]).unwrap();
    let full = write_and_remove(&world, &world.path("a.img"));
    shrinks(&world.path("a.img"), full);
    world.ok("umount mount");
    world.ok("check tank");
}

#[test]
fn fstrim_gives_back_what_nothing_else_did() {
    if !can_mount("fstrim_gives_back_what_nothing_else_did") {
        return;
    }
    let world = World::new();
    let image = world.path("a.img");
    world.ok("create tank a.img,size=256M");
    world.ok("mount tank mount -o nodiscard");
    fs::write(world.mountpoint().join("kept"), vec![5; 1 << 20]).unwrap();
    let full = write_and_remove(&world, &image);
    world.ok("umount mount");
    assert!(taken_bytes(&image) > full / 2, "nobody has given anything back");
    // The next mount knows of no slot that it freed itself.
    world.ok("mount tank mount -o nodiscard");
    let refused = fstrim(&world).uid(NOBODY).output().unwrap();
    assert!(!refused.status.success(), "{}", text(&refused));
    assert!(taken_bytes(&image) > full / 2, "only root may ask");
    let said = fstrim(&world).output().unwrap();
    assert!(said.status.success(), "{}", text(&said));
    assert!(text(&said).contains("MiB"), "it tells how much: {}", text(&said));
    assert!(taken_bytes(&image) < full / 2, "{} of {full} bytes are taken still", taken_bytes(&image));
    assert_eq!(fs::read(world.mountpoint().join("kept")).unwrap(), vec![5; 1 << 20]);
    let part = fstrim(&world).args(["--offset", "1M"]).output().unwrap();
    assert!(!part.status.success(), "a pool has no addresses: {}", text(&part));
    world.ok("umount mount");
    world.ok("check tank");
}

#[test]
fn a_read_only_mount_is_not_trimmed() {
    if !can_mount("a_read_only_mount_is_not_trimmed") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M");
    world.ok("mount tank mount -o ro");
    let said = fstrim(&world).output().unwrap();
    assert!(!said.status.success(), "{}", text(&said));
    world.ok("umount mount");
}

/// A loop device, which passes TRIM on to its file as a hole.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.0).status());
    }
}

#[test]
fn a_disk_is_told_what_is_free() {
    if !can_mount("a_disk_is_told_what_is_free") {
        return;
    }
    let world = World::new();
    let below = world.path("below");
    fs::File::create(&below).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&below).output().unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED: no loop devices can be made here");
        return;
    }
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_owned());
    world.ok(&format!("create tank {}", device.0));
    world.ok("mount tank mount");
    let full = write_and_remove(&world, &below);
    shrinks(&below, full);
    world.ok("umount mount");
    world.ok("check tank");
}
