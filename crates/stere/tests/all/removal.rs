//! Devices that are taken out of a pool: what is too wide, dead, deleted or in the way of it (P-163). With the real binary on a real mount.
//! Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Write;

use support::tier::{content, until};
use support::{World, can_mount};

/// Four disks, with files of which each needs all of them.
fn four_wide() -> World {
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M d.img,size=256M,name=d");
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("wide")).unwrap();
    world.ok("policy set mount/wide parity=3+1");
    for number in 0..20 {
        fs::write(world.mountpoint().join(format!("wide/{number}")), file(number)).unwrap();
        fs::write(world.mountpoint().join(format!("{number}")), file(number + 100)).unwrap();
    }
    world.ok("flush mount --wait");
    world
}

fn file(number: usize) -> Vec<u8> {
    content(number + 1000)
}

#[track_caller]
fn assert_right(world: &World) {
    for number in 0..20 {
        let read = |name: String| fs::read(world.mountpoint().join(name)).unwrap();
        assert!(read(format!("wide/{number}")) == file(number), "wide/{number}");
        assert!(read(number.to_string()) == file(number + 100), "{number}");
    }
}

/// Three devices are left, all is right, and so it is after the next mount.
#[track_caller]
fn assert_left(world: &World) {
    let status = world.json("status tank --json");
    assert_eq!(status["devices"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!((status["state"].as_str(), status["survives"].as_u64()), (Some("healthy"), Some(1)), "{status}");
    assert_right(world);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_right(world);
    world.ok("umount mount");
}

/// P-163: what is too wide is named with its class and the two ways out, and the narrower way leads to the end.
#[test]
fn a_device_leaves_when_what_was_too_wide_is_narrower() {
    if !can_mount("a_device_leaves_when_what_was_too_wide_is_narrower") {
        return;
    }
    let world = four_wide();
    for line in ["device remove tank d --yes", "device evacuate tank d", "device fail tank d --yes"] {
        let words =
            ["class normal are stored as 3+1, which needs 4 devices, and 3 would be left", "parity=2+1", "device add"];
        world.refused_after_forecast(line, &words);
    }
    world.ok("policy set mount/wide parity=2+1 --wait");
    world.ok("device remove tank d --yes --wait");
    assert_left(&world);
}

/// The same where the disk is dead, and where its image was deleted before the mount.
#[test]
fn a_device_that_is_gone_leaves_when_what_was_too_wide_is_narrower() {
    if !can_mount("a_device_that_is_gone_leaves_when_what_was_too_wide_is_narrower") {
        return;
    }
    // What was narrower before the image was deleted has nothing on it that it needs.
    let world = four_wide();
    world.ok("policy set mount/wide parity=2+1 --wait");
    world.ok("umount mount");
    fs::remove_file(world.path("d.img")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0").code, 3);
    world.ok("device remove tank d --yes --wait");
    assert_left(&world);
    let world = four_wide();
    world.ok("umount mount");
    fs::remove_file(world.path("d.img")).unwrap();
    let said = world.run("mount tank mount -o wait=0");
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(world.json("status tank --json")["survives"], 0);
    let words = ["class normal are stored as 3+1, which needs 4 devices, and 3 would be left", "parity=2+1"];
    world.refused_after_forecast("device remove tank d --yes", &words);
    world.ok("policy set mount/wide parity=2+1 --wait");
    world.ok("device remove tank d --yes --wait");
    assert_left(&world);
}

/// Where content must lie, devices elsewhere are none; who is told to delete files is told what for.
#[test]
fn what_must_lie_on_few_devices_is_told_as_that() {
    if !can_mount("what_must_lie_on_few_devices_is_told_as_that") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M,tag=fast b.img,size=128M,tag=fast c.img,size=128M d.img,size=128M");
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("bound")).unwrap();
    world.ok("policy set mount/bound only=fast");
    fs::write(world.mountpoint().join("bound/file"), file(1)).unwrap();
    world.ok("flush mount --wait");
    let words = ["stored as 2 copies on fast (only=), which needs 2 devices, and 1 would be left there", "copies=1"];
    world.refused_after_forecast("device remove tank a --yes", &words);
    assert!(!world.run("device remove tank a --yes").err.contains("delete files"));
    world.ok("policy set mount/bound copies=1 --wait");
    world.ok("device remove tank a --yes --wait");
    assert!(fs::read(world.mountpoint().join("bound/file")).unwrap() == file(1));
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// A pool that is full says so at once, and goes on.
#[test]
fn nothing_leaves_a_full_pool() {
    if !can_mount("nothing_leaves_a_full_pool") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M b.img,size=128M c.img,size=128M");
    world.ok("mount tank mount");
    let mut full = fs::File::create(world.mountpoint().join("full")).unwrap();
    let block = file(7);
    while full.write_all(&block).and_then(|()| full.sync_data()).is_ok() {}
    drop(full);
    world.refused_after_forecast("device remove tank c --yes", &["does not fit on the other devices", "device add"]);
    let status = world.json("status tank --json");
    assert_eq!(status["devices"][2]["state"], "online", "{status}");
    fs::remove_file(world.mountpoint().join("full")).unwrap();
    until("room", || world.run("device remove tank c --yes --wait").code == 0);
    let status = world.json("status tank --json");
    assert_eq!(
        (status["devices"].as_array().unwrap().len(), status["state"].as_str()),
        (2, Some("healthy")),
        "{status}"
    );
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
