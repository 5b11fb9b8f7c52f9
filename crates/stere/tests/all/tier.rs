//! Tertiary volumes with the real binary and a real mount: files go down, come back and are whole, whatever is killed meanwhile. Needs root
//! and /dev/fuse, and says loudly when it skips. Read next: `tier_waits.rs`, `tier_room.rs`.

use crate::s3;
use crate::support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use support::can_mount;
use support::tier::{
    assert_right, attribute, beside_server, blocks, content, end_clean, fill, forget_cache, kill, tiered, until,
};

#[test]
fn files_go_down_and_come_back() {
    if !can_mount("files_go_down_and_come_back") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    assert!(world.ok("tier archive mount/project --wait").contains("is on cold"));
    let file = directory.join("150");
    assert_eq!(attribute(&directory, "user.stere.tier"), "cold");
    assert_eq!(attribute(&file, "user.stere.effective.tier"), "cold");
    assert_eq!(attribute(&file, "user.stere.state"), "compliant");
    assert_eq!(attribute(&file, "user.stere.residency"), "online");
    assert!(attribute(&file, "user.stere.where").contains("cold"));
    let before = blocks(&directory);
    world.ok("tier release mount/project");
    assert_eq!(attribute(&file, "user.stere.residency"), "nearline");
    assert_eq!(blocks(&directory), 200, "one block for each file, {before} before");
    forget_cache();
    assert_right(&directory, 200);
    let queue = world.json("tier queue tank --json");
    assert!(queue["fetches"].as_u64().unwrap() > 0, "{queue}");
    world.ok("tier stage mount/project --wait");
    assert_eq!(attribute(&file, "user.stere.residency"), "online");
    assert_eq!(blocks(&directory), before);
    // Changes of a file that is down.
    world.ok("tier release mount/project");
    fs::write(directory.join("7"), content(8)).unwrap();
    fs::remove_file(directory.join("8")).unwrap();
    fs::rename(directory.join("7"), directory.join("8")).unwrap();
    fs::write(directory.join("7"), content(7)).unwrap();
    assert_right(&directory, 200);
    world.ok("umount mount");
    let checked = world.ok("check tank");
    assert!(checked.contains("clean"), "{checked}");
    world.ok("mount tank mount");
    forget_cache();
    assert_right(&directory, 200);
    let volume = &world.json("tier list tank --json")["volumes"][0];
    assert_eq!((volume["name"].as_str(), volume["state"].as_str()), (Some("cold"), Some("online")));
    world.ok("media verify tank cold");
    world.ok("umount mount");
}

#[test]
fn a_medium_that_was_exchanged_is_not_taken_for_the_right_one() {
    if !can_mount("a_medium_that_was_exchanged_is_not_taken_for_the_right_one") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 30);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.ok("umount mount");
    fs::rename(world.path("volume"), world.path("right")).unwrap();
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("mount tank mount -o recall_timeout=1");
    assert!(fs::read(directory.join("20")).is_err());
    fill(&world.mountpoint().join("more"), 30);
    assert_eq!(world.run("tier archive mount/more --wait").code, 3);
    assert_eq!(fs::read_dir(world.path("volume")).unwrap().count(), 0, "nothing is written to a stranger");
    world.refused("device online tank cold", 1, &["no label"]);
    world.ok(&format!("device online tank cold {}", world.path("right").display()));
    assert_right(&directory, 30);
    world.ok("tier archive mount/more --wait");
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert_right(&directory, 30);
    world.ok("umount mount");
}

/// Most of what was archived is removed: repacking gives the room back, and what is left is read as before.
#[test]
fn what_is_dead_on_a_volume_gives_its_room_back() {
    if !can_mount("what_is_dead_on_a_volume_gives_its_room_back") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    (0..200).filter(|number| number % 8 != 0).for_each(|number| {
        fs::remove_file(directory.join(number.to_string())).unwrap();
    });
    let volume = || world.json("media list tank --json")[0].clone();
    let before = volume();
    let told = world.ok("media repack tank cold");
    assert!(told.contains("became"), "{told}");
    let after = volume();
    let stored = |volume: &serde_json::Value| volume["stored_bytes"].as_u64().unwrap();
    assert!(stored(&after) * 2 < stored(&before), "{before} {after}");
    let files = |name: &str| -> u64 {
        let entries = fs::read_dir(world.path("volume").join(name)).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    assert_eq!(files("segments"), stored(&after), "the old objects are gone");
    forget_cache();
    for number in (0..200).step_by(8) {
        assert!(fs::read(directory.join(number.to_string())).unwrap() == content(number), "file {number}");
    }
    world.ok("media verify tank cold");
    end_clean(&world);
}

/// P-145: the first recall of any file of a unit brings all of it back, by itself.
#[test]
fn a_unit_comes_back_by_itself() {
    if !can_mount("a_unit_comes_back_by_itself") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("policy set mount/project unit=yes");
    assert!(world.ok("policy explain mount/project/7").contains("unit is yes"));
    // Several segments of it.
    let (big, large) = (directory.join("big"), content(9000));
    fs::write(&big, &large).unwrap();
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    // What the daemon still has in memory would be read without any recall.
    world.ok("umount mount");
    world.ok("mount tank mount -o prefetch=cluster");
    assert!(fs::read(directory.join("30")).unwrap() == content(30));
    let is_online = |path: &Path| attribute(path, "user.stere.residency") == "online";
    let small = || (0..60).all(|number| is_online(&directory.join(number.to_string())));
    until("it does not come back", || is_online(&big) && small());
    assert!(fs::read(&big).unwrap() == large);
    assert_right(&directory, 60);
    end_clean(&world);
}

/// P-64 with the real binary: killed at some time of each step, again and again.
#[test]
fn a_kill_at_any_time_loses_nothing() {
    if !can_mount("a_kill_at_any_time_loses_nothing") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 120);
    fs::File::open(world.mountpoint()).unwrap().sync_all().unwrap();
    world.ok("flush mount --wait");
    for round in 0..8u64 {
        let process = world.daemon();
        let what =
            ["tier archive mount/project --wait", "tier release mount/project", "tier stage mount/project --wait"];
        let mut child = world.command(what[(round % 3) as usize]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + 170 * (round % 5)));
        kill(process);
        drop(child.wait());
        world.run("umount mount");
        world.ok("mount tank mount");
        forget_cache();
        assert_right(&directory, 120);
        if round % 2 == 1 {
            world.ok("tier archive mount/project --wait");
            world.ok("tier release mount/project");
        }
    }
    world.ok("umount mount");
    let checked = world.ok("check tank");
    assert!(checked.contains("clean") && checked.contains("on media only"), "{checked}");
    world.ok(&format!("rescue dir:{} --to out", world.path("volume").display()));
    assert_right(&world.path("out").join("project"), 120);
}

