//! `record=` and `pin=` with the real binary on a real mount (P-118, P-74): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::FileExt;

use support::{World, can_mount};

#[test]
fn small_records_are_stored_and_read_as_such() {
    if !can_mount("small_records_are_stored_and_read_as_such") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    fs::create_dir(mount.join("db")).unwrap();
    world.refused("policy set mount/db record=6K", 1, &["record cannot be '6K'", "4K, 8K"]);
    world.ok("policy set mount/db compress=zstd record=4K");
    assert!(world.ok("policy explain mount/db").contains("record is 4K: set here"));
    world.ok("policy set mount/db rules=*.log:record=128K");
    let text: Vec<u8> = (0..200_000_u32).flat_map(|number| format!("row {}\n", number % 5000).into_bytes()).collect();
    let stored = |name: &str| -> u64 {
        fs::write(mount.join(name), &text).unwrap();
        world.ok("flush mount --wait");
        let mut value = [0; 32];
        let length = rustix::fs::getxattr(mount.join(name), "user.stere.stored", &mut value[..]).unwrap();
        std::str::from_utf8(&value[..length]).unwrap().parse().unwrap()
    };
    let (small, large) = (stored("db/table"), stored("db/table.log"));
    assert!(small > 2 * large, "what is cut small is compressed less: {small} and {large}");
    let file = fs::OpenOptions::new().read(true).write(true).open(mount.join("db/table")).unwrap();
    for at in (0..text.len() as u64).step_by(40_000) {
        file.write_all_at(b"changed", at).unwrap();
    }
    drop(file);
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    let read = fs::read(mount.join("db/table")).unwrap();
    let mut expected = text.clone();
    for at in (0..text.len()).step_by(40_000) {
        let end = text.len().min(at + 7);
        expected[at..end].copy_from_slice(&b"changed"[..end - at]);
    }
    expected.resize(read.len().max(text.len()), 0);
    assert!(read[..text.len()] == expected[..text.len()], "other bytes");
    assert!(fs::read(mount.join("db/table.log")).unwrap() == text);
    assert!(world.ok("capabilities --json").contains("\"record\""));
    world.ok("umount mount");
}

/// P-74: the attribute and the command say the same.
#[test]
fn a_pin_is_set_by_attribute_too() {
    if !can_mount("a_pin_is_set_by_attribute_too") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    fs::create_dir(world.mountpoint().join("db")).unwrap();
    fs::write(world.mountpoint().join("db/f"), "x").unwrap();
    world.refused("policy set mount/db pin=perhaps", 1, &["pin cannot be 'perhaps'", "yes or no"]);
    world.ok("policy set mount/db pin=yes");
    assert!(world.ok("policy explain mount/db/f").contains("pin is yes: inherited from /db"));
    let listed = || {
        let mut names = vec![0; 4096];
        let length = rustix::fs::listxattr(world.mountpoint().join("db"), &mut names[..]).unwrap();
        names[..length].split(|byte| *byte == 0).any(|name| name == b"user.stere.pin")
    };
    assert!(listed());
    world.ok("umount mount");
    world.ok("mount tank mount");
    assert!(world.json("tier queue tank --json")["pinned"].as_array().is_some_and(|pinned| pinned.len() == 1));
    world.ok("tier unpin mount/db");
    assert!(!listed() && !world.ok("policy explain mount/db/f").contains("pin is"));
    world.ok("tier pin mount/db");
    assert!(world.ok("policy get mount/db").contains("pin=yes"));
    world.ok("policy unset mount/db pin");
    assert!(!listed());
    world.ok("umount mount");
}
