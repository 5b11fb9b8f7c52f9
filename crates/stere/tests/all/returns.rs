//! Devices that come back (P-197): with the real binary on a real mount. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use support::tier::{assert_right, content, fill};
use support::{World, can_mount};

fn state(world: &World) -> String {
    world.json("status tank --json")["state"].as_str().unwrap().to_owned()
}

#[track_caller]
fn is_back_within_seconds(world: &World) {
    let begun = Instant::now();
    while state(world) != "healthy" {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", world.run("status tank").out);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// P-197: under another name in its directory, and as a block device.
#[test]
fn a_device_that_comes_back_under_another_path_is_noticed() {
    if !can_mount("a_device_that_comes_back_under_another_path_is_noticed") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fill(&world.mountpoint().join("d"), 20);
    world.ok("umount mount");
    let aside = world.path("aside");
    fs::create_dir(&aside).unwrap();
    fs::rename(world.path("b.img"), aside.join("b.img")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0").code, 3);
    fill(&world.mountpoint().join("e"), 20);
    // Others that are no part of it are left alone.
    fs::write(world.path("big"), vec![7; 200 << 20]).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert_ne!(state(&world), "healthy");
    let lacks = |world: &World| world.json("status tank --json")["warnings"].to_string().contains("lacks");
    assert!(lacks(&world), "what was said at the mount is true still");
    fs::rename(aside.join("b.img"), world.path("renamed.img")).unwrap();
    is_back_within_seconds(&world);
    assert!(!lacks(&world), "and is no more: {}", world.run("status tank").out);
    let devices = world.json("device list tank --json");
    assert!(devices[1]["path"].as_str().unwrap().ends_with("renamed.img"), "{devices}");
    world.ok("umount mount");
    fs::rename(world.path("renamed.img"), aside.join("b.img")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0").code, 3);
    let made = Command::new("losetup").args(["--find", "--show"]).arg(aside.join("b.img")).output();
    match made {
        Ok(made) if made.status.success() => {
            let node = String::from_utf8(made.stdout).unwrap().trim().to_owned();
            is_back_within_seconds(&world);
            let devices = world.json("device list tank --json");
            assert_eq!(devices[1]["path"].as_str(), Some(node.as_str()));
            assert_right(&world.mountpoint().join("d"), 20);
            assert_right(&world.mountpoint().join("e"), 20);
            world.ok("umount mount");
            assert!(Command::new("losetup").args(["-d", &node]).status().unwrap().success());
        }
        _ => {
            eprintln!("SKIPPED: the second half needs loop devices, which are not here");
            world.ok("umount mount");
        }
    }
}

/// P-197: what is lost with a device that is replaced is told before.
#[test]
fn what_a_replaced_device_takes_with_it_is_told() {
    if !can_mount("what_a_replaced_device_takes_with_it_is_told") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("d")).unwrap();
    world.ok("policy set mount/d class=scratch");
    let big = content(1000).into_iter().cycle().take(2 << 20).collect::<Vec<u8>>();
    (0..12).for_each(|number| fs::write(world.mountpoint().join(format!("d/{number}")), &big).unwrap());
    world.ok("umount mount");
    fs::rename(world.path("b.img"), world.path("b.away")).unwrap();
    world.run("mount tank mount -o wait=0");
    let lost = world.run("lose tank");
    assert!(lost.code == 4 && lost.out.contains("/d/"), "{}{}", lost.out, lost.err);
    let said = world.ok("device replace tank b new.img,size=160M --dry-run");
    assert!(
        said.contains("could not be read") && said.contains("for good") && said.contains("stere lose tank"),
        "{said}"
    );
    world.ok("umount mount");
}
