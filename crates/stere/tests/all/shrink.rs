//! P-308: a device is made smaller while its pool is used, with the real binary on a real mount. Needs root and /dev/fuse, and says loudly
//! when it skips.

use crate::support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use support::tier::{assert_right, content, end_clean, fill, forget_cache, kill, until};
use support::{World, can_mount};

const MIB: u64 = 1 << 20;

fn length(world: &World, name: &str) -> u64 {
    fs::metadata(world.path(name)).unwrap().len()
}

fn size_bytes(world: &World, number: usize) -> u64 {
    world.json("device list tank --json")[number]["size_bytes"].as_u64().unwrap()
}

/// Writes to this directory while something else happens; how many files.
fn while_writing(directory: &Path, work: impl FnOnce()) -> usize {
    fs::create_dir_all(directory).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Acquire) {
                fs::write(directory.join(count.to_string()), content(count % 50)).unwrap();
                count += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            count
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Release);
        let count = writer.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        count
    })
}

/// One of three devices with copies and parity on them, under a writer.
#[test]
fn a_device_is_made_smaller_under_a_writer() {
    if !can_mount("a_device_is_made_smaller_under_a_writer") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M c.img,size=256M");
    world.ok("mount tank mount");
    let directory = world.mountpoint().join("files");
    fs::create_dir(&directory).unwrap();
    world.ok("policy set mount/files parity=2+1");
    fill(&directory, 400);
    fill(&world.mountpoint().join("copies"), 200);
    world.refused("device resize tank a --size 300M --yes", 1, &["not less"]);
    world.refused("device resize tank a --size 8M --yes", 1, &["less than a device needs"]);
    let told = world.ok("device resize tank a --size 160M --dry-run");
    assert!(told.contains("160 MiB instead of 256 MiB"), "{told}");
    assert_eq!((length(&world, "a.img"), size_bytes(&world, 0)), (256 * MIB, 256 * MIB), "nothing has happened yet");
    let more = world.mountpoint().join("more");
    let count = while_writing(&more, || {
        world.ok("device resize tank a --size 160M --yes");
        until("the image is never cut off", || length(&world, "a.img") == 160 * MIB);
    });
    assert_eq!(size_bytes(&world, 0), 160 * MIB);
    forget_cache();
    let assert_all = || {
        assert_right(&directory, 400);
        assert_right(&world.mountpoint().join("copies"), 200);
        (0..count).for_each(|number| assert!(fs::read(more.join(number.to_string())).unwrap() == content(number % 50)));
    };
    assert_all();
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_all();
    assert_eq!(world.json("status tank --json")["state"], "healthy");
    // And larger again.
    fs::OpenOptions::new().write(true).open(world.path("a.img")).unwrap().set_len(200 * MIB).unwrap();
    world.ok("device resize tank a --yes");
    assert_eq!(size_bytes(&world, 0), 200 * MIB);
    assert_all();
    end_clean(&world);
}

/// The only device of a pool: what lies beyond moves to the front of the device itself.
#[test]
fn the_only_device_is_made_smaller() {
    if !can_mount("the_only_device_is_made_smaller") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M");
    world.ok("mount tank mount");
    let (kept, gone) = (world.mountpoint().join("kept"), world.mountpoint().join("gone"));
    // What is kept lies behind what is gone.
    fill(&gone, 400);
    fill(&kept, 300);
    world.ok("flush mount --wait");
    fs::remove_dir_all(&gone).unwrap();
    world.ok("flush mount --wait");
    world.ok("device resize tank a --size 128M --yes");
    until("the image is never cut off", || length(&world, "a.img") == 128 * MIB);
    forget_cache();
    assert_right(&kept, 300);
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_right(&kept, 300);
    end_clean(&world);
}

/// The daemon is killed in the middle: the device is as it was, and can be made smaller then.
#[test]
fn a_daemon_that_ends_meanwhile_leaves_it_as_it_was() {
    if !can_mount("a_daemon_that_ends_meanwhile_leaves_it_as_it_was") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=256M b.img,size=256M");
    world.ok("mount tank mount -o repair_rate=1M");
    let directory = world.mountpoint().join("files");
    fill(&directory, 550);
    world.ok("flush mount --wait");
    world.ok("device resize tank a --size 192M --yes");
    until("nothing is moved", || {
        world.json("status tank --json")["work"]["bytes_done"].as_u64().unwrap_or(0) > 0
            || length(&world, "a.img") == 192 * MIB
    });
    let is_done = length(&world, "a.img") == 192 * MIB;
    kill(world.daemon());
    world.ok("umount mount --force");
    world.ok("mount tank mount");
    forget_cache();
    assert_right(&directory, 550);
    if !is_done {
        assert_eq!(size_bytes(&world, 0), 256 * MIB);
        world.ok("device resize tank a --size 192M --yes");
    }
    until("the image is never cut off", || length(&world, "a.img") == 192 * MIB);
    assert_right(&directory, 550);
    end_clean(&world);
}