/// P-299: readers make segments come back a moment later; what is released meanwhile stays so.
#[test]
fn a_release_holds_though_somebody_has_just_read() {
    if !can_mount("a_release_holds_though_somebody_has_just_read") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 60);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    for _ in 0..3 {
        forget_cache();
        assert_right(&directory, 60);
        world.ok("tier release mount/project");
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(blocks(&directory), 60, "one block for each file");
        assert_eq!(attribute(&directory.join("50"), "user.stere.residency"), "nearline");
    }
    end_clean(&world);
}

/// A bucket as a volume, with a server that goes away for a while.
fn go_down_to_a_bucket_and_come_back(name: &str, kind: s3::Kind) {
    let start = |folder: &Path| s3::Server::start(name, kind, folder);
    let Some((world, mut server)) = beside_server(name, "-o recall_timeout=2", start) else { return };
    world.ok(&format!("device add tank {},name=bucket", server.place()));
    let directory = world.mountpoint().join("project");
    fill(&directory, 100);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    assert_right(&directory, 100);
    world.ok("tier stage mount/project --wait");
    world.ok("tier release mount/project");
    forget_cache();
    server.stop();
    assert_eq!(fs::read(directory.join("90")).unwrap_err().raw_os_error(), Some(libc::EIO));
    let other = world.mountpoint().join("other");
    fill(&other, 40);
    assert_eq!(world.run("tier archive mount/other --wait").code, 3);
    assert_right(&other, 40);
    server.start_again();
    until("the server is back", || fs::read(directory.join("90")).is_ok());
    assert_right(&directory, 100);
    world.ok("tier archive mount/other --wait");
    world.ok("tier release mount/other");
    forget_cache();
    assert_right(&other, 40);
    world.ok("media verify tank bucket");
    world.ok("umount mount");
    world.ok(&format!("rescue {} --to out", server.place()));
    assert_right(&world.path("out").join("project"), 100);
    assert_right(&world.path("out").join("other"), 40);
}

#[test]
fn files_go_down_to_a_bucket_of_seaweedfs_and_come_back() {
    go_down_to_a_bucket_and_come_back("files_go_down_to_a_bucket_of_seaweedfs_and_come_back", s3::Kind::Seaweed);
}

#[test]
fn files_go_down_to_a_bucket_of_rclone_and_come_back() {
    go_down_to_a_bucket_and_come_back("files_go_down_to_a_bucket_of_rclone_and_come_back", s3::Kind::Rclone);
}

/// P-116. A volume is retired on a mount, with a daemon that is killed meanwhile; what asked for it goes to its heir.
#[test]
fn a_volume_is_retired() {
    if !can_mount("a_volume_is_retired") {
        return;
    }
    let world = tiered("");
    let directory = world.mountpoint().join("project");
    fill(&directory, 200);
    world.ok("tier archive mount/project --wait");
    world.ok("tier release mount/project");
    world.refused("media retire tank cold", 1, &["no other medium"]);
    fs::create_dir(world.path("newer")).unwrap();
    world.ok("device add tank dir:newer,name=newer");
    let would = world.ok("media retire tank cold --dry-run");
    assert!(would.contains("from cold to newer"), "{would}");
    world.ok("media retire tank cold");
    kill(world.daemon());
    world.run("umount mount --force");
    world.ok("mount tank mount");
    let said = world.ok("media retire tank cold --to newer --wait");
    assert!(said.contains("newer has all of it"), "{said}");
    let volumes = world.json("media list tank --json");
    assert_eq!((volumes.as_array().unwrap().len(), &volumes[0]["name"]), (1, &"newer".into()), "{volumes}");
    // A file that has data anywhere tells one block.
    assert_eq!(blocks(&directory), 200, "nothing came back to devices for it");
    fs::remove_dir_all(world.path("volume")).unwrap();
    assert_eq!(attribute(&directory, "user.stere.tier"), "newer");
    fs::create_dir(directory.join("later")).unwrap();
    fill(&directory.join("later"), 20);
    world.ok("tier archive mount/project/later --wait");
    assert!(attribute(&directory.join("later/15"), "user.stere.where").contains("newer"));
    world.ok("media verify tank newer");
    forget_cache();
    assert_right(&directory, 200);
    end_clean(&world);
}
