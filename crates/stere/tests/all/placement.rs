//! Placement with the real binary and a real mount: P-142, P-143, P-207; needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use support::{World, can_mount};

/// What is known of a path.
fn fact(world: &World, path: &str, key: &str) -> String {
    let said = world.json(&format!("policy get {path} --json"));
    said[key].as_str().unwrap_or_else(|| panic!("no {key} in {said}")).to_owned()
}

/// Waits until a file lies on these devices and is as it should be.
fn wait_for(world: &World, path: &str, on: &str) {
    let until = Instant::now() + Duration::from_secs(120);
    while (fact(world, path, "where"), fact(world, path, "state")) != (on.to_owned(), "compliant".to_owned()) {
        let found = (fact(world, path, "where"), fact(world, path, "state"));
        assert!(Instant::now() < until, "{path} is {found:?} and not on {on}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn files_lie_where_their_policy_says() {
    if !can_mount("files_lie_where_their_policy_says") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=192M,tag=nvme,name=a b.img,size=192M,tag=nvme,name=b c.img,size=192M,name=c d.img,size=192M,name=d");
    world.ok("mount tank mount");
    let folder = world.mountpoint().join("db");
    fs::create_dir(&folder).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 512 + at * 7) as u8).collect();
    fs::write(folder.join("old"), &bytes).unwrap();
    world.ok("flush mount --wait");
    // What is there follows, what is new lies there at once.
    world.ok("policy set mount/db only=nvme --wait");
    wait_for(&world, "mount/db/old", "a b");
    fs::write(folder.join("new"), &bytes).unwrap();
    world.ok("flush mount --wait");
    wait_for(&world, "mount/db/new", "a b");
    // Who is asked to go and cannot is told before anything moves, and what of it; nobody else is kept.
    for order in ["evacuate tank a --dry-run", "evacuate tank a", "remove tank a"] {
        world.refused_after_forecast(
            &format!("device {order}"),
            &["on nvme (only=), which needs 2 devices, and 1 would be left there", "device add"],
        );
    }
    world.ok("device evacuate tank d --dry-run");
    // A label moves what must lie there.
    world.ok("device label tank c tag=nvme");
    world.ok("device label tank a tag=old");
    wait_for(&world, "mount/db/old", "b c");
    wait_for(&world, "mount/db/new", "b c");
    // What can lie nowhere is refused, and said.
    fs::create_dir(world.mountpoint().join("tape")).unwrap();
    world.ok("policy set mount/tape only=tape");
    let refused = fs::write(world.mountpoint().join("tape/file"), &bytes).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    world.refused("policy set mount/tape on=x=y", 1, &["on cannot be 'x=y'", "tags, classes"]);
    // A wish is followed, and a mount later everything is where it was.
    world.ok("policy set mount/db only= on=a,d --wait");
    wait_for(&world, "mount/db/old", "a d");
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_eq!(fs::read(folder.join("old")).unwrap(), bytes);
    assert_eq!(fact(&world, "mount/db/new", "where"), "a d");
    world.ok("umount mount");
    world.ok("check a.img b.img c.img d.img");
}

/// P-207: a place that is said after files were archived holds for what is on devices still, and for what comes back.
#[test]
fn archived_files_lie_where_their_policy_says() {
    if !can_mount("archived_files_lie_where_their_policy_says") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=192M,tag=ssd,name=a b.img,size=192M,tag=ssd,name=b c.img,size=192M,name=c d.img,size=192M,name=d");
    world.ok("mount tank mount");
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("device add tank dir:volume,name=cold");
    let folder = world.mountpoint().join("d");
    fs::create_dir(&folder).unwrap();
    world.ok("policy set mount/d on=c,d");
    let bytes: Vec<u8> = (0..1_000_000u32).map(|at| (at / 512 + at * 7) as u8).collect();
    let names = ["0", "1", "2", "3"];
    names.iter().for_each(|name| fs::write(folder.join(name), &bytes).unwrap());
    world.ok("tier archive mount/d --wait");
    wait_for(&world, "mount/d/1", "c d cold");
    // On devices too.
    world.ok("policy set mount/d/0 only=ssd --wait");
    wait_for(&world, "mount/d/0", "a b cold");
    // On the volume only: nothing is fetched before somebody wants it back.
    world.ok("tier archive mount/d --wait");
    world.ok("tier release mount/d");
    world.ok("policy set mount/d/1 on=ssd --wait");
    world.ok("policy set mount/d/2 only=ssd --wait");
    for name in names {
        assert_eq!(fact(&world, &format!("mount/d/{name}"), "where"), "cold");
        assert_eq!(fact(&world, &format!("mount/d/{name}"), "state"), "compliant");
    }
    world.ok("tier stage mount/d --wait");
    names[..3].iter().for_each(|name| wait_for(&world, &format!("mount/d/{name}"), "a b cold"));
    wait_for(&world, "mount/d/3", "c d cold");
    world.ok("umount mount");
    world.ok("mount tank mount");
    names.iter().for_each(|name| assert!(fs::read(folder.join(name)).unwrap() == bytes, "{name}"));
    world.ok("umount mount");
    world.ok("check a.img b.img c.img d.img");
}
