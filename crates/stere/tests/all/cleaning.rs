//! P-306: how segments are chosen for cleaning is said for the pool and for classes of devices, holds from then on, and what cleaning costs
//! is told, with the real binary on a real mount. Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use support::{World, can_mount};

fn policies(world: &World) -> serde_json::Value {
    world.json("status tank --json")["cleaning"]["policies"].clone()
}

#[test]
fn the_cleaner_is_chosen_for_each_class() {
    if !can_mount("the_cleaner_is_chosen_for_each_class") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M,class=ssd b.img,size=128M,class=hdd");
    world.ok("mount tank mount");
    let of = |ssd: &str, hdd: &str| serde_json::json!([["ssd", ssd], ["hdd", hdd]]);
    assert_eq!(policies(&world), of("cost-benefit", "cost-benefit"));
    let said = world.ok("pool change tank --cleaner age --cleaner hdd=greedy");
    assert!(said.contains("on devices of class hdd are chosen for cleaning greedy"), "{said}");
    assert_eq!(policies(&world), of("age", "greedy"));
    world.refused("pool change tank --cleaner oldest", 1, &["'oldest'", "greedy, cost-benefit or age"]);
    world.refused("pool change tank --cleaner tape=age", 1, &["'tape'", "class"]);
    world.ok("umount mount");
    assert_eq!(policies(&world), of("age", "greedy"), "it is known of a pool that is not mounted, too");
    world.ok("mount tank mount");
    assert_eq!(policies(&world), of("age", "greedy"));
    world.ok("pool change tank --cleaner hdd=usual");
    assert_eq!(policies(&world), of("age", "age"));
    world.ok("umount mount");
}

/// Half of a full pool is overwritten again and again under each policy: content is right, what cleaning moves is told, and each segment
/// is counted.
#[test]
fn what_cleaning_costs_is_told() {
    if !can_mount("what_cleaning_costs_is_told") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=128M --metadata-copies 1");
    world.ok("mount tank mount");
    world.ok("policy set mount class=scratch");
    let path = world.mountpoint().join("file");
    let file = fs::File::create(&path).unwrap();
    let piece = |seed: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes().repeat(1024);
    let pieces: u64 = 6000;
    let mut expected: Vec<u64> = (0..pieces).collect();
    for at in 0..pieces {
        file.write_all_at(&piece(at), at * 8192).unwrap();
    }
    file.sync_all().unwrap();
    let figures = || world.json("status tank --json")["cleaning"].clone();
    let mut state = 7_u64;
    for policy in ["greedy", "age", "cost-benefit"] {
        world.ok(&format!("pool change tank --cleaner {policy}"));
        let before = figures()["moved_bytes"].as_u64().unwrap();
        let (begin, mut round) = (Instant::now(), 0_u64);
        while figures()["moved_bytes"].as_u64().unwrap() == before {
            assert!(begin.elapsed() < Duration::from_secs(120), "nothing is cleaned: {}", figures());
            for _ in 0..1500 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) % pieces;
                round += 1;
                expected[at as usize] = state ^ round;
                file.write_all_at(&piece(state ^ round), at * 8192).unwrap();
            }
            file.sync_all().unwrap();
        }
    }
    let told = figures();
    let count = |name: &str| told[name].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).sum::<u64>();
    assert!(count("segments_new") > 0 && count("segments_survived") > 0, "{told}");
    assert!(told["written_bytes"].as_u64().unwrap() > pieces * 8192 && told["emptied_segments"].as_u64().unwrap() > 0);
    let shown = world.ok("status tank --verbose");
    for words in ["cleaning: cost-benefit", "for each byte written", "segments that survived a cleaning", "90-100%"] {
        assert!(shown.contains(words), "{words} is not in\n{shown}");
    }
    assert!(!world.ok("status tank").contains("90-100%"), "it is told only where somebody asks");
    drop(file);
    world.ok("umount mount");
    world.ok("mount tank mount");
    let file = fs::File::open(&path).unwrap();
    let mut read = vec![0; 8192];
    for (at, seed) in expected.iter().enumerate() {
        file.read_exact_at(&mut read, at as u64 * 8192).unwrap();
        assert!(read == piece(*seed), "piece {at}");
    }
    drop(file);
    world.ok("umount mount");
    assert!(world.ok("check tank").contains("clean"));
}
