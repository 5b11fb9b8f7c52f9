//! Volumes and quotas with the real binary on a real mount (P-76, P-77, P-78, P-114, P-115, P-200): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use support::{World, can_mount};

const MIB: u64 = 1 << 20;

fn is_over<T: std::fmt::Debug>(outcome: std::io::Result<T>) {
    let errno = outcome.as_ref().err().and_then(std::io::Error::raw_os_error);
    assert_eq!(errno, Some(libc::EDQUOT), "{outcome:?}");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_volume_takes_what_its_limit_allows_and_goes_at_once() {
    if !can_mount("a_volume_takes_what_its_limit_allows_and_goes_at_once") {
        return;
    }
    let world = World::with_pool();
    world.refused("volume list tank", 1, &["not mounted"]);
    world.ok("mount tank mount");
    assert!(world.ok("quota list tank").contains("nobody has a quota"));
    let (home, other) = (world.mountpoint().join("home"), world.mountpoint().join("other"));
    fs::write(&other, vec![1; 4 << 20]).unwrap();
    world.refused("volume create mount/home bytes=4X", 2, &["not a size"]);
    world.refused("volume create mount/home copies=77", 1, &["copies"]);
    assert!(!home.exists(), "what was made for nothing is gone");
    world.ok("volume create mount/home bytes=2M inodes=60 copies=2");
    world.refused("volume create mount/home", 1, &["volume already"]);
    assert!(world.ok("policy explain mount/home").contains("copies is 2"));
    world.refused("volume set mount bytes=1G", 1, &["no volume"]);
    // In the middle of a write.
    let mut file = fs::File::create(home.join("f")).unwrap();
    is_over(file.write_all(&vec![7; 3 << 20]));
    assert_eq!(file.metadata().unwrap().len(), 2 * MIB);
    file.sync_all().unwrap();
    file.write_all_at(&[8; 4096], 4096).unwrap();
    drop(file);
    is_over(fs::write(home.join("g"), b"x"));
    fs::write(&other, vec![2; 5 << 20]).unwrap();
    is_over(fs::rename(&other, home.join("other")));
    let content = fs::read(home.join("f")).unwrap();
    assert!(content.len() as u64 == 2 * MIB && content[4096..8192].iter().all(|byte| *byte == 8));
    let seen = rustix::fs::statvfs(&home).unwrap();
    assert_eq!((seen.f_blocks * seen.f_frsize, seen.f_bfree, seen.f_files), (2 * MIB, 0, 60));
    let lines = world.json("volume list tank --json");
    let line = &lines[0];
    assert_eq!((&line["path"], &line["bytes"], &line["inodes"]), (&"/home".into(), &(2 * MIB).into(), &3.into()));
    // More is allowed, and holds after a kill.
    world.ok("volume set mount/home bytes=3M");
    fs::write(home.join("g"), vec![3; 1 << 20]).unwrap();
    is_over(fs::write(home.join("h"), b"x"));
    world.ok("flush mount --wait");
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    is_over(fs::write(home.join("i"), b"x"));
    // Names count too.
    world.ok("volume set mount/home bytes=4M");
    for at in 0..40 {
        fs::create_dir(home.join(format!("d{at}"))).unwrap();
    }
    let refused = world.run("volume delete mount/home");
    assert!(refused.code == 1 && refused.err.contains("--yes") && refused.err.contains("files and directories"));
    assert!(fs::remove_dir(&home).is_err(), "it is not empty");
    let free = || rustix::fs::statvfs(world.mountpoint()).unwrap().f_bfree;
    let before = free();
    world.ok("volume delete mount/home --yes");
    assert!(!home.exists());
    until("the volume is emptied", || world.json("volume list tank --json") == serde_json::json!([]));
    until("the room is back", || free() >= before + 3 * MIB / 4096 - 64);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

#[test]
fn users_are_limited_wherever_they_write() {
    if !can_mount("users_are_limited_wherever_they_write") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount -o allow_other");
    let top = world.mountpoint().join("d");
    fs::create_dir(&top).unwrap();
    let own = |path: &std::path::Path| std::os::unix::fs::chown(path, Some(4321), Some(4321));
    fs::write(top.join("before"), vec![1; 1 << 20]).unwrap();
    own(&top.join("before")).unwrap();
    world.refused("quota set tank user:nobody-of-this-name bytes=1M", 1, &["nobody-of-this-name"]);
    world.refused("quota set tank anna bytes=1M", 2, &["user:NAME"]);
    world.refused("quota set tank user:4321 class=scratch", 2, &["class=scratch"]);
    world.ok("quota set tank user:4321 bytes=2M inodes=2 --wait");
    let of_user = |key: &str| {
        let report = world.json("quota list tank --json");
        let users = report["users"].as_array().unwrap().clone();
        users.into_iter().find(|line| line["number"] == 4321).map(|line| line[key].clone()).unwrap()
    };
    assert_eq!((of_user("bytes"), of_user("inodes")), (MIB.into(), 1.into()));
    fs::write(top.join("big"), vec![1; 3 << 20]).unwrap();
    is_over(own(&top.join("big")));
    let file = fs::File::create(top.join("small")).unwrap();
    own(&top.join("small")).unwrap();
    fs::write(top.join("third"), b"").unwrap();
    is_over(own(&top.join("third")));
    is_over(file.set_len(2 * MIB));
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    is_over(file.write_all_at(&[1], MIB));
    assert!(world.ok("quota list tank").contains("of 2.00 MiB"));
    world.ok("quota set tank user:4321 bytes=none");
    file.write_all_at(&[1], MIB).unwrap();
    drop(file);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

/// P-114, P-115.
#[test]
fn limits_of_all_others_and_limits_for_a_while() {
    if !can_mount("limits_of_all_others_and_limits_for_a_while") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint().join("d");
    fs::create_dir(&top).unwrap();
    let make = |name: &str, uid: u32| {
        let file = fs::File::create(top.join(name)).unwrap();
        std::os::unix::fs::chown(top.join(name), Some(uid), Some(uid)).map(|()| file)
    };
    world.refused("quota set tank users bytes=2M grace=soon", 2, &["'soon' is no length of time"]);
    world.ok("quota set tank users bytes=2M soft_bytes=1M grace=2s");
    world.ok("quota set tank user:4002 bytes=3M");
    let (one, two) = (make("one", 4001).unwrap(), make("two", 4002).unwrap());
    is_over((&one).write_all(&vec![1; 3 << 20]));
    (&two).write_all(&vec![1; 3 << 20]).unwrap();
    fs::write(top.join("of-root"), vec![1; 4 << 20]).unwrap();
    assert_eq!(one.metadata().unwrap().len(), 2 * MIB);
    one.sync_all().unwrap();
    let listed = world.ok("quota list tank");
    assert!(listed.contains("other users, each") && listed.contains("soft 1.00 MiB: more for"), "{listed}");
    let report = world.json("quota list tank --json");
    let line = |uid: u32| {
        let users = report["users"].as_array().unwrap().clone();
        users.into_iter().find(|line| line["number"] == uid).unwrap()
    };
    assert_eq!((&line(4001)["bytes_max"], &line(4001)["by_default"]), (&(2 * MIB).into(), &true.into()));
    assert_eq!((&line(4002)["bytes_max"], &line(4002)["by_default"]), (&(3 * MIB).into(), &false.into()));
    assert_eq!(report["default_user"]["bytes_soft"], MIB);
    // Less than may be, more than for long.
    one.set_len(3 * MIB / 2).unwrap();
    one.sync_all().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    is_over(one.write_all_at(&[1; 4096], 3 * MIB / 2));
    drop((one, two));
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    let one = fs::OpenOptions::new().write(true).open(top.join("one")).unwrap();
    is_over(one.set_len(2 * MIB));
    assert!(world.ok("quota list tank").contains("more for too long"));
    one.set_len(MIB).unwrap();
    one.sync_all().unwrap();
    one.write_all_at(&[1; 4096], MIB).unwrap();
    drop(one);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}

/// P-200: attributes count for their file's owner, names and targets in their volume; whoever has room goes on.
#[test]
fn metadata_counts() {
    if !can_mount("metadata_counts") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let top = world.mountpoint().join("d");
    fs::create_dir(&top).unwrap();
    world.ok("quota set tank user:4321 bytes=1M --wait");
    let (mut accepted, value) = (0, vec![7; 60_000]);
    let set = |name: &str, value: &[u8]| {
        let path = top.join(name);
        fs::write(&path, b"").unwrap();
        std::os::unix::fs::chown(&path, Some(4321), Some(4321)).unwrap();
        Ok(rustix::fs::setxattr(&path, "user.big", value, rustix::fs::XattrFlags::empty())?)
    };
    let refused = loop {
        match set(&format!("f{accepted}"), &value) {
            Ok(()) => accepted += 1,
            refused => break refused,
        }
        assert!(accepted < 100, "it has no end");
    };
    is_over(refused);
    // Each takes 15 blocks.
    assert_eq!(accepted, MIB / (15 * 4096));
    let report = world.json("quota list tank --json");
    let users = report["users"].as_array().unwrap().clone();
    let of_user = users.into_iter().find(|line| line["number"] == 4321).unwrap();
    assert_eq!(of_user["bytes"], accepted * 15 * 4096);
    fs::write(top.join("of-root"), vec![1; 2 << 20]).unwrap();
    // Removing is not refused, and gives back.
    fs::remove_file(top.join("f0")).unwrap();
    set("again", &value).unwrap();
    world.ok("volume create mount/v bytes=64K");
    let volume = world.mountpoint().join("v");
    let mut links = 0;
    let refused = loop {
        match std::os::unix::fs::symlink("x".repeat(4000), volume.join(format!("link{links}"))) {
            Ok(()) => links += 1,
            refused => break refused,
        }
        assert!(links < 100, "it has no end");
    };
    is_over(refused);
    assert_eq!(links, 16);
    world.ok("umount mount");
    world.ok("check a.img b.img");
}
