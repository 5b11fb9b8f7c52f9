//! P-141 and P-152 with the real binary and a real mount: needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use support::tier::tiered;
use support::{World, can_mount};

const DIRECTORIES: usize = 4;
const FILES: usize = 200;

fn content(directory: usize, number: usize) -> Vec<u8> {
    format!("{directory} {number} ").repeat(number + 1).into_bytes()
}

/// A mounted pool with a volume named `cold`, and a project that is on the volume only.
fn world() -> World {
    let world = tiered("");
    let project = world.mountpoint().join("project");
    for directory in 0..DIRECTORIES {
        let below = project.join(directory.to_string()).join("below");
        fs::create_dir_all(&below).unwrap();
        for number in 0..FILES {
            fs::write(below.join(number.to_string()), content(directory, number)).unwrap();
        }
    }
    fs::write(project.join("readme"), "in the top").unwrap();
    world.ok("tier archive mount/project --wait");
    world
}

/// What `ls -l` asks for.
fn list(directory: &Path) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        assert!(entry?.metadata()?.mode() != 0);
        count += 1;
    }
    Ok(count)
}

fn assert_all_right(project: &Path) {
    for directory in 0..DIRECTORIES {
        let below = project.join(directory.to_string()).join("below");
        assert_eq!(list(&below).unwrap(), FILES);
        for number in 0..FILES {
            assert!(
                fs::read(below.join(number.to_string())).unwrap() == content(directory, number),
                "{directory} {number}"
            );
        }
    }
}

fn fetches(world: &World) -> u64 {
    world.json("tier queue tank --json")["fetches"].as_u64().unwrap()
}

fn keys_put_away(world: &World) -> u64 {
    world.json("tier queue tank --json")["keys_put_away"].as_u64().unwrap()
}

/// All but a few: each file has several keys. What was read may come back to devices meanwhile, and names of what is there stay:
/// it is released again.
fn wait_until_names_are_away(world: &World) {
    let until = Instant::now() + Duration::from_secs(120);
    let mut release_next = Instant::now() + Duration::from_secs(5);
    let mut released = String::new();
    while keys_put_away(world) < (3 * DIRECTORIES * FILES) as u64 {
        assert!(Instant::now() < until, "{}{released}", world.ok("tier queue tank"));
        if Instant::now() >= release_next {
            released = world.ok("tier release mount/project");
            release_next = Instant::now() + Duration::from_secs(5);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn names_go_down_and_come_back() {
    if !can_mount("names_go_down_and_come_back") {
        return;
    }
    let world = world();
    let project = world.mountpoint().join("project");
    let said = world.ok("tier release --metadata mount/project");
    assert!(said.contains("offloaded") && !said.contains(" stay"), "{said}");
    world.ok("umount mount");
    let checked = world.ok("check tank");
    assert!(checked.contains("clean"), "{checked}");
    world.ok("mount tank mount");
    assert_eq!(list(&project).unwrap(), DIRECTORIES + 1);
    assert_eq!(fetches(&world), 0, "the top is here");
    assert_all_right(&project);
    assert!(fetches(&world) > 0);
    // Down again, with a change; and all of it back at once.
    fs::write(project.join("2/below/7"), content(2, 7)).unwrap();
    world.ok("tier archive mount/project --wait");
    world.ok("tier release --metadata mount/project");
    world.ok("tier stage mount/project --wait");
    assert_all_right(&project);
    fs::remove_dir_all(&project).unwrap();
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

#[test]
fn names_on_a_volume_that_is_away() {
    if !can_mount("names_on_a_volume_that_is_away") {
        return;
    }
    let world = world();
    let project = world.mountpoint().join("project");
    world.ok("tier release --metadata mount/project");
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("away")).unwrap();
    world.ok("mount tank mount -o recall_timeout=1");
    assert_eq!(list(&project).unwrap(), DIRECTORIES + 1);
    assert_eq!(list(&project.join("1/below")).unwrap_err().raw_os_error(), Some(libc::EIO));
    fs::write(world.mountpoint().join("new"), "others go on").unwrap();
    world.ok("flush mount --wait");
    world.ok("umount mount");
    let checked = world.run("check tank");
    assert!(checked.code != 0 && checked.out.contains("offloaded"), "{} {}{}", checked.code, checked.out, checked.err);
    fs::rename(world.path("away"), world.path("volume")).unwrap();
    world.ok("mount tank mount -o recall=deny");
    assert_eq!(list(&project.join("1")).unwrap_err().raw_os_error(), Some(libc::EPERM));
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_all_right(&project);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}

/// P-152: names that nobody uses go by themselves, those that are used stay, and what came back goes again.
#[test]
fn names_go_by_themselves() {
    if !can_mount("names_go_by_themselves") {
        return;
    }
    let world = world();
    let project = world.mountpoint().join("project");
    world.ok("tier release mount/project");
    assert_eq!(keys_put_away(&world), 0);
    world.ok("policy set mount/project names=1s");
    wait_until_names_are_away(&world);
    // The bundles go the way of all that is archived.
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("policy set mount/project names=1h");
    // What was written lately is in memory.
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!((list(&project).unwrap(), fetches(&world)), (DIRECTORIES + 1, 0), "the top is here");
    assert_all_right(&project);
    assert!(fetches(&world) > 0, "{}", world.ok("tier queue tank"));
    assert_eq!(keys_put_away(&world), 0);
    world.ok("policy set mount/project names=1s");
    wait_until_names_are_away(&world);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
    world.ok("mount tank mount");
    assert_all_right(&project);
    world.ok("umount mount");
}
