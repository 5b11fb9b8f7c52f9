//! Deduplication with the real binary on a real mount (P-94): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;

use support::{World, can_mount};

#[test]
fn copies_take_no_room_and_stay_copies() {
    if !can_mount("copies_take_no_room_and_stay_copies") {
        return;
    }
    let world = World::with_pool();
    world.ok("mount tank mount");
    let images = world.mountpoint().join("images");
    fs::create_dir(&images).unwrap();
    let mut state = 1u32;
    let bytes: Vec<u8> = (0..8 << 20)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    for name in ["one", "two", "three"] {
        fs::write(images.join(name), &bytes).unwrap();
    }
    world.ok("flush mount --wait");
    let shared = |world: &World| world.json("du mount/images --json")[0]["shared_bytes"].as_u64();
    assert_eq!(shared(&world), Some(0));
    world.refused("policy set mount/images dedup=maybe", 1, &["dedup cannot be 'maybe'"]);
    world.ok("policy set mount/images dedup=yes --wait");
    assert!(world.ok("policy explain mount/images/one").contains("dedup is yes"));
    assert_eq!(shared(&world), Some(3 * (8 << 20)));
    // 24 MiB in two copies were nearly half of what there is.
    fs::write(images.join("two"), "short").unwrap();
    world.ok("umount mount");
    world.ok("check a.img b.img");
    world.ok("mount tank mount");
    assert_eq!(fs::read(images.join("one")).unwrap(), bytes);
    assert_eq!(fs::read(images.join("two")).unwrap(), b"short");
    assert_eq!(fs::read(images.join("three")).unwrap(), bytes);
    world.ok("umount mount");
}
