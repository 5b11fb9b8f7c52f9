//! `stere capabilities` with the real binary on a real mount (P-86): needs root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use support::{World, can_mount};

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn of_place(told: &Value, place: usize) -> (String, u64) {
    let entry = &told["pool"]["redundancy"][place];
    assert_eq!(entry["place"], place);
    (entry["scheme"].as_str().unwrap().to_owned(), entry["survives"].as_u64().unwrap())
}

#[test]
fn the_keys_that_programs_may_rely_on_are_there() {
    let world = World::new();
    let told = world.json("capabilities --json");
    assert_eq!(keys(&told), BTreeSet::from(["program"]));
    let program = &told["program"];
    let expected = "checksums compression computed encryption features keys limits locks plugins version";
    assert_eq!(keys(program), expected.split(' ').collect());
    let limits =
        "attribute_bytes class_name_bytes copies file_bytes links name_bytes record_bytes tertiary_volumes units";
    assert_eq!(keys(&program["limits"]), limits.split(' ').collect());
    assert_eq!(
        (&program["limits"]["name_bytes"], &program["limits"]["file_bytes"]),
        (&json!(255), &json!(16u64 << 40))
    );
    assert_eq!(program["plugins"]["can_run"], true);
    assert!(program["keys"].as_array().unwrap().contains(&json!("redundancy")));
    world.refused("capabilities . --json", 1, &["not on a stere mount"]);
    assert!(world.ok("capabilities").contains("codecs: none lz4 zstd\n"), "people read the same");
}

#[test]
fn what_is_told_is_what_can_be_had() {
    if !can_mount("what_is_told_is_what_can_be_had") {
        return;
    }
    let world = World::new();
    world.ok("create tank a.img,size=96M,class=ssd,tag=fast b.img,size=96M,host=cellar c.img,size=96M");
    world.ok("mount tank mount -o allow_other");
    fs::create_dir(world.mountpoint().join("photos")).unwrap();
    fs::write(world.mountpoint().join("photos/one"), vec![7; 50_000]).unwrap();
    world.ok("policy set mount/photos class=precious --wait");
    let told = world.json("capabilities mount/photos/one --json");
    let pool =
        "classes devices encryption failure_domains mountpoint name plugins read_only redundancy survivable tiers";
    assert_eq!(keys(&told["pool"]), pool.split(' ').collect());
    assert_eq!(
        [0, 3, 5, 7, 10].map(|place| of_place(&told, place)),
        [("1+0".into(), 0), ("2+1".into(), 1), ("1+1".into(), 1), ("1+2".into(), 2), ("1+2".into(), 2)]
    );
    let losses = json!([
        { "losses": 0, "copies": 1, "parity": null },
        { "losses": 1, "copies": 2, "parity": "2+1" },
        { "losses": 2, "copies": 3, "parity": "1+2" },
    ]);
    assert_eq!(told["pool"]["survivable"], losses);
    let device = &told["pool"]["devices"][0];
    assert_eq!(
        (&device["class"], &device["tags"], &device["state"]),
        (&json!("ssd"), &json!(["fast"]), &json!("online"))
    );
    assert!(told["pool"]["failure_domains"]["hosts"].as_array().unwrap().contains(&json!("cellar")));
    assert_eq!(told["pool"]["tiers"], json!([]));
    // What it tells of the scale is what a file gets that asks for it.
    for place in [0, 3, 7] {
        let (scheme, survives) = of_place(&told, place);
        world.ok(&format!("policy set mount/photos/one redundancy={place} --wait"));
        let path = &world.json("capabilities mount/photos/one --json")["path"];
        assert_eq!(path["survives"].as_u64(), Some(survives), "place {place}");
        let lies = world.json("where mount/photos/one --json");
        assert_eq!(lies[0]["scheme"], scheme.as_str(), "place {place}");
    }
    let path = world.json("capabilities mount/photos/one --json")["path"].clone();
    assert_eq!(
        keys(&path),
        "effective own path residency source state stored_bytes survives where".split(' ').collect()
    );
    assert_eq!(
        (&path["own"], &path["state"], &path["residency"]),
        (&json!({"redundancy": "7"}), &json!("compliant"), &json!("online"))
    );
    assert_eq!(
        (&path["effective"]["class"], &path["source"]["class"]),
        (&json!("precious"), &json!("inherited from /photos"))
    );
    // A volume more is told of at once, also to an ordinary user.
    fs::create_dir(world.path("volume")).unwrap();
    world.ok("device add tank dir:volume,name=cold");
    let output = world.command_of_nobody("capabilities mount/photos --json").output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["pool"]["tiers"][0]["name"], "cold");
    world.ok("umount mount");
}
