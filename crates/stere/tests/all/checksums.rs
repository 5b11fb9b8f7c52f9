//! `checksum=` with the real binary on a real mount (P-120): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::FileExt;

use support::{World, can_mount};

/// The polynomial of CRC32C, reflected and made whole bytes: what differs by it has the same CRC.
const UNSEEN: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];

/// What no other bytes of the pool look like.
fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Changes the content wherever a device file has it, so that no CRC tells, or back.
fn change(world: &World, device: &str, content: &[u8]) {
    let file = fs::OpenOptions::new().read(true).write(true).open(world.path(device)).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // What follows the changed bytes stays.
    let wanted = &content[16..48];
    let found: Vec<usize> =
        bytes.windows(32).enumerate().filter(|(_, seen)| *seen == wanted).map(|(at, _)| at).collect();
    assert!(!found.is_empty(), "{device} has it");
    for at in found {
        let at = at - 16;
        let changed: Vec<u8> = bytes[at..at + 5].iter().zip(UNSEEN).map(|(byte, unseen)| byte ^ unseen).collect();
        file.write_all_at(&changed, at as u64).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn what_no_crc_tells_a_digest_does() {
    if !can_mount("what_no_crc_tells_a_digest_does") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let mount = world.mountpoint();
    world.refused("policy set mount checksum=md5", 1, &["checksum cannot be 'md5'", "blake3"]);
    let kinds = ["crc32c", "xxh3", "blake3", "none"];
    let files: Vec<(String, Vec<u8>)> =
        (0..).zip(kinds).map(|(seed, kind)| (format!("{kind}/file"), content(seed, 100_000))).collect();
    for (kind, (name, bytes)) in kinds.iter().zip(&files) {
        fs::create_dir(mount.join(kind)).unwrap();
        world.ok(&format!("policy set mount/{kind} checksum={kind}"));
        assert!(world.ok(&format!("policy explain mount/{kind}")).contains(&format!("checksum is {kind}: set here")));
        fs::write(mount.join(name), bytes).unwrap();
    }
    assert!(world.ok("policy test mount/none *:checksum=blake3").contains("checksum=blake3"));
    world.ok("umount mount");
    for (_, bytes) in &files {
        ["a.img", "b.img"].iter().for_each(|device| change(&world, device, bytes));
    }
    world.ok("mount tank mount");
    for (kind, (name, bytes)) in kinds.iter().zip(&files) {
        let read = fs::read(mount.join(name));
        match *kind {
            "xxh3" | "blake3" => {
                assert_eq!(read.err().and_then(|error| error.raw_os_error()), Some(libc::EIO), "{kind}")
            }
            _ => assert!(read.unwrap() != *bytes, "{kind} cannot tell"),
        }
    }
    world.ok("umount mount");
    // One copy right again is enough.
    for (_, bytes) in &files {
        change(&world, "b.img", bytes);
    }
    world.ok("mount tank mount");
    for (name, bytes) in &files[1..3] {
        assert!(fs::read(mount.join(name)).unwrap() == *bytes, "{name} from the other copy");
    }
    world.ok("scrub start tank --wait");
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    // What exists follows.
    world.ok("policy set mount/crc32c checksum=blake3");
    world.ok("reconcile wait tank");
    let mut state = [0; 64];
    let length = rustix::fs::getxattr(mount.join("crc32c/file"), "user.stere.state", &mut state[..]).unwrap();
    assert_eq!(&state[..length], b"compliant");
    world.ok("umount mount");
}
