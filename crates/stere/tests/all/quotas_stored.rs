//! Limits of stored bytes with the real binary on a real mount (P-124): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io::Write;
use std::process::Command;

use support::{World, can_mount};

const MIB: u64 = 1 << 20;

fn is_over<T: std::fmt::Debug>(outcome: std::io::Result<T>) {
    let errno = outcome.as_ref().err().and_then(std::io::Error::raw_os_error);
    assert_eq!(errno, Some(libc::EDQUOT), "{outcome:?}");
}

/// Bytes that no compression makes less.
fn noise(length: u64, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 24).to_le_bytes()[..4]);
    }
    bytes.truncate(length as usize);
    bytes
}

/// Of the first volume.
fn stored(world: &World) -> u64 {
    world.ok("flush mount --wait");
    world.json("volume list tank --json")[0]["stored"].as_u64().unwrap()
}

fn remount(world: &World) {
    world.ok("umount mount");
    world.ok("check a.img b.img c.img");
    world.ok("mount tank mount");
}

fn with_three() -> World {
    let world = World::new();
    world.ok("create tank a.img,size=1G b.img,size=1G c.img,size=1G");
    world.ok("mount tank mount");
    world
}

/// P-124: two copies count twice, parity half as much more; what is removed counts nothing.
#[test]
fn copies_and_parity_count() {
    if !can_mount("copies_and_parity_count") {
        return;
    }
    let world = with_three();
    world.refused("volume create mount/home stored=4X", 2, &["not a size"]);
    world.ok("volume create mount/home stored=20M copies=2");
    let home = world.mountpoint().join("home");
    let data = noise(12 * MIB, 1);
    let mut file = fs::File::create(home.join("f")).unwrap();
    is_over(file.write_all(&data));
    assert_eq!(file.metadata().unwrap().len(), 10 * MIB);
    file.sync_all().unwrap();
    drop(file);
    is_over(fs::write(home.join("g"), b"x"));
    assert_eq!(stored(&world), 20 * MIB);
    assert!(world.ok("volume list tank").contains("20.0 MiB of 20.0 MiB stored"), "{}", world.ok("volume list tank"));
    let seen = rustix::fs::statvfs(&home).unwrap();
    assert!(seen.f_bfree * seen.f_frsize > 100 * MIB, "df tells of bytes as files have them");
    world.ok("policy set mount/home copies= parity=2+1");
    world.ok("reconcile wait tank");
    assert_eq!(stored(&world), 15 * MIB);
    remount(&world);
    assert_eq!(stored(&world), 15 * MIB);
    assert!(fs::read(home.join("f")).unwrap() == data[..10 * MIB as usize]);
    fs::write(home.join("g"), &data[..MIB as usize]).unwrap();
    fs::remove_file(home.join("f")).unwrap();
    assert_eq!(stored(&world), 3 * MIB / 2);
    remount(&world);
    world.ok("umount mount");
}

/// P-124: compressed files count what is stored of them; after a kill the accounts are what is there.
#[test]
fn compressed_files_count_little_and_a_kill_changes_nothing() {
    if !can_mount("compressed_files_count_little_and_a_kill_changes_nothing") {
        return;
    }
    let world = with_three();
    world.ok("volume create mount/home copies=1 compress=zstd");
    let home = world.mountpoint().join("home");
    let text = "the quick brown fox\n".repeat(16 << 20 >> 4).into_bytes();
    fs::write(home.join("before"), &text).unwrap();
    world.ok("flush mount --wait");
    assert!(!world.ok("volume list tank").contains("stored"), "nobody asked");
    world.ok("quota set tank mount/home stored=8M soft_stored=7M grace=1h --wait");
    let before = stored(&world);
    assert!(before > 0 && before < MIB, "{before} bytes of what was there");
    fs::write(home.join("after"), &text).unwrap();
    assert_eq!(stored(&world), 2 * before);
    for at in 0..7 {
        let mut file = fs::File::create(home.join(format!("noise{at}"))).unwrap();
        file.write_all(&noise(MIB, 100 + at)).unwrap();
        file.sync_all().unwrap();
    }
    let listed = world.ok("quota list tank");
    assert!(listed.contains("soft 7.00 MiB stored: more for"), "{listed}");
    let killed = Command::new("kill").args(["-9", &world.daemon().to_string()]).status().unwrap();
    assert!(killed.success());
    let _gone = Command::new("umount").arg("-l").arg(world.mountpoint()).status();
    world.ok("check a.img b.img c.img");
    world.ok("mount tank mount");
    let now = stored(&world);
    assert!(now > 7 * MIB + before && now <= 8 * MIB + before, "{now}");
    for at in 0..7 {
        assert!(fs::read(home.join(format!("noise{at}"))).unwrap() == noise(MIB, 100 + at));
    }
    let mut accepted = 0;
    let refused = loop {
        match fs::write(home.join(format!("more{accepted}")), noise(MIB, 200 + accepted)) {
            Ok(()) => accepted += 1,
            refused => break refused,
        }
        assert!(accepted < 3, "what is stored is limited");
    };
    is_over(refused);
    assert!(stored(&world) <= 9 * MIB, "one write beyond at most");
    remount(&world);
    world.ok("umount mount");
}
