//! P-140 with the real binary and a real mount: what archiving and staging would ask of volumes is what they then ask, and costs what was said.
//! Needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;

use support::tier::tiered_with;
use support::{World, can_mount};

const FILES: u8 = 40;

fn content(number: u8) -> Vec<u8> {
    let mut state = u64::from(number) | 1;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(500_000).collect()
}

fn requests(world: &World) -> u64 {
    world.json("tier queue tank --json")["requests"].as_u64().unwrap()
}

#[test]
fn costs_are_told_before() {
    if !can_mount("costs_are_told_before") {
        return;
    }
    let world = tiered_with("", ",metadata=no,price_requests=5,price_out=0.09");
    let directory = world.mountpoint().join("project");
    fs::create_dir(&directory).unwrap();
    (0..FILES).for_each(|number| fs::write(directory.join(number.to_string()), content(number)).unwrap());
    let (before, told) = (requests(&world), world.json("tier archive mount/project --dry-run --json"));
    let number = |told: &serde_json::Value, key: &str| told[0][key].as_f64().unwrap();
    let bytes = f64::from(FILES) * 500_000.0;
    assert!(number(&told, "bytes_to") >= bytes && number(&told, "bytes_to") < bytes * 1.1, "{told}");
    // Chunks have 1 MiB in a pool of this size.
    let segments = number(&told, "segments");
    assert!((19.0..24.0).contains(&segments) && number(&told, "requests") == 4.0 * segments, "by segments: {told}");
    let price = number(&told, "requests") / 1000.0 * 5.0 + number(&told, "bytes_from") / 1e9 * 0.09;
    assert!((number(&told, "price") - price).abs() < 0.000_01 && number(&told, "price_month") == 0.0, "{told}");
    assert_eq!(requests(&world), before, "nothing is asked");
    assert!(rustix::fs::getxattr(&directory, "user.stere.tier", &mut [0; 64][..]).is_err(), "and nothing goes down");
    let tested = world.ok("policy test mount/project *:class=archive");
    let words = format!("{} requests", number(&told, "requests"));
    assert!(tested.contains(&words) && tested.contains("costs 0."), "rules tell the same: {tested}");
    world.ok("tier archive mount/project --wait");
    let asked = (requests(&world) - before) as f64;
    assert!((asked - number(&told, "requests")).abs() <= 8.0, "{asked} and {told}");
    world.ok("tier release mount/project");
    let (before, told) = (requests(&world), world.json("tier stage mount/project --dry-run --json"));
    assert!((19.0..26.0).contains(&number(&told, "requests")), "{told}");
    world.ok("tier stage mount/project --wait");
    let asked = (requests(&world) - before) as f64;
    assert!((asked - number(&told, "requests")).abs() <= 1.0, "{asked} and {told}");
    assert_eq!(world.json("tier stage mount/project --dry-run --json").as_array().map(Vec::len), Some(0));
    // Prices are shown and changed, and stay.
    world.refused("tier price tank cold out=much", 2, &["0.023"]);
    world.ok("tier price tank cold month=0.023");
    world.ok("umount mount");
    world.ok("mount tank mount");
    let prices = world.json("tier price tank cold --json");
    let prices = ["requests", "out", "month"].map(|key| prices[key].as_f64().unwrap());
    assert_eq!(prices, [5.0, 0.09, 0.023]);
    world.ok("umount mount");
}
