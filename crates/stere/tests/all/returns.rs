//! Devices that come back (P-197): with the real binary on a real mount. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use support::tier::{assert_right, content, fill, until};
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

/// P-197: a spare took over for a disk that was merely away: the advice is to bring that one back, and with it everything is there.
#[test]
fn after_a_spare_took_over_the_intact_disk_is_asked_for_and_brings_everything_back() {
    if !can_mount("after_a_spare_took_over_the_intact_disk_is_asked_for_and_brings_everything_back") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    world.ok("device add tank s.img,size=160M,name=s --spare --yes");
    let directory = world.mountpoint().join("d");
    fs::create_dir(&directory).unwrap();
    world.ok("policy set mount/d class=scratch");
    let big = |number: usize| content(1000 + number).into_iter().cycle().take(2 << 20).collect::<Vec<u8>>();
    (0..12).for_each(|number| fs::write(directory.join(number.to_string()), big(number)).unwrap());
    world.ok("umount mount");
    fs::rename(world.path("b.img"), world.path("b.away")).unwrap();
    assert_eq!(world.run("mount tank mount -o wait=0,spare=1s").code, 3);
    let told = || world.json("status tank --json")["next"].as_str().unwrap().to_owned();
    until("the spare to take over", || world.json("status tank --json")["devices"][1]["state"] == "failed");
    until("the advice", || told().contains("may still have them") && told().contains("`stere device online tank b`"));
    assert_eq!(world.run("status tank").code, 4);
    fs::rename(world.path("b.away"), world.path("b.img")).unwrap();
    world.ok("device online tank b --wait");
    is_back_within_seconds(&world);
    (0..12)
        .for_each(|number| assert!(fs::read(directory.join(number.to_string())).unwrap() == big(number), "{number}"));
    let devices = world.json("status tank --json")["devices"].as_array().unwrap().len();
    assert_eq!(devices, 3, "the spare stays as a device");
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
